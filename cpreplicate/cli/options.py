"""What several commands share: options, and how they become requests and sides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cpreplicate.cli import storage_options
from cpreplicate.core import uri
from cpreplicate.errors import TooManyDeletes
from cpreplicate.storage.narration import narrate_with

if TYPE_CHECKING:
    from cpreplicate.cli.toml_file import TomlFile
    from cpreplicate.core.plan import Cap
    from cpreplicate.operations.sync_plan import SyncRequest
    from cpreplicate.operations.verify import Sample
    from cpreplicate.runners import ExecutionOptions
    from cpreplicate.storage import Limits, Side, Sides

STORAGES = "cpreplicate.storages"
_NARRATED = "cpreplicate.narrated"
REPLICATE_CODES = """\b
EXIT STATUS
   0  done, or nothing to do
   2  usage
   3  some copies failed: not committed, nothing deleted
   5  metadata not understood
   6  refused for safety
   7  a storage could not be reached within --retry-for
  10  the source is not there, or referenced files are missing or too short
  11  lease held by another run
  12  source moved on; run again to take the newest checkpoint"""
ACCESS = ("hdfs_client", "max_rps", "bandwidth", "retry_for", "replication", "block_size")
STOPPED_CODES = "\n 129, 130, 143  stopped by SIGHUP, SIGINT or SIGTERM; run again to resume"
READ_CODES = """\b
EXIT STATUS
   0  done
   5  metadata not understood
   7  a storage could not be reached within --retry-for
  10  not there"""


def place(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    return uri.absolute(value, str(Path.cwd()))


def place_if_any(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> str | None:
    return None if value is None else uri.absolute(value, str(Path.cwd()))


def places(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    return tuple(uri.absolute(value, str(Path.cwd())) for value in values)


def remaps(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[uri.Remap, ...]:
    return uri.parse_remaps(values, str(Path.cwd()))


def config(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    """Options of a TOML file, a table a command, become the defaults that flags and environment
    override.
    """
    if value is not None:
        from cpreplicate.cli.config import load

        assert isinstance(context.command, click.Group)
        context.default_map, context.meta[STORAGES] = load(value, context.command.commands)


paths_option = click.option(
    "--paths", type=click.Choice(["auto", "relative", "absolute"]), default="auto", show_default=True,
    help="How the replica's _metadata names its files. auto: relative where Flink's default restore is safe with it, else"
    " absolute.",
)  # fmt: skip
remap_option = click.option(
    "--remap", multiple=True, metavar="FROM=TO", callback=remaps,
    help="Read files recorded below FROM from TO: a renamed nameservice, `s3a=s3`, a mounted copy. Repeatable.",
)  # fmt: skip
output_option = click.option(
    "--output", type=click.Choice(["text", "json", "ndjson"]), default="text", show_default=True,
    help="How stdout tells the result; see docs/json.md.",
)  # fmt: skip


def replicate_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """SOURCE, TARGET_ROOT and what shapes the plan: the same for `diff` and `sync`."""
    return _all(command, [
        click.argument("source", callback=place),
        click.argument("target_root", callback=place),
        paths_option,
        click.option("--keep", type=click.IntRange(1), default=1, show_default=True, metavar="N",
                     help="Checkpoints that the replica holds."),
        remap_option,
        click.option("--source-root", multiple=True, metavar="URI", callback=places,
                     help="Read only below these roots, the job's own directory and what --remap names. Default: the"
                     " filesystem of SOURCE. Repeatable."),
        click.option("--adopt", is_flag=True, help="Accept a directory that holds other files: what is there is never changed"
                     " or deleted, and kept where it equals the source's."),
        click.option("--same-source", is_flag=True, help="Accept SOURCE as another name of the replica's source: a renamed"
                     " nameservice, a moved checkpoint directory."),
        click.option("--allow-older", is_flag=True, help="Follow a job that was started from scratch and counts its checkpoints"
                     " anew: take the checkpoint that was completed last, and withdraw those with higher numbers."),
        storage_options.source_conf,
        storage_options.target_conf,
        storage_options.access,
        click.option("--actions", is_flag=True, help="Tell every file, not only sums."),
        output_option,
    ])  # fmt: skip


def runner_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What carries out copies and deletes."""
    return _all(command, [
        click.option("--runner", type=click.Choice(["auto", "spark", "inline"]), default="auto", show_default=True,
                     help="What copies and deletes: Spark executors, or threads of this process. auto: what is"
                     " estimated to be faster, Spark's start included."),
        click.option("--master", metavar="URL", help="Spark master. Default: what spark-submit or the properties name, else"
                     " local[*] with four tries a batch."),
        click.option("--conf", multiple=True, metavar="K=V", callback=_properties, help="A property of Spark. Repeatable."),
        click.option("--properties-file", metavar="FILE", help="Properties of Spark, as spark-submit reads them; --conf wins."),
        click.option("--parallelism", type=click.IntRange(1), metavar="N",
                     help="Slots to fill with batches (spark), or files copied at once (inline). Default: what the cluster"
                     " offers, what the storages like."),
        click.option("--batch-bytes", metavar="SIZE", callback=storage_options.parsed(storage_options.size),
                     help="At most so many bytes a batch, unless it is one file. Default: 8GiB."),
        click.option("--batch-files", type=click.IntRange(1), metavar="N",
                     help="At most so many files a batch. Default: 2000."),
        click.option("--streams", type=click.IntRange(1), metavar="N",
                     help="Files that a task copies at once. Default: what the storages like, 8 of large ones."),
        click.option("--explain", is_flag=True, help="Tell which runner was chosen, and why."),
        click.option("--progress", type=click.Choice(["auto", "bar", "lines", "ndjson", "none"]), default="auto",
                     show_default=True, help="How stderr tells how far it is. auto: a bar on a terminal, else a line every"
                     " ten seconds."),
        lock_wait,
    ])  # fmt: skip


