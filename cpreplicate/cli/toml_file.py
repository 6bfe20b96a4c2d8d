"""A TOML file whose mistakes are reported with file, line and key."""

from __future__ import annotations

import difflib
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import click

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Key = tuple[str | int, ...]
_AT_LINE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


class TomlFile:
    """A TOML file as read: `tables` is what it holds."""

    def __init__(self, path: str) -> None:
        """Read and parse the file. Raises `click.UsageError`."""
        self.path = path
        text = self._read()
        try:
            self.tables: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise self._syntax(str(error), text) from error
        self._text = text

    def error(self, message: str, *key: str | int) -> click.UsageError:
        """Return the error for a key, given by the names of its tables and its own, with its line
        in front.
        """
        lines = _lines_of_keys(self._text)
        known = next(
            (lines[key[:end]] for end in range(len(key), 0, -1) if key[:end] in lines), None
        )
        return self._error(message, known)

    def unknown(
        self, what: str, name: str, place: str, valid: Collection[str], *key: str | int
    ) -> click.UsageError:
        """Return the error for a name that is not one of `valid`, with the nearest of them or all."""
        near = difflib.get_close_matches(name, valid, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"valid are {', '.join(sorted(valid))}"
        return self.error(f"unknown {what} {name!r}{place}; {hint}", *key)

    def _read(self) -> str:
        try:
            data = Path(self.path).read_bytes()
        except OSError as error:
            raise click.UsageError(f"{self.path}: {error.strerror or error}") from error
        try:
            return data.decode().replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise self._error(
                f"not UTF-8: byte 0x{data[error.start]:02x}; save the file as UTF-8", line
            ) from error

    def _syntax(self, message: str, text: str) -> click.UsageError:
        at = _AT_LINE.search(message)
        line = int(at[1]) if at and at[1] else text.rstrip().count("\n") + 1
        return self._error(_AT_LINE.sub("", message), line)

    def _error(self, message: str, line: int | None) -> click.UsageError:
        return click.UsageError(
            f"{self.path}:{line}: {message}" if line else f"{self.path}: {message}"
        )


def _lines_of_keys(text: str) -> dict[Key, int]:
    """Return the line of each table and key; tables of an array are told apart by their index."""
    found: dict[Key, int] = {}
    lengths: Counter[Key] = Counter()
    table: Key = ()
    for line, is_header, statement in _statements(text):
        if is_header:
            table = _header(statement, lengths)
            keys = [table[:end] for end in range(1, len(table) + 1)]
        else:
            keys = [table + key for key in _keys(statement)]
        for key in keys:
            found.setdefault(key, line)
    return found


def _statements(text: str) -> Iterator[tuple[int, bool, dict[str, Any]]]:
    """Yield each statement, a header or a key with its value, with its first line: lines that can
    be parsed together.
    """
    first, pending = 1, ""
    for number, line in enumerate(text.split("\n"), 1):
        first = first if pending else number
        pending += f"{line}\n"
        try:
            statement = tomllib.loads(pending)
        except tomllib.TOMLDecodeError:
            continue
        yield first, pending.lstrip().startswith("["), statement
        pending = ""


def _header(statement: Any, lengths: Counter[Key]) -> Key:
    """Return the table that a header such as `[a.b]` or `[[a]]` begins."""
    key: Key = ()
    while statement:
        name, statement = next(iter(statement.items()))
        key += (name,)
        if isinstance(statement, list):
            lengths[key] += 1
            statement = {}
        if key in lengths:
            key += (lengths[key] - 1,)
    return key


def _keys(value: Any) -> Iterator[Key]:
    """Yield every key of a statement, those of inline tables too."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for name, inner in items:
        yield (name,)
        yield from ((name, *key) for key in _keys(inner))
