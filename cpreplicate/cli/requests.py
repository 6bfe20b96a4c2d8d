"""Values of options, as typed objects, and the requests that are built from them.

Values come from click or from the tables of a TOML file; both have passed the same converters.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cpreplicate.cli.storage_options import is_directory
from cpreplicate.core import uri
from cpreplicate.protocol.users import user_name
from cpreplicate.storage import Limits, Side, Sides, WriteSettings
from cpreplicate.storage.backends.hadoop_conf import read
from cpreplicate.storage.retry_reports import report_retries_to
from cpreplicate.storage.sides import Options
from cpreplicate.storage.wrappers.limits import new_limits

if TYPE_CHECKING:
    from cpreplicate.cli.toml_file import TomlFile
    from cpreplicate.core.packs import PackMode
    from cpreplicate.core.plan import Cap
    from cpreplicate.core.restore import PathsMode
    from cpreplicate.core.uri import Remap
    from cpreplicate.operations.sync.request import SyncRequest
    from cpreplicate.operations.verify import Sample
    from cpreplicate.output.log import LogFormat
    from cpreplicate.output.progress import Form
    from cpreplicate.runners import ExecutionOptions, ShowProgress

STORAGES = "cpreplicate.storages"  # the key of click's `meta` under which these tables are kept
_AWS = {  # botocore would look for them on each executor, which may have others
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_SESSION_TOKEN": "token",
    "AWS_ENDPOINT_URL": "endpoint_url",
    "AWS_REGION": "region",
}
_HDFS_SCHEMES = ("hdfs:", "viewfs:")
_S3_SCHEMES = ("s3:", "s3a:", "s3n:", "s3p:")

T = TypeVar("T", bound="OptionValues")


@dataclass(frozen=True, kw_only=True)
class OptionValues:
    """Values of some options of a command; each field has the name and default of its option."""

    @classmethod
    def from_mapping(cls: type[T], values: Mapping[str, Any]) -> T:
        """Return the values of these options; a mapping may also hold those of others."""
        names = {item.name for item in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in names})


@dataclass(frozen=True, kw_only=True)
class ProgressOptions(OptionValues):
    """What a command reports on stderr and in a log file while it runs."""

    progress: Form = "auto"
    quiet: bool = False
    verbose: bool = False
    log_file: str | None = None
    log_format: LogFormat | None = None

    def begin_log(self) -> None:
        """Begin to report as the options ask for. Raise `click.UsageError` if that cannot be."""
        from cpreplicate.output.log import LogSettings, configure

        if self.progress == "bar" and self.log_format is not None:
            raise click.UsageError(
                "--progress bar cannot be given with --log-format: a bar is no line of a log. Give"
                " one of them"
            )
        try:
            configure(
                LogSettings(
                    file=self.log_file,
                    form=self.log_format,
                    is_quiet=self.quiet,
                    is_verbose=self.verbose,
                    are_events=self.progress == "ndjson",
                )
            )
        except OSError as error:
            raise click.UsageError(
                f"--log-file {self.log_file} cannot be opened for append: {error.strerror}. Nothing"
                " was done. Create its directory, or give another file"
            ) from error

    def show(self) -> ShowProgress | None:
        """Return the function that shows progress, None if it is not shown."""
        from cpreplicate.output import show_progress

        form: Form = "none" if self.quiet else self.progress
        if form == "auto" and self.log_format is not None:
            form = "lines"
        return show_progress(form, in_file=self.log_file is not None)


@dataclass(frozen=True, kw_only=True)
class StorageOptions(OptionValues):
    """How storages are reached and written; `tables` are the `[storage."…"]` tables."""

    source_conf: tuple[str, ...] = ()
    target_conf: tuple[str, ...] = ()
    hdfs_client: str = "native"
    max_rps: float | None = None
    bandwidth: int | None = None
    retry_for: float = 60.0
    replication: int | None = None
    block_size: int | None = None
    preserve: bool = False
    tables: Mapping[str, Options] = field(default_factory=dict)

    def sides(self) -> Sides:
        """Return both sides, which share the limits of a run."""
        limits = self._limits()
        source = self._side(self.source_conf, limits)
        target = self._side(self.target_conf, limits)
        return Sides(source, target, self.preserve)

    def source_side(self) -> Side:
        """Return the side of the source, for a command that has no other."""
        return self._side(self.source_conf, self._limits())

    def target_side(self) -> Side:
        """Return the side of the replica, for a command that has no other."""
        return self._side(self.target_conf, self._limits())

    def directories(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """Return the directories of Hadoop configuration that the values of an option mean.

        It is that of HADOOP_CONF_DIR if they name none.
        """
        named = tuple(word for word in words if _is_directory(word))
        given = os.environ.get("HADOOP_CONF_DIR")
        by_environment = (given,) if given and Path(given).is_dir() else ()
        return named or by_environment

    def _limits(self) -> Limits:
        return new_limits(self.max_rps, self.bandwidth)

    def _side(self, words: tuple[str, ...], limits: Limits) -> Side:
        """Return a side, given the values of its `--…-conf` options.

        Later sources win: the environment of this process, the tables, the options.
        HADOOP_CONF_DIR is read only if the options name no directory.
        """
        names_directory = any(map(_is_directory, words))
        options = (
            *_from_environment(os.environ, with_hadoop=not names_directory),
            *self.tables.items(),
            ("", tuple(_properties(words).items())),
        )
        write = WriteSettings(self.replication, self.block_size)
        return Side(options, self.hdfs_client, write, self.retry_for, limits)


@dataclass(frozen=True, kw_only=True)
class RunnerOptions(OptionValues):
    """What copies and deletes."""

    runner: str = "auto"
    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    properties_file: str | None = None
    parallelism: int | None = None
    batch_bytes: int | None = None
    batch_files: int | None = None
    streams: int | None = None

    def execution(self, show: ShowProgress | None) -> ExecutionOptions:
        """Return the options of a runner; `--conf` wins over the properties file."""
        from cpreplicate.cli.config import spark_properties
        from cpreplicate.runners import ExecutionOptions

        from_file = spark_properties(self.properties_file) if self.properties_file else ()
        return ExecutionOptions(
            runner=self.runner,
            master=self.master,
            conf=(*from_file, *self.conf),
            parallelism=self.parallelism,
            batch_bytes=self.batch_bytes,
            batch_files=self.batch_files,
            streams=self.streams,
            show=show,
        )


@dataclass(frozen=True, kw_only=True)
class SyncOptions(OptionValues):
    """What to replicate and how: the options of `sync`, and of a job of a fleet."""

    source: str
    target_root: str
    paths: PathsMode = "auto"
    keep: int = 1
    remap: tuple[Remap, ...] = ()
    source_root: tuple[str, ...] = ()
    lock_wait: float = 0.0
    max_delete: Cap | None = None
    async_deletes: bool = False
    adopt: bool = False
    same_source: bool = False
    allow_older: bool = False
    check_content: bool = False
    pack: PackMode = "off"
    pack_below: int = 1 << 20

    def request(self, sides: Sides, execution: ExecutionOptions | None = None) -> SyncRequest:
        """Return the request; without `execution` it has the default one."""
        from cpreplicate.core.packs import PackOptions
        from cpreplicate.operations.sync.request import SyncRequest
        from cpreplicate.runners import ExecutionOptions

        return SyncRequest(
            source=self.source,
            target_root=self.target_root,
            paths=self.paths,
            keep=self.keep,
            remaps=self.remap,
            source_roots=self.source_root,
            sides=sides,
            lock_wait=self.lock_wait,
            max_delete=self.max_delete,
            async_deletes=self.async_deletes,
            adopt=self.adopt,
            same_source=self.same_source,
            allow_older=self.allow_older,
            check_content=self.check_content,
            packing=PackOptions(self.pack, self.pack_below),
            execution=execution or ExecutionOptions(),
        )


@dataclass(frozen=True, kw_only=True)
class ContentOptions(OptionValues):
    """Which files' content `verify` and `promote` read and compare."""

    content: bool = False
    sample: float | None = None
    seed: int = 0

    def as_sample(self) -> Sample:
        """Return the sample; `--sample` wins over `--content`."""
        from cpreplicate.operations.verify import Sample

        return Sample(float(self.content) if self.sample is None else self.sample, self.seed)


