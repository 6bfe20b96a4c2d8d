"""Read options from files: the TOML file of `--config`, and files of Spark properties."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import click

from cpreplicate.cli.files.places import places_of
from cpreplicate.cli.files.toml_file import FileTable, TomlFile
from cpreplicate.cli.files.toml_options import (
    by_name,
    checked,
    converted,
    is_general,
    options_of,
    parameters_of,
    refuse_two_spellings,
    spelled,
)
from cpreplicate.cli.options.kinds import absolute, is_property_name, refuse_no_value
from cpreplicate.cli.options.named_places import PLACES
from cpreplicate.cli.options.named_places import use as use_places
from cpreplicate.cli.options.option import command_that_is_shown, inherited
from cpreplicate.core import uri
from cpreplicate.errors import UsageError
from cpreplicate.storage.backends.hdfs.hadoop_conf import read
from cpreplicate.storage.option_names import NAMES, unknown_option, unknown_options
from cpreplicate.storage.sides import Options

STORAGES = "cpreplicate.storages"  # the key of click's `meta` under which these tables are kept
_USED = "cpreplicate.config"  # and that of the file that is used
VARIABLE = "CPREPLICATE_CONFIG"
MACHINE = Path("/etc/cpreplicate/config.toml")  # what all users of a machine have
STORAGE = "storage"
OPTIONS = "options"
_OF_JOBS = {"job", "root"}  # tables of another kind of file
_CONF_DIR = "conf-dir"
_PROPERTY = re.compile(r"([^\s=:]+)\s*[=:\s]\s*(.*)")


def default_path() -> str | None:
    """Return the file that is used without `--config`: the user's, else that of the machine."""
    home = [Path("~").expanduser()] if "HOME" in os.environ else []
    own = [directory / ".config" / "cpreplicate" / "config.toml" for directory in home]
    # `isfile` is False where nothing can be looked up
    return next(filter(os.path.isfile, map(str, (*own, MACHINE))), None)


