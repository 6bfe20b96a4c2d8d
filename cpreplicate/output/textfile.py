"""The metrics of runs from cron: a file for the textfile collector of Prometheus' node_exporter.

Each run is a process of its own. So it reads what earlier runs counted from the file, adds to it,
and replaces the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from stat import S_ISFIFO
from typing import NamedTuple, get_args

from prometheus_client import write_to_textfile
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from cpreplicate.core.lag import Newest
from cpreplicate.errors import Obstacle
from cpreplicate.operations.jobs.observation import Observation, Operation, Readiness
from cpreplicate.output.metrics import registry_of

_PREFIX = "cpreplicate_"
# metrics that are a field of an observation, and what makes its value of a number
_FIELDS: Mapping[str, tuple[str, Callable[[float], object]]] = {
    "tries_total": ("tries", int),
    "last_try_timestamp_seconds": ("last_try", float),
    "last_success_timestamp_seconds": ("last_success", float),
    "last_exit_code": ("last_exit_code", int),
    "source_seen_timestamp_seconds": ("looked", float),
    "sync_seconds_sum": ("sync_seconds", float),
    "replica_sealed": ("is_sealed", bool),
    "lease_held": ("is_lease_held", bool),
    "replica_restorable": ("is_restorable", bool),
    "orphan_bytes": ("orphan_bytes", int),
}
Warn = Callable[[str], None]
Apply = Callable[[Observation], None]


class Try(NamedTuple):
    """A try of a job, and how it changes the observation of the job."""

    name: str
    replica: str
    apply: Apply


class NotOurs(ValueError):
    """The file holds what cpreplicate did not write."""


class MetricsFile:
    """The file at `path` for runs of one operation, of one job or, if `is_fleet`, of many.

    Problems are reported to `warn`: they do not concern the work that was done. A file that holds
    other metrics is left as it is.
    """

    def __init__(self, path: str, operation: Operation, warn: Warn, is_fleet: bool = False) -> None:
        self._path, self._operation, self._warn = path, operation, warn
        self._is_fleet = is_fleet

    def record(self, tries: Sequence[Try]) -> None:
        """Add these tries. Other jobs disappear from the file."""
        self._update(lambda _earlier: tries)

    def record_failure_of_all(self, name: str, apply: Apply) -> None:
        """Add a failed try of each job in the file, or of `name` if it names none.

        A run may fail before its jobs are known.
        """
        self._update(
            lambda earlier: (
                [Try(job.name, job.replica, apply) for job in earlier] or [Try(name, "", apply)]
            )
        )

    def _update(self, tries_after: Callable[[Sequence[Observation]], Sequence[Try]]) -> None:
        """Write the file with what came of the tries. That it cannot be written is a warning."""
        try:
            jobs = read(self._path)
            earlier = [job for job in jobs if job.operation == self._operation]
            tries = tries_after(earlier)
            known = {(job.name, job.replica): job for job in earlier}
            now = [self._after(attempt, known) for attempt in tries]
            self._warn_of_others(jobs, now)
            write_to_textfile(self._path, registry_of(lambda: now, with_process=False))
        except NotOurs as error:
            self._warn(
                f"the metrics were not written: {self._path} holds what cpreplicate did not write"
                f" ({error}). Remove it, or give another --metrics-file"
            )
        except OSError as error:
            self._warn(f"the metrics were not written to {self._path}: {error.strerror or error}")

    def _after(self, attempt: Try, known: dict[tuple[str, str], Observation]) -> Observation:
        new = Observation(attempt.name, replica=attempt.replica, operation=self._operation)
        job = known.get((attempt.name, attempt.replica), new)
        attempt.apply(job)
        return job

    def _warn_of_others(self, before: Sequence[Observation], now: Sequence[Observation]) -> None:
        """Warn if another command writes the same file: each replaces what the other wrote."""
        written = {(job.operation, job.replica) for job in now}
        others = [job for job in before if (job.operation, job.replica) not in written]
        if self._is_fleet:  # jobs join and leave it
            others = [job for job in others if job.operation != self._operation]
        if others:
            other = others[0]
            self._warn(
                f"{self._path} held metrics of another command, {other.operation} of"
                f" {other.replica or other.name}: they were replaced. Give each command a"
                " --metrics-file of its own"
            )


def read(path: str) -> list[Observation]:
    """Return the jobs in a file that an earlier run wrote; none if there is no file.

    Raises `NotOurs` if it holds anything else, and `OSError`.
    """
    try:
        if S_ISFIFO(Path(path).stat().st_mode):  # a read would wait for a writer
            raise NotOurs("it is a pipe")
        text = Path(path).read_text("utf-8")
        samples = [sample for sample in _samples(text) if _is_ours(sample)]
        return _observations(samples)
    except FileNotFoundError:
        return []
    except (ValueError, LookupError, OverflowError) as error:
        raise NotOurs(" ".join(str(error).split())[:80] or type(error).__name__) from error


def _samples(text: str) -> Iterator[Sample]:
    for family in text_string_to_metric_families(text):
        yield from family.samples


def _is_ours(sample: Sample) -> bool:
    if not sample.name.startswith(_PREFIX):
        raise NotOurs(sample.name)
    return True


def _observations(samples: Sequence[Sample]) -> list[Observation]:
    """Return the jobs that the samples of a file describe."""
    jobs: dict[tuple[str, str], Observation] = {}
    with_operation = [sample for sample in samples if "operation" in sample.labels]
    for sample in with_operation:
        key = name, replica = _job_of(sample)
        operation = _operation(sample.labels["operation"])
        job = jobs.setdefault(key, Observation(name, replica=replica, operation=operation))
        _restore(job, sample)
    newest: dict[tuple[str, str], dict[str, float]] = {}
    for sample in samples:
        if "operation" not in sample.labels:
            _restore(jobs[_job_of(sample)], sample)
            newest.setdefault(_job_of(sample), {})[sample.name] = sample.value
    for key, values in newest.items():
        jobs[key].source_newest = _newest(values, "source")
        jobs[key].replica_newest = _newest(values, "replica")
    return list(jobs.values())


def _job_of(sample: Sample) -> tuple[str, str]:
    # Prometheus drops labels that are empty
    return sample.labels["flink_job"], sample.labels.get("replica", "")


def _operation(text: str) -> Operation:
    known: tuple[Operation, ...] = ("sync", "sweep", "verify")
    return known[known.index(text)]  # a ValueError if it is another


def _readiness(text: str) -> Readiness:
    known: tuple[Readiness, ...] = ("lease", *get_args(Obstacle))
    return known[known.index(text)]  # a ValueError if it is another


def _newest(values: dict[str, float], side: str) -> Newest | None:
    number = values.get(f"{_PREFIX}{side}_checkpoint_id")
    completed = values.get(f"{_PREFIX}{side}_checkpoint_timestamp_seconds")
    return None if number is None or completed is None else Newest(int(number), completed)


def _restore(job: Observation, sample: Sample) -> None:
    """Set the field of an observation from which the sample was made, if it is one of its own."""
    name, value, labels = sample.name.removeprefix(_PREFIX), sample.value, sample.labels
    if name in _FIELDS:
        field, convert = _FIELDS[name]
        setattr(job, field, convert(value))
    match name:
        case "failures_total":
            if value:  # else the code has not occurred
                job.failures[int(labels["exit_code"])] = int(value)
        case "sync_seconds_bucket":
            job.sync_durations[float(labels["le"])] = int(value)
        case "replica_ready":
            job.readiness = "ready" if value else job.readiness
        case "replica_unready":
            job.readiness = _readiness(labels["reason"])
        case "files_total":
            job.files[labels["action"]] = int(value)
        case "bytes_total":
            job.bytes[labels["action"]] = int(value)
        case "phase_seconds_total":
            job.seconds.update({labels["phase"]: value})
