"""I5 by the record of every call: nothing is written at the source or outside the replica."""

from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from tests.support.corpus import DataCentre
from tests.support.registry import serving
from tests.support.tracing import Tracing


def test_syncs_change_nothing_but_the_replica(tmp_path):
    source = DataCentre("2.3.0-rocks-incr", tmp_path)
    job = source.jobs()[-1]
    tracing = Tracing(Side().storage("file:/"))
    with serving("file", tracing):
        for number in source.numbers(job):
            place = f"file:{source.job_root(job)}/chk-{number}"
            request = SyncRequest(
                place,
                f"file:{tmp_path}/dcB",
                remaps=(source.remap,),
                execution=ExecutionOptions(runner="inline"),
            )
            sync.sync(request, lambda _line: None)
    changed = [uri for _verb, uri in tracing.changes()]
    assert any(uri.endswith("/_metadata") for uri in changed)
    assert [uri for uri in changed if not uri.startswith(f"file:{tmp_path}/dcB/{job}/")] == []


def test_a_run_with_nothing_to_do_changes_nothing_at_all(tmp_path):
    source = DataCentre("2.3.0-rocks-incr", tmp_path)
    job = source.jobs()[-1]
    place = f"file:{source.job_root(job)}/chk-{source.numbers(job)[-1]}"
    request = SyncRequest(
        place,
        f"file:{tmp_path}/dcB",
        remaps=(source.remap,),
        execution=ExecutionOptions(runner="inline"),
    )
    sync.sync(request, lambda _line: None)
    tracing = Tracing(Side().storage("file:/"))
    with serving("file", tracing):
        sync.sync(request, lambda _line: None)
    assert tracing.calls, "nothing was read either: the replica was not looked at"
    assert list(tracing.changes()) == []
