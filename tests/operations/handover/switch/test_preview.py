"""What is known of a switch before anything is stopped, and what is checked then."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cpreplicate.core.notify import silent
from cpreplicate.errors import NotSwitched, NotThere, Refused
from cpreplicate.operations.handover.switch.request import Clusters, JobSwitch
from cpreplicate.operations.handover.switch.switch import switch
from cpreplicate.operations.handover.switch.switch_all import every_job, switch_all
from cpreplicate.operations.inspect.overview import Overview
from cpreplicate.operations.kafka.check import KafkaAsked
from cpreplicate.operations.verify.verify import ALL
from cpreplicate.output.report import page_of
from cpreplicate.output.results.switch import FORMS, expected
from cpreplicate.protocol.switch_record import Stop
from cpreplicate.storage import Transient
from tests.operations.handover.switch.test_steps import Centres, Killed, fails_at
from tests.support import sink_states
from tests.support.encoder import OperatorEntry, Tree, encode
from tests.support.jobs import JOB, NEXT_JOB
from tests.support.kafka_jobs import inline, put_kafka_checkpoint, subtask
from tests.support.kafka_states import WRITER, Split, stream
from tests.support.simulated_flink import SimulatedControl, SimulatedFlink
from tests.support.standin_kafka import StandInKafka


@pytest.fixture
def centres(tmp_path: Path) -> Centres:
    return Centres(tmp_path)


def previewed(centres: Centres, **changes: Any) -> Any:
    """The preview of all jobs, as the command has it."""
    asked = centres.request(dry_run=True, **changes)
    return switch_all(["orders"], asked, lambda: centres.clusters, silent, stops_on_error=True)


def test_a_preview_has_the_size_the_room_the_start_and_no_standstill_that_was_not_measured(
    centres: Centres,
) -> None:
    (job,) = previewed(centres).jobs
    assert job.expected is None
    assert job.preview is not None
    assert job.least > 10 * job.preview.call > 0  # what the calls take in any case
    assert job.preview.bytes == job.preview.behind.bytes == 4000
    assert "leaves" in job.preview.space
    assert job.preview.withdraws == ()
    assert job.preview.kafka is None


@pytest.mark.parametrize(("version", "is_stated"), [((1, 16), True), ((1, 17), False)])
def test_a_preview_states_that_flink_takes_no_checkpoint_when_asked(
    centres: Centres, version: tuple[int, int], is_stated: bool
) -> None:
    centres.a.version = centres.b.version = version
    (job,) = previewed(centres).jobs
    found = [each for each in job.warnings if "takes no checkpoint when asked" in each]
    assert bool(found) == is_stated
    assert all("by itself, each 1 s" in each for each in found)


def test_a_preview_after_a_switch_has_the_points_that_go_and_the_standstill_as_measured(
    centres: Centres,
) -> None:
    done = centres.switch()
    centres.b.jobs[done.new_job].state = "CANCELED"
    centres.unseal()
    centres.a.start(JOB, "orders", f"{centres.a.root}/{JOB}/{done.checkpoint}")
    (job,) = previewed(centres).jobs
    assert (job.expected, job.least) == (done.standstill, None)
    assert job.preview.withdraws == (done.checkpoint,)


def test_a_standstill_is_expected_by_the_last_round_and_the_switch_before(
    centres: Centres,
) -> None:
    lines: list[str] = []
    first = switch(centres.request(), centres.clusters, lines.append)
    assert first.expected is None
    measured = first.rounds[-2]  # the last one before the stop
    assert first.least > measured.seconds + measured.taken > 0
    assert any(
        f"to stand still for at least {first.least:.1f} s. How long" in each for each in lines
    )
    centres.b.jobs[str(first.new_job)].state = "CANCELED"
    centres.unseal()
    centres.a.start(NEXT_JOB, "orders", f"{centres.a.root}/{JOB}/{first.checkpoint}")
    again = switch(centres.request(), centres.clusters, lines.append)
    rest = first.phases["running"] - (first.phases["copied"] - first.phases["ended"])
    assert again.expected == pytest.approx(rest + again.rounds[-2].seconds)


def test_a_target_that_may_not_be_written_is_refused_before_a_byte_is_copied(
    centres: Centres, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = type(centres.request().sync.sides.target.storage(centres.target))

    def put(*_words: Any, **_more: Any) -> None:
        raise PermissionError(13, "Permission denied", centres.target)

    monkeypatch.setattr(storage, "put", put)
    (job,) = previewed(centres).jobs
    assert (job.outcome, job.exit_code) == ("failed", 6)
    assert "Permission denied" in job.preview.refusals[0]
    with pytest.raises(Refused, match="Permission denied"):
        centres.switch()
    assert centres.running() == [JOB]


# what the Flink operator writes into the configuration of the JobManager of a FlinkDeployment
OPERATED = {
    "kubernetes.cluster-id": "orders",
    "kubernetes.namespace": "streaming",
    "kubernetes.rest-service.exposed.type": "ClusterIP",
    "high-availability.type": "kubernetes",
    "execution.shutdown-on-application-finish": "false",
    "internal.cluster.execution-mode": "NORMAL",
}


@pytest.mark.parametrize("stop", ["checkpoint", "savepoint"])
def test_a_job_of_the_operator_is_refused_with_what_ends_it_before_anything_is_done(
    centres: Centres, stop: Stop
) -> None:
    centres.a.options = OPERATED
    asked: list[str] = []
    centres.a.before = centres.b.before = asked.append
    (job,) = previewed(centres, stop=stop).jobs
    assert (job.outcome, job.exit_code) == ("failed", 6)
    (refusal,) = job.preview.refusals
    assert "runs on Kubernetes as orders in the namespace streaming" in refusal
    patch = '{"spec":{"job":{"state":"suspended"}}}'
    suspend = f"kubectl -n streaming patch flinkdeployment orders --type merge -p '{patch}'"
    assert f"`{suspend}`" in refusal
    with pytest.raises(Refused, match=r"was not stopped, and nothing was changed: .* Kubernetes"):
        centres.switch(stop=stop)
    assert (centres.running(), asked) == ([JOB], [])
    assert not (Path(centres.replica.removeprefix("file:"))).exists()


def test_a_job_that_starts_by_rest_in_a_cluster_of_the_operator_is_unknown_to_that(
    centres: Centres,
) -> None:
    centres.b.options = OPERATED
    (job,) = previewed(centres).jobs
    assert job.outcome == "can be switched"
    (warning,) = [each for each in job.warnings if "http://b:8081 runs on Kubernetes" in each]
    assert "no resource of the operator has a job that is started by REST" in warning


def test_without_a_target_the_start_of_an_operator_is_printed_too(centres: Centres) -> None:
    alone = Clusters(SimulatedControl(centres.a))
    done = switch_all(["orders"], centres.request(), lambda: alone, silent, stops_on_error=True)
    (job,) = done.jobs
    assert job.starting is not None
    text = FORMS.text(done)
    assert "    FlinkDeployment (Kubernetes operator):\n        spec:\n" in text
    assert f'initialSavepointPath: "{centres.replica}/{job.checkpoint}"' in text


def test_a_preview_is_a_page_that_begins_with_the_answer(centres: Centres) -> None:
    page = page_of(previewed(centres), Overview())
    assert page.title == "switch: preview"
    assert page.answer == "Job orders can be switched."
    assert page.tone == "good"
    facts = dict(page.facts)
    assert facts["withdraws"] == "no point"
    assert "no switch of this job into this TARGET_ROOT was measured" in facts["standstill"]
    assert facts["start"].startswith("POST /jars/<jar>/run {")
    assert f"{centres.replica}/<the last chk>" in facts["start"]  # which is not the newest one
    assert [chart.title for chart in page.charts] == ["Bytes to copy by job"]


@pytest.mark.parametrize(
    ("least", "text"), [(4.21, "not known, but at least 4.2 s: "), (0.01, "not known: ")]
)
def test_a_standstill_that_is_at_least_of_a_length_worth_a_word_is_shown_so(
    least: float, text: str
) -> None:
    job = JobSwitch("orders", "can be switched", least=least)
    assert expected(job).startswith(text)
    assert expected(replace(job, expected=7.0)) == "about 7.0 s, as at its last switch"


def test_a_page_of_a_preview_has_all_that_is_in_the_way(centres: Centres) -> None:
    centres.a.is_retained = False
    page = page_of(previewed(centres), Overview())
    assert page.tone == "bad"
    assert any("not retained" in note for note in page.notes)


def test_a_page_of_a_switch_has_its_standstill_and_its_rounds(centres: Centres) -> None:
    done = switch_all(
        ["orders"], centres.request(), lambda: centres.clusters, silent, stops_on_error=True
    )
    page = page_of(done, Overview())
    assert page.answer.startswith("Job orders was switched; it stood still for")
    assert [table.title for table in page.tables] == ["Jobs", "Rounds of copies"]


def test_content_that_is_damaged_is_found_before_the_job_is_stopped(
    centres: Centres, tmp_path: Path
) -> None:

    def damage(verb: str) -> None:
        kept = tmp_path / "dcB/replicas" / JOB / "shared/kept"
        if verb == "trigger" and kept.exists():
            data = kept.read_bytes()
            kept.write_bytes(bytes(len(data)))

    centres.a.after = damage
    with pytest.raises(NotSwitched, match=r"chk-2 of .* cannot be restored"):
        centres.switch(content=ALL)
    assert centres.running() == [JOB]
    assert not centres.is_sealed


def test_all_jobs_are_those_that_run_and_those_that_a_switch_has_begun(centres: Centres) -> None:
    with pytest.raises(NotThere, match="no job runs at"):
        every_job(centres.request(take_back=True), centres.clusters)
    centres.a.start(NEXT_JOB, "invoices")
    assert every_job(centres.request(), centres.clusters) == ("invoices", "orders")
    centres.a.after = fails_at("cancel", 1, Killed())
    with pytest.raises(Killed):
        centres.switch()
    centres.a.after = lambda _verb: None
    assert every_job(centres.request(), centres.clusters) == ("orders", "invoices")
    assert every_job(centres.request(take_back=True), centres.clusters) == ("orders",)


def test_one_at_a_time_the_jobs_behind_one_that_failed_are_not_looked_at(
    centres: Centres,
) -> None:
    centres.a.start(NEXT_JOB, "invoices")
    jobs, asked = ["unknown", "invoices"], centres.request()
    done = switch_all(jobs, asked, lambda: centres.clusters, silent, True, at_once=1)
    assert [job.exit_code for job in done.jobs] == [10, 6]
    assert "another job was not switched" in str(done.jobs[1].error)
    assert len(centres.a.running()) == 2
    assert not (Path(centres.target.removeprefix("file:")) / NEXT_JOB).exists()


class Reading(SimulatedFlink):
    """A cluster whose jobs read from Kafka: each checkpoint is a record further."""

    def complete(self, job_id: str) -> int:
        job, root = self.jobs[job_id], Path(self.root.removeprefix("file:"))
        job.newest += 1
        job.completed += 1
        put_kafka_checkpoint(root, job.newest, [Split("orders", 0, job.newest)], job=job_id)
        return job.newest


class Mirror(StandInKafka):
    """A Kafka that has a record more each time it is asked, unless it stands still."""

    is_running = True

    def ranges(self, *words: Any) -> Any:
        (partition, (begin, end)), *_ = self.held.items()
        if self.is_running:
            self.held = {partition: (begin, end + 1)}
        return super().ranges(*words)


class Writing(SimulatedFlink):
    """A cluster whose jobs write part files."""

    def complete(self, job_id: str) -> int:
        job = self.jobs[job_id]
        job.newest += 1
        job.completed += 1
        part = sink_states.Part("hdfs://dcA/out/part-0", "hdfs://dcA/out/.part-0.7", 10)
        states = stream({WRITER: [sink_states.bucket(3, part)]})
        own = (subtask(0, states, inline(states.data)),)
        sink = OperatorEntry(bytes([9]) * 16, 1, 16, own, None, "out: Writer")
        directory = Path(self.root.removeprefix("file:")) / job_id / f"chk-{job.newest}"
        directory.mkdir(parents=True)
        (directory / "_metadata").write_bytes(encode(Tree(6, (sink,), job.newest)).data)
        return job.newest


@pytest.fixture
def reading(centres: Centres, tmp_path: Path) -> Centres:
    return of_clusters(Reading, centres, tmp_path)


def of_clusters(kind: type[SimulatedFlink], centres: Centres, tmp_path: Path) -> Centres:
    """Return the two centres with clusters of this kind, in one of which the job runs."""
    shutil.rmtree(tmp_path / "dcA")
    for name in ("a", "b"):
        former = getattr(centres, name)
        setattr(centres, name, kind(former.url, former.root))
    centres.a.start(JOB, "orders")
    return centres


def test_a_preview_warns_of_part_files_that_no_sync_copies(
    centres: Centres, tmp_path: Path
) -> None:
    (job,) = previewed(of_clusters(Writing, centres, tmp_path)).jobs
    (warning,) = [each for each in job.preview.warnings if "part file" in each]
    assert warning.startswith(
        "1 part file in progress (10 bytes) of out: Writer in hdfs://dcA/out."
    )
    assert "does not start where they are missing" in warning


def test_a_mirror_that_lacks_what_the_job_has_read_is_refused_before_the_stop(
    reading: Centres,
) -> None:
    behind = Mirror({("orders", 0): (0, 0)})
    behind.is_running = False
    asked = {"kafka": KafkaAsked(behind)}
    (job,) = previewed(reading, **asked).jobs
    assert "positions are beyond the end (1: orders partition 0)" in job.preview.refusals[0]
    with pytest.raises(Refused, match="beyond the end"):
        reading.switch(**asked)
    assert reading.running() == [JOB]


def test_a_kafka_that_does_not_answer_stops_no_job(reading: Centres) -> None:
    class Silent(StandInKafka):
        def topics(self) -> Any:
            raise Transient("Kafka could not be reached")

    with pytest.raises(Refused, match="Kafka could not be reached"):
        reading.switch(kafka=KafkaAsked(Silent()))
    assert reading.running() == [JOB]


def test_a_mirror_that_is_behind_the_last_point_is_waited_for(reading: Centres) -> None:
    mirror = Mirror({("orders", 0): (0, 0)})
    lines: list[str] = []
    asked = reading.request(kafka=KafkaAsked(mirror), patience=60.0)
    done = switch(asked, reading.clusters, lines.append)
    assert done.outcome == "switched"
    assert len([each for each in lines if each.startswith("waiting until a mirror")]) == 1
    last = int(str(done.checkpoint).removeprefix("chk-"))
    assert mirror.held["orders", 0][1] >= last


def test_a_mirror_that_does_not_catch_up_has_the_job_run_again_where_it_ran(
    reading: Centres,
) -> None:
    behind = Mirror({("orders", 0): (0, 1)})
    behind.is_running = False
    with pytest.raises(NotSwitched, match=r"chk-3 does not fit .*beyond the end.* runs again"):
        reading.switch(kafka=KafkaAsked(behind))
    (job_id,) = reading.running()
    assert reading.a.jobs[job_id].restored == f"{reading.a.root}/{JOB}/chk-3"
    assert not reading.is_sealed
