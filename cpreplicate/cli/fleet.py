"""The `fleet` command, and the TOML file of jobs that it reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from cpreplicate.cli import config, storage_options
from cpreplicate.cli import options as common_options
from cpreplicate.cli.commands import cli, sync
from cpreplicate.cli.results import change_code, read_code
from cpreplicate.cli.tables import check_value, parameters_of, spelled
from cpreplicate.cli.toml_file import TomlFile
from cpreplicate.core import uri

if TYPE_CHECKING:
    from cpreplicate.operations.fleet import Member
    from cpreplicate.storage import Sides

_OWN = {  # the keys of each table beside the options of `sync`
    "job": ("name", "source", "target", "priority"),
    "root": ("source", "target", "priority", "exclude"),
    "defaults": ("target", "priority", "exclude"),
}
_TITLES = {"job": "[[job]]", "root": "[[root]]", "defaults": "[defaults]"}
_OPTIONS = ("paths", "keep", "remap", "source-root", "max-delete", "async-deletes", "lock-wait", "adopt", "same-source",
            "allow-older")  # fmt: skip
_FLEET_CODES = """\b
EXIT STATUS
   0  every job is replicated
   2  usage: nothing was done
   3  jobs failed, for different reasons; else the code that `sync` has for the reason"""


@cli.command(epilog=_FLEET_CODES + common_options.STOPPED_CODES)
@click.argument("configuration", metavar="CONFIG")
@common_options.runner_options
@storage_options.source_conf
@storage_options.target_conf
@storage_options.access
@storage_options.writing
@click.option("--allow-older", is_flag=True, help="For every job, as of sync.")
@click.option("--dry-run", is_flag=True, help="Look at every job, and do nothing.")
@common_options.output_option
def fleet(configuration: str, allow_older: bool, dry_run: bool, output: Any, **options: Any) -> int:
    """Replicate many jobs in one run: those that CONFIG names, and those below the roots that it
    names.

    CONFIG is a TOML file of [[job]] and [[root]] tables; see docs/fleet.md. Its `target` is a
    directory of cpreplicate's own, such as hdfs://dcB/flink/replicas. Replicas below a root are
    skipped.
    """
    from dataclasses import replace

    from cpreplicate.operations.fleet import replicate_fleet
    from cpreplicate.output import narrator, show_fleet

    file = TomlFile(configuration)
    _refuse_mistakes(file)
    common_options.add_storages(file)
    notify, both = narrator(options["progress"]), common_options.sides_of(options)
    lock_wait = options.pop("lock_wait")
    execution = common_options.execution_of(options)
    members = list(_members(file, both, lock_wait))
    if allow_older:
        members = [
            replace(member, request=replace(member.request, allow_older=True)) for member in members
        ]
    report = replicate_fleet(members, execution, both, notify, dry_run)
    unwritten = show_fleet(report, output)
    return report.exit_code or (read_code(unwritten) if dry_run else change_code(unwritten))


def _refuse_mistakes(file: TomlFile) -> None:
    """Refuse what is misspelled: it would leave jobs or limits out, and nobody would notice."""
    for name in file.tables:
        if name not in (*_OWN, config.STORAGE):
            raise file.unknown(
                "table", name, " in the configuration of a fleet", (*_OWN, config.STORAGE), name
            )
    for kind in ("job", "root"):
        if not isinstance(file.tables.get(kind, []), list):
            raise file.error(f"there may be several of {kind!r}: write [[{kind}]]", kind)
    if not file.tables.get("job") and not file.tables.get("root"):
        raise file.error("no jobs are named; write [[job]] or [[root]] tables")


def _members(file: TomlFile, both: Sides, lock_wait: float) -> Iterator[Member]:
    """Yield the jobs named, and those below the roots that are not named.

    These are alike but for their sources.
    """
    from dataclasses import replace

    from cpreplicate.operations.fleet import jobs_under

    defaults = _table(file, "defaults", file.tables.get("defaults", {}), "defaults")
    named, roots = (_tables(file, kind, defaults) for kind in ("job", "root"))
    members = [_member(file, "job", at, table, both, lock_wait) for at, table in enumerate(named)]
    tops = [_member(file, "root", at, table, both, lock_wait) for at, table in enumerate(roots)]
    yield from members
    sources = {member.request.source for member in members}
    for root, top in zip(roots, tops, strict=True):
        for source in jobs_under(top.request.source, both.source):
            if source not in sources and (name := uri.name(source)) not in root.get("exclude", ()):
                yield replace(top, name=name, request=replace(top.request, source=source))


def _tables(file: TomlFile, kind: str, defaults: dict[str, Any]) -> list[dict[str, Any]]:
    tables = enumerate(file.tables.get(kind, []))
    return [{**defaults, **_table(file, kind, table, kind, at)} for at, table in tables]


def _member(
    file: TomlFile, kind: str, at: int, table: Mapping[str, Any], both: Sides, lock_wait: float
) -> Member:
    """Return one job, its options understood as those of `sync` are.

    Or what the jobs below a root have in common.
    """
    from dataclasses import replace

    from cpreplicate.operations.fleet import Member

    source, target = (_needed(file, kind, at, table, name) for name in ("source", "target"))
    words = [
        source,
        target,
        *(word for name in _OPTIONS if name in table for word in _words(name, table[name])),
    ]
    name = table.get("name") or uri.name(source)
    try:
        with sync.make_context(
            f"{file.path}: {name}", words, parent=click.get_current_context()
        ) as context:
            request = replace(
                common_options.request_of(context.params | {"progress": "none"}), sides=both
            )
    except click.UsageError as error:
        raise file.error(f"job {name}: {error.format_message()}", kind, at) from error
    waits = request.lock_wait if "lock-wait" in table else lock_wait
    return Member(
        name,
        replace(request, lock_wait=waits),
        table.get("priority", 0),
        is_discovered=kind == "root",
    )


def _words(name: str, value: object) -> list[str]:
    """Return an option of the file as on the command line."""
    if isinstance(value, bool):
        return [f"--{name}"] if value else []
    return [
        word
        for each in (value if isinstance(value, list) else [value])
        for word in (f"--{name}", str(each))
    ]


def _table(file: TomlFile, kind: str, table: object, *place: str | int) -> dict[str, Any]:
    """Return a table's keys, as the command line spells them, and values.

    Raises `click.UsageError` with the line.
    """
    if not isinstance(table, dict):
        raise file.error(f"{kind!r} must be a table: write {_TITLES[kind]}", *place)
    parameters, found = parameters_of(sync), {}
    for key, value in table.items():
        name = spelled(key)
        if name in _OWN[kind]:
            found[name] = _own_value(file, kind, value, *place, key)
        elif name in _OPTIONS:
            found[name] = check_value(file, _TITLES[kind], parameters[name], value, *place, key)
        else:
            raise _unknown(file, kind, name, *place, key)
    return found


def _unknown(file: TomlFile, kind: str, name: str, *place: str | int) -> click.UsageError:
    if name in parameters_of(fleet):
        return file.error(
            f"unknown key {name!r} in {_TITLES[kind]}: give --{name} on the command line of fleet",
            *place,
        )
    return file.unknown("key", name, f" in {_TITLES[kind]}", (*_OWN[kind], *_OPTIONS), *place)


def _own_value(file: TomlFile, kind: str, value: object, *place: str | int) -> object:
    name = spelled(str(place[-1]))
    if name == "priority":
        is_right, wanted = type(value) is int, "a whole number"
    elif name == "exclude":
        is_right = isinstance(value, list) and all(isinstance(each, str) for each in value)
        wanted = 'an array of job ids, such as ["7f0c…"]'
    else:
        is_right, wanted = isinstance(value, str) and value != "", "a string that is not empty"
    if not is_right:
        raise file.error(
            f"{place[-1]!r} in {_TITLES[kind]} must be {wanted}, not {value!r}", *place
        )
    return value


def _needed(file: TomlFile, kind: str, at: int, table: Mapping[str, Any], name: str) -> str:
    if name not in table:
        raise file.error(f'{_TITLES[kind]} has no {name!r}; write {name} = "…"', kind, at)
    return str(table[name])
