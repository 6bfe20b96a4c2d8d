"""Wiring of the commands that run for months: `watch` and `fleet --every`."""

from __future__ import annotations

import gc
import logging
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from cpreplicate.cli.options.option import is_on_command_line
from cpreplicate.cli.running import failures, signals
from cpreplicate.cli.running.requests import build
from cpreplicate.cli.running.results import show_one_of_many
from cpreplicate.core.clock import Clock
from cpreplicate.core.shard import Shard
from cpreplicate.core.sizes import counted, plural
from cpreplicate.errors import NotThere, UsageError

if TYPE_CHECKING:
    from cpreplicate.core.notify import Notify
    from cpreplicate.flink import FlinkRest
    from cpreplicate.flink.control import FlinkControl
    from cpreplicate.operations.jobs.attempt import Make, Replicated, Show
    from cpreplicate.operations.jobs.coverage import Coverage
    from cpreplicate.operations.jobs.discovery import JobsUnder
    from cpreplicate.operations.jobs.flink_jobs import FlinkJobs
    from cpreplicate.operations.jobs.job import Discovery
    from cpreplicate.operations.jobs.observation import Observation
    from cpreplicate.operations.jobs.policy import OneJob
    from cpreplicate.operations.jobs.service import Service, ServiceSettings
    from cpreplicate.operations.jobs.snapshots import SnapshotCounts
    from cpreplicate.operations.jobs.spread import Spread
    from cpreplicate.operations.jobs.workers.messages import Begin
    from cpreplicate.operations.jobs.workers.workers import Workers
    from cpreplicate.operations.replicas.housekeeping import Housekeeper, HousekeepingCounts
    from cpreplicate.operations.sync.request import SyncRequest
    from cpreplicate.output import Form, Listing
    from cpreplicate.runners import ExecutionOptions, WarmRunners
    from cpreplicate.storage import Sides

_MAX_BACKOFF = 600.0  # seconds: one of many jobs leaves the others their turn
_MORE_THAN_GRACE = 1.25  # what a service takes at most to end
_HEARTBEAT_PAUSE = 5.0  # seconds between two looks at the lag of all jobs
_MOST_OF_FILE = 1 << 20  # bytes
_MOST_FILES = 65536
_COMMENT = re.compile(r"(?:^|\s)#")  # `#` in a word may be part of a password
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # a token of RFC 9110


def http_headers(words: Sequence[str]) -> dict[str, str]:
    """Return the headers that the values of an option give. Raises `UsageError`."""
    headers = {}
    for text in filter(str.strip, words):
        name, colon, value = text.partition(":")
        # the error of the HTTP client would show the value
        is_sendable = value.isascii() and value.strip().isprintable()
        if not colon or not _HEADER_NAME.fullmatch(name.strip()) or not is_sendable:
            raise UsageError("--header: expected NAME:VALUE, such as 'Authorization: Bearer …'")
        headers[name.strip()] = value.strip()
    return headers


def clusters_of(values: Mapping[str, Any]) -> tuple[FlinkControl, ...]:
    """Return clients of the JobManagers that a command asks. Raises `UsageError`."""
    from cpreplicate.flink.control import FlinkControl

    secrets = (values["client_certificate"], values["certificate_authority"])
    headers = http_headers(values["header"])
    return tuple(FlinkControl(url, headers, *secrets) for url in values["flink"])


