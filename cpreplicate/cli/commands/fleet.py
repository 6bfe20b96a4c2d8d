"""The `fleet` command, and the TOML file of jobs that it reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.files import config
from cpreplicate.cli.files.config import add_storages, storages_of
from cpreplicate.cli.files.toml_file import FileTable, TomlFile
from cpreplicate.cli.files.toml_options import (
    checked,
    converted,
    parameters_of,
    refuse_two_spellings,
    spelled,
)
from cpreplicate.cli.options import options, service_options
from cpreplicate.cli.options.option import OptionParameter, files, given, is_on_command_line
from cpreplicate.cli.running import exit_codes, services, signals
from cpreplicate.cli.running.metrics_file import fleet_metrics
from cpreplicate.cli.running.report_file import page_writer
from cpreplicate.cli.running.requests import (
    build,
    execution_of,
    sides_of,
    start_narration,
    stated_by_file,
    sync_request,
)
from cpreplicate.cli.running.results import advised, show_change
from cpreplicate.core import uri
from cpreplicate.errors import UsageError, described

if TYPE_CHECKING:
    from cpreplicate.core.retention import StatedBy
    from cpreplicate.operations.jobs.discovery import KnownRoots
    from cpreplicate.operations.jobs.job import Job
    from cpreplicate.operations.jobs.service import Service
    from cpreplicate.operations.replicas.replicas import ReplicaRef
    from cpreplicate.storage import Sides
    from cpreplicate.storage.sides import Options

_TITLES = {"job": "[[job]]", "root": "[[root]]", "defaults": "[defaults]"}


@cli.command(
    short_help="Replicate many jobs in one run.",
    examples=("cpreplicate fleet jobs.toml", "cpreplicate fleet --dry-run --output json jobs.toml"),
    exit_codes={
        0: "every job is replicated",
        2: "usage: nothing was done",
        3: "jobs failed for different reasons; else the exit code of `sync` for the reason",
        **exit_codes.STOPPED,
    },
    reloads_with=options.EVERY.field,
    keys=options.FLEET_TABLES["job"],
    essentials=(
        "dry-run every slots shard metrics heartbeat max-lag forget-ended allow-older runner "
        "master properties-file source-conf target-conf bandwidth report metrics-file output"
    ),
    options=(
        options.DRY_RUN,
        options.EVERY,
        *service_options.SERVICE,
        options.ALLOW_OLDER_OF_EVERY_JOB,
        options.KEEP_LESS_OF_EVERY_JOB,
        *options.CHANGE,
        options.SPREAD,
        *options.CONF,
        *options.ACCESS,
        *options.WRITING,
        *options.OUTPUT,
        options.REPORT,
        options.METRICS_FILE,
    ),
)
@click.argument("configuration", metavar="CONFIG", callback=given, shell_complete=files)
def fleet(
    configuration: str,
    dry_run: bool,
    every: float | None,
    allow_older: bool,
    keep_less: bool,
    lock_wait: float,
    metrics_file: str | None,
    output: Any,
    **values: Any,
) -> int:
    """Replicate many jobs in one run.

    CONFIG is a TOML file of [[job]] and [[root]] tables; see docs/fleet.md. A root stands for every
    job below it; replicas below it are skipped. `target` is a directory that only cpreplicate
    writes, such as hdfs://dcB/flink/replicas.
    """
    from cpreplicate.operations.jobs.fleet import FleetSettings, replicate_fleet
    from cpreplicate.operations.jobs.spread import refuse_without_spark

    # what the command line gives for all jobs: a default, and a value that wins
    defaults = {"lock_wait": lock_wait}
    given = {"allow_older": allow_older, "keep_less": keep_less}
    forced = {name: True for name, is_given in given.items() if is_given}
    refuse_without_spark(values["spread"], execution_of(values))
    if every is not None:
        if dry_run or metrics_file is not None or values["report_file"] is not None:
            raise click.UsageError("--every does not go with --dry-run, --metrics-file or --report")
        return _serve(configuration, every, defaults, forced, output, values)
    _refuse_of_service(values)
    with fleet_metrics(None if dry_run else metrics_file, configuration) as record:
        file = TomlFile(configuration)
        _refuse_mistakes(file)
        add_storages(file)
        notify = start_narration(values)
        sides = sides_of(values)
        configured = _configured(file, sides, defaults, forced)
        every_job = list(configured.jobs(_listing_of_many(sides, notify)))
        shard = values["shard"]
        jobs = [job for job in every_job if job.is_in(shard)]
        settings = FleetSettings(spread=values["spread"])
        report = replicate_fleet(jobs, execution_of(values), sides, notify, dry_run, settings)
        report = advised(replace(report, shard=shard, elsewhere=len(every_job) - len(jobs)))
        record(report)
    page = page_writer(values["report_file"], report)
    code = show_change(report, output, page=page, is_dry_run=dry_run)
    return report.exit_code or code


def _refuse_of_service(values: Mapping[str, Any]) -> None:
    """Raise `click.UsageError` for options of a service. Those of a file may be for another run."""
    given = {option.name for option in service_options.SERVICE if is_on_command_line(option.field)}
    asked = {name for name in ("metrics", "heartbeat") if values[name] is not None}
    if needing := sorted(asked | given - {"metrics", "shard"}):
        names = ", ".join(f"--{name}" for name in needing)
        raise click.UsageError(f"{names}: of a service, which needs --every TIME")


def _serve(
    configuration: str,
    every: float,
    defaults: Mapping[str, Any],
    forced: Mapping[str, Any],
    output: Any,
    values: Mapping[str, Any],
) -> int:
    """Replicate the jobs again and again, until the process is stopped."""
    from cpreplicate.operations.jobs.discovery import FleetJobs, KnownRoots

    first = TomlFile(configuration)
    _refuse_mistakes(first)
    add_storages(first)
    notify = start_narration(values)
    sides = sides_of(values)
    roots = KnownRoots(sides.source, notify)
    file = _FileOfService(configuration, storages_of(first), roots, sides, defaults, forced)
    file.read()  # a mistake ends the command now
    jobs = FleetJobs(file.read_again, notify, values["shard"])

    def reload_on_hangup(service: Service) -> None:
        def reload() -> None:
            jobs.reload()
            service.discover_soon()

        signals.call_on_hangup(reload)

    services.run_service(
        jobs,
        values,
        execution_of(values),
        sides,
        every,
        services.showing_jobs(output),
        notify_service=reload_on_hangup,
        coverage=roots.coverage,
    )
    return 0


class _FileOfService:
    """The file of jobs of a service, which reads it again where it is asked to."""

    def __init__(
        self,
        path: str,
        storages: Mapping[str, Options],
        roots: KnownRoots,
        sides: Sides,
        defaults: Mapping[str, Any],
        forced: Mapping[str, Any],
    ) -> None:
        self._path, self._storages, self._roots = path, storages, roots
        self._sides, self._defaults, self._forced = sides, defaults, forced
        self._context = click.get_current_context()

    def read(self) -> Callable[[], list[Job]]:
        """Read the file, and return the function that finds its jobs.

        Raises `click.ClickException`.
        """
        file = TomlFile(self._path)
        _refuse_mistakes(file)
        if storages_of(file) != self._storages:
            raise file.error("the [storage] tables are read at the start only: restart the service")
        configured = _configured(file, self._sides, self._defaults, self._forced)

        def jobs() -> list[Job]:
            self._roots.look(template.request.source for template, _ in configured.roots)
            return list(configured.jobs(self._roots.jobs_under))

        return jobs

    def read_again(self) -> Callable[[], list[Job]]:
        """Read as `read`, from any thread: converters ask for click's context.

        Raises `UsageError`.
        """
        try:
            with self._context.scope(cleanup=False):
                return self.read()
        except click.ClickException as error:
            raise UsageError(error.format_message()) from error


def jobs_of(file: TomlFile, sides: Sides) -> list[Job]:
    """Return the jobs of a fleet's file, for a command that does not replicate them.

    Raises `click.UsageError` with the line of a mistake, and `NotThere` for a root without jobs.
    """
    _refuse_mistakes(file)
    return list(_configured(file, sides, {}, {}).jobs(_listing(sides)))


def every_replica(place: str, sides: Sides) -> tuple[ReplicaRef, ...]:
    """Return the replicas below a TARGET_ROOT, or of the jobs in a file of `fleet`.

    No source is looked at: it may be lost. Raises as `replicas_below`, and `click.UsageError` with
    the line of a mistake in the file.
    """
    from cpreplicate.operations.replicas.replicas import replicas_below
    from cpreplicate.output.log import write_warning

    path = uri.local_path(place) if place.startswith("file:") else ""
    if not (path.endswith(".toml") and Path(path).is_file()):
        return tuple(replicas_below(place, [], sides, write_warning))
    file = TomlFile(path)
    _refuse_mistakes(file)
    add_storages(file)
    return _replicas_of(file, sides)


def _replicas_of(file: TomlFile, sides: Sides) -> tuple[ReplicaRef, ...]:
    """Return the replicas of the jobs of a fleet's file; of a root, those below its target."""
    from cpreplicate.operations.replicas.replicas import replica_of, replicas_below
    from cpreplicate.operations.sync.place import names_of
    from cpreplicate.output.log import write_warning

    configured = _configured(file, sides, {}, {})
    refs = {}
    for template, excluded in configured.roots:
        root = template.request.source
        names = (names_of(template.request, uri.join(root, each)) for each in excluded)
        left_out = set(chain.from_iterable(names))
        for ref in replicas_below(template.request.target_root, [], sides, write_warning):
            if uri.name(ref.replica) not in left_out:
                refs[ref.replica] = ref
    for job in configured.named:
        ref = replica_of(job.request, job.name, job.priority, is_found=False)
        refs[ref.replica] = ref
    return tuple(refs.values())


