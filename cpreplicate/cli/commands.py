"""The commands and their options. The verbs are imported when one runs, so that `--help` stays quick."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cpreplicate import __version__, uri
from cpreplicate.cli import sites

if TYPE_CHECKING:
    from cpreplicate.replicate import Request
    from cpreplicate.storage import Limits, Site

_STORAGES = "cpreplicate.storages"
_REPLICATE_CODES = """\b
EXIT STATUS
   0  done, or nothing to do
   2  usage
   3  some copies failed: not committed, nothing deleted
   5  metadata not understood
   6  refused for safety
  10  the source is not there, or files that it references are missing
  11  lease held by another run
  12  source moved on; run again to take the newest checkpoint"""
_ACCESS = ("hdfs_client", "max_rps", "bandwidth", "retry_for", "replication", "block_size")
_READ_CODES = """\b
EXIT STATUS
   0  done
   5  metadata not understood
  10  not there"""


def _place(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    return uri.absolute(value, str(Path.cwd()))


def _places(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(uri.absolute(value, str(Path.cwd())) for value in values)


def _remaps(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> tuple[uri.Remap, ...]:
    return uri.parse_remaps(values, str(Path.cwd()))


def _config(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    """Options of a TOML file, a table a command, become the defaults that flags and environment override."""
    if value is not None:
        from cpreplicate.cli.config import load

        context.default_map, context.meta[_STORAGES] = load(value)


_remap_option = click.option(
    "--remap", multiple=True, metavar="FROM=TO", callback=_remaps,
    help="Read files recorded below FROM from TO: a renamed nameservice, `s3a=s3`, a mounted copy. Repeatable.",
)  # fmt: skip
_output_option = click.option(
    "--output", type=click.Choice(["text", "json", "ndjson"]), default="text", show_default=True,
    help="How stdout tells the result; see docs/json.md.",
)  # fmt: skip


def _replicate_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """SOURCE, TARGET_ROOT and what shapes the plan: the same for `diff` and `sync`."""
    decorators: list[Callable[..., Any]] = [
        click.argument("source", callback=_place),
        click.argument("target_root", callback=_place),
        click.option("--paths", type=click.Choice(["auto", "relative", "absolute"]), default="auto", show_default=True,
                     help="How the replica's _metadata names its files. auto: relative where Flink's default restore is"
                     " safe with it, else absolute."),
        click.option("--keep", type=click.IntRange(1), default=1, show_default=True, metavar="N",
                     help="Checkpoints that the replica holds."),
        _remap_option,
        click.option("--source-root", multiple=True, metavar="URI", callback=_places,
                     help="Read only below these roots, the job's own directory and what --remap names. Default: the"
                     " filesystem of SOURCE. Repeatable."),
        sites.source_conf,
        sites.target_conf,
        sites.access,
        click.option("--actions", is_flag=True, help="Tell every file, not only sums."),
        _output_option,
    ]  # fmt: skip
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


@click.group(context_settings={"auto_envvar_prefix": "CPREPLICATE", "help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
@click.option("--config", metavar="FILE", is_eager=True, expose_value=False, callback=_config,
              help="A TOML file with a table of options for each command.")  # fmt: skip
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def cli() -> None:
    """Replicate Apache Flink checkpoints between data centres.

    SOURCE is a checkpoint (.../chk-42), a job's directory (its newest completed checkpoint) or a savepoint. TARGET_ROOT
    corresponds to the other cluster's execution.checkpointing.dir; the job's directory is made inside it: the REPLICA.
    """


@cli.command(epilog=_READ_CODES)
@click.argument("checkpoint", callback=_place)
@click.option("--refs", is_flag=True, help="Tell every state handle instead of the summary.")
@_remap_option
@sites.source_conf
@sites.access
@_output_option
def inspect(checkpoint: str, refs: bool, remap: tuple[uri.Remap, ...], output: Any, **options: Any) -> None:
    """What a checkpoint holds: operators, subtasks, sizes, skew, files of other jobs."""
    from cpreplicate import inspect as verb
    from cpreplicate.output import show_inspection, show_references

    site = _site(options.pop("source_conf"), options)
    if refs:
        show_references(list(verb.references(checkpoint, site, remap)), output)
    else:
        show_inspection(verb.inspect(checkpoint, site, remap), output)


@cli.command(epilog=_REPLICATE_CODES + "\n  20  --exit-code: there are differences")
@_replicate_options
@click.option("--exit-code", is_flag=True, help="Exit with 20 if there is anything to do.")
def diff(exit_code: bool, actions: bool, output: Any, **options: Any) -> int:
    """The plan of a sync, nothing done."""
    from cpreplicate.output import show_report
    from cpreplicate.replicate import diff as verb

    report = verb(_request(options))
    show_report(report, output, actions)
    return 20 if exit_code and not report.plan.empty else 0


@cli.command(epilog=_REPLICATE_CODES)
@_replicate_options
@click.option(
    "--runner",
    type=click.Choice(["auto", "spark", "inline"]),
    default="auto",
    show_default=True,
    help="What copies: Spark executors, or threads of this process. auto: Spark, unless little is to be done.",
)
@click.option("--master", metavar="URL", help="Spark master. Default: local[*] with four tries a batch.")
@click.option(
    "--parallelism",
    type=click.IntRange(1),
    metavar="N",
    help="Slots to fill with batches (spark), or files copied at once (inline).",
)
@sites.writing
@click.option("--dry-run", is_flag=True, help="Show the plan, as diff does, and do nothing.")  # fmt: skip
def sync(dry_run: bool, actions: bool, output: Any, **options: Any) -> None:
    """Replicate: copy what is new, commit, delete what only the old checkpoint needed."""
    from cpreplicate.output import narrate, show_report
    from cpreplicate.replicate import diff, sync

    request = _request(options)
    report = diff(request) if dry_run else sync(request, narrate)
    show_report(report, output, actions)


@cli.command(epilog=_READ_CODES + "\n   4  the replica cannot be restored")
@click.argument("replica", callback=_place)
@click.option("--checkpoint", metavar="chk-N", help="Default: the newest committed one.")
@click.option("--content", is_flag=True, help="Read every file and compare the CRC32C recorded when it was copied.")
@click.option("--sample", metavar="SHARE", callback=sites.parsed(sites.share), help="Read a part only, as in 5%.")
@click.option("--seed", type=int, default=0, show_default=True, help="Which part: another seed reads other files.")
@sites.target_conf
@sites.access
@_output_option
def verify(
    replica: str, checkpoint: str | None, content: bool, sample: float | None, seed: int, output: Any, **options: Any
) -> int:
    """Prove that a replica can be restored: presence and extent of every file, nothing outside it."""
    from cpreplicate.output import narrate, show_verification
    from cpreplicate.verify import Sample
    from cpreplicate.verify import verify as verb

    part = Sample(sample if sample is not None else float(content), seed)
    found = verb(replica, checkpoint, part, narrate, _site(options.pop("target_conf"), options))
    show_verification(found, output)
    return 0 if found.restorable else 4


def _request(options: dict[str, Any]) -> Request:
    from cpreplicate.replicate import Request
    from cpreplicate.storage import Sites

    limits = sites.limits_of(options)
    source = _site(options.pop("source_conf"), options, limits)
    target = _site(options.pop("target_conf"), options, limits)
    both = Sites(source, target, options.pop("preserve", False))
    rest = {name: value for name, value in options.items() if name not in _ACCESS}
    return Request(remaps=rest.pop("remap"), source_roots=rest.pop("source_root"), sites=both, **rest)


def _site(words: tuple[str, ...], options: dict[str, Any], limits: Limits | None = None) -> Site:
    storages = click.get_current_context().meta.get(_STORAGES, {})
    return sites.site(words, storages, options, limits or sites.limits_of(options))