def _lines_of(option: str, path: str) -> tuple[str, ...]:
    """Return the lines of a file, without comments. Raises `NotThere` if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MOST_OF_FILE + 1)
    except OSError as error:
        raise NotThere(f"the file of {option}, {path}, cannot be read: {error.strerror}") from error
    if len(content) > _MOST_OF_FILE:
        raise UsageError(
            f"{option} {path} has more than {_MOST_OF_FILE} bytes. Give a file with a URL of a"
            " JobManager, or an id of a job, per line"
        )
    # a line in another encoding is none, which concerns that line only
    lines = content.decode(errors="replace").splitlines()
    words = (_COMMENT.split(line)[0].strip() for line in lines)
    return tuple(filter(None, words))


@dataclass(frozen=True, kw_only=True)
class FollowOptions:
    """Which jobs `watch` follows; see the options of the same names."""

    flink: Sequence[str]
    flink_file: str | None
    ended_file: str | None
    job_name: Sequence[str]
    all_jobs: bool
    include: Sequence[str]
    exclude: Sequence[str]
    header: Sequence[str]
    client_certificate: str | None
    certificate_authority: str | None
    jobs_under: str | None
    retire_after: float | None

    @property
    def asks_flink(self) -> bool:
        """Whether jobs are found by the REST API."""
        return bool(self.flink or self.flink_file)

    @property
    def finds_jobs(self) -> bool:
        """Whether there is no SOURCE: the command finds the jobs by itself."""
        return self.asks_flink or self.jobs_under is not None

    def refuse_mistakes(self) -> None:
        """Raise `click.UsageError` for options that do not fit together."""
        chooses = bool(self.job_name or self.all_jobs or self.include)
        if self.asks_flink and self.jobs_under is not None:
            raise click.UsageError("give either --flink or --jobs-under")
        if self.asks_flink and not chooses:
            raise click.UsageError("--flink needs --job-name NAME, --include PATTERN or --all-jobs")
        for url in self.flink:
            if not url.startswith(("http://", "https://")):
                # it is not shown: it may hold a password
                raise click.UsageError(
                    "--flink: expected a URL that begins with http:// or https://, as"
                    " http://HOST:8081"
                )
        if not self.asks_flink and (chooses or self.exclude or self.header or self.ended_file):
            raise click.UsageError(
                "--job-name, --all-jobs, --include, --exclude, --header and --ended-file need"
                " --flink URL or --flink-file FILE"
            )

    def urls(self) -> Sequence[str]:
        """Return the URLs of the JobManagers. Raises `NotThere` if the file cannot be read."""
        listed = () if self.flink_file is None else _lines_of("--flink-file", self.flink_file)
        return (*self.flink, *listed)

    def ended(self) -> Collection[str]:
        """Return the ids of jobs that have ended. Raises `NotThere` if the file cannot be read."""
        return () if self.ended_file is None else _lines_of("--ended-file", self.ended_file)

    def refuse_no_jobs(self, template: SyncRequest) -> None:
        """Raise for a file or a root in which no job will ever be found: waiting has no end.

        Raises `NotThere` for a --flink-file or --ended-file that cannot be read, `NoJob` for a
        --jobs-under that is no directory of jobs.
        """
        from cpreplicate.operations.jobs.discovery import refuse_no_root

        self.urls()
        self.ended()
        if self.jobs_under is not None:
            refuse_no_root(template)

    def connect(self, url: str) -> FlinkRest:
        """Return a client of one JobManager."""
        from cpreplicate.flink import FlinkRest

        return FlinkRest(
            url, http_headers(self.header), self.client_certificate, self.certificate_authority
        )

    def discovery(
        self, template: SyncRequest, notify: Callable[[str], None], shard: Shard
    ) -> FlinkJobs | JobsUnder:
        """Return what finds the jobs; `template` is the request of each but for its source."""
        from cpreplicate.flink import address
        from cpreplicate.operations.jobs.chosen import Chosen
        from cpreplicate.operations.jobs.discovery import JobsUnder
        from cpreplicate.operations.jobs.flink_jobs import FlinkJobs

        if self.jobs_under is not None:
            return JobsUnder(template, notify, shard)
        http_headers(self.header)  # a mistake ends the command now
        for url in self.flink:
            address.parse(url)
        names = frozenset(self.job_name)
        chosen = Chosen(names, self.all_jobs, tuple(self.include), tuple(self.exclude))
        return FlinkJobs(
            self.urls, self.connect, chosen, template, notify, shard=shard, ended=self.ended
        )


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """How a service runs; see the options of the same names."""

    slots: int
    processes: int | None
    max_backoff: float | None
    grace: float
    session_idle: float
    metrics: str | None
    metrics_detail: bool
    heartbeat: str | None
    kubernetes_snapshots: str | None
    max_lag: float
    sweep_every: float
    forget_ended: float | None
    forget_flink: Sequence[str]

    def settings(
        self, interval: float, retire_after: float | None, is_for_one: bool
    ) -> ServiceSettings:
        """Return how a service of many jobs, or of one, works."""
        from cpreplicate.operations.jobs.service import ServiceSettings

        backoff = self.max_backoff or (interval if is_for_one else _MAX_BACKOFF)
        return ServiceSettings(interval, self.slots, backoff, self.grace, retire_after)


def run_service(
    discovery: Discovery,
    values: Mapping[str, Any],
    execution: ExecutionOptions,
    sides: Sides,
    interval: float,
    show: Show,
    retire_after: float | None = None,
    notify_service: Callable[[Service], None] = lambda _service: None,
    coverage: Coverage | None = None,
    one: OneJob | None = None,
    lists_sources: bool = True,
) -> None:
    """Run a service until this process is stopped, or until the policy of `one` job ends it.

    `lists_sources`: jobs are found by their directories, not by JobManagers.

    Raises `UsageError` for wrong options, and the failure with which the policy ends it. SIGTERM
    and SIGHUP are no failure: they end it with the exit code of the signal.
    """
    from concurrent.futures import ThreadPoolExecutor

    from cpreplicate.operations.jobs.service import Service
    from cpreplicate.output.log import narrate, narrate_failure, write_warning
    from cpreplicate.runners import WarmRunners
    from cpreplicate.storage.waiting.side_call import in_pool

    options = build(ServiceOptions, values)
    if options.metrics is None and is_on_command_line("metrics_detail"):
        raise click.UsageError("--metrics-detail needs --metrics HOST:PORT")
    # a failure does not end the service: without narration it would pass unnoticed
    report = write_warning if values["quiet"] else narrate_failure

    def warn(line: str) -> None:
        report(failures.advised(line))

    _allow_many_connections()
    with ExitStack() as stack:
        runners = stack.enter_context(
            WarmRunners(sides, execution, options.session_idle, is_for_one=one is not None)
        )
        settings = options.settings(interval, retire_after, is_for_one=one is not None)
        executor = in_pool(stack.enter_context(ThreadPoolExecutor(1000, "job")))
        workers = None
        if one is None:
            count = _processes(options.processes, execution)
            begin = _begin(settings, sides, execution)
            workers = stack.enter_context(_workers(count, begin, narrate, warn, show))
        service = Service(
            discovery,
            runners,
            executor,
            settings,
            narrate,
            warn,
            show,
            coverage,
            one,
            spread=workers.helping if workers is not None else lambda own: own,
            make=_spreading(values.get("spread", "files"), runners, execution),
        )
        notify_service(service)
        keeper = stack.enter_context(
            _housekeeper(service, options, values["shard"], lists_sources, sides, execution)
        )
        each_turn = _observed(service, options, values["shard"], stack, keeper.counts, workers)
        # the service ends by itself when its grace is over
        signals.stop_within(options.grace * _MORE_THAN_GRACE)
        signals.report_ready()
        gc.freeze()  # what was imported stays: no collection looks at it again
        try:
            service.run(partial(_leave, workers), each_turn)
        except signals.Stopped as stopped:
            narrate(f"stopped. {_outcome(service.observations())}")
            raise click.exceptions.Exit(stopped.code) from None


def _spreading(spread: Spread, runners: WarmRunners, execution: ExecutionOptions) -> Make | None:
    """Return what makes small syncs by executors, None if this process does."""
    from cpreplicate.operations.jobs.spread import SpreadSyncs

    return SpreadSyncs(runners.spark, execution.streams).make if spread == "jobs" else None


def showing_jobs(form: Form) -> Show:
    """Return what prints each checkpoint of many jobs that was replicated, with the job's name."""

    def show(replicated: Replicated) -> None:
        if replicated.report.runner is not None:
            show_one_of_many(replicated, form)

    return show


