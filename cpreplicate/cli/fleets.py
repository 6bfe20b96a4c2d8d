"""The `fleet` command, and the TOML file of jobs that it reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cpreplicate import uri
from cpreplicate.cli import config, params, sites
from cpreplicate.cli.commands import cli, sync
from cpreplicate.cli.results import change_code, read_code

if TYPE_CHECKING:
    from cpreplicate.fleet import Member
    from cpreplicate.storage import Sites

_TABLES = ("job", "root", "defaults")
_OWN = ("name", "source", "target", "priority", "exclude")
_OPTIONS = ("paths", "keep", "remap", "source-root", "max-delete", "async-deletes", "lock-wait", "adopt", "same-source",
            "allow-older")  # fmt: skip
_FLEET_CODES = """\b
EXIT STATUS
   0  every job is replicated
   2  usage: nothing was done
   3  jobs failed, for different reasons; else the code that `sync` has for the reason"""


@cli.command(epilog=_FLEET_CODES + params.STOPPED_CODES)
@click.argument("configuration", metavar="CONFIG")
@params.runner_options
@sites.source_conf
@sites.target_conf
@sites.access
@sites.writing
@click.option("--allow-older", is_flag=True, help="For every job, as of sync.")
@click.option("--dry-run", is_flag=True, help="Look at every job, and do nothing.")
@params.output_option
def fleet(configuration: str, allow_older: bool, dry_run: bool, output: Any, **options: Any) -> int:
    """Replicate many jobs in one run: those that CONFIG names, and those below the roots that it names.

    CONFIG is a TOML file of [[job]] and [[root]] tables; see docs/fleet.md.
    """
    from dataclasses import replace

    from cpreplicate.fleet import replicate_fleet
    from cpreplicate.output import narrator, show_fleet
    from cpreplicate.runners import Engine

    tables = config.tables(configuration)
    _refuse_mistakes(configuration, tables)
    params.add_storages(configuration, tables)
    say, both = narrator(options["progress"]), params.sites_of(options)
    lock_wait = options.pop("lock_wait")
    engine = Engine(**params.engine_of(params.without_access(options)))
    members = list(_members(configuration, tables, both, lock_wait))
    if allow_older:
        members = [replace(member, request=replace(member.request, allow_older=True)) for member in members]
    report = replicate_fleet(members, engine, both, say, dry_run)
    unwritten = show_fleet(report, output)
    return report.exit_code or (read_code(unwritten) if dry_run else change_code(unwritten))


def _refuse_mistakes(place: str, tables: Mapping[str, Any]) -> None:
    """What is misspelled would leave jobs out, and nobody would notice."""
    if unknown := sorted(set(tables) - {*_TABLES, config.STORAGE}):
        raise click.UsageError(
            f"{place}: {unknown[0]} is no table of a fleet; they are [[job]], [[root]], [defaults] and [storage]"
        )
    for kind in ("job", "root"):
        if not isinstance(tables.get(kind, []), list):
            raise click.UsageError(f"{place}: there may be several of {kind}: write [[{kind}]]")
    if not tables.get("job") and not tables.get("root"):
        raise click.UsageError(f"{place}: it names no jobs; it wants [[job]] or [[root]] tables")


def _members(place: str, tables: Mapping[str, Any], both: Sites, lock_wait: float) -> Iterator[Member]:
    """The jobs named, and those below the roots that are not named; these are alike but for their sources."""
    from dataclasses import replace

    from cpreplicate.fleet import jobs_under

    defaults = _table(place, "defaults", tables.get("defaults", {}))
    named = [{**defaults, **_table(place, "job", table)} for table in tables.get("job", [])]
    sources = {uri.absolute(_text(place, "job", table, "source"), str(Path.cwd())) for table in named}
    for table in named:
        yield _member(place, "job", table, both, lock_wait)
    for root in ({**defaults, **_table(place, "root", table)} for table in tables.get("root", [])):
        top = _member(place, "root", root, both, lock_wait, True)
        for source in jobs_under(top.request.source, both.source):
            if source not in sources and (name := uri.name(source)) not in root.get("exclude", ()):
                yield replace(top, name=name, request=replace(top.request, source=source))


def _member(
    place: str, kind: str, table: Mapping[str, Any], both: Sites, lock_wait: float, may_be_empty: bool = False
) -> Member:
    """One job, its options understood as those of `sync` are."""
    from dataclasses import replace

    from cpreplicate.fleet import Member

    source, target = (_text(place, kind, table, name) for name in ("source", "target"))
    words = [source, target, *(word for name in _OPTIONS if name in table for word in _words(name, table[name]))]
    name = str(table.get("name") or uri.name(source))
    try:
        with sync.make_context(f"{place}: {name}", words, parent=click.get_current_context()) as context:
            request = replace(params.request_of(context.params | {"progress": "none"}), sites=both)
    except click.UsageError as error:
        raise click.UsageError(f"{place}, job {name}: {error.format_message()}") from error
    waits = request.lock_wait if "lock-wait" in table else lock_wait
    return Member(name, replace(request, lock_wait=waits), table.get("priority", 0), may_be_empty)


def _words(name: str, value: object) -> list[str]:
    """An option of the file as on the command line."""
    if isinstance(value, bool):
        return [f"--{name}"] if value else []
    return [word for each in (value if isinstance(value, list) else [value]) for word in (f"--{name}", str(each))]


def _table(place: str, kind: str, table: object) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise click.UsageError(f"{place}: {kind} must be a table")
    found = {str(name).replace("_", "-"): value for name, value in table.items()}
    if unknown := sorted(set(found) - {*_OWN, *_OPTIONS}):
        known = ", ".join((*_OWN, *_OPTIONS))
        raise click.UsageError(f"{place}: {unknown[0]} is no option of a {kind}; they are {known}. All others belong to the"
                               " command line")  # fmt: skip
    if type(found.get("priority", 0)) is not int:
        raise click.UsageError(f"{place}: priority must be a whole number, not {found['priority']!r}")
    excluded = found.get("exclude", [])
    if not isinstance(excluded, list) or not all(isinstance(each, str) for each in excluded):
        raise click.UsageError(f'{place}: exclude must be a list of ids, such as ["7f0c…"]')
    return found


def _text(place: str, kind: str, table: Mapping[str, Any], name: str) -> str:
    value = table.get(name)
    if not isinstance(value, str) or not value:
        raise click.UsageError(f'{place}: a {kind} wants {name} = "…"')
    return value