def _listing(sides: Sides) -> Callable[[str], Sequence[str]]:
    """Return what lists the jobs below a root, and raises `NotThere` for a root without jobs."""
    from cpreplicate.operations.jobs.job import jobs_under

    return lambda root: jobs_under(root, sides.source)


def _listing_of_many(sides: Sides, notify: Callable[[str], None]) -> Callable[[str], Sequence[str]]:
    """Return what lists the jobs below a root, and the root itself if it cannot be reached."""
    from cpreplicate.storage import Transient

    listing = _listing(sides)

    def under(root: str) -> Sequence[str]:
        try:
            return listing(root)
        except Transient as error:
            notify(f"{root} cannot be listed: {described(error)}")
            return [root]

    return under


def _refuse_mistakes(file: TomlFile) -> None:
    """Raise for a misspelled table: it would leave jobs or limits out, and nobody would notice."""
    valid = (*_TITLES, config.STORAGE)
    for name in file.tables:
        if name not in valid:
            raise file.unknown("table", name, " in the configuration of a fleet", valid, name)
    for kind in ("job", "root"):
        if not isinstance(file.tables.get(kind, []), list):
            raise file.error(f"there may be several of {kind!r}: write [[{kind}]]", kind)
    if not file.tables.get("job") and not file.tables.get("root"):
        raise file.error("no jobs are named; write [[job]] or [[root]] tables")


