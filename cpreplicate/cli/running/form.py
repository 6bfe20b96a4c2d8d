"""In which form a command was asked to print, also where its arguments cannot be parsed.

click calls no callback of an option where the others do not parse, not of an eager one either.
"""

from __future__ import annotations

import os
import sys
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING

import click

from cpreplicate.cli.files.config import used_file
from cpreplicate.cli.files.toml_options import options_of

if TYPE_CHECKING:
    from cpreplicate.output import Form

_FORMS: tuple[Form, ...] = ("text", "json", "ndjson")
_OUTPUT = "output"
_OPTION = f"--{_OUTPUT}"


def form_asked(context: click.Context) -> Form:
    """Return the form in which the command of `sys.argv` was asked to print.

    `context` is that of the command, or of the group if the command is not known or did not begin
    yet. As for other options, the command line wins over the environment, that over the file of
    options. A command without `--output` prints text.
    """
    if _OUTPUT in context.params:
        return _form(context.params[_OUTPUT])
    words = list(takewhile(lambda word: word != "--", sys.argv[1:]))
    command = _command(context, words)
    if command is not None and _OUTPUT not in options_of(command):
        return "text"
    used = used_file(context)
    name = "" if command is None else command.name or ""
    return _form(
        _given(words)
        or _in_environment(command)
        or (None if used is None else used.value(name, _OUTPUT))
    )


def _form(value: object) -> Form:
    return next((form for form in _FORMS if form == value), "text")


def _command(context: click.Context, words: list[str]) -> click.Command | None:
    """Return the command of a context, else the first one that an argument names."""
    if not isinstance(context.command, click.Group):
        return context.command
    root = context.find_root().command
    assert isinstance(root, click.Group)
    return next((root.commands[word] for word in words if word in root.commands), None)


def _given(words: list[str]) -> str | None:
    """Return the last value that the arguments have for `--output`."""
    found = None
    for word, after in pairwise([*words, ""]):
        if word == _OPTION:
            found = after
        elif word.startswith(f"{_OPTION}="):
            found = word.partition("=")[2]
    return found


def _in_environment(command: click.Command | None) -> str | None:
    if command is None:
        return None
    return os.environ.get(options_of(command)[_OUTPUT].option.variable(command.name or ""))
