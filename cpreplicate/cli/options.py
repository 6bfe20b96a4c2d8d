"""Options that several commands share, their converters, and the exit codes in help texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cpreplicate.cli import groups, storage_options
from cpreplicate.cli.requests import STORAGES
from cpreplicate.core import uri
from cpreplicate.errors import TooManyDeletes
from cpreplicate.storage.sides import SCHEMES

if TYPE_CHECKING:
    from cpreplicate.core.plan import Cap

_MASTER = re.compile(r"yarn|local(-cluster)?(\[|$)|spark://|k8s://")
# of a user, at the beginning of a URI; a secret key may hold `/`, and a path with `@` follow a port
_PASSWORD = re.compile(r"[^:/@]*://[^:/@]*:(?!\d+/)[^@]*@")
_UNREACHABLE = {7: "a storage could not be reached within --retry-for"}
READ_CODES: Mapping[int, str] = {
    0: "done",
    2: "usage",
    5: "metadata not understood",
    **_UNREACHABLE,
    10: "not there",
}
REPLICATE_CODES: Mapping[int, str] = {
    0: "done, or nothing to do",
    2: "usage",
    3: "some copies failed: not committed, nothing deleted",
    5: "metadata not understood",
    6: "refused for safety",
    **_UNREACHABLE,
    10: "the source is not there, or referenced files are missing or too short",
    11: "lease held by another run",
    12: "source moved on; run again to take the newest checkpoint",
}
REPLICA_CODES: Mapping[int, str] = {
    0: "done, or nothing to do",
    2: "usage",
    6: "refused for safety",
    **_UNREACHABLE,
    10: "no replica there",
    11: "lease held by another run",
}
STOPPED_CODES: Mapping[int, str] = {
    129: "stopped by SIGHUP; run again to resume",
    130: "stopped by SIGINT (Ctrl-C); run again to resume",
    143: "stopped by SIGTERM; run again to resume",
}


def absolute(value: str) -> str:
    """Return the URI that an argument or an option means, which is a URI or a local path.

    Raises `click.BadParameter` for one with a password, and for one like `hdfs//dcB/replicas`, or
    `file://data/replicas`, whose first directory is the name of a host: a replica would be written
    to another place, unnoticed.
    """
    if _PASSWORD.match(value):
        raise click.BadParameter(
            "a URI with a password: it would be in messages, logs and records. Give what the"
            " storage needs with --source-conf or --target-conf. The URI is not shown here"
        )
    scheme = value.partition("//")[0]
    if scheme in SCHEMES and not Path(scheme).exists():
        rest = value.removeprefix(scheme)
        raise click.BadParameter(
            f"{value} has no colon behind its scheme. Write {scheme}:{rest}, or ./{value} for a"
            " local path"
        )
    if value.startswith("file://") and value[7:8] != "/":
        host, _, path = value[7:].partition("/")
        raise click.BadParameter(
            f"{value} names the host {host} and the path /{path}. Write file:///{host}/{path}, with"
            " three slashes, for a local path"
        )
    return uri.absolute(value, str(Path.cwd()))


def location(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Convert an argument to a URI."""
    return absolute(value)


