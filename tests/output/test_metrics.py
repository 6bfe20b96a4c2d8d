"""The metrics of observed jobs."""

import math

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from cpreplicate import __version__
from cpreplicate.core.lag import Newest
from cpreplicate.core.shard import Shard
from cpreplicate.operations.jobs.coverage import Discovered
from cpreplicate.operations.jobs.observation import Observation
from cpreplicate.operations.jobs.schedule import Load
from cpreplicate.operations.jobs.workers.workers import ProcessCounts
from cpreplicate.operations.replicas.housekeeping import HousekeepingCounts
from cpreplicate.output.metrics import (
    DURATIONS,
    FAMILIES,
    HOUSEKEEPING,
    LOAD_GAUGES,
    SNAPSHOT_FAILURES,
    SNAPSHOTS_BEHIND,
    UNMATCHED,
    UNSEEN,
    JobCollector,
    registry_of,
)
from tests.support.stepping import ManualClock

REPLICA = "hdfs://dcB/flink/replicas/55d1"


def collected(*jobs, now=1000.0):
    """Samples as `name{other labels}`, of one job or of several."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for metric in JobCollector(lambda: jobs, ManualClock(now)).collect()
        for sample in metric.samples
    }


def values(job, now=1000.0):
    """Samples by name, without those that have further labels."""
    named = ("flink_job", "replica", "operation")
    return {
        name: value
        for (name, *labels), value in collected(job, now=now).items()
        if all(label in named for label, _ in labels)
    }


def test_a_job_that_was_never_tried_has_only_counters_that_are_0():
    assert values(Observation("orders", replica=REPLICA)) == {
        "cpreplicate_tries_total": 0,
        "cpreplicate_sync_seconds_count": 0,
        "cpreplicate_sync_seconds_sum": 0,
    }


@pytest.mark.parametrize(
    ("operation", "codes"),
    [
        ("sync", {1, 3, 5, 6, 7, 10}),
        ("sweep", {1, 3, 5, 6, 7, 10}),
        ("verify", {1, 3, 4, 5, 6, 7, 10}),
    ],
)
def test_failures_are_counted_from_0_on(operation, codes):
    def failures(job):
        return {
            int(dict(labels)["exit_code"]): value
            for (name, *labels), value in collected(job).items()
            if name == "cpreplicate_failures_total"
        }

    job = Observation("orders", replica=REPLICA, operation=operation)
    assert failures(job) == dict.fromkeys(codes, 0)
    job.failed(10, "not there", 1000.0)
    job.failed(11, "lease", 1000.0)
    assert failures(job) == {**dict.fromkeys(codes, 0), 10: 1, 11: 1}


def test_syncs_are_counted_by_their_seconds():
    job = Observation("orders", replica=REPLICA)
    for seconds in (0.2, 15.0, 16.0, 90_000.0):
        job.took(seconds)
    samples = collected(job)
    labels = [("flink_job", "orders"), ("replica", REPLICA)]
    counts = {
        dict(more)["le"]: value
        for (name, *more), value in samples.items()
        if name == "cpreplicate_sync_seconds_bucket" and set(labels) < set(more)
    }
    assert counts == {
        **{"1.0": 1, "5.0": 1, "15.0": 2, "60.0": 3, "300.0": 3, "900.0": 3, "3600.0": 3},
        **{"14400.0": 3, "+Inf": 4},
    }
    count = ("cpreplicate_sync_seconds_count", *labels)
    total = ("cpreplicate_sync_seconds_sum", *labels)
    assert samples[count] == 4
    assert samples[total] == pytest.approx(90_031.2)


def test_without_details_the_times_of_jobs_are_those_of_all_together():
    job, total = Observation("orders", replica=REPLICA), Observation("all jobs")
    job.looked, total.seconds["copy"] = 990.0, 7
    for each in (job, job, total):
        each.took(3.0)
        each.seconds["copy"] += 3
    registry = registry_of(lambda: [job], with_process=False, total=lambda: total)
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for metric in registry.collect()
        for sample in metric.samples
    }
    phase = ("cpreplicate_phase_seconds_total", ("operation", "sync"), ("phase", "copy"))
    assert samples[phase] == 10.0
    assert samples["cpreplicate_sync_seconds_count",] == 1
    names = {name for name, *labels in samples if ("flink_job", "orders") in labels}
    assert not names & {"cpreplicate_phase_seconds_total", "cpreplicate_sync_seconds_count"}
    assert "cpreplicate_source_seen_timestamp_seconds" not in {name for name, *_ in samples}
    assert "cpreplicate_tries_total" in names


def test_a_sweep_has_no_seconds_of_syncs():
    names = {name for name, *_ in collected(Observation("orders", operation="sweep"))}
    assert not [name for name in names if "sync_seconds" in name]


def test_a_service_shows_how_busy_it_is():
    text = generate_latest(registry_of(list, load=lambda: Load(3, 8, 20))).decode()
    for line in ("slots_busy 3.0", "jobs_waiting 8.0", "slots 20.0"):
        assert f"\ncpreplicate_{line}\n" in text


def test_what_discovery_misses_is_shown_beside_what_it_sees():
    seen = Discovered({"http://jm-1:8081": True, "file:/r": False}, {"--include a-*": True})
    text = generate_latest(registry_of(list, discovered=lambda: seen)).decode()
    for line in (
        'unseen{source="http://jm-1:8081"} 1.0',
        'unseen{source="file:/r"} 0.0',
        'unmatched{name="--include a-*"} 1.0',
    ):
        assert f"\ncpreplicate_discovery_{line}\n" in text
    assert "discovery" not in generate_latest(registry_of(list)).decode()


def test_lag_is_the_age_of_the_replica_while_the_source_has_a_newer_checkpoint():
    job = Observation("orders", replica=REPLICA)
    job.source_newest, job.replica_newest = Newest(42, 990.0), Newest(40, 970.0)
    samples = values(job)
    assert samples["cpreplicate_replica_lag_seconds"] == 30
    assert samples["cpreplicate_replica_checkpoints_behind"] == 2
    assert samples["cpreplicate_source_checkpoint_id"] == 42
    assert samples["cpreplicate_replica_checkpoint_id"] == 40
    assert samples["cpreplicate_source_checkpoint_timestamp_seconds"] == 990
    assert samples["cpreplicate_replica_checkpoint_timestamp_seconds"] == 970


def test_lag_is_infinite_without_a_replica():
    job = Observation("orders", source_newest=Newest(42, 990.0))
    assert values(job)["cpreplicate_replica_lag_seconds"] == math.inf
    assert "cpreplicate_replica_checkpoint_id" not in values(job)


def test_lag_is_unknown_while_no_checkpoint_of_the_source_was_seen():
    job = Observation("orders", replica_newest=Newest(40, 970.0))
    assert "cpreplicate_replica_lag_seconds" not in values(job)
    assert "cpreplicate_replica_checkpoints_behind" not in values(job)


def test_flags_are_0_or_1_and_unknown_ones_have_no_sample():
    job = Observation("orders", is_sealed=True, is_lease_held=False)
    samples = values(job)
    assert samples["cpreplicate_replica_sealed"] == 1
    assert samples["cpreplicate_lease_held"] == 0
    assert "cpreplicate_replica_restorable" not in samples


def test_a_replica_is_ready_or_has_one_reason_why_not():
    def samples(readiness):
        job = Observation("orders", replica=REPLICA, readiness=readiness)
        found = collected(job)
        return {
            (name.removeprefix("cpreplicate_replica_"), dict(labels).get("reason")): value
            for (name, *labels), value in found.items()
            if "ready" in name
        }

    assert samples(None) == {}
    assert samples("ready") == {("ready", None): 1}
    assert samples("foreign") == {("ready", None): 0, ("unready", "foreign"): 1}


def test_counters_have_their_action_phase_or_exit_code():
    job = Observation("orders", replica=REPLICA)
    job.files.update(copied=3)
    job.bytes.update(copied=300)
    job.seconds.update({"copy": 1.5})
    job.failures[7] = 2
    labels = [("flink_job", "orders"), ("operation", "sync"), ("replica", REPLICA)]
    samples = collected(job)

    def value(name, label):
        key = (name, *sorted([*labels, label]))
        return samples[key]

    assert value("cpreplicate_files_total", ("action", "copied")) == 3
    assert value("cpreplicate_bytes_total", ("action", "copied")) == 300
    assert value("cpreplicate_phase_seconds_total", ("phase", "copy")) == 1.5
    assert value("cpreplicate_failures_total", ("exit_code", "7")) == 2


def test_a_job_that_left_disappears():
    jobs = [Observation("orders"), Observation("clicks")]
    registry = registry_of(lambda: jobs, with_process=False)
    assert b'flink_job="clicks"' in generate_latest(registry)
    jobs.pop()
    assert b'flink_job="clicks"' not in generate_latest(registry)


def test_no_two_samples_have_the_same_labels():
    jobs = [Observation("orders", tries=1), Observation("orders", tries=2)]
    text = generate_latest(registry_of(lambda: jobs, with_process=False)).decode()
    (line,) = [line for line in text.splitlines() if line.startswith("cpreplicate_tries_total{")]
    assert line.endswith(" 2.0")


def test_no_label_is_one_of_the_scrape():
    names = {label for family in FAMILIES for label in family.labels}
    assert not names & {"job", "instance"}


def test_a_name_with_quotes_and_newlines_is_read_back_as_it_was():
    name = 'a "job"\\with\na newline'
    text = generate_latest(registry_of(lambda: [Observation(name)], with_process=False)).decode()
    families = text_string_to_metric_families(text)
    names = {sample.labels["flink_job"] for family in families for sample in family.samples}
    assert names == {name}


def test_what_a_service_did_beside_its_syncs_is_counted():
    counts = HousekeepingCounts(swept=3, swept_bytes=40, forgotten=2, kept=5, failures=1)
    text = generate_latest(registry_of(list, housekeeping=lambda: counts)).decode()
    for name, value in zip(HOUSEKEEPING, counts, strict=True):
        assert f"\n{name.name} {float(value)}\n" in text


def test_a_process_shows_its_version_and_start():
    text = generate_latest(registry_of(list)).decode()
    assert f'cpreplicate_build_info{{version="{__version__}"}} 1.0' in text
    assert "process_start_time_seconds " in text


@pytest.mark.parametrize(
    "family",
    [
        *(*FAMILIES, DURATIONS, *LOAD_GAUGES, *HOUSEKEEPING),
        *(UNSEEN, UNMATCHED, SNAPSHOTS_BEHIND, SNAPSHOT_FAILURES),
    ],
    ids=lambda family: family.name,
)
def test_the_documentation_describes_each_metric(family, pytestconfig):
    page = (pytestconfig.rootpath / "docs" / "monitoring.md").read_text()
    assert f"`{family.name}`" in page


def test_a_source_that_nobody_looked_at_in_time_has_the_age_of_its_replica():
    job = Observation("orders", replica=REPLICA, look_within=60.0, known_since=900.0)
    assert "cpreplicate_replica_lag_seconds" not in values(job)
    job.replica_newest = Newest(42, 890.0)
    job.saw(Newest(42, 890.0), 940.0)
    samples = values(job, now=1000.0)
    assert samples["cpreplicate_replica_lag_seconds"] == 0
    assert samples["cpreplicate_source_unseen"] == 0
    samples = values(job, now=1000.5)
    assert samples["cpreplicate_replica_lag_seconds"] == 110.5
    assert samples["cpreplicate_source_unseen"] == 1
    assert samples["cpreplicate_source_seen_timestamp_seconds"] == 940.0
    assert "cpreplicate_replica_checkpoints_behind" not in samples


def test_a_source_that_was_never_seen_is_unseen_after_a_while():
    job = Observation("orders", replica=REPLICA, look_within=60.0, known_since=900.0)
    assert values(job, now=960.0)["cpreplicate_source_unseen"] == 0
    assert values(job, now=961.0)["cpreplicate_source_unseen"] == 1
    job.replica_newest = Newest(42, 890.0)
    assert values(job, now=961.0)["cpreplicate_replica_lag_seconds"] == 71.0


@pytest.mark.parametrize(
    "odd",
    [
        Observation("\ud800", replica=REPLICA),
        Observation('a\nb\r"\\{}\0', replica=f"{REPLICA}\udcff"),
        Observation("x", replica=REPLICA, source_newest=Newest(10**400, 1.0)),
        Observation("x", replica=REPLICA, source_newest=Newest(1, float("nan"))),
        Observation("x", replica=REPLICA, replica_newest=Newest(1, "not a time")),
        Observation("x" * 1_000_000, replica=REPLICA),
    ],
    ids=range(6),
)
def test_a_job_whose_name_or_number_is_odd_hides_no_other(odd):
    good = Observation("orders", replica=f"{REPLICA}2", source_newest=Newest(42, 990.0))
    text = generate_latest(registry_of(lambda: [odd, good], with_process=False)).decode()
    samples = {
        (sample.name, sample.labels["flink_job"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["cpreplicate_source_checkpoint_id", "orders"] == 42
    assert samples["cpreplicate_replica_lag_seconds", "orders"] == math.inf


def test_a_service_shows_which_shard_it_follows_into_which_target():
    text = generate_latest(registry_of(list, sharing=lambda: (Shard(1, 2), ["b:/1"]))).decode()
    assert '\ncpreplicate_shards{shard="1",target="b:/1"} 2.0\n' in text


def test_a_service_shows_the_memory_of_each_process_and_how_many_died():
    counts = ProcessCounts({"service": 3, "worker-1": 4}, 2)
    text = generate_latest(registry_of(list, processes=lambda: counts)).decode()
    assert '\ncpreplicate_process_memory_bytes{process="service"} 3.0\n' in text
    assert '\ncpreplicate_process_memory_bytes{process="worker-1"} 4.0\n' in text
    assert "\ncpreplicate_worker_deaths_total 2.0\n" in text


def test_a_job_is_lost_until_its_directory_has_no_checkpoint_any_more():
    job = Observation("orders", replica=REPLICA, is_unreported=True)
    job.source_newest = Newest(42, 990.0)
    assert values(job)["cpreplicate_job_unreported"] == 1
    job.source_newest = None
    assert "cpreplicate_job_unreported" not in values(job)


def test_how_far_the_clocks_of_flink_and_its_storage_are_apart_is_shown():
    job = Observation("orders", replica=REPLICA, replica_newest=Newest(42, 990.0, True, 995.0))
    assert values(job)["cpreplicate_source_clocks_apart_seconds"] == 5


def test_no_label_has_a_password():
    job = Observation("orders", replica="s3://user:pass/word@bucket/r", tries=1)
    text = generate_latest(registry_of(lambda: [job])).decode()
    assert 'replica="s3://bucket/r"' in text
    assert "word" not in text