def _properties(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    pairs = [value.partition("=") for value in values]
    if wrong := [
        value
        for value, (name, equals, _) in zip(values, pairs, strict=True)
        if not (name and equals)
    ]:
        raise click.BadParameter(
            f"{wrong[0]}: expected a property of Spark such as spark.executor.cores=4"
        )
    return tuple((name.strip(), text.strip()) for name, _, text in pairs)


_EXECUTION = (
    "runner", "master", "parallelism", "batch_bytes", "batch_files", "streams", "explain",
)  # fmt: skip


def execution_of(options: dict[str, Any]) -> ExecutionOptions:
    """Build `ExecutionOptions`; take `runner_options` out of the options."""
    from cpreplicate.cli.config import spark_properties
    from cpreplicate.output import show_progress
    from cpreplicate.runners import ExecutionOptions

    file = options.pop("properties_file")
    conf = (*(spark_properties(file) if file else ()), *options.pop("conf"))
    show = show_progress(options.pop("progress"))
    chosen = {name: options.pop(name) for name in _EXECUTION}
    return ExecutionOptions(conf=conf, show=show, **chosen)


lock_wait = click.option(
    "--lock-wait", metavar="TIME", default="0s", show_default=True, callback=storage_options.parsed(storage_options.seconds),
    help="How long to wait for another run that holds the replica's lease, as in 5m.",
)  # fmt: skip


def cap(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Cap | None:
    from cpreplicate.core.plan import Cap

    if value is None:
        return None
    if value.isdecimal():
        return Cap(int(value))
    if not value.endswith("%"):
        raise click.BadParameter(f"{value}: expected a number of files or a share such as 20%")
    return Cap(storage_options.share(value), is_share=True)


max_delete = click.option(
    "--max-delete", metavar="N|P%", callback=cap,
    help="Do nothing, and exit with 6, if more files are to be deleted, or a larger share of the replica's.",
)  # fmt: skip


def deletes_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How far deletes go, and when."""
    return _all(command, [
        max_delete,
        click.option("--async-deletes", is_flag=True, help="Return after the commit: files that only the old checkpoint"
                     " needed are deleted by `watch` between two checkpoints, or left to `sweep`."),
    ])  # fmt: skip


def content_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What of the files' content is read and compared."""
    return _all(command, [
        click.option("--content", is_flag=True, help="Read every file and compare the CRC32C recorded when it was copied."),
        click.option("--sample", metavar="SHARE", callback=storage_options.parsed(storage_options.share),
                     help="Read a part only, as in 5%."),
        click.option("--seed", type=int, default=0, show_default=True, help="Which part: another seed reads other files."),
    ])  # fmt: skip


def _all(
    command: Callable[..., Any], decorators: Sequence[Callable[..., Any]]
) -> Callable[..., Any]:
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def sample_of(options: dict[str, Any]) -> Sample:
    """Takes `content_options` out of the options."""
    from cpreplicate.operations.verify import Sample

    sample, content, seed = options.pop("sample"), options.pop("content"), options.pop("seed")
    return Sample(sample if sample is not None else float(content), seed)


@contextmanager
def showing_what_was_refused(show: Callable[[Any], object]) -> Iterator[None]:
    """Over the cap of deletes: tell what would have been deleted, then the refusal."""
    try:
        yield
    except TooManyDeletes as error:
        show(error.report)
        raise


def add_storages(file: TomlFile) -> None:
    """Have the `[storage."…"]` tables of another file count too."""
    from cpreplicate.cli.config import storages_of

    meta = click.get_current_context().meta
    meta[STORAGES] = {**meta.get(STORAGES, {}), **storages_of(file)}


def sides_of(options: dict[str, Any]) -> Sides:
    """Takes what tells how both sides are reached out of the options."""
    from cpreplicate.storage import Sides

    limits = storage_options.limits_of(options)
    source = side_of(options.pop("source_conf"), options, limits)
    target = side_of(options.pop("target_conf"), options, limits)
    return Sides(source, target, options.pop("preserve", False))


def request_of(options: dict[str, Any]) -> SyncRequest:
    from cpreplicate.operations.sync_plan import SyncRequest
    from cpreplicate.runners import ExecutionOptions

    both = sides_of(options)
    for name in ("dry_run", "actions", "output"):
        options.pop(name, None)
    execution = execution_of(options) if "runner" in options else ExecutionOptions()
    rest = without_access(options)
    return SyncRequest(
        remaps=rest.pop("remap"),
        source_roots=rest.pop("source_root"),
        sides=both,
        execution=execution,
        **rest,
    )


def without_access(options: dict[str, Any]) -> dict[str, Any]:
    """The options that do not tell how storages are reached."""
    return {name: value for name, value in options.items() if name not in ACCESS}


def side_of(words: tuple[str, ...], options: dict[str, Any], limits: Limits | None = None) -> Side:
    _narrate_retries(options.get("progress", "auto"))
    storages = click.get_current_context().meta.get(STORAGES, {})
    return storage_options.side(
        words, storages, options, limits or storage_options.limits_of(options)
    )


def _narrate_retries(progress: str) -> None:
    """Report retries as the command narrates.

    The options of a job of a fleet come later, and change nothing.
    """
    meta = click.get_current_context().meta
    if _NARRATED not in meta:
        from cpreplicate.output import narrator

        meta[_NARRATED] = True
        narrate_with(narrator(progress))