def load_config(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    """Make the tables of a TOML file the defaults of the commands.

    Flags and environment variables override them. Without a file, that of `default_path` is used,
    unless the environment variable is empty. A mistake in it is raised by the commands that have
    options in such a file, and not by `help`, `version`, `completion` and `config schema`.
    """
    refuse_no_value(value)
    if value is None and VARIABLE not in os.environ:
        value = default_path()
    if value:
        assert isinstance(context.command, click.Group)
        context.default_map = _use(context, value, context.command.commands)


def load_config_of_command(
    context: click.Context, _parameter: click.Parameter, value: str | None
) -> None:
    """Use a file that is given behind a command, instead of the one before it.

    Raises `click.UsageError` for a mistake in the file that this command uses. A command without
    options in such a file uses none.
    """
    refuse_no_value(value)
    root = context.find_root().command
    if value is not None and isinstance(root, click.Group):
        context.default_map = _use(context, value, root.commands).get(context.info_name or "")
    used = used_file(context)
    if used is not None and options_of(context.command):
        used.correct()


@dataclass(frozen=True)
class UsedFile:
    """A file of options that was read: its tables, or the mistake in it.

    It is read once: it may be a pipe.
    """

    path: str
    file: TomlFile | None
    tables: Tables | None = None
    mistake: click.UsageError | None = None

    def correct(self) -> Tables:
        """Return the tables. Raises `click.UsageError` for a mistake."""
        if self.mistake is not None:
            raise self.mistake
        assert self.tables is not None
        return self.tables

    def value(self, command: str, key: str) -> object:
        """Return what is written for an option of a command, None if nothing.

        It is there also if the file has a mistake elsewhere.
        """
        tables = {} if self.file is None else self.file.tables
        found = (tables.get(name) for name in (command, OPTIONS))
        return next((each[key] for each in found if isinstance(each, dict) and key in each), None)


def used_file(context: click.Context) -> UsedFile | None:
    """Return the file that the commands use, None if they use none."""
    found: UsedFile | None = context.meta.get(_USED)
    return found


def read_file(path: str, commands: Mapping[str, click.Command]) -> UsedFile:
    """Read a file of options, and let this command use its places."""
    file = None
    try:
        file = TomlFile(path)
        return UsedFile(path, file, _load(file, commands))
    except click.UsageError as error:
        return UsedFile(path, file, mistake=error)


def with_options(commands: Mapping[str, click.Command]) -> dict[str, click.Command]:
    """Return the commands that have a table in the file."""
    return {name: command for name, command in commands.items() if options_of(command)}


def _use(
    context: click.Context, path: str, commands: Mapping[str, click.Command]
) -> dict[str, dict[str, Any]]:
    """Let the commands use a file, and return their parameters in it, none if it has a mistake."""
    context.meta[_USED] = used = read_file(path, commands)
    if used.tables is None:
        return {}
    context.meta[STORAGES] = used.tables.storages
    return used.tables.parameters


class Tables(NamedTuple):
    """A TOML file: parameters by command, and options by filesystem."""

    parameters: dict[str, dict[str, Any]]
    storages: dict[str, Options]
    places: dict[str, str]


def load(path: str, commands: Mapping[str, click.Command]) -> Tables:
    """Return the tables of a TOML file, and let this command use its places.

    A command's own table wins over `[options]`, which holds for each command that has the option.
    Keys are spelled as on the command line or with `_`. Raises `click.UsageError` with the line of
    a mistake.
    """
    return _load(TomlFile(path), commands)


def _load(file: TomlFile, commands: Mapping[str, click.Command]) -> Tables:
    """Return the tables of a file, as `load` does."""
    _refuse_jobs(file)
    context = click.get_current_context()
    use_places(context, {})  # those of a file before, which this one replaces
    places = places_of(file, absolute)
    use_places(context, places)
    commands = with_options(commands)
    for name, table in file.tables.items():
        _refuse_other_table(file, name, table, commands)
    parameters = {name: parameters_of(command) for name, command in commands.items()}
    options = {name: options_of(command) for name, command in commands.items()}
    _refuse_keys_of_tables(file, commands)
    for name in commands:
        _refuse_unknown_keys(file, name, parameters[name])
    tables = {
        name: {
            **_values(file, OPTIONS, options[name]),
            **_values_of_shown(file, command, context.find_root().command),
            **_values(file, name, parameters[name]),
        }
        for name, command in commands.items()
    }
    return Tables(tables, storages_of(file), places)


def _refuse_jobs(file: TomlFile) -> None:
    if not _OF_JOBS.isdisjoint(file.tables):
        raise click.UsageError(
            f"{file.path} has jobs: it is a file of `fleet`, and `cpreplicate fleet --dry-run`"
            " checks it"
        )


def _refuse_other_table(
    file: TomlFile, name: str, table: object, commands: Collection[str]
) -> None:
    """Raise for a table of no command, and for what should be a table."""
    valid = {*commands, OPTIONS, STORAGE, PLACES}
    if name in valid:
        if not isinstance(table, dict):
            raise file.error(f"{name!r} must be a table: write [{name}]", name)
    elif isinstance(table, (dict, list)):
        raise file.unknown("table", name, "", valid, name)
    else:
        raise file.error(
            f"{name!r} is in no table; write it below the table of a command, such as [sync], or"
            f" below [{OPTIONS}]",
            name,
        )


def _refuse_unknown_keys(file: TomlFile, table: str, valid: Collection[str]) -> None:
    found, at = file.tables.get(table, {}), FileTable(file, f"[{table}]", (table,))
    for key in found:
        if spelled(key) not in valid:
            raise at.unknown("key", key, valid, key)
    refuse_two_spellings(at, found)


def _refuse_keys_of_tables(file: TomlFile, commands: Mapping[str, click.Command]) -> None:
    """Raise for what `[options]` cannot hold, because it means another thing for each command."""
    options = by_name(commands)
    general = [name for name, having in options.items() if is_general(having.values())]
    for key in file.tables.get(OPTIONS, {}):
        name = spelled(key)
        if name in options and name not in general:
            tables = " or ".join(f"[{each}]" for each in options[name])
            raise file.error(
                f"{key!r} in [{OPTIONS}] would not mean the same for each command. Write it in"
                f" {tables}",
                OPTIONS,
                key,
            )
    _refuse_unknown_keys(file, OPTIONS, general)


def _values(
    file: TomlFile, table: str, parameters: Mapping[str, click.Parameter]
) -> dict[str, Any]:
    """Return the raw values of a table, by parameter: click converts defaults itself.

    Keys of other commands are left out.
    """
    values, at = {}, FileTable(file, f"[{table}]", (table,))
    for key, value in file.tables.get(table, {}).items():
        parameter = parameters.get(spelled(key))
        if parameter is not None:
            raw = checked(at, key, parameter, value)
            converted(at, key, parameter, raw)  # for its errors
            values[parameter.name or ""] = raw
    return values


def _values_of_shown(file: TomlFile, command: click.Command, root: click.Command) -> dict[str, Any]:
    """Return what is written for the command of which this one shows what it would do."""
    shown = command_that_is_shown(command, root)
    if shown is None:
        return {}
    names = [option.name for option in inherited(command, shown)]
    found = options_of(shown)
    return _values(file, shown.name or "", {name: found[name] for name in names})


def add_storages(file: TomlFile) -> None:
    """Add the `[storage."…"]` tables of another file to those of the command."""
    meta = click.get_current_context().meta
    meta[STORAGES] = {**meta.get(STORAGES, {}), **storages_of(file)}


def storages_of(file: TomlFile) -> dict[str, Options]:
    """Return the `[storage."…"]` tables: the options of each filesystem.

    The files of a `conf-dir` are read and replaced by their properties, over which single keys
    win. Raises `click.UsageError` with the line of a mistake.
    """
    tables = file.tables.get(STORAGE, {})
    if not isinstance(tables, dict):
        raise file.error(f'{STORAGE!r} must hold tables, such as [storage."hdfs://dcA"]', STORAGE)
    return {
        name: _storage(FileTable(file, f'[{STORAGE}."{name}"]', (STORAGE, name)), name, table)
        for name, table in tables.items()
    }


def _storage(at: FileTable, name: str, table: object) -> Options:
    """Return the options of one `[storage]` table. Raise at the line of a mistake."""
    if not isinstance(table, dict):
        raise at.error(f'{name!r} in [{STORAGE}] must be a table, such as [storage."hdfs://dcA"]')
    if not all(map(is_property_name, table)):
        raise at.error(
            f"a key in {at.title} has a blank, a colon or an equals sign. It is not shown here,"
            " because it may hold a secret"
        )
    directories = {key: value for key, value in table.items() if spelled(key) == _CONF_DIR}
    refuse_two_spellings(at, directories)
    for key, value in table.items():
        _check_storage_value(at, key, value)
    single = {key: _text(value) for key, value in table.items() if spelled(key) != _CONF_DIR}
    _refuse_unknown(at, name, single)
    return tuple({**_directory(at, directories), **single}.items())


def _refuse_unknown(at: FileTable, name: str, options: Mapping[str, str]) -> None:
    """Raise for a table that would hold for no filesystem, or with an option that has no effect."""
    if not name:
        return  # options for every filesystem: each is checked where it is used
    scheme = name.partition(":")[0]
    if ":" not in name or scheme not in NAMES:
        valid = [f"{each}:" for each in NAMES]
        raise at.file.unknown("filesystem", name, f" in [{STORAGE}]", valid, *at.key)
    if uri.filesystem(name) != name:
        raise at.error(
            f"{name!r} in [{STORAGE}] must be a filesystem, such as {uri.filesystem(name)!r}: the"
            " options of a storage hold for all of it"
        )
    for key in unknown_options(scheme, options):
        raise at.error(unknown_option(scheme, key, [_CONF_DIR]), key)


def _check_storage_value(at: FileTable, key: str, value: object) -> None:
    if spelled(key) == _CONF_DIR:
        is_valid, expected = isinstance(value, str) and bool(value), "a string that is not empty"
    else:
        is_valid = isinstance(value, (str, int, float))
        expected = "a string, a number, true or false"
    if isinstance(value, dict):
        expected += '; write a key with dots in quotes, "dfs.nameservices"'
    if not is_valid:
        raise at.error(f"{key!r} in {at.title} must be {expected}", key)


def _directory(at: FileTable, directories: Mapping[str, str]) -> dict[str, str]:
    for key, directory in directories.items():  # one at most
        try:
            return read(Path(directory))
        except UsageError as error:
            raise at.error(f"{key!r} in {at.title}: {error}", key) from error
    return {}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def spark_properties(path: str) -> tuple[tuple[str, str], ...]:
    """Return the properties of a file as spark-submit reads it.

    Each line has a name and a value, separated by blanks, `=` or `:`. `#` begins a comment. Raises
    `click.UsageError` if the file cannot be read.
    """
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--properties-file {path}: {error}") from error
    matches = (_PROPERTY.fullmatch(line.strip()) for line in lines)
    return tuple(
        (match[1], match[2])
        for match in matches
        if match is not None and not match[1].startswith(("#", "!"))
    )