def start_narration(values: Mapping[str, Any]) -> Callable[[str], None]:
    """Begin the run of a command, and return the function that narrates it.

    The retries of its storages are narrated, too.
    """
    from cpreplicate import __version__
    from cpreplicate.operations.log_context import begin_job
    from cpreplicate.output import narrate, narrate_in_file, run

    run.begin()
    context = click.get_current_context()
    begin_job(_job_of(context.params))
    ProgressOptions.from_mapping(values).begin_log()
    report_retries_to(narrate)
    narrate_in_file(f"{context.info_name} of cpreplicate {__version__} started")
    return narrate


def _job_of(arguments: Mapping[str, Any]) -> str | None:
    """Return the id of the job that a command is about, by the names of its directories."""
    from cpreplicate.core.placement import job_root

    # `watch` with one place only finds jobs by itself
    source, *targets = arguments.get("places") or (arguments.get("source"), None)
    source = source if targets else None
    path = arguments.get("replica") or source or arguments.get("checkpoint")
    return uri.name(job_root(path)) if isinstance(path, str) else None


def storage_of(values: Mapping[str, Any]) -> StorageOptions:
    """Return how the storages are reached, from options and the tables of the TOML file."""
    tables = click.get_current_context().meta.get(STORAGES, {})
    return StorageOptions.from_mapping({**values, "tables": tables})


