"""Read TOML files, and report mistakes in them with file, line and key."""

from __future__ import annotations

import difflib
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Key = tuple[str | int, ...]
_AT_LINE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


class TomlFile:
    """A parsed TOML file; `tables` are its contents."""

    def __init__(self, path: str) -> None:
        """Read and parse the file. Raises `click.UsageError`."""
        self.path = path
        text = self._read()
        try:
            self.tables: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise self._syntax(str(error), text) from error
        except (ValueError, RecursionError) as error:  # a number or a nesting without bounds
            raise self._error(str(error), None) from error
        self._text = text

    def error(self, message: str, *key: str | int) -> click.UsageError:
        """Return an error that begins with the file and the line of a key.

        `key` is the names of its tables and its own. Where its line is not known, it is that of the
        innermost table whose line is.
        """
        lines = _lines_of_keys(self._text)
        prefixes = (key[:end] for end in range(len(key), 0, -1))
        line = next((lines[prefix] for prefix in prefixes if prefix in lines), None)
        return self._error(message, line)

    def unknown(
        self, kind: str, name: str, where: str, valid: Collection[str], *key: str | int
    ) -> click.UsageError:
        """Return the error for a name that is not in `valid`.

        It suggests the most similar valid name, or lists all.
        """
        similar = difflib.get_close_matches(name, valid, 1)
        if similar:
            hint = f"did you mean {similar[0]!r}?"
        else:
            hint = f"valid are {', '.join(sorted(valid))}"
        return self.error(f"unknown {kind} {name!r}{where}; {hint}", *key)

    def _read(self) -> str:
        try:
            data = Path(self.path).read_bytes()
        except OSError as error:
            raise click.UsageError(
                f"{self.path} cannot be read: {error.strerror or error}. Give a TOML file that is"
                " there and that this user may read"
            ) from error
        try:
            return data.decode().replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise self._error(
                f"not UTF-8: byte 0x{data[error.start]:02x}; save the file as UTF-8", line
            ) from error

    def _syntax(self, message: str, text: str) -> click.UsageError:
        match = _AT_LINE.search(message)
        line = int(match[1]) if match and match[1] else text.rstrip().count("\n") + 1
        text_in_quotes = '. A text is in quotes, as in runner = "inline"'
        hint = text_in_quotes if message.startswith("Invalid value") else ""
        return self._error(f"{_AT_LINE.sub('', message)}{hint}", line)

    def _error(self, message: str, line: int | None) -> click.UsageError:
        return click.UsageError(
            f"{self.path}:{line}: {message}" if line else f"{self.path}: {message}"
        )


class FileTable(NamedTuple):
    """A table of a file: what messages call it, and the names that lead to it."""

    file: TomlFile
    title: str
    key: Key

    def error(self, message: str, *key: str | int) -> click.UsageError:
        """Return an error with the line of a key of the table, or of the table."""
        return self.file.error(message, *self.key, *key)

    def unknown(
        self, kind: str, name: str, valid: Collection[str], *key: str | int
    ) -> click.UsageError:
        """Return the error for a name in the table that is not in `valid`."""
        return self.file.unknown(kind, name, f" in {self.title}", valid, *self.key, *key)


def _lines_of_keys(text: str) -> dict[Key, int]:
    """Return the line of each table and key; a table of an array has its index in its key."""
    lines: dict[Key, int] = {}
    lengths: Counter[Key] = Counter()
    table: Key = ()
    for line, is_header, statement in _statements(text):
        if is_header:
            table = _header(statement, lengths)
            keys = [table[:end] for end in range(1, len(table) + 1)]
        else:
            keys = [table + key for key in _keys(statement)]
        for key in keys:
            lines.setdefault(key, line)
    return lines


def _statements(text: str) -> Iterator[tuple[int, bool, dict[str, Any]]]:
    """Yield the first line, whether it is a header, and the parsed form of each statement.

    A statement is the fewest lines that can be parsed together: a header, or a key and its value.
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
    """Return the key of the table that a header such as `[a.b]` or `[[a]]` begins."""
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
    """Yield every key of a statement, also those of inline tables and arrays."""
    items: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for name, inner in items:
        yield (name,)
        yield from ((name, *key) for key in _keys(inner))
