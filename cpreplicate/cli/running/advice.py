"""The options and pages that a message names, as its reader has them.

The command may have other options, and the pages are not installed with the package.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping

import click

from cpreplicate.cli.options.kinds import FLAG, REMAP
from cpreplicate.cli.options.option import Option

_REPOSITORY = "https://github.com/cpreplicate/cpreplicate"
DOCUMENTATION = f"{_REPOSITORY}/tree/main/docs"
_PAGE = re.compile(r"(?<![\w/])docs/((?:[\w-]+/)*[\w-]+\.md)")
_OPTION = re.compile(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*")
_SENTENCE = re.compile(r"(?:[^.]|\.(?! ))+(?:\. )?")
_OF_ANOTHER = "[^:.]*, stated by"
_VALUE = r"(?:'[^']*'|[^\s']*=\S*[^\s.,;:)])"


def advised(
    message: str,
    command: click.Command,
    commands: Mapping[str, click.Command],
    keys: Collection[Option] = (),
) -> str:
    """Return a message in which each option is one of the command, or has its command beside it.

    An operation names the options of the command that most often calls it. `keys` are those that
    the tables of the command's file hold instead: they become lines of that file. Behind the
    message stands which command has another option, unless the sentence names it.
    """
    if "--" not in message and ".md" not in message:
        return message  # as most lines that are narrated
    own = {name for parameter in command.params for name in parameter.opts}
    for option in keys:
        if f"--{option.name}" not in own:
            message = _as_keys(message, option)
    others = dict.fromkeys(_foreign(message, own, commands))
    notes = [
        f"{name} is an option of `cpreplicate {next(_having(name, commands))}`" for name in others
    ]
    message = ". ".join([message, *(note for note in notes if note not in message)])
    return _PAGE.sub(rf"{_REPOSITORY}/blob/main/docs/\1", message)


def without_folder(text: str) -> str:
    """Return a help text with the names of pages alone: an address would be cut by its columns."""
    return _PAGE.sub(r"\1", text)


def _as_keys(message: str, option: Option) -> str:
    """Return a message in which an option is a line of TOML, or the key of one.

    What another command stated stays an option of that.
    """
    name = re.escape(f"--{option.name}")
    if option.kind is REMAP:
        message = re.sub(rf"{name} {_VALUE}(?: {name} {_VALUE})*", _line, message)
    key = f"`{option.name} = true`" if option.kind is FLAG else f"`{option.name}`"
    return re.sub(rf"(?<![\w-]){name}(?![\w-])(?!{_OF_ANOTHER})", key, message)


def _line(options: re.Match[str]) -> str:
    """Return the line of a file that stands for options of one name with their values."""
    first, *words = shlex.split(options[0])
    values = words[::2]
    text = json.dumps(values[0] if len(values) == 1 else values, ensure_ascii=False)
    return f"`{first.removeprefix('--')} = {text}` in its table of the file"


def _foreign(
    message: str, own: Collection[str], commands: Mapping[str, click.Command]
) -> Iterator[str]:
    """Yield the options of other commands that stand in a sentence without their command."""
    for sentence in _SENTENCE.findall(message):
        words = set(re.findall(r"[a-z]+", sentence.lower()))
        for name in _OPTION.findall(sentence):
            having = set(_having(name, commands))
            if name not in own and having and having.isdisjoint(words):
                yield name


def _having(option: str, commands: Mapping[str, click.Command]) -> Iterator[str]:
    """Yield the names of the commands that have an option."""
    for name, command in commands.items():
        if any(option in parameter.opts for parameter in command.params):
            yield name