class _Configured(NamedTuple):
    """The jobs that a configuration names, and its roots: a template, and ids to be left out."""

    named: tuple[Job, ...]
    roots: tuple[tuple[Job, Sequence[str]], ...]

    def jobs(self, under: Callable[[str], Sequence[str]]) -> Iterator[Job]:
        """Yield the jobs that are named, then those below the roots that are not named.

        `under` returns the directories of the jobs below a root.
        """
        yield from self.named
        sources = {job.request.source for job in self.named}
        for template, excluded in self.roots:
            root = template.request.source
            for source in under(root):
                if source == root:  # a job that fails by the same error when it is looked at
                    yield replace(template, name=root, is_discovered=False)
                    continue
                name = uri.name(source)
                if source not in sources and name not in excluded:
                    request = replace(template.request, source=source)
                    yield replace(template, name=name, request=request)


def _configured(
    file: TomlFile, sides: Sides, defaults: Mapping[str, Any], forced: Mapping[str, Any]
) -> _Configured:
    """Return what a file configures. Raises `click.UsageError` with the line of a mistake."""
    at = FileTable(file, _TITLES["defaults"], ("defaults",))
    in_file = _table(at, "defaults", file.tables.get("defaults", {}))
    all_defaults = {**defaults, **in_file}
    by = stated_by_file(file.path, "fleet")
    jobs = [{**table, **forced} for table in _tables(file, "job", all_defaults)]
    roots = [{**table, **forced} for table in _tables(file, "root", all_defaults)]
    return _Configured(
        tuple(_job(table, sides, by, is_discovered=False) for table in jobs),
        tuple(
            (_job(table, sides, by, is_discovered=True), table.get("exclude", ()))
            for table in roots
        ),
    )


def _tables(file: TomlFile, kind: str, defaults: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the values of each table of a kind, which must include source and target."""
    for index, table in enumerate(file.tables.get(kind, [])):
        at = FileTable(file, _TITLES[kind], (kind, index))
        values = {**defaults, **_table(at, kind, table)}
        for option in (options.SOURCE_OF_JOB, options.TARGET_OF_JOB):
            if option.field not in values:
                raise at.error(f'{at.title} has no {option.name!r}; write {option.name} = "…"')
        yield values


def _job(values: Mapping[str, Any], sides: Sides, by: StatedBy, is_discovered: bool) -> Job:
    """Return a job, or for a root the template of the jobs below it."""
    from cpreplicate.core.placement import job_root
    from cpreplicate.operations.jobs.job import Job

    request = sync_request(values, sides=sides, stated_by=by)
    name = values.get("name") or uri.name(job_root(request.source))
    return build(Job, values, name=name, request=request, is_discovered=is_discovered)


def _table(at: FileTable, kind: str, table: object) -> dict[str, Any]:
    """Return the values of a table by the names of their fields.

    The options of `sync` pass the converters of its command line. Raises `click.UsageError` with
    the line of a mistake.
    """
    if not isinstance(table, dict):
        raise at.error(f"{kind!r} must be a table: write {at.title}")
    refuse_two_spellings(at, table)
    keys = {option.name: option for option in options.FLEET_TABLES[kind]}
    values = {}
    for name, value in table.items():
        option = keys.get(spelled(name))
        if option is None:
            raise _unknown(at, spelled(name), keys, name)
        parameter = OptionParameter(option, "fleet")
        raw = checked(at, name, parameter, value)
        values[option.field] = converted(at, name, parameter, raw)
    return values


def _unknown(at: FileTable, name: str, valid: Collection[str], key: str) -> click.UsageError:
    if name in parameters_of(fleet):
        return at.error(
            f"unknown key {name!r} in {at.title}: give --{name} on the command line of fleet", key
        )
    return at.unknown("key", name, valid, key)
