"""`promote --all`: the replica of each job is sealed, and what fails stops no other."""

import dataclasses
import os
import shutil

import pytest

from cpreplicate.errors import NotThere
from cpreplicate.operations.handover.promote_all import PromoteAllRequest, candidates, promote_all
from cpreplicate.operations.handover.unseal import UnsealRequest, unseal
from cpreplicate.operations.kafka.check import KafkaAsked
from cpreplicate.operations.replicas.replicas import replicas_below
from cpreplicate.operations.replicas.status import status
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.output.results import forms_of
from cpreplicate.protocol import seal
from cpreplicate.protocol.lease import acquire
from cpreplicate.protocol.replica import Replica
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Sides, Transient
from tests.support.doctor import tree
from tests.support.jobs import metadata_of
from tests.support.kafka_jobs import put_kafka_checkpoint
from tests.support.kafka_states import Split
from tests.support.roots import FIRST, HOUR, NOON, SECOND, THIRD, Roots
from tests.support.standin_kafka import StandInKafka


@pytest.fixture
def roots(tmp_path):
    return Roots(tmp_path)


def promoted(roots, **options):
    refs = tuple(replicas_below(f"file:{roots.targets}", [], Sides()))
    request = PromoteAllRequest(refs, **options)
    return promote_all(candidates(request), request, lambda _line: None)


def outcomes(report):
    return {job.name: (job.outcome, job.exit_code) for job in report.jobs}


def is_sealed(place):
    return seal.describe(Replica(f"file:{place}", Side())) is not None


def test_each_replica_is_sealed_and_returned_with_how_its_job_is_started(roots):
    places = [roots.add(FIRST, "orders"), roots.add(SECOND, "clicks"), roots.add(THIRD)]
    report = promoted(roots)
    assert outcomes(report) == dict.fromkeys(["orders", "clicks", THIRD], ("promoted", 0))
    assert report.exit_code == 0
    assert all(map(is_sealed, places))
    by_name = {job.name: job for job in report.jobs}
    command = by_name["orders"].promotion.starting.restore.command
    assert f"file:{places[0]}/chk-1" in command


def test_a_dry_run_reports_the_same_and_changes_nothing(roots):
    roots.add(FIRST, "orders")
    shutil.rmtree(roots.add(SECOND, "clicks") / "shared")
    before = tree(roots.targets)
    report = promoted(roots, dry_run=True)
    assert outcomes(report) == {"orders": ("can be promoted", 0), "clicks": ("failed", 4)}
    assert tree(roots.targets).keys() == before.keys()
    assert "orders: flink run -s " in forms_of(report).text(report)


def test_a_dry_run_distinguishes_what_is_sealed_already(roots):
    roots.add(FIRST, "orders")
    promoted(roots)
    roots.add(SECOND, "clicks")
    found = outcomes(promoted(roots, dry_run=True))
    assert found == {"orders": ("sealed before", 0), "clicks": ("can be promoted", 0)}


def test_a_replica_that_cannot_be_restored_stops_no_other_and_is_listed_first(roots):
    whole = [roots.add(FIRST, "a"), roots.add(THIRD, "c")]
    broken = roots.add(SECOND, "b")
    shutil.rmtree(broken / "shared")
    report = promoted(roots)
    assert [(job.name, job.exit_code) for job in report.jobs] == [("b", 4), ("a", 0), ("c", 0)]
    assert report.exit_code == 3
    assert f"cpreplicate verify file:{broken}" in report.jobs[0].error
    assert [is_sealed(place) for place in (*whole, broken)] == [True, True, False]


def replicated(directory, positions):
    """A replica of each job, whose checkpoint has this position."""
    for job, offset in positions.items():
        put_kafka_checkpoint(directory / "dcA", 1, [Split("orders", 0, offset)], job=job)
        request = SyncRequest(
            f"file:{directory}/dcA/{job}",
            f"file:{directory}/dcB",
            execution=ExecutionOptions(runner="inline"),
        )
        sync(request, lambda _line: None)
    return tuple(replicas_below(f"file:{directory}/dcB", [], Sides()))


