"""A newest checkpoint whose `_metadata` is not whole: its writer is at it, or died."""

import pytest

from cpreplicate.errors import MetadataError, NotThere
from cpreplicate.operations.inspect.checkpoint import read
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.source.newer import Following
from cpreplicate.operations.sync.source.state import read_source
from cpreplicate.operations.sync.sync import sync
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, NEXT


def request(root, source=JOB, **options):
    inline = ExecutionOptions(runner="inline")
    return SyncRequest(f"file:{root}/{source}", f"file:{root}/B", execution=inline, **options)


def cut(checkpoint, length):
    (checkpoint / "_metadata").write_bytes((checkpoint / "_metadata").read_bytes()[:length])


@pytest.fixture
def root(tmp_path):
    write_checkpoint(tmp_path, 1, FILES)
    cut(write_checkpoint(tmp_path, 2, NEXT), 0)
    cut(write_checkpoint(tmp_path, 3, NEXT), 300)
    return tmp_path


def test_the_one_before_is_replicated_with_a_warning_that_names_what_was_passed_over(root):
    assert diff(request(root)).plan.checkpoint == "chk-1"
    report = sync(request(root), lambda _line: None)
    assert report.committed
    assert report.plan.checkpoint == "chk-1"
    warning = next(line for line in report.warnings if "has not completed" in line)
    assert "chk-3, chk-2 has not completed" in warning


def test_inspect_shows_the_one_before(root):
    found = read(f"file:{root}/{JOB}", Side(), ())
    assert found.source.checkpoint.endswith("/chk-1")


def test_a_checkpoint_that_is_named_is_not_replaced_by_another(root):
    with pytest.raises(MetadataError, match="expected"):
        diff(request(root, f"{JOB}/chk-3"))


def test_a_service_that_found_it_takes_the_one_before(root):
    followed = request(root, f"{JOB}/chk-3", follows=True)
    assert diff(followed).plan.checkpoint == "chk-1"


def test_where_none_before_is_whole_the_reason_stays(tmp_path):
    cut(write_checkpoint(tmp_path, 1, FILES), 300)
    with pytest.raises(MetadataError, match="the file ends after"):
        diff(request(tmp_path))
    cut(tmp_path / JOB / "chk-1", 0)
    with pytest.raises(NotThere, match="holds no completed checkpoint"):
        diff(request(tmp_path))


def test_a_run_does_not_turn_to_it(tmp_path):
    write_checkpoint(tmp_path, 1, FILES)
    following = Following(read_source(request(tmp_path)), lambda _line: None)
    cut(write_checkpoint(tmp_path, 2, NEXT), 300)
    following.look(must_turn=True)
    assert following.newer is None
