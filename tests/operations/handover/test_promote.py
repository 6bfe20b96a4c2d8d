"""A promoted replica is complete, absolute and sealed: a sync into it is refused."""

import errno
import json
import os
import shlex
import shutil
import time

import pytest
from click.testing import CliRunner

from cpreplicate.cli.commands.replication import cli
from cpreplicate.core.packs import PackOptions
from cpreplicate.errors import Lagging, LeaseHeld, NotThere, Refused, exit_code_of
from cpreplicate.operations.handover import promote
from cpreplicate.operations.handover.promote import PromoteRequest
from cpreplicate.operations.jobs.restore_state import restore_state_of
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.upkeep.relocate import RelocateRequest, relocate
from cpreplicate.operations.verify.verify import ALL, verify
from cpreplicate.protocol.lease import acquire
from cpreplicate.protocol.replica import Replica
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Transient
from tests.support import checker
from tests.support.faults import Faulty
from tests.support.jobs import JOB, write_checkpoint
from tests.support.registry import serving
from tests.support.replicas import FILES, NEXT, paths, synced
from tests.support.tracing import Tracing


@pytest.fixture
def replica(tmp_path):
    return synced(tmp_path, {1: FILES})


def run(replica, **options):
    return promote.promote(PromoteRequest(f"file:{replica}", **options), lambda _line: None)


def sync_next(tmp_path, verb=sync.sync):
    write_checkpoint(tmp_path / "dcA", 2, NEXT)
    request = SyncRequest(
        f"file:{tmp_path}/dcA/{JOB}",
        f"file:{tmp_path}/dcB",
        execution=ExecutionOptions(runner="inline"),
    )
    return verb(request, *([lambda _line: None] if verb is sync.sync else []))


def test_a_promoted_replica_has_absolute_paths_and_the_ways_to_start(replica):
    done = run(replica)
    place = f"file:{replica}/chk-1"
    assert done.starting.restore.command == f"flink run -s {place} -claimMode NO_CLAIM JAR"
    assert done.starting.rest == {"savepointPath": place, "claimMode": "NO_CLAIM"}
    assert done.starting.configuration == {"execution.state-recovery.claim-mode": "NO_CLAIM"}
    assert f"file:{replica}/shared/a".encode() in (replica / "chk-1" / "_metadata").read_bytes()
    assert checker.faults(replica) == []


@pytest.mark.parametrize("version", [3, 4])
def test_an_older_flink_gets_a_restore_command_that_it_understands(tmp_path, version):
    checkpoint = write_checkpoint(tmp_path / "dcA", 1, FILES, version)
    sync.sync(
        SyncRequest(
            f"file:{checkpoint}",
            f"file:{tmp_path}/dcB",
            execution=ExecutionOptions(runner="inline"),
        ),
        lambda _line: None,
    )
    start = run(tmp_path / "dcB" / JOB).starting
    assert start.checkpoint == f"file:{tmp_path}/dcB/{JOB}/chk-1"
    if version == 4:
        assert start.rest["restoreMode"] == "NO_CLAIM"
        assert start.configuration == {"execution.savepoint-restore-mode": "NO_CLAIM"}
    else:
        assert start.rest == {"savepointPath": f"file:{tmp_path}/dcB/{JOB}/chk-1"}
        assert start.configuration == {}


@pytest.mark.parametrize("verb", [sync.sync, diff])
def test_a_promoted_replica_is_not_synced_until_it_is_unsealed(replica, tmp_path, verb):
    run(replica)
    before = paths(replica)
    with pytest.raises(Refused, match=r"sealed by .* for chk-1"):
        sync_next(tmp_path, verb)
    assert paths(replica) == before
    assert CliRunner().invoke(cli, ["unseal", str(replica), "--no-job-uses-it"]).exit_code == 0
    sync_next(tmp_path)
    assert (replica / "chk-2" / "_metadata").exists()


def test_a_promoted_replica_refuses_even_a_run_with_nothing_to_do(replica, tmp_path):
    run(replica)
    request = SyncRequest(
        f"file:{tmp_path}/dcA/{JOB}",
        f"file:{tmp_path}/dcB",
        execution=ExecutionOptions(runner="inline"),
    )
    with pytest.raises(Refused, match="sealed"):
        sync.sync(request, lambda _line: None)


