"""Check and convert tables of a TOML file whose keys are the options of a command."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import click

from cpreplicate.cli.files.toml_file import FileTable
from cpreplicate.cli.options.kinds import TEXT
from cpreplicate.cli.options.option import OptionParameter
from cpreplicate.errors import CpreplicateError


def spelled(name: str) -> str:
    """Return a key as the command line spells it."""
    return name.replace("_", "-")


def parameters_of(command: click.Command) -> dict[str, click.Parameter]:
    """Return the parameters of a command, arguments included, by their keys in a TOML file.

    An argument that takes several words stands on the command line only.
    """
    exposed = (parameter for parameter in command.params if parameter.expose_value)
    return {_key_of(parameter): parameter for parameter in exposed if parameter.nargs == 1}


def options_of(command: click.Command) -> dict[str, OptionParameter]:
    """Return the options of a command by their keys in a TOML file."""
    return {each.option.name: each for each in command.params if isinstance(each, OptionParameter)}


def by_name(commands: Mapping[str, click.Command]) -> dict[str, dict[str, OptionParameter]]:
    """Return the options of commands by their keys, and for each key by the command."""
    found: dict[str, dict[str, OptionParameter]] = {}
    for command in sorted(commands):
        for key, parameter in options_of(commands[command]).items():
            found.setdefault(key, {})[command] = parameter
    return found


def is_general(parameters: Collection[OptionParameter]) -> bool:
    """Return whether options of one name take the same kind of value, and mean the same by it."""
    options = [parameter.option for parameter in parameters]
    return all(each.is_general for each in options) and all(
        (each.kind, each.is_multiple) == (options[0].kind, options[0].is_multiple)
        for each in options
    )


def refuse_two_spellings(at: FileTable, table: Mapping[str, Any]) -> None:
    """Raise `click.UsageError` for a key that a table has with `-` and with `_`."""
    first: dict[str, str] = {}
    for name in table:
        if (other := first.setdefault(spelled(name), name)) != name:
            raise at.error(
                f"{other!r} and {name!r} in {at.title} are one key. Keep one of them", name
            )


def _key_of(parameter: click.Parameter) -> str:
    if isinstance(parameter, OptionParameter):
        return parameter.option.name
    return spelled(parameter.name or "")


def checked(at: FileTable, key: str, parameter: click.Parameter, value: object) -> Any:
    """Return the raw value of a parameter: a list where several may be given.

    Raises `click.UsageError` with the line of a value of the wrong type.
    """
    option = parameter.option if isinstance(parameter, OptionParameter) else None
    kind = TEXT if option is None else option.kind
    is_multiple = option is not None and option.is_multiple
    values = value if is_multiple and isinstance(value, list) else [value]
    if not all(map(kind.accepts, values)):
        expected = f"{kind.expected}, or an array of them" if is_multiple else kind.expected
        raise at.error(f"{key!r} in {at.title} must be {expected}, not {_description(value)}", key)
    return values if is_multiple else value


def converted(at: FileTable, key: str, parameter: click.Parameter, raw: object) -> Any:
    """Return the value that the command line makes of a raw one.

    Raises `click.UsageError` with the line of what the parameter does not accept.
    """
    context = click.Context(click.Command(at.title), parent=click.get_current_context())
    try:
        return parameter.process_value(context, raw)
    except (click.UsageError, CpreplicateError) as error:
        message = error.message if isinstance(error, click.UsageError) else str(error)
        raise at.error(f"{key!r} in {at.title}: {message}", key) from error


def _description(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "an array"  # which may hold a secret
    return "a table" if isinstance(value, Mapping) else repr(value)
