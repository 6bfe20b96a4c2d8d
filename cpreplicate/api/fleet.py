"""Many jobs in one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cpreplicate.api import values
from cpreplicate.api.cancellation import Cancellation
from cpreplicate.api.options import SyncOptions
from cpreplicate.api.places import AnyPlace, Checkpoint, place_of
from cpreplicate.api.replication import OnProgress, Progress, options_of, request_of, sides_of
from cpreplicate.api.running import execution_of, running
from cpreplicate.core import uri
from cpreplicate.core.notify import Notify, silent
from cpreplicate.core.placement import job_root
from cpreplicate.errors import UsageError
from cpreplicate.operations.jobs.fleet import FleetReport, FleetSettings, replicate_fleet
from cpreplicate.operations.jobs.job import Job, jobs_under
from cpreplicate.operations.jobs.spread import Spread
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Sides

_OF_THE_RUN = ("execution", "unsafe_lease", "bandwidth", "max_rps")


@dataclass(frozen=True)
class FleetJob:
    """A job of `fleet`: its directory at the source, and a root of replicas.

    `options` are those of its sync. `execution`, `unsafe_lease`, `bandwidth` and `max_rps` are of
    the whole run: give these to `fleet`. Jobs of a higher `priority` are replicated first.
    `is_found`: it was found below a root, so it may have no checkpoint, or be a replica.
    """

    source: AnyPlace
    target: AnyPlace
    options: SyncOptions = field(default=SyncOptions())
    priority: int = 0
    is_found: bool = False

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value that the command line would refuse."""
        place_of("source", self.source)
        place_of("target", self.target)
        values.of_type("options", self.options, SyncOptions, "a SyncOptions")
        values.whole("priority", self.priority)
        values.flag("is_found", self.is_found)
        for name in _OF_THE_RUN:
            if getattr(self.options, name) != getattr(SyncOptions(), name):
                raise UsageError(
                    f"the option {name} of the API is of the whole run: give it to fleet, not to a"
                    " FleetJob"
                )


def jobs_below(
    root: AnyPlace,
    target: AnyPlace,
    options: SyncOptions | None = None,
    *,
    cancellation: Cancellation | None = None,
) -> tuple[FleetJob, ...]:
    """Return the jobs right below a root, as a [[root]] of `cpreplicate fleet`.

    Raises `NotThere` if there is none.
    """
    place, given = place_of("root", root), options_of(options)
    place_of("target", target)
    with running(silent, cancellation):
        found = jobs_under(place.uri, place.side())
    sources = (Checkpoint(**{**vars(place), "url": each}) for each in found)
    return tuple(FleetJob(source, target, given, is_found=True) for source in sources)


def fleet(
    jobs: Sequence[FleetJob],
    *,
    unsafe_lease: bool = False,
    bandwidth: values.Amount | None = None,
    max_rps: float | None = None,
    dry_run: bool = False,
    spread: Spread = "files",
    execution: ExecutionOptions | None = None,
    on_message: Notify = silent,
    on_progress: OnProgress | None = None,
    cancellation: Cancellation | None = None,
) -> FleetReport:
    """Replicate many jobs in one run, as `cpreplicate fleet`.

    What fails for one job is in its result: `exit_code` and `error`. All sources are reached in the
    same way, and all targets are: else it raises `UsageError`.
    """
    of_run = SyncOptions(unsafe_lease=unsafe_lease, bandwidth=bandwidth, max_rps=max_rps)
    sides = _sides_of_all(jobs, of_run)
    given = execution_of(execution)
    if on_progress is not None:
        given = replace(given, show=Progress(on_progress, on_message))
    is_dry_run = values.flag("dry_run", dry_run)
    settings = FleetSettings(spread=_spread(spread))
    with running(on_message, cancellation) as cancelled:
        asked = [_job(job, sides) for job in jobs]
        report = replicate_fleet(asked, given, sides, on_message, is_dry_run, settings)
        if report.exit_code:
            cancelled.raise_if_cancelled()  # else it is the error of each job
        return report


def _spread(given: Spread) -> Spread:
    return "jobs" if values.word("spread", given, "files", "jobs") == "jobs" else "files"


def _job(job: FleetJob, sides: Sides) -> Job:
    request = request_of(job.source, job.target, job.options, sides)
    name = request.name or uri.name(job_root(request.source))
    return Job(name, request, job.priority, job.is_found)


def _sides_of_all(jobs: Sequence[FleetJob], of_run: SyncOptions) -> Sides:
    """Return how the storages of all jobs are reached. Raises `UsageError` if they differ."""
    expected = "a sequence of one or more FleetJob"
    given = values.sequence("jobs", jobs, expected)
    if not given or not all(isinstance(job, FleetJob) for job in given):
        raise values.wrong("jobs", jobs, expected)
    places = [(place_of("source", job.source), place_of("target", job.target)) for job in jobs]
    for number, kind in enumerate(("source", "target")):
        if len({pair[number].side() for pair in places}) > 1:
            raise UsageError(
                f"the {kind}s of the jobs are reached in different ways. Give those that have other"
                " options, or another user, to another call of fleet"
            )
    return sides_of(*places[0], of_run)