def test_promoting_again_returns_the_same(replica):
    first = run(replica)
    assert run(replica) == first


def test_a_replica_found_wanting_is_left_as_it_was(replica):
    (replica / "shared" / "a").unlink()
    before = (replica / "chk-1" / "_metadata").read_bytes()
    result = CliRunner().invoke(
        cli, ["promote", str(replica), "--output", "json"], standalone_mode=False
    )
    assert result.return_value == 4
    found = json.loads(result.stdout)
    assert (found["promoted"], found["sealed"], found["restore"]) == (False, None, None)
    assert found["verification"]["missing"] == ["shared/a"]
    assert (replica / "chk-1" / "_metadata").read_bytes() == before
    assert not (replica / ".cpreplicate" / "sealed").exists()


def test_a_stray_file_that_is_newer_does_not_stop_a_promotion_and_is_reported(replica):
    stray = replica / "shared" / "stray"
    stray.write_text("of a job that has not completed a checkpoint yet")
    os.utime(stray, (time.time() + 60,) * 2)
    printed = CliRunner().invoke(cli, ["promote", str(replica)], standalone_mode=False)
    assert printed.return_value == 0
    assert f"warning: file:{replica} holds 1 file that cpreplicate did not write" in printed.stdout
    assert "shared/stray. If a job writes" in printed.stdout
    assert stray.read_text() == "of a job that has not completed a checkpoint yet"
    assert (replica / ".cpreplicate" / "sealed").exists()


def test_a_stray_file_is_in_the_json_of_a_promotion(replica):
    (replica / "shared" / "stray").write_text("stray")
    done = CliRunner().invoke(cli, ["promote", "--output", "json", str(replica)])
    (warning,) = json.loads(done.stdout)["warnings"]
    assert "shared/stray" in warning


def test_what_cannot_be_searched_for_stray_files_does_not_stop_a_promotion(replica):
    (replica / "shared" / "secret").mkdir()
    denied = f"file:{replica}/shared/secret"

    def deny(_verb, uri):
        return PermissionError(errno.EACCES, "Permission denied", uri) if uri == denied else None

    with serving("file", Faulty(Side().storage("file:/"), deny)):
        (warning,) = run(replica).warnings
    assert "could not be searched" in warning
    assert "Permission denied" in warning
    assert (replica / ".cpreplicate" / "sealed").exists()


def test_neither_do_directories_that_are_nested_too_deeply(replica):
    (replica / "shared" / "deep" / "/".join("d" * 120)).mkdir(parents=True)
    (warning,) = run(replica).warnings
    assert "more than 100 directories deep" in warning
    assert (replica / ".cpreplicate" / "sealed").exists()


def test_but_a_storage_that_does_not_answer_does(replica):
    (replica / "shared" / "slow").mkdir()
    slow = f"file:{replica}/shared/slow"

    def fail(_verb, uri):
        return Transient(errno.EIO, "no answer", uri) if uri == slow else None

    with serving("file", Faulty(Side().storage("file:/"), fail)), pytest.raises(Transient):
        run(replica)
    assert not (replica / ".cpreplicate" / "sealed").exists()


def test_relocate_still_refuses_a_stray_file_that_is_newer(replica):
    stray = replica / "shared" / "stray"
    stray.write_text("stray")
    os.utime(stray, (time.time() + 60,) * 2)
    with pytest.raises(Refused, match="did not write"):
        relocate(RelocateRequest(f"file:{replica}", "absolute"), lambda _line: None)


def test_a_replica_that_another_run_writes_to_is_not_promoted(replica):
    with acquire(f"file:{replica}", Side()), pytest.raises(LeaseHeld):
        run(replica)