def test_at_a_kafka_a_job_that_cannot_go_on_stops_no_other(tmp_path):
    refs = replicated(tmp_path, {FIRST: 7, SECOND: 9, THIRD: 5})
    kafka = StandInKafka({("orders", 0): (0, 7)})
    request = PromoteAllRequest(refs, kafka=KafkaAsked(kafka))
    report = promote_all(candidates(request), request, lambda _line: None)
    assert outcomes(report) == {
        **dict.fromkeys([FIRST, THIRD], ("promoted", 0)),
        SECOND: ("failed", 6),
    }
    failed, *others = report.jobs
    assert [problem.trouble for problem in failed.not_at_kafka.checked[0].problems] == [
        "beyond-end"
    ]
    assert "--positions clamp" in failed.not_at_kafka.checked[0].command
    text = forms_of(report).text(report)
    assert f"{SECOND}: chk-1: position beyond the end: cpreplicate rebase " in text
    assert all(job.promotion.kafka.chosen.checkpoint == "chk-1" for job in others)
    assert kafka.topic_listings == 1
    sealed = [is_sealed(tmp_path / "dcB" / job) for job in (FIRST, SECOND, THIRD)]
    assert sealed == [True, False, True]


def test_a_kafka_that_does_not_answer_ends_promote_all_before_anything_changes(tmp_path):
    class Silent(StandInKafka):
        def topics(self):
            raise Transient("Kafka could not be reached")

    refs = replicated(tmp_path, {FIRST: 7})
    request = PromoteAllRequest(refs, kafka=KafkaAsked(Silent()))
    with pytest.raises(Transient):
        promote_all(candidates(request), request, lambda _line: None)
    assert not is_sealed(tmp_path / "dcB" / FIRST)


def test_a_damaged_replica_stops_no_other(roots):
    roots.add(FIRST, "orders")
    damaged = roots.add(SECOND, "clicks")
    (damaged / ".cpreplicate" / "replica.json").write_text("{}")
    report = promoted(roots)
    assert outcomes(report)["orders"] == ("promoted", 0)
    assert [job.replica for job in report.jobs if job.exit_code] == [f"file:{damaged}"]


def test_of_a_job_that_restarted_only_the_replica_with_the_newest_checkpoint_is_sealed(roots):
    old = roots.add(SECOND, "orders", NOON, NOON + HOUR)
    new = roots.add(FIRST, "orders", NOON + 2 * HOUR, NOON + 3 * HOUR)
    job, other = promoted(roots).jobs
    assert (job.replica, other.replica) == (f"file:{new}", f"file:{old}")
    assert (job.outcome, other.outcome) == ("promoted", "not taken")
    assert SECOND in job.why
    assert (is_sealed(new), is_sealed(old)) == (True, False)


def test_an_earlier_life_is_not_started_in_place_of_one_that_deleted_what_it_started_from(roots):
    old = roots.add(SECOND, "orders", NOON, NOON + HOUR)
    new = roots.add(FIRST, "orders", NOON + 2 * HOUR, NOON + 3 * HOUR)
    promoted(roots)
    shutil.rmtree(new / "chk-1")  # as Flink does after CLAIM
    report = promoted(roots)
    failed, other = report.jobs
    assert (failed.replica, failed.outcome, failed.exit_code) == (f"file:{new}", "failed", 6)
    assert "Start the job orders from the newest checkpoint of its own" in failed.error
    assert (other.outcome, is_sealed(old)) == ("not taken", False)


def test_of_jobs_that_ran_at_the_same_time_under_one_name_none_is_sealed(roots):
    places = [roots.add(FIRST, "orders"), roots.add(SECOND, "orders")]
    other = roots.add(THIRD, "clicks")
    report = promoted(roots)
    assert [(job.name, job.exit_code) for job in report.jobs] == [
        ("orders", 6),
        ("orders", 6),
        ("clicks", 0),
    ]
    assert [is_sealed(place) for place in (*places, other)] == [False, False, True]


def test_only_the_jobs_whose_names_match_a_pattern_are_promoted(roots):
    others = [roots.add(FIRST, "clicks"), roots.add(SECOND)]
    wanted = roots.add(THIRD, "orders-eu")
    assert outcomes(promoted(roots, include=("orders-*",))) == {"orders-eu": ("promoted", 0)}
    assert [is_sealed(place) for place in (wanted, *others)] == [True, False, False]


def test_a_pattern_that_no_name_matches_is_an_error(roots):
    roots.add(FIRST, "orders")
    with pytest.raises(NotThere, match="'order'"):
        promoted(roots, include=("order",))