def optional_location(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> str | None:
    """Convert the value of an option to a URI; None stays None."""
    return None if value is None else absolute(value)


def locations(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Convert several arguments or values to URIs."""
    return tuple(map(absolute, values))


def _remaps(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[uri.Remap, ...]:
    return uri.parse_remaps(values, str(Path.cwd()))


def _spark_properties(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    return tuple(map(_spark_property, values))


def _spark_property(value: str) -> tuple[str, str]:
    name, equals, text = value.partition("=")
    if not (equals and storage_options.is_property_name(name.strip())):
        raise click.BadParameter(
            "expected a property of Spark such as spark.executor.cores=4. The value is not shown"
            " here, because it may be a secret"
        )
    return name.strip(), text.strip()


def _master(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _MASTER.match(value):
        raise click.BadParameter(
            f"{value}: expected a master of Spark: yarn, spark://HOST:PORT, k8s://URL or local[N]"
        )
    return value


def cap(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Cap | None:
    """Convert the value of `--max-delete`; None stays None."""
    from cpreplicate.core.plan import Cap

    if value is None:
        return None
    if value.isdecimal():
        return Cap(int(value))
    if not value.endswith("%"):
        raise click.BadParameter(f"{value}: expected a number of files or a share such as 20%")
    return Cap(storage_options.share(value), is_share=True)


def load_config(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    """Make the tables of a TOML file the defaults of the commands.

    Flags and environment variables override them.
    """
    if value is not None:
        from cpreplicate.cli.config import load

        assert isinstance(context.command, click.Group)
        context.default_map, context.meta[STORAGES] = load(value, context.command.commands)


paths = groups.path(
    "--paths",
    type=click.Choice(["auto", "relative", "absolute"]),
    default="auto",
    show_default=True,
    help="How the _metadata of the replica names its files. auto: relative if Flink's default"
    " restore is safe with it, else absolute.",
)
remap = groups.path(
    "--remap",
    multiple=True,
    metavar="FROM=TO",
    callback=_remaps,
    help="Read files recorded below FROM from TO: a renamed nameservice, `s3a=s3`, a mounted copy."
    " Repeatable.",
)
dry_run = groups.basic(
    "--dry-run", is_flag=True, help="Show what would be done, and change nothing."
)
lock_wait = groups.limit(
    "--lock-wait",
    metavar="TIME",
    default="0s",
    show_default=True,
    callback=storage_options.parsed(storage_options.seconds),
    help="How long to wait for another run that holds the lease of the replica, such as 5m.",
)
max_delete = groups.limit(
    "--max-delete",
    metavar="N|P%",
    callback=cap,
    help="Do nothing, and exit with 6, if more files would be deleted, or a larger share of the"
    " replica's files.",
)
actions = groups.output("--actions", is_flag=True, help="List every file instead of totals.")

progress_options = groups.all_of(
    groups.output(
        "--progress",
        type=click.Choice(["auto", "bar", "lines", "ndjson", "none"]),
        default="auto",
        show_default=True,
        help="Progress display on stderr. auto: a bar on a terminal, else a line every ten"
        " seconds. ndjson: messages are JSON objects, too.",
    ),
    groups.output(
        "-q",
        "--quiet",
        is_flag=True,
        help="Print only warnings and errors to stderr: no progress, no messages.",
    ),
    groups.output(
        "-v",
        "--verbose",
        is_flag=True,
        help="Report details, too: the steps, the time that they take, and why the runner was"
        " chosen.",
    ),
    groups.output(
        "--log-file",
        metavar="FILE",
        help="Append messages, details and progress to FILE, each line with its time, run, job and"
        " checkpoint. With -q they go only there. logrotate may move FILE.",
    ),
    groups.output(
        "--log-format",
        type=click.Choice(["text", "json"]),
        help="Print messages to stderr as the lines of a log, each with its time, run, job and"
        " checkpoint. Also the format of --log-file, where text is the default.",
    ),
)
output_options = groups.all_of(
    groups.output(
        "--output",
        type=click.Choice(["text", "json", "ndjson"]),
        default="text",
        show_default=True,
        help="Output format on stdout; see docs/json.md.",
    ),
    progress_options,
)

source_and_target = groups.all_of(
    click.argument("source", callback=location),
    click.argument("target_root", callback=location),
)
how_to_plan = groups.all_of(
    groups.basic(
        "--keep",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        metavar="N",
        help="Number of checkpoints that the replica holds.",
    ),
    groups.basic(
        "--allow-older",
        is_flag=True,
        help="Follow a job that was started from scratch and counts its checkpoints from 1 again:"
        " take the checkpoint that was completed last, and withdraw those with higher numbers.",
    ),
    groups.basic(
        "--same-source",
        is_flag=True,
        help="Accept SOURCE as another name of the replica's source: a renamed nameservice, a"
        " moved checkpoint directory.",
    ),
    groups.basic(
        "--adopt",
        is_flag=True,
        help="Accept a directory that holds other files. They are never changed or deleted. A file"
        " that the checkpoint needs is kept if its content equals the source's.",
    ),
    paths,
    remap,
    groups.path(
        "--source-root",
        multiple=True,
        metavar="URI",
        callback=locations,
        help="Read only below these roots, the job's own directory and the directories of --remap."
        " Default: the filesystem of SOURCE. Repeatable.",
    ),
    groups.storage(
        "--pack",
        type=click.Choice(["off", "on", "auto"]),
        default="off",
        show_default=True,
        help="Write small files into packs, many files in one. auto: if Flink 2 wrote the"
        " checkpoint and at least 1,000 small files are to be copied. docs/packs.md names the"
        " versions of Flink that restore such a replica.",
    ),
    groups.storage(
        "--pack-below",
        metavar="SIZE",
        default="1MiB",
        show_default=True,
        callback=storage_options.parsed(storage_options.size),
        help="Files smaller than SIZE go into packs.",
    ),
    storage_options.source_conf,
    storage_options.target_conf,
)
what_to_plan = groups.all_of(source_and_target, how_to_plan)
replicate_options = groups.all_of(how_to_plan, storage_options.access, actions, output_options)
plan_options = groups.all_of(source_and_target, replicate_options)

runner_of_reads = groups.all_of(  # of a command that takes no lease
    groups.spark(
        "--runner",
        type=click.Choice(["auto", "spark", "inline"]),
        default="auto",
        show_default=True,
        help="What copies, reads and deletes: Spark executors, or threads of this process (inline)."
        " auto: the one that is estimated to be faster, with the startup time of Spark.",
    ),
    groups.spark(
        "--master",
        metavar="URL",
        callback=_master,
        help="Spark master. Default: that of spark-submit or of the properties, else local[*] with"
        " four attempts per batch.",
    ),
    groups.spark(
        "--conf",
        multiple=True,
        metavar="K=V",
        callback=_spark_properties,
        help="A property of Spark. Repeatable.",
    ),
    groups.spark(
        "--properties-file",
        metavar="FILE",
        help="File of Spark properties, as for spark-submit. --conf overrides it.",
    ),
    groups.spark(
        "--parallelism",
        type=click.IntRange(1),
        metavar="N",
        help="Number of task slots to fill with batches (spark), or of files copied at the same"
        " time (inline). Default: the slots of the cluster, or a number that suits the storages.",
    ),
    groups.spark(
        "--batch-bytes",
        metavar="SIZE",
        callback=storage_options.parsed(storage_options.size),
        help="Maximum size of a batch of several files. Default: 8GiB.",
    ),
    groups.spark(
        "--batch-files",
        type=click.IntRange(1),
        metavar="N",
        help="Maximum number of files in a batch. Default: 2000.",
    ),
    groups.spark(
        "--streams",
        type=click.IntRange(1),
        metavar="N",
        help="Number of files that a task copies at the same time. Default: a number that suits"
        " the storages, 8 for large files.",
    ),
)
runner_options = groups.all_of(runner_of_reads, lock_wait)

delete_options = groups.all_of(
    max_delete,
    groups.basic(
        "--async-deletes",
        is_flag=True,
        help="Return after the commit. Files that only the old checkpoint needed are deleted by"
        " `watch` between two checkpoints, or left to `sweep`.",
    ),
)
check_content = groups.basic(
    "--check-content",
    is_flag=True,
    help="Read the files that are kept, and copy again those whose content differs from the"
    " recorded one.",
)

content_options = groups.all_of(
    groups.basic(
        "--content",
        is_flag=True,
        help="Read every file and compare it with the CRC32C recorded when it was copied.",
    ),
    groups.basic(
        "--sample",
        metavar="SHARE",
        callback=storage_options.parsed(storage_options.share),
        help="Read and compare only a share of the files, such as 5%.",
    ),
    groups.basic(
        "--seed",
        type=int,
        default=0,
        show_default=True,
        help="Which files --sample reads: another seed selects others.",
    ),
)


@contextmanager
def showing_refused_plan(show: Callable[[Any], object]) -> Iterator[None]:
    """Show the plan when it would delete more than `--max-delete` allows, then raise."""
    try:
        yield
    except TooManyDeletes as error:
        show(error.report)
        raise
