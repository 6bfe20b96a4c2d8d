"""Names of foreign files are part of a replica's format: the next checkpoint relies on them."""

import hashlib

import pytest

from cpreplicate.core.closure import File, FileTable
from cpreplicate.core.placement import Placement
from cpreplicate.errors import Refused

ROOT = "hdfs://dcA/ckpt/job2"
PLACEMENT = Placement(f"{ROOT}/chk-7", ROOT, "chk-7")
ELSEWHERE = "hdfs://dcA/ckpt/job1/shared"
PREFIX = f"foreign/{hashlib.sha256(ELSEWHERE.encode()).hexdigest()[:16]}"


def files_at(sources):
    return FileTable.of({source: File(source, 1) for source in sources})


def sha256(name):
    return hashlib.sha256(name.encode()).hexdigest()


def test_a_foreign_file_is_named_by_its_directory_and_keeps_its_name():
    assert PLACEMENT.place(f"{ELSEWHERE}/a.sst") == f"{PREFIX}-a.sst"


def test_a_foreign_name_is_kept_up_to_200_bytes_and_hashed_beyond():
    assert PLACEMENT.place(f"{ELSEWHERE}/{'ü' * 100}") == f"{PREFIX}-{'ü' * 100}"
    longer = "x" * 201
    assert PLACEMENT.place(f"{ELSEWHERE}/{longer}") == f"{PREFIX}-{sha256(longer)}"


def test_a_foreign_name_that_hides_a_step_is_hashed():
    hidden = "%2e%2e%2fother"
    assert PLACEMENT.place(f"{ELSEWHERE}/{hidden}") == f"{PREFIX}-{sha256(hidden)}"


@pytest.mark.parametrize("directory", ["shared/merged", "taskowned/merged"])
def test_a_merge_directory_of_the_job_lies_as_at_the_source(directory):
    assert PLACEMENT.place_directory(f"{ROOT}/{directory}") == directory


def test_a_merge_directory_of_another_job_is_named_by_its_path():
    assert PLACEMENT.place_directory(ELSEWHERE) == PREFIX


def test_a_savepoint_has_only_foreign_merge_directories():
    alone = Placement("hdfs://dcA/savepoints/s-1", None, "chk-7")
    assert alone.place_directory(ELSEWHERE) == PREFIX


def test_the_error_about_two_sources_names_both_and_where_they_would_meet():
    first = f"{ELSEWHERE}/a"
    second = f"{ROOT}/{PLACEMENT.place(first)}"
    with pytest.raises(Refused) as raised:
        PLACEMENT.place_all(files_at([f"{ELSEWHERE}/b", first, second]))
    message = str(raised.value)
    assert first in message
    assert second in message
    assert f"would both become {PLACEMENT.place(first)} in the replica" in message
    assert f"{ELSEWHERE}/b" not in message
