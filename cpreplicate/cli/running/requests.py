"""The requests of operations, built from the values of options.

Values come from click or from the tables of a TOML file; both have passed the same converters.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from cpreplicate.cli.files.config import STORAGES, spark_properties, used_file
from cpreplicate.cli.files.toml_options import options_of
from cpreplicate.cli.options.kinds import is_directory
from cpreplicate.cli.options.option import command_that_is_shown, deciding, is_on_command_line
from cpreplicate.cli.options.options import KEEP
from cpreplicate.cli.running import failures
from cpreplicate.cli.running.report_file import refuse_in_replica, refuse_unwritable
from cpreplicate.core import uri
from cpreplicate.errors import UsageError
from cpreplicate.protocol.users import user_name
from cpreplicate.storage import Limits, Side, Sides, WriteSettings
from cpreplicate.storage.backends.hdfs.hadoop_conf import read
from cpreplicate.storage.sides import Options
from cpreplicate.storage.waiting.retry_reports import report_retries_to
from cpreplicate.storage.wrappers.limits import new_limits

if TYPE_CHECKING:
    from cpreplicate.core.amounts import ByteRate
    from cpreplicate.core.retention import Retention, StatedBy
    from cpreplicate.operations.sync.request import SyncRequest
    from cpreplicate.operations.verify.verify import Sample
    from cpreplicate.output.progress import Form
    from cpreplicate.runners import ExecutionOptions, ShowProgress

_AWS = {  # botocore would look for them on each executor, which may have others
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_SESSION_TOKEN": "token",
    "AWS_ENDPOINT_URL": "endpoint_url",
    "AWS_REGION": "region",
    "AWS_REQUEST_CHECKSUM_CALCULATION": "request_checksum_calculation",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "response_checksum_validation",
}
_HDFS_SCHEMES = ("hdfs:", "viewfs:")
_S3_SCHEMES = ("s3:", "s3a:", "s3n:", "s3p:")

T = TypeVar("T")


def build(kind: Callable[..., T], values: Mapping[str, Any], **others: Any) -> T:
    """Return a request, or a part of one: each field has the value of the option that fills it.

    `others` are the fields that no option fills. What has no value keeps the field's default.
    """
    fields = signature(kind).parameters
    filled = {name: value for name, value in values.items() if name in fields}
    return kind(**{**filled, **others})


def start_narration(values: Mapping[str, Any]) -> Callable[[str], None]:
    """Begin the run of a command, and return the function that narrates it.

    The retries of its storages are narrated, too.
    """
    from cpreplicate.core.log_context import begin_command, begin_job
    from cpreplicate.output import run
    from cpreplicate.output.log import narrate, narrate_in_file
    from cpreplicate.version import __version__

    run.begin()
    context = click.get_current_context()
    begin_command(context.info_name or "")
    begin_job(_job_of(context.params))
    refuse_unwritable("--report", values.get("report_file"))
    _begin_log(values)
    report_retries_to(narrate)
    _warn_of_units(values.get("bandwidth"))
    file = used_file(context)
    options = f", options of {file.path}" if file else ""
    narrate_in_file(f"{context.info_name} of cpreplicate {__version__} started{options}")
    return lambda line: narrate(failures.advised(line))


def _warn_of_units(given: ByteRate | None) -> None:
    from cpreplicate.output.log import write_warning

    if given is not None and given.lacks_unit:
        write_warning(
            "--bandwidth without a unit is in bytes a second, and a later release refuses it:"
            " write 500MB/s for 500 megabytes a second, or 500B/s"
        )


def _begin_log(values: Mapping[str, Any]) -> None:
    """Begin to report as the options ask for. Raise `click.UsageError` if that cannot be."""
    from cpreplicate.output.log import LogSettings, configure

    file, form, progress = values["log_file"], values["log_format"], values["progress"]
    if progress == "bar" and form is not None:
        raise click.UsageError(
            "--progress bar cannot be given with --log-format: a bar is no line of a log. Give one"
            " of them"
        )
    is_quiet, is_verbose = values["quiet"], values["verbose"]
    refuse_in_replica("--log-file", file)
    try:
        configure(LogSettings(file, form, is_quiet, is_verbose, are_events=progress == "ndjson"))
    except OSError as error:
        raise click.UsageError(
            f"--log-file {file} cannot be opened for append: {error.strerror}. Nothing was done."
            " Create its directory, or give another file"
        ) from error


def _progress(values: Mapping[str, Any]) -> ShowProgress | None:
    """Return the function that shows progress, None if it is not shown."""
    from cpreplicate.output.progress import progress

    form: Form = "none" if values["quiet"] else values["progress"]
    if form == "auto" and values["log_format"] is not None:
        form = "lines"
    return progress(form, in_file=values["log_file"] is not None)


def _job_of(arguments: Mapping[str, Any]) -> str | None:
    """Return the id of the job that a command is about, by the names of its directories."""
    from cpreplicate.core.placement import job_root

    # `watch` with one place only finds jobs by itself
    source, *targets = arguments.get("places") or (arguments.get("source"), None)
    source = source if targets else None
    path = arguments.get("replica") or source or arguments.get("checkpoint")
    return uri.name(job_root(path)) if isinstance(path, str) else None


def sides_of(values: Mapping[str, Any]) -> Sides:
    """Return how the storages of both sides are reached; they share the limits of a run."""
    limits = _limits(values)
    source = _side(values, "source", limits)
    target = _side(values, "target", limits)
    return build(Sides, values, source=source, target=target)


def source_side(values: Mapping[str, Any]) -> Side:
    """Return the side of the source, for a command that has no other."""
    return _side(values, "source", _limits(values))


def target_side(values: Mapping[str, Any]) -> Side:
    """Return the side of the replica, for a command that has no other."""
    return _side(values, "target", _limits(values))


def _limits(values: Mapping[str, Any]) -> Limits:
    given = values["bandwidth"]
    return new_limits(values["max_rps"], None if given is None else given.timetable)


def _side(values: Mapping[str, Any], name: str, limits: Limits) -> Side:
    """Return a side; `name` begins the names of its options.

    Later sources win: the environment of this process, the tables of the TOML file, the option.
    HADOOP_CONF_DIR is read only if the option names no directory.
    """
    words = values[f"{name}_conf"]
    tables = click.get_current_context().meta.get(STORAGES, {})
    options = (
        *_from_environment(os.environ, with_hadoop=not any(map(_is_directory, words))),
        *tables.items(),
        ("", tuple(_properties(words).items())),
    )
    write = build(WriteSettings, values)
    keytab, principal = _keytab(values, name)
    others = {"write": write, "limits": limits, "keytab": keytab, "principal": principal}
    return build(Side, values, options=options, **others)


def _keytab(values: Mapping[str, Any], name: str) -> tuple[str | None, str | None]:
    """Return the keytab and the principal of a side. Raise `click.UsageError` if one is missing."""
    keytab, principal = values[f"{name}_keytab"], values[f"{name}_principal"]
    if (keytab is None) is not (principal is None):
        raise click.UsageError(
            f"--{name}-keytab and --{name}-principal are given together: the principal is the one"
            " whose key is in the keytab"
        )
    return keytab, principal


def configured_directories(words: Sequence[str]) -> tuple[str, ...]:
    """Return the directories of Hadoop configuration that the values of an option mean.

    It is that of HADOOP_CONF_DIR if they name none.
    """
    named = tuple(word for word in words if _is_directory(word))
    given = os.environ.get("HADOOP_CONF_DIR")
    by_environment = (given,) if given and Path(given).is_dir() else ()
    return named or by_environment


def execution_of(values: Mapping[str, Any]) -> ExecutionOptions:
    """Return the options of a runner, with the progress display that the options ask for.

    `--conf` wins over the properties file. `diff` has no options of a runner.
    """
    from cpreplicate.runners import ExecutionOptions

    path = values.get("properties_file")
    conf = (*(spark_properties(path) if path else ()), *values.get("conf", ()))
    return build(ExecutionOptions, values, conf=conf, show=_progress(values))


def sync_request(values: Mapping[str, Any], **others: Any) -> SyncRequest:
    """Return the request of a sync; `others` are the fields that no option fills.

    Raises `UsageError` for properties of --kafka-source that its client does not take.
    """
    from cpreplicate.core.packs import PackOptions
    from cpreplicate.operations.sync.request import SyncRequest

    keep, packing = _stated_retention(values), build(PackOptions, values)
    _refuse_kafka_source(values)
    return build(SyncRequest, values, keep=keep, packing=packing, **others)


def _refuse_kafka_source(values: Mapping[str, Any]) -> None:
    """Raise `UsageError` for a mistake that would leave every checkpoint without fingerprints."""
    servers, conf = values.get("kafka_source"), values.get("kafka_source_conf")
    if servers is None and conf is not None:
        raise UsageError(
            "--kafka-source-conf needs --kafka-source HOST:PORT, whose properties are in it"
        )
    if servers is not None:
        from cpreplicate.operations.sync.fingerprints import kafka_source

        kafka_source(servers, conf)


def _stated_retention(values: Mapping[str, Any]) -> Retention | None:
    """Return the policy that the `--keep…` options state, None if none of them is given."""
    from cpreplicate.core.retention import Retention

    given = {name: value for name, value in values.items() if value is not None}
    is_stated = any(option.field in given for option in KEEP)
    return build(Retention, given) if is_stated else None


def stated_by_file(path: str, command: str) -> StatedBy:
    """Return that the file of a fleet, or of options, states the policies in it for a command.

    Its name is that by which it was given, as an absolute path. Links are not followed: an update
    of a ConfigMap, or of a release, changes what they lead to. What is no regular file, such as a
    pipe, has no name by which it could be known again.
    """
    from cpreplicate.protocol.retention_record import stated_by

    named = os.path.abspath(path)  # noqa: PTH100  # `Path.absolute` keeps `..`
    is_known = Path(named).is_file() and not named.startswith(("/dev/", "/proc/"))
    return stated_by(f"cpreplicate {command}", named if is_known else None)


def _of_shown() -> dict[str, Any]:
    """Return what is set for the command of which this one shows what it would do.

    These are the options that this one lacks, as a file of options and the environment have them.
    """
    context = click.get_current_context()
    shown = command_that_is_shown(context.command, context.find_root().command)
    if shown is None:
        return {}
    used = used_file(context)
    tables = {} if used is None else used.correct().parameters
    name = shown.name or ""
    of_shown = click.Context(shown, info_name=name, default_map=tables.get(name, {}))
    for parameter in options_of(shown).values():
        if parameter.option in deciding(shown) and parameter.name not in context.params:
            parameter.handle_parse_result(of_shown, {}, [])
    return of_shown.params


def _stated_by() -> StatedBy:
    """Return what states the policy of a command: its words, or else the file of options.

    What a command shows, such as `diff`, is stated by the options of the command that it is about.
    """
    from cpreplicate.protocol.retention_record import stated_by

    context = click.get_current_context()
    shown = command_that_is_shown(context.command, context.find_root().command)
    command = (None if shown is None else shown.name) or context.info_name or ""
    used = used_file(context)
    sources = {context.get_parameter_source(option.field) for option in KEEP}
    is_of_command = not sources.isdisjoint(
        (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    )
    if used is None or is_of_command:
        return stated_by(f"cpreplicate {context.info_name}")
    return stated_by_file(used.path, command)


def planned_sync(values: Mapping[str, Any]) -> SyncRequest:
    """Return the request of a command that plans a sync, with its storages and its runner."""
    values = {**_of_shown(), **values}
    if values.get("mode") == "off" and is_on_command_line("below"):
        raise UsageError(
            "--pack-below has no effect with --pack off. Give --pack auto or --pack on"
        )
    return sync_request(
        values, sides=sides_of(values), execution=execution_of(values), stated_by=_stated_by()
    )


def sample_of(values: Mapping[str, Any]) -> Sample:
    """Return which files' content is compared. Raises `UsageError` for options without effect."""
    from cpreplicate.operations.verify.verify import Sample

    if values["sample"] is not None and values["content"] and is_on_command_line("content"):
        raise UsageError(
            "--content compares all files and --sample a share of them: give one of the two"
        )
    if values["sample"] is None and is_on_command_line("seed"):
        raise UsageError("--seed chooses the files of --sample: give --sample, too, or neither")
    share = float(values["content"]) if values["sample"] is None else values["sample"]
    return build(Sample, values, share=share)


def _is_directory(word: str) -> bool:
    """Return whether a value of a `--…-conf` option names a directory, and not a property."""
    return "=" not in word or is_directory(word)


def _properties(words: Sequence[str]) -> dict[str, str]:
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
