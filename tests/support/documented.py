"""The commands of cpreplicate in pages, deployment files and messages, and what is wrong in them.

A command is parsed by click's own parser. Its values pass the converters of their options, unless
they are placeholders such as TARGET_ROOT, `<job-id>`, `$ID` or `…`. Nothing runs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

import click

from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.options.named_places import use

_BLOCK = re.compile(r"(?:^(?: {4,}|\t).*\n?(?:\s*\n(?= {4}))*)+", re.MULTILINE)
_FENCE = re.compile(r"^( *)```\w*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`]+)`")
_PLACEHOLDER = re.compile(r"…|<|\$|\||\.\.\.|^[A-Z][A-Z_0-9|:%=/\[\].]*$|\{|%i")
# what ends a command in a line of a shell, or of a crontab that writes into a file
_ENDS = {"|", "||", "&&", ";", "&", ">", ">>", "<", "2>", "2>&1", "2>>"}
_HELP = {"--help", "-h"}
_FILES = {"config", "configuration"}  # which are read, and are not on this machine
_PLACES = {"dcA": "hdfs://dcA/flink", "dcB": "hdfs://dcB/flink"}  # those of docs/configuration.md
_GLOBAL = {option for parameter in cli.params for option in parameter.opts} | _HELP


def commands_in_blocks(page: str) -> Iterator[list[str]]:
    """Yield the words of each command of a page's code blocks, from the name `cpreplicate` on."""
    blocks = [match[2] for match in _FENCE.finditer(page)]
    blocks += _BLOCK.findall(_FENCE.sub("", page))
    for block in blocks:
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            yield from commands_in_line(line)


def commands_in_line(line: str) -> Iterator[list[str]]:
    """Yield the words of each command of a line of a shell."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # prose, or a part of another language
        words = line.split()
    for position, word in enumerate(words):
        following = words[position + 1 : position + 2]
        is_called = word == "cpreplicate" or word.endswith(("/cpreplicate", "/cpreplicate-cron"))
        if is_called and following and _is_command(following[0]):
            end = next(
                (i for i, each in enumerate(words) if i > position and each in _ENDS), len(words)
            )
            yield words[position + 1 : end]


def inline_commands(page: str) -> Iterator[list[str]]:
    """Yield the words of each inline command, with or without `cpreplicate` in front.

    One without has an option, such as `verify --content`: else a word may mean anything.
    """
    prose = _BLOCK.sub("\n", _FENCE.sub("", page))
    for text in _INLINE.findall(prose):
        words = text.replace("\\|", "|").split()
        if words[:1] == ["cpreplicate"] and len(words) > 1 and _is_command(words[1]):
            yield words[1:]
        elif words[0] in cli.commands and any(word.startswith("--") for word in words[1:]):
            yield words


def inline_options(page: str) -> set[str]:
    """Return the long options that are named alone, as in `--keep 2`."""
    prose = _BLOCK.sub("\n", _FENCE.sub("", page))
    return {
        match[0]
        for text in _INLINE.findall(prose)
        if (match := re.match(r"--[a-z][a-z0-9-]*", text))
    }


def inline_values(page: str) -> Iterator[list[str]]:
    """Yield the words of each option that is shown alone with a value, as in `--keep 2`."""
    prose = _BLOCK.sub("\n", _FENCE.sub("", page))
    for text in _INLINE.findall(prose):
        words = text.replace("\\|", "|").split()
        if len(words) > 1 and words[0].startswith("--") and words[0] in every_option():
            yield words


def value_mistakes(words: list[str]) -> list[str]:
    """Return what is wrong with an option and its value in every command that has the option."""
    commands = [
        name
        for name, command in cli.commands.items()
        if any(words[0] in parameter.opts for parameter in command.params)
    ]
    found = [mistakes([name, *words], is_whole=False) for name in commands]
    return [] if not found or [] in found else found[0]


def every_option() -> set[str]:
    """Return every option of every command."""
    commands = [cli, *cli.commands.values()]
    return {"--help", "--version"}.union(
        option for command in commands for each in command.params for option in each.opts
    )


def mistakes(words: list[str], is_whole: bool = True) -> list[str]:
    """Return what click finds wrong in a command, whose first words are options of all commands.

    One that is not `is_whole` may lack arguments: a text only mentions it.
    """
    while words and words[0] in _GLOBAL - _HELP:
        takes_value = not any(p.is_flag for p in cli.params if words[0] in p.opts)  # type: ignore[attr-defined]
        words = words[2 if takes_value else 1 :]
    all_words = words
    if not words or words[0] == "…" or not _HELP.isdisjoint(words):
        return []
    command: click.Command = cli
    while isinstance(command, click.Group):
        if not words or words[0] not in command.commands:
            return [f"no command {' '.join(words[:1])!r}"]
        command, words = command.commands[words[0]], words[1:]
    context = click.Context(command, info_name=command.name, parent=click.Context(cli))
    use(context, _PLACES)
    try:
        values, left, _ = command.make_parser(context).parse_args(words)
    except click.BadOptionUsage as error:  # without a value
        return [error.format_message()] if is_whole else []
    except click.UsageError as error:
        return [error.format_message()]
    if "…" in all_words:  # it stands for all arguments
        is_whole = False
    problems = [f"unexpected {word!r}" for word in left if is_whole or not _is_placeholder(word)]
    with context.scope(cleanup=False):
        for parameter in command.params:
            raw = values.get(parameter.name)
            problems += _problems_of(parameter, raw, context, is_whole)
    return problems


def is_part(quote: str, message: str) -> bool:
    """Return whether a message has the words of a quote; `…` stands for any, also inserted ones."""
    pattern = ".*".join(re.escape(" ".join(part.split())) for part in quote.split("…"))
    return re.search(pattern, message) is not None


def _problems_of(
    parameter: click.Parameter, raw: object, context: click.Context, is_whole: bool
) -> list[str]:
    several = raw if isinstance(raw, (list, tuple)) else [raw]
    texts = [each for each in several if isinstance(each, str)]
    if not texts:
        is_missing = parameter.required and is_whole
        return [f"no {parameter.name}"] if is_missing else []
    if any(map(_is_placeholder, texts)) or _are_directories(parameter, texts):
        return []
    try:
        parameter.type_cast_value(context, raw)
        if parameter.callback is not None and parameter.name not in _FILES:
            parameter.process_value(context, raw)
    except Exception as error:  # noqa: BLE001  # whatever the converter of the option raises
        message = error.format_message() if isinstance(error, click.UsageError) else str(error)
        return [f"{parameter.name}: {message}"]
    return []


def _are_directories(parameter: click.Parameter, texts: Sequence[str]) -> bool:
    """Return whether these name directories with Hadoop's files, which are not on this machine."""
    is_configuration = (parameter.name or "").endswith("_conf")
    return is_configuration and all(text.startswith("/etc/hadoop/") for text in texts)


def _is_command(word: str) -> bool:
    """Return whether a word behind `cpreplicate` begins a command, and no sentence."""
    return word in cli.commands or word in _GLOBAL


def _is_placeholder(value: str) -> bool:
    return _PLACEHOLDER.search(value) is not None