def test_what_lags_behind_the_newest_checkpoint_of_all_is_listed_first(roots):
    roots.add(FIRST, "a", completed=NOON + HOUR)
    roots.add(SECOND, "b", completed=NOON)
    roots.add(THIRD, "c", completed=NOON + HOUR - 60)
    report = promoted(roots, max_lag=900.0)
    assert [(job.name, job.behind_newest, job.is_lagging) for job in report.jobs] == [
        ("b", HOUR, True),
        ("a", 0.0, False),
        ("c", 60.0, False),
    ]
    assert report.exit_code == 0


def test_what_lags_is_left_as_it_is_if_asked_for(roots):
    fresh = roots.add(FIRST, "a", completed=NOON + HOUR)
    late = roots.add(SECOND, "b", completed=NOON)
    report = promoted(roots, max_lag=900.0, skip_lagging=True)
    assert outcomes(report) == {"a": ("promoted", 0), "b": ("lagging", 21)}
    assert report.exit_code == 3
    assert (is_sealed(fresh), is_sealed(late)) == (True, False)


def test_a_replica_that_was_sealed_before_is_named_so_and_returned_with_its_command(roots):
    roots.add(FIRST, "orders")
    first = promoted(roots)
    again = promoted(roots)
    assert outcomes(again) == {"orders": ("sealed before", 0)}
    commands = [report.jobs[0].promotion.starting.restore.command for report in (first, again)]
    assert commands[0] == commands[1]


def test_a_replica_in_use_fails_alone_and_is_promoted_once_it_is_free(roots):
    place = roots.add(FIRST, "orders")
    roots.add(SECOND, "clicks")
    with acquire(f"file:{place}", Side(), 0.0, lambda _line: None):
        assert outcomes(promoted(roots)) == {"orders": ("failed", 11), "clicks": ("promoted", 0)}
    assert outcomes(promoted(roots)) == {"orders": ("promoted", 0), "clicks": ("sealed before", 0)}


def test_a_lease_that_is_released_meanwhile_is_waited_for(roots):
    place = roots.add(FIRST, "orders")
    refs = tuple(replicas_below(f"file:{roots.targets}", [], Sides()))
    request = PromoteAllRequest(refs, lock_wait=600.0)
    jobs = candidates(request)
    lease = acquire(f"file:{place}", Side(), 0.0, lambda _line: None)
    lease.__enter__()
    lines = []

    def notify(line):
        lines.append(line)
        if "in use" in line:
            lease.__exit__(None, None, None)

    report = promote_all(jobs, request, notify)
    assert outcomes(report) == {"orders": ("promoted", 0)}
    assert any("1 replica is in use" in line for line in lines)


@pytest.mark.parametrize(
    ("lock_wait", "outcome"), [(0.0, ("failed", 11)), (60.0, ("can be promoted", 0))]
)
def test_a_dry_run_waits_for_no_lease_and_ends_as_the_promotion_would(roots, lock_wait, outcome):
    place = roots.add(FIRST, "orders")
    refs = tuple(replicas_below(f"file:{roots.targets}", [], Sides()))
    request = PromoteAllRequest(refs, lock_wait=lock_wait, dry_run=True)
    with acquire(f"file:{place}", Side(), 0.0, lambda _line: None):
        report = promote_all(candidates(request), request, lambda _line: None)
    assert outcomes(report) == {"orders": outcome}


def test_a_replica_whose_seal_was_removed_can_be_promoted_again(roots):
    place = roots.add(FIRST, "orders")
    promoted(roots)
    unseal(UnsealRequest(f"file:{place}", None, Side()))
    assert outcomes(promoted(roots)) == {"orders": ("promoted", 0)}


def test_a_configured_name_wins_over_the_recorded_one(roots):
    roots.add(FIRST, "orders")
    (ref,) = replicas_below(f"file:{roots.targets}", [], Sides())
    request = PromoteAllRequest((dataclasses.replace(ref, name="shop"),))
    assert [job.name for job in candidates(request)] == ["shop"]


def replicated_job(roots, job, name, completed=None):
    """A job with a source that is there, and its replica."""
    write_checkpoint_of(roots.root / "dcA", job, 1, completed)
    request = SyncRequest(
        f"file:{roots.root}/dcA/{job}",
        f"file:{roots.targets}",
        name=name,
        execution=ExecutionOptions(runner="inline"),
    )
    sync(request, lambda _line: None)


def write_checkpoint_of(root, job, number, completed=None):
    metadata = root / job / f"chk-{number}" / "_metadata"
    (root / job / "shared").mkdir(parents=True, exist_ok=True)
    (root / job / "shared" / "x").write_bytes(b"x" * 99)
    metadata.parent.mkdir()
    metadata.write_bytes(metadata_of(number, {f"file:{root}/{job}/shared/x": 99}))
    if completed is not None:
        os.utime(metadata, (completed,) * 2)
        os.utime(metadata.parent, (completed,) * 2)