def test_nothing_is_written_where_no_replica_is(tmp_path):
    with pytest.raises(NotThere):
        run(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def packed(tmp_path):
    return synced(tmp_path, {1: FILES, 2: NEXT}, keep=2, packing=PackOptions("on", 700))


def test_a_packed_replica_is_promoted_and_its_content_is_still_recorded(packed):
    done = run(packed, content=ALL)
    assert done.starting.restore.claim_mode == "NO_CLAIM"
    place = f"file:{packed}/chk-2"
    assert done.starting.restore.command == f"flink run -s {place} -claimMode NO_CLAIM JAR"
    data = (packed / "chk-2" / "_metadata").read_bytes()
    assert f"file:{packed}/packed/".encode() in data
    assert f"file:{packed}/shared/h".encode() in data  # not packed
    verified = verify(f"file:{packed}", "chk-2", ALL, lambda _line: None, Side())
    assert verified.restorable
    assert verified.compared == len(NEXT)


def test_the_advice_for_a_packed_replica_mentions_that_packs_stay_behind(packed):
    printed = CliRunner().invoke(cli, ["promote", str(packed)]).stdout
    stay = f"warning: Flink never deletes the packs in file:{packed}/packed/. After a CLAIM restore"
    assert stay in printed
    again = CliRunner().invoke(cli, ["promote", "--output", "json", str(packed)]).stdout
    (warning,) = json.loads(again)["warnings"]
    assert f"Delete file:{packed} when no checkpoint of the job references it" in warning


def test_the_advice_for_a_packed_replica_of_flink_1_names_who_restores_it(tmp_path):
    checkpoint = write_checkpoint(tmp_path / "dcA", 1, FILES, 4)
    request = SyncRequest(
        f"file:{checkpoint}",
        f"file:{tmp_path}/dcB",
        packing=PackOptions("on", 700),
        execution=ExecutionOptions(runner="inline"),
    )
    sync.sync(request, lambda _line: None)
    warnings = run(tmp_path / "dcB" / JOB).warnings
    assert "only Flink 1.20 and later can restore the replica" in warnings[0]


def test_a_replica_without_packs_has_no_warning(replica):
    assert run(replica).warnings == ()


def test_a_packed_replica_is_unsealed_when_no_checkpoint_of_the_job_points_into_its_packs(
    packed, tmp_path
):
    run(packed)
    job = tmp_path / "own" / JOB
    needing = job / "chk-3" / "_metadata"
    needing.parent.mkdir(parents=True)
    needing.write_bytes((packed / "chk-2" / "_metadata").read_bytes())
    arguments = ["unseal", str(packed), "--job", str(job)]
    refused = CliRunner().invoke(cli, arguments, standalone_mode=False)
    assert isinstance(refused.exception, Refused)
    assert "packed/" in str(refused.exception)
    write_checkpoint(tmp_path / "own", 4, {"shared/own": 10})
    needing.unlink()
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    assert not (packed / ".cpreplicate" / "sealed").exists()


def test_a_promotion_has_a_nonce_of_its_own_by_which_a_running_deployment_is_restored_anew(replica):
    first = run(replica).starting.deployment["spec"]["job"]
    place = f"file:{replica}/chk-1"
    sealed = replica / ".cpreplicate" / "sealed"
    assert first == {
        "initialSavepointPath": place,
        "savepointRedeployNonce": int(sealed.stat().st_mtime),
    }
    os.utime(sealed, (1e9,) * 2)
    assert run(replica).starting.deployment["spec"]["job"]["savepointRedeployNonce"] == 10**9


def ahead(tmp_path, count=2):
    """Let the job complete checkpoints that are not replicated."""
    for number in range(2, 2 + count):
        write_checkpoint(tmp_path / "dcA", number, NEXT)


def test_how_far_the_source_is_ahead_is_returned(replica, tmp_path):
    metadata = tmp_path / "dcA" / JOB / "chk-1" / "_metadata"
    os.utime(metadata, (metadata.stat().st_mtime + 0.9,) * 2)  # as Flink and a storage date it
    behind = run(replica, source=Side()).behind
    assert (behind.checkpoints, behind.seconds) == (0, 0.0)
    ahead(tmp_path)
    behind = run(replica, source=Side()).behind
    assert behind.checkpoints == 2
    assert behind.seconds == behind.now - behind.own.completed > 0


def test_numbers_decide_whether_the_source_is_ahead_whatever_its_clock_shows(replica, tmp_path):
    ahead(tmp_path, 1)
    long_ago = tmp_path / "dcA" / JOB / "chk-1" / "_metadata"
    for path in (long_ago, tmp_path / "dcA" / JOB / "chk-2" / "_metadata"):
        os.utime(path, (1e9,) * 2)
    assert run(replica, source=Side(), dry_run=True).behind.checkpoints == 1


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_replica_further_behind_than_allowed_is_refused_and_left_as_it_was(
    replica, tmp_path, dry_run
):
    ahead(tmp_path)
    before = paths(replica)
    with pytest.raises(Lagging, match=r"chk-1 is 2 checkpoints, .* behind chk-3") as refused:
        run(replica, source=Side(), max_lag=0.0, dry_run=dry_run)
    assert refused.value.exit_code == 21
    assert paths(replica) == before
    assert run(replica, source=Side(), max_lag=3600.0, dry_run=dry_run).starting is not None


def test_a_sealed_replica_prints_the_same_however_far_its_source_went_on(replica, tmp_path):
    first = run(replica, source=Side(), max_lag=3600.0)
    ahead(tmp_path)
    again = run(replica, source=Side(), max_lag=0.0)
    assert again.starting == first.starting
    assert again.behind.checkpoints == 2
    shutil.move(tmp_path / "dcA", tmp_path / "lost")
    assert run(replica, source=Side(), max_lag=0.0).starting == first.starting


def test_a_source_that_does_not_answer_has_no_lag_and_its_age_counts(replica):
    def lost(_verb, uri):
        return Transient(errno.EIO, "no answer", uri) if "/dcA/" in uri else None

    with serving("file", Faulty(Side().storage("file:/"), lost)):
        behind = run(replica, source=Side(), max_lag=3600.0, dry_run=True).behind
        assert (behind.checkpoints, behind.seconds) == (None, None)
        assert "no answer" in behind.look.error
        with pytest.raises(Lagging, match="the source was not seen"):
            run(replica, source=Side(), max_lag=0.0)
    assert not (replica / ".cpreplicate" / "sealed").exists()


def test_the_lag_is_printed_and_a_question_mark_where_it_is_not_known(replica, tmp_path):
    ahead(tmp_path)
    printed = CliRunner().invoke(cli, ["promote", "--dry-run", str(replica)]).stdout
    source = f"file:{tmp_path}/dcA/{JOB}"
    assert f"(2): the newest of {source} is chk-3" in printed
    shutil.move(tmp_path / "dcA", tmp_path / "lost")
    printed = CliRunner().invoke(cli, ["promote", "--dry-run", str(replica)]).stdout
    assert f"lag: ?: the source {source} was not seen" in printed


def test_a_dry_run_prints_the_command_with_which_the_job_is_started_later(replica):
    before = paths(replica)
    planned = run(replica, dry_run=True)
    assert paths(replica) == before
    assert (planned.is_promoted, planned.sealed) == (False, None)
    printed = CliRunner().invoke(cli, ["promote", "--dry-run", str(replica)]).stdout
    done = run(replica)
    assert done.starting.restore == planned.starting.restore
    assert done.starting.restore.command in printed


DENIED = {
    "no right to write": PermissionError(errno.EACCES, "Permission denied"),
    "a read-only disk": OSError(errno.EROFS, "Read-only file system"),
    "safe mode": Transient(errno.EIO, "Name node is in safe mode"),
}


@pytest.mark.parametrize("denied", DENIED)
@pytest.mark.parametrize("place", ["/.cpreplicate/", "/chk-1/"])
def test_a_dry_run_ends_as_the_promotion_where_nothing_can_be_written(replica, denied, place):
    changes = ("put", "create_exclusive", "publish", "move", "delete")

    def deny(verb, uri):
        error = DENIED[denied]
        is_denied = verb in changes and place in uri
        return type(error)(error.errno, error.strerror, uri) if is_denied else None

    before = paths(replica)
    codes = []
    with serving("file", Faulty(Side().storage("file:/"), deny)):
        for dry_run in (True, False):
            with pytest.raises(OSError, match=r"denied|ead-only|safe mode") as refused:
                run(replica, dry_run=dry_run)
            codes.append(exit_code_of(refused.value))
    assert codes[0] == codes[1] == (7 if denied == "safe mode" else 1)
    assert not (replica / ".cpreplicate" / "sealed").exists()
    assert {path for path in paths(replica) if "before" not in path} == before


@pytest.fixture
def claimed(tmp_path):
    """A promoted replica whose job, restored with CLAIM, has deleted what it was started from."""
    replica = synced(tmp_path, {1: FILES, 2: NEXT}, keep=2)
    run(replica)
    shutil.rmtree(replica / "chk-2")
    return replica


@pytest.mark.parametrize(
    "options", [{}, {"dry_run": True}, {"checkpoint": "chk-2"}, {"as_of": 9e9}]
)
def test_no_other_checkpoint_takes_the_place_of_a_promoted_one_that_is_gone(claimed, options):
    with pytest.raises(Refused, match=r"chk-2 is not there any more.*newest checkpoint of its own"):
        run(claimed, **options)


def test_every_other_approval_refuses_a_promoted_replica_without_its_checkpoint(claimed):
    with pytest.raises(Refused, match="not there any more"):
        verify(f"file:{claimed}", None, ALL, lambda _line: None, Side())
    found = CliRunner().invoke(cli, ["status", "--output", "json", str(claimed)])
    (row,) = json.loads(found.stdout)["replicas"]
    assert (row["ready"], "not there any more" in row["not_ready_because"]) == (False, True)
    restore_state = restore_state_of(Replica(f"file:{claimed}", Side()), None)
    assert (restore_state.starting, restore_state.obstacle) == (None, "gone")
    arguments = ["promote", "--all", "--dry-run", str(claimed.parent)]
    assert CliRunner().invoke(cli, arguments, standalone_mode=False).return_value == 3


def test_the_advice_for_a_promoted_checkpoint_that_is_gone_can_be_followed(claimed):
    with pytest.raises(Refused) as refused:
        run(claimed)
    command = str(refused.value).rpartition("run `cpreplicate ")[2].partition("`")[0]
    assert CliRunner().invoke(cli, shlex.split(command)).exit_code == 0
    assert run(claimed).checkpoint == "chk-1"


def test_a_checkpoint_that_a_job_wrote_over_the_promoted_one_is_not_started_from(claimed):
    write_checkpoint(claimed.parent, 2, {"shared/of-b": 5})
    with pytest.raises(Refused, match="is not the one that was promoted"):
        run(claimed)


def test_a_damaged_seal_names_no_checkpoint_to_start_from(replica):
    run(replica)
    (replica / ".cpreplicate" / "sealed").write_text("{}")
    with pytest.raises(Refused, match="not known with which checkpoint"):
        run(replica)


@pytest.mark.parametrize(("is_synced", "most"), [(False, 45), (True, 39)])
def test_a_far_storage_is_asked_for_little_one_call_after_the_other(replica, is_synced, most):
    with serving("file", tracing := Tracing(Side().storage("file:/"))):
        assert run(replica, is_synced=is_synced).is_promoted
    # how often a lease is looked at and renewed depends on the time that passes
    calls = [
        (verb, path) for verb, path in tracing.calls if not path.endswith(("/lease", ".heartbeat"))
    ]
    assert len(calls) <= most
    assert sum(path.endswith("/_metadata") for _, path in calls) <= 8  # one of them writes it


def test_a_replica_that_was_sealed_since_it_was_examined_is_promoted_as_it_was(replica):
    class Overtaken(Tracing):
        """Another run seals the replica before this one has the lease."""

        def before(self, verb, uri):
            if verb == "create_exclusive" and not self.calls:
                self.calls.append((verb, uri))
                first.append(run(replica))

    first: list[promote.Promotion] = []
    with serving("file", Overtaken(Side().storage("file:/"))):
        assert run(replica) == first[0]


def test_a_checkpoint_that_another_program_replaces_is_left_as_it_is(replica):
    class Replaced(Tracing):
        """A job writes its own checkpoint once the former one was put aside."""

        def before(self, verb, uri):
            super().before(verb, uri)
            if "before-relocate" in uri:
                (replica / "chk-1" / "_metadata").write_bytes(b"another job's")

    with (
        serving("file", Replaced(Side().storage("file:/"))),
        pytest.raises(Refused, match="was replaced by another program"),
    ):
        run(replica)
    assert (replica / "chk-1" / "_metadata").read_bytes() == b"another job's"