def add_storages(file: TomlFile) -> None:
    """Add the `[storage."…"]` tables of another file to those of the command."""
    from cpreplicate.cli.config import storages_of

    meta = click.get_current_context().meta
    meta[STORAGES] = {**meta.get(STORAGES, {}), **storages_of(file)}


def execution_of(values: Mapping[str, Any]) -> ExecutionOptions:
    """Return the options of a runner, with the progress display that the options ask for."""
    show = ProgressOptions.from_mapping(values).show()
    return RunnerOptions.from_mapping(values).execution(show)


def sync_request(values: Mapping[str, Any]) -> SyncRequest:
    """Return the request of `diff`, `sync` or `watch`."""
    sides = storage_of(values).sides()
    return SyncOptions.from_mapping(values).request(sides, execution_of(values))


def _is_directory(word: str) -> bool:
    """Return whether a value of a `--…-conf` option names a directory, and not a property."""
    return "=" not in word or is_directory(word)


def _properties(words: tuple[str, ...]) -> dict[str, str]:
    """Return the properties that the values of a `--…-conf` option give; a later one wins."""
    properties: dict[str, str] = {}
    for word in words:
        name, _, value = word.partition("=")
        if _is_directory(word):
            properties.update(read(Path(word)))
        else:
            properties[name] = value
    return properties


def _from_environment(environ: Mapping[str, str], with_hadoop: bool) -> list[tuple[str, Options]]:
    """Return the options that environment variables give, by filesystem."""
    options: list[tuple[str, Options]] = []
    directory = environ.get("HADOOP_CONF_DIR")
    if with_hadoop and directory and Path(directory).is_dir():
        properties = tuple(read(Path(directory)).items())
        options += [(scheme, properties) for scheme in _HDFS_SCHEMES]
    aws = tuple(
        (name, environ[variable]) for variable, name in _AWS.items() if environ.get(variable)
    )
    if aws:
        options += [(scheme, aws) for scheme in _S3_SCHEMES]
    user = environ.get("HADOOP_USER_NAME") or user_name()
    return [*options, ("", (("hadoop.user.name", user),))]