def test_the_lag_is_that_of_status(roots):
    replicated_job(roots, FIRST, "orders")
    write_checkpoint_of(roots.root / "dcA", FIRST, 2)
    replicated_job(roots, SECOND, "clicks")
    report = promoted(roots, dry_run=True)
    found = status(replicas_below(f"file:{roots.targets}", [], Sides()), Sides())
    of_status = {row.observed.replica: row.observed.behind() for row in found.replicas}
    by_replica = {job.replica: job.promotion.behind.checkpoints for job in report.jobs}
    assert by_replica == of_status
    assert sorted(by_replica.values()) == [0, 1]
    assert sorted(job.lag > 0 for job in report.jobs) == [False, True]


def test_a_replica_whose_source_is_ahead_by_more_than_allowed_is_left(roots):
    replicated_job(roots, FIRST, "orders")
    write_checkpoint_of(roots.root / "dcA", FIRST, 2)
    replicated_job(roots, SECOND, "clicks")
    report = promoted(roots, max_lag=0.0)
    assert outcomes(report) == {"orders": ("lagging", 21), "clicks": ("promoted", 0)}
    assert report.exit_code == 3
    assert report.jobs[0].error.startswith("its source is ahead by 1 checkpoint,")
    assert not is_sealed(roots.targets / FIRST)


def test_an_id_chooses_one_of_several_jobs_of_a_name(roots):
    roots.add(FIRST, "orders", NOON, NOON + 2 * HOUR)
    roots.add(SECOND, "orders", NOON + HOUR, NOON + 3 * HOUR)
    assert [job.exit_code for job in promoted(roots).jobs] == [6, 6]
    assert outcomes(promoted(roots, include=(FIRST,))) == {"orders": ("promoted", 0)}
    assert is_sealed(roots.targets / FIRST)
    assert not is_sealed(roots.targets / SECOND)


def test_a_replica_that_was_promoted_before_is_never_left_because_it_lags(roots):
    replicated_job(roots, FIRST, "orders")
    first = promoted(roots, max_lag=900.0)
    write_checkpoint_of(roots.root / "dcA", FIRST, 2)
    again = promoted(roots, max_lag=0.0, skip_lagging=True)
    assert outcomes(again) == {"orders": ("sealed before", 0)}
    assert again.jobs[0].promotion.starting == first.jobs[0].promotion.starting


def test_a_lag_is_not_known_where_a_source_does_not_answer(roots):
    roots.add(FIRST, "orders")
    (job,) = promoted(roots, dry_run=True).jobs
    assert (job.lag, job.promotion.behind.seconds) == (None, None)
    assert job.seen.look.error is not None


def test_a_replica_that_is_not_taken_for_its_job_has_a_line_of_its_own(roots):
    old = roots.add(SECOND, "orders", NOON, NOON + HOUR)
    roots.add(FIRST, "orders", NOON + 2 * HOUR, NOON + 3 * HOUR)
    report = promoted(roots)
    assert report.count("not taken") == 1
    text = forms_of(report).text(report)
    assert f"orders: file:{old} was not taken: of 2 replicas of the job orders, {FIRST}" in text
    assert "its source was not seen" in text


def test_a_source_without_checkpoints_is_not_reported_as_unseen(roots):
    roots.add(SECOND, "orders", NOON, NOON + HOUR)
    roots.add(FIRST, "orders", NOON + 2 * HOUR, NOON + 3 * HOUR)
    assert "its source was not seen" in forms_of(report := promoted(roots)).text(report)
    write_checkpoint_of(roots.root / "dcA", THIRD, 1)
    assert "its source was not seen" not in forms_of(report := promoted(roots)).text(report)


def test_jobs_of_one_name_of_which_one_ran_on_unreplicated_are_refused(roots):
    for job, completed in ((FIRST, NOON), (SECOND, NOON + HOUR)):
        replicated_job(roots, job, "orders", completed)
    write_checkpoint_of(roots.root / "dcA", FIRST, 2, NOON + 2 * HOUR)
    report = promoted(roots)
    assert [job.exit_code for job in report.jobs] == [6, 6]
    assert report.exit_code == 3
    assert all("ran at the same time" in job.error for job in report.jobs)
    assert not is_sealed(roots.targets / SECOND)
