"""Prometheus metrics of observed jobs: docs/monitoring.md describes each of them.

The labels `job` and `instance` belong to the scrape, so a job's name is the label `flink_job`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from cpreplicate.core import uri
from cpreplicate.core.clock import MACHINE, Clock
from cpreplicate.core.shard import Shard
from cpreplicate.operations.jobs.coverage import Discovered
from cpreplicate.operations.jobs.observation import SYNC_SECONDS, Observation, Operation
from cpreplicate.operations.jobs.schedule import Load
from cpreplicate.operations.jobs.snapshots import SnapshotCounts
from cpreplicate.version import __version__

if TYPE_CHECKING:
    from cpreplicate.operations.jobs.workers.workers import ProcessCounts
    from cpreplicate.operations.replicas.housekeeping import HousekeepingCounts

Samples = Iterable[tuple[tuple[str, ...], float | None]]
_JOB = ("flink_job", "replica")
_TRY = ("operation", *_JOB)
# The exit codes of failures that are counted from 0 on
_ANY = (1, 3, 5, 6, 7, 10)
_EXPECTED_CODES: Mapping[Operation, tuple[int, ...]] = {
    "sync": _ANY,
    "sweep": _ANY,
    "verify": (*_ANY, 4),
}


class Family(NamedTuple):
    """A metric: how its samples follow from an observation at a time.

    `samples` are the values of the labels after `labels`, and the value, None if it is unknown. A
    name that ends in `_total` is that of a counter. An `is_detail` is shown of each job only where
    that is asked for, and of all jobs together if it is a counter.
    """

    name: str
    help: str
    samples: Callable[[Observation, float], Samples]
    labels: tuple[str, ...] = _JOB
    is_detail: bool = False


def _one(value: Callable[[Observation], float | None]) -> Callable[[Observation, float], Samples]:
    return lambda job, _now: [((), value(job))]


def _each(
    values: Callable[[Observation], Mapping[str, float]],
) -> Callable[[Observation, float], Samples]:
    # a copy: another thread may add to it
    return lambda job, _now: (((key,), value) for key, value in sorted(dict(values(job)).items()))


def _lag(job: Observation, now: float) -> Samples:
    known = job.replica_newest if job.is_unseen(now) else None
    return [((), None if (known or job.source_newest) is None else job.lag(now))]


def _ready(job: Observation, _now: float) -> Samples:
    return [((), None if job.readiness is None else job.readiness == "ready")]


def _unready(job: Observation, _now: float) -> Samples:
    is_known = job.readiness not in (None, "ready")
    return [((str(job.readiness),), 1)] if is_known else []


def _behind(job: Observation, now: float) -> Samples:
    is_known = job.source_newest is not None and not job.is_unseen(now)
    return [((), job.behind() if is_known else None)]


def _unseen(job: Observation, now: float) -> Samples:
    return [((), None if job.look_within is None else job.is_unseen(now))]


def _failures(job: Observation, _now: float) -> Samples:
    # a counter that begins with its first failure shows no increase then
    expected = dict.fromkeys(_EXPECTED_CODES[job.operation], 0)
    counts = {**expected, **dict(job.failures)}
    return (((str(code),), count) for code, count in sorted(counts.items()))


FAMILIES = (
    Family(
        "cpreplicate_replica_lag_seconds",
        "Age of the replica's newest checkpoint while the source has a newer one or is unseen,"
        " else 0. +Inf without a replica.",
        _lag,
    ),
    Family(
        "cpreplicate_replica_checkpoints_behind",
        "Checkpoints that the replica is behind its source, by their numbers.",
        _behind,
    ),
    Family(
        "cpreplicate_source_unseen",
        "1 if nobody has looked at the source within two intervals, so that the lag is an age,"
        " else 0.",
        _unseen,
    ),
    Family(
        "cpreplicate_source_seen_timestamp_seconds",
        "Time at which the newest checkpoint of the source was last looked for and answered.",
        _one(lambda job: job.looked),
        is_detail=True,
    ),
    Family(
        "cpreplicate_source_checkpoint_id",
        "Number of the newest completed checkpoint that was seen at the source.",
        _one(lambda job: job.source_newest and job.source_newest.checkpoint_id),
    ),
    Family(
        "cpreplicate_source_checkpoint_timestamp_seconds",
        "Completion time of the newest checkpoint that was seen at the source.",
        _one(lambda job: job.source_newest and job.source_newest.completed),
    ),
    Family(
        "cpreplicate_replica_checkpoint_id",
        "Number of the newest checkpoint that can be restored from the replica.",
        _one(lambda job: job.replica_newest and job.replica_newest.checkpoint_id),
    ),
    Family(
        "cpreplicate_replica_checkpoint_timestamp_seconds",
        "Completion time, at the source, of the newest checkpoint of the replica.",
        _one(lambda job: job.replica_newest and job.replica_newest.completed),
    ),
    Family(
        "cpreplicate_source_clocks_apart_seconds",
        "Seconds by which Flink dates the replica's newest checkpoint later than the storage does.",
        _one(lambda job: job.replica_newest and job.replica_newest.clocks_apart),
        is_detail=True,
    ),
    Family(
        "cpreplicate_source_clock_ahead_seconds",
        "Seconds by which the clock of the source's storage is ahead of this host's, at least.",
        _one(lambda job: job.clock_ahead),
    ),
    Family(
        "cpreplicate_job_unreported",
        "1 if the JobManager answers without the job and has not reported its end, else no sample.",
        _one(lambda job: 1 if job.is_lost else None),
    ),
    Family(
        "cpreplicate_replica_sealed",
        "1 if the last try was refused because the replica is sealed, else 0.",
        _one(lambda job: job.is_sealed),
    ),
    Family(
        "cpreplicate_lease_held",
        "1 if another process held the lease of the replica at the last try, else 0.",
        _one(lambda job: job.is_lease_held),
    ),
    Family(
        "cpreplicate_replica_restorable",
        "1 if the last verify found the replica complete, 0 if it found damage.",
        _one(lambda job: job.is_restorable),
    ),
    Family(
        "cpreplicate_replica_ready",
        "1 if promote would succeed, as far as the last look at the replica showed, else 0.",
        _ready,
    ),
    Family(
        "cpreplicate_replica_unready",
        "1 for the reason why promote would not succeed. No sample if the replica is ready.",
        _unready,
        (*_JOB, "reason"),
    ),
    Family(
        "cpreplicate_orphan_bytes",
        "Bytes of orphans that the last sweep left in the replica.",
        _one(lambda job: job.orphan_bytes),
    ),
    Family(
        "cpreplicate_positions_without_fingerprint",
        "Positions in Kafka without a fingerprint of the last checkpoint that was replicated. +Inf"
        " if --kafka-source could not be read.",
        _one(lambda job: job.fingerprints_lacking),
    ),
    Family(
        "cpreplicate_last_try_timestamp_seconds",
        "Time at which the last try ended, successful or not.",
        _one(lambda job: job.last_try),
        _TRY,
    ),
    Family(
        "cpreplicate_last_success_timestamp_seconds",
        "Time at which the last successful try ended, also one with nothing to do.",
        _one(lambda job: job.last_success),
        _TRY,
    ),
    Family(
        "cpreplicate_last_exit_code",
        "Exit code of the last try: 0 after a success.",
        _one(lambda job: job.last_exit_code),
        _TRY,
    ),
    Family(
        "cpreplicate_tries_total", "Tries, successful or not.", _one(lambda job: job.tries), _TRY
    ),
    Family(
        "cpreplicate_failures_total", "Failed tries by exit code.", _failures, (*_TRY, "exit_code")
    ),
    Family(
        "cpreplicate_files_total",
        "Files that were copied, kept and deleted.",
        _each(lambda job: job.files),
        (*_TRY, "action"),
    ),
    Family(
        "cpreplicate_bytes_total",
        "Bytes of the files that were copied, kept and deleted.",
        _each(lambda job: job.bytes),
        (*_TRY, "action"),
    ),
    Family(
        "cpreplicate_phase_seconds_total",
        "Seconds of successful tries by phase.",
        _each(lambda job: job.seconds),
        (*_TRY, "phase"),
        is_detail=True,
    ),
)


class Described(NamedTuple):
    """A metric that is no `Family`: its name, and what it means."""

    name: str
    help: str


DURATIONS = Described(
    "cpreplicate_sync_seconds", "Seconds that syncs took which changed the replica."
)
LOAD_GAUGES = (
    Described("cpreplicate_slots_busy", "Jobs that are tried at this moment."),
    Described("cpreplicate_jobs_waiting", "Jobs that are due and wait for a slot."),
    Described("cpreplicate_slots", "Slots for the jobs of each priority, see --slots."),
)
"""In the order of the fields of `Load`."""
UNSEEN = Described(
    "cpreplicate_discovery_unseen",
    "1 if no jobs could be looked for at this JobManager or root within two intervals, else 0.",
)
UNMATCHED = Described(
    "cpreplicate_discovery_unmatched",
    "1 while no job is followed for this name of --job-name or pattern of --include, else 0.",
)


SHARDS = Described(
    "cpreplicate_shards",
    "Number of shards of the jobs of this TARGET_ROOT, by the shard that this service follows.",
)

SNAPSHOTS_BEHIND = Described(
    "cpreplicate_snapshots_behind", "Jobs whose FlinkStateSnapshot in Kubernetes is not current."
)
SNAPSHOT_FAILURES = Described(
    "cpreplicate_snapshot_failures_total",
    "Calls to Kubernetes for FlinkStateSnapshots that failed.",
)


HOUSEKEEPING = (
    Described("cpreplicate_swept_files_total", "Files that the service's own sweeps removed."),
    Described("cpreplicate_swept_bytes_total", "Bytes of these files."),
    Described("cpreplicate_forgotten_replicas_total", "Replicas that --forget-ended removed."),
    Described(
        "cpreplicate_forget_kept",
        "Replicas older than --forget-ended that stayed in the last round.",
    ),
    Described(
        "cpreplicate_housekeeping_failures_total",
        "Sweeps, and removals of replicas, that failed or were refused.",
    ),
)
"""In the order of the fields of `HousekeepingCounts`."""


PROCESS_MEMORY = Described(
    "cpreplicate_process_memory_bytes",
    "Resident memory of each process of the service: of itself, and of its workers.",
)
WORKER_DEATHS = Described(
    "cpreplicate_worker_deaths_total",
    "Worker processes that died, or could not be started. Others have taken their places.",
)


class JobCollector(Collector):
    """The metrics of the jobs that `observations` returns at each scrape.

    Jobs that left disappear. What is unknown has no sample. Of two jobs with the same labels the
    later one counts: Prometheus would reject both. `total` returns what all jobs took together:
    then the details are those of all, not of each.
    """

    def __init__(
        self,
        observations: Callable[[], Sequence[Observation]],
        clock: Clock = MACHINE,
        total: Callable[[], Observation] | None = None,
    ) -> None:
        self._observations, self._clock, self._total = observations, clock, total

    def collect(self) -> Iterator[Metric]:
        """Yield each metric that has samples."""
        now = self._clock.now()
        jobs = {_labels(job, _TRY): job for job in self._observations()}
        total = None if self._total is None else self._total()
        for family in FAMILIES:
            if total is None or not family.is_detail:
                metric = _metric(family, jobs.values(), now)
            elif family.name.endswith("_total"):
                metric = _metric(_of_all(family), [total], now)
            else:
                continue
            if metric.samples:
                yield metric
        durations = _durations(jobs.values()) if total is None else _durations([total], ())
        if durations.samples:
            yield durations


class _Scraped(Collector):
    """The metrics that a function yields at each scrape."""

    def __init__(self, metrics: Callable[[], Iterator[Metric]]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return self._metrics()


def _of_load(load: Load) -> Iterator[Metric]:
    """Yield how busy a service is."""
    for gauge, value in zip(LOAD_GAUGES, load, strict=True):
        yield GaugeMetricFamily(gauge.name, gauge.help, value=value)


def _of_discovery(now: Discovered) -> Iterator[Metric]:
    """Yield what the discovery of a service misses."""
    for gauge, label, values in (
        (UNSEEN, "source", now.unseen),
        (UNMATCHED, "name", now.unmatched),
    ):
        metric = GaugeMetricFamily(gauge.name, gauge.help, labels=[label])
        for text, value in {_writable(text): value for text, value in values.items()}.items():
            metric.add_metric([text], value)
        if metric.samples:
            yield metric


def _of_shard(shard: Shard, target_roots: Iterable[str]) -> Iterator[Metric]:
    """Yield which part of the jobs a service follows."""
    metric = GaugeMetricFamily(SHARDS.name, SHARDS.help, labels=["target", "shard"])
    for target in sorted(set(map(_writable, target_roots))):
        metric.add_metric([target, str(shard.number)], shard.shards)
    if metric.samples:
        yield metric


def _of_snapshots(counts: SnapshotCounts) -> Iterator[Metric]:
    """Yield what a service keeps in Kubernetes."""
    behind, failed = SNAPSHOTS_BEHIND, SNAPSHOT_FAILURES
    yield GaugeMetricFamily(behind.name, behind.help, value=counts.behind)
    yield CounterMetricFamily(failed.name, failed.help, value=counts.failures)


def _of_housekeeping(counts: HousekeepingCounts) -> Iterator[Metric]:
    """Yield what a service has done beside its syncs."""
    for metric, value in zip(HOUSEKEEPING, counts, strict=True):
        kind = CounterMetricFamily if metric.name.endswith("_total") else GaugeMetricFamily
        yield kind(metric.name, metric.help, value=value)


def _of_processes(counts: ProcessCounts) -> Iterator[Metric]:
    """Yield what the processes of a service take, and how many died."""
    memory = GaugeMetricFamily(PROCESS_MEMORY.name, PROCESS_MEMORY.help, labels=["process"])
    for process, size in counts.memory.items():
        memory.add_metric([process], size)
    yield memory
    yield CounterMetricFamily(WORKER_DEATHS.name, WORKER_DEATHS.help, value=counts.deaths)


def _build_info() -> Iterator[Metric]:
    version = {"version": __version__}
    yield InfoMetricFamily("cpreplicate_build", "The version that runs.", value=version)


def registry_of(
    observations: Callable[[], Sequence[Observation]],
    clock: Clock = MACHINE,
    load: Callable[[], Load] | None = None,
    discovered: Callable[[], Discovered] = Discovered,
    snapshots: Callable[[], SnapshotCounts] | None = None,
    sharing: Callable[[], tuple[Shard, Iterable[str]]] | None = None,
    with_process: bool = True,
    housekeeping: Callable[[], HousekeepingCounts] | None = None,
    total: Callable[[], Observation] | None = None,
    processes: Callable[[], ProcessCounts] | None = None,
) -> CollectorRegistry:
    """Return a registry of the metrics of jobs, and of this process if `with_process`.

    `load` returns how busy the service is, if it is one, and `discovered` what it misses.
    `snapshots` counts what it keeps in Kubernetes. `sharing` returns its shard, and into which
    TARGET_ROOTs it replicates. `housekeeping` counts what it did beside its syncs. `total` is as of
    `JobCollector`. `processes` counts the processes of a service.
    """
    registry = CollectorRegistry()
    registry.register(JobCollector(observations, clock, total))
    if load is not None:
        registry.register(_Scraped(lambda: _of_load(load())))
    registry.register(_Scraped(lambda: _of_discovery(discovered())))
    if sharing is not None:
        registry.register(_Scraped(lambda: _of_shard(*sharing())))
    if snapshots is not None:
        registry.register(_Scraped(lambda: _of_snapshots(snapshots())))
    if housekeeping is not None:
        registry.register(_Scraped(lambda: _of_housekeeping(housekeeping())))
    if processes is not None:
        registry.register(_Scraped(lambda: _of_processes(processes())))
    if with_process:
        registry.register(_Scraped(_build_info))
        ProcessCollector(registry=registry)
    return registry


def _metric(family: Family, jobs: Iterable[Observation], now: float) -> Metric:
    kind = CounterMetricFamily if family.name.endswith("_total") else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for job in jobs:
        labels = _labels(job, family.labels)
        for more, value in _samples(family, job, now):
            metric.add_metric((*labels, *more), value)
    return metric


def _of_all(family: Family) -> Family:
    """Return a metric of all jobs together: without the labels of one."""
    return family._replace(labels=tuple(each for each in family.labels if each not in _JOB))


def _durations(jobs: Iterable[Observation], names: tuple[str, ...] = _JOB) -> HistogramMetricFamily:
    """Return the histogram of the seconds of syncs, with those labels."""
    histogram = HistogramMetricFamily(DURATIONS.name, DURATIONS.help, labels=names)
    for job in jobs:
        if job.operation == "sync":
            buckets = [(_le(bound), job.sync_durations[bound]) for bound in SYNC_SECONDS]
            histogram.add_metric(_labels(job, names), buckets, job.sync_seconds)
    return histogram


def _le(bound: float) -> str:
    return "+Inf" if math.isinf(bound) else str(bound)


def _samples(family: Family, job: Observation, now: float) -> list[tuple[tuple[str, ...], float]]:
    """Return the samples of a job that are known. What is wrong with one hides no other job."""
    try:
        samples = family.samples(job, now)
        return [(more, float(value)) for more, value in samples if value is not None]
    except Exception:  # noqa: BLE001  # such as a number that is too large for a float
        return []


def _labels(job: Observation, names: Sequence[str]) -> tuple[str, ...]:
    """Return the values of those labels that identify the job and what is tried."""
    values = {"operation": job.operation, "flink_job": job.name, "replica": job.replica}
    return tuple(_writable(values[name]) for name in names if name in values)


def _writable(text: str) -> str:
    """Return a label's value, whatever a job or a directory is called, without passwords."""
    return uri.without_password(text.encode("utf-8", "replace").decode())