def showing_one(form: Form, listing: Listing) -> Show:
    """Return what prints the first report of one job, then each checkpoint that was replicated.

    With `ndjson`, the rows of a checkpoint that was committed end with an object of its own.
    """
    is_first = True

    def show(replicated: Replicated) -> None:
        nonlocal is_first
        if is_first or replicated.report.runner is not None:
            show_one_of_many(replicated.report, form, listing)
        if form == "ndjson" and replicated.report.committed:
            show_one_of_many(replicated, form)
        is_first = False

    return show


def _allow_many_connections() -> None:
    """Raise the limit of open files as far as this process may, at most to `_MOST_FILES`.

    A connection to a JobManager takes two. Programs that it starts may fail with a larger limit.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    wanted = _MOST_FILES if hard == unlimited else min(hard, _MOST_FILES)
    if soft != unlimited and soft < wanted:
        with suppress(OSError, ValueError):  # the system's own limit may be lower
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _outcome(jobs: Collection[Observation]) -> str:
    """Return how many of the jobs have a committed checkpoint, as far as this process knows."""
    count = sum(job.replica_newest is not None for job in jobs)
    if not count:
        return (
            f"This run saw no committed checkpoint in the replicas of {counted(len(jobs), 'job')}"
        )
    held = plural(count, "holds a committed checkpoint", "hold a committed checkpoint")
    return f"{count} of {counted(len(jobs), 'replica')} {held}, which stays"


def _observed(
    service: Service,
    options: ServiceOptions,
    shard: Shard,
    stack: ExitStack,
    housekeeping: Callable[[], HousekeepingCounts],
    workers: Workers | None,
) -> Callable[[], None]:
    """Serve the metrics, and return what sends the heartbeat when it is called each turn."""
    from cpreplicate.output.log import narrate, write_warning

    counts = _kept_in_kubernetes(service, options.kubernetes_snapshots, stack)
    if options.metrics is not None:
        from cpreplicate.operations.jobs.workers.workers import counts_of_one
        from cpreplicate.output.http import parse_address, serve
        from cpreplicate.output.restore_pages import page_of

        address = parse_address(options.metrics)
        served = stack.enter_context(
            serve(
                address,
                service.observations,
                service.is_alive,
                service.is_ready,
                service.load,
                service.remarks,
                service.discovered,
                lambda path: page_of(path, service.restore_points),
                counts,
                lambda: (shard, service.target_roots()),
                service.clock,
                housekeeping,
                None if options.metrics_detail else service.total,
                workers.counts if workers is not None else counts_of_one,
            )
        )
        narrate(f"metrics and probes at http://{served}")
    if options.heartbeat is None:
        return lambda: None
    from cpreplicate.output.heartbeat import Heartbeat

    heartbeat = Heartbeat(
        options.heartbeat, options.max_lag, write_warning, clock=service.clock.now
    )

    def beat() -> None:
        if not service.is_blind(options.max_lag):
            heartbeat.update(service.observations())

    return _every(_HEARTBEAT_PAUSE, beat, service.clock)


def _housekeeper(
    service: Service,
    options: ServiceOptions,
    shard: Shard,
    lists_sources: bool,
    sides: Sides,
    execution: ExecutionOptions,
) -> Housekeeper:
    """Return what sweeps and forgets replicas of a service while its context lasts.

    Raises `UsageError` for what is no URL.
    """
    from cpreplicate.flink.control import FlinkControl
    from cpreplicate.operations.replicas.housekeeping import Housekeeper, HousekeepingSettings
    from cpreplicate.output.log import narrate, write_warning

    clusters = tuple(map(FlinkControl, options.forget_flink))
    if clusters and options.forget_ended is None:
        raise UsageError("--forget-flink is of --forget-ended, which is not given")
    settings = HousekeepingSettings(
        options.sweep_every, options.forget_ended, shard, lists_sources, sides, execution, clusters
    )
    return Housekeeper(service, settings, narrate, write_warning, service.clock)


def _kept_in_kubernetes(
    service: Service, namespace: str | None, stack: ExitStack
) -> Callable[[], SnapshotCounts] | None:
    """Keep the objects of all jobs current, and return what counts those that are not."""
    if namespace is None:
        return None
    from cpreplicate.kubernetes import connect
    from cpreplicate.operations.jobs.repeated_lines import RepeatedLines
    from cpreplicate.operations.jobs.snapshots import SnapshotKeeper
    from cpreplicate.output.log import write_warning

    objects = connect(namespace)
    warn = RepeatedLines(write_warning, service.clock)
    keeper = SnapshotKeeper(objects, service.restore_points, warn, service.clock)
    return stack.enter_context(keeper).counts


def _every(seconds: float, function: Callable[[], None], clock: Clock) -> Callable[[], None]:
    """Return a function that calls another one, but not again within so many seconds."""
    last = -seconds

    def call() -> None:
        nonlocal last
        if (now := clock.monotonic()) - last >= seconds:
            last = now
            function()

    return call


def _processes(asked: int | None, execution: ExecutionOptions) -> Callable[[int, int], int]:
    """Return what returns in how many processes so many jobs are replicated.

    It gets the number of jobs, and of processes now. Raises `UsageError` for `asked` ones that
    would each start Spark.
    """
    from cpreplicate.operations.jobs.workers.division import most_processes, processes_for

    if execution.runner == "spark":
        if asked is not None and asked > 1:
            raise UsageError(
                f"--processes {asked} does not go with --runner spark: the jobs of a service share"
                " one Spark session, which one process has. Leave out --processes, or give --runner"
                " auto, by which worker processes make the small copies"
            )
        asked = 1
    if asked is not None:
        most = asked
        return lambda jobs, _now: max(1, min(most, jobs))
    room = most_processes()
    return lambda jobs, now: processes_for(jobs, now, room)


def _begin(settings: ServiceSettings, sides: Sides, execution: ExecutionOptions) -> Begin:
    """Return the first message to a worker of a service."""
    from cpreplicate.operations.jobs.workers.messages import Begin

    level = logging.getLogger("cpreplicate").level
    times = (settings.interval, settings.look_again, settings.look_within)
    return Begin(sides, replace(execution, show=None), *times, level)


def _workers(
    count_of: Callable[[int, int], int], begin: Begin, notify: Notify, warn: Notify, show: Show
) -> Workers:
    """Return the worker processes of a service, whose lines and results this process prints."""
    from cpreplicate.core.log_context import go_on_with
    from cpreplicate.operations.jobs.workers.messages import Detail, Line, Shown
    from cpreplicate.operations.jobs.workers.process import start_command
    from cpreplicate.operations.jobs.workers.workers import Workers

    def heard(message: NamedTuple) -> None:
        if not isinstance(message, (Line, Detail, Shown)):
            return
        go_on_with(message.context)
        if isinstance(message, Shown):
            show(message.replicated)
        elif isinstance(message, Detail):
            logging.getLogger("cpreplicate").log(message.level, "%s", message.text)
        else:
            {"notify": notify, "warn": warn}[message.kind](message.text)

    return Workers(count_of, start_command(), begin, heard, notify, warn)


def _leave(workers: Workers | None) -> None:
    """End the process without waiting for threads that wait for a storage."""
    if workers is not None:
        workers.kill()
    os._exit(signals.exit_code())
