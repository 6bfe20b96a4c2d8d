"""Man pages, made from the commands: cpreplicate(1), and one for each command and group."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import NamedTuple

import click

from cpreplicate import __version__
from cpreplicate.cli.commands import replication as _commands
from cpreplicate.cli.files.config import MACHINE, VARIABLE
from cpreplicate.cli.options.option import GROUPS, OptionParameter
from cpreplicate.cli.running.groups import GroupedCommand

PROGRAM = "cpreplicate"
_WIDTH = 74
_OWN_CONFIG = "~/.config/cpreplicate/config.toml"
_DOCUMENTATION = "https://github.com/cpreplicate/cpreplicate"
# what roff would take for its own, or print as a typographic character
_ESCAPES = {
    "\\": r"\e",
    "-": r"\-",
    "'": r"\(aq",
    "`": r"\(ga",
    "^": r"\(ha",
    "~": r"\(ti",
    '"': r"\(dq",
}


class Page(NamedTuple):
    """A command with the words by which it is called."""

    words: tuple[str, ...]
    command: click.Command
    context: click.Context

    @property
    def name(self) -> str:
        """The name of the page, such as `cpreplicate-config-check`."""
        return "-".join(self.words)


def pages(time: float) -> dict[str, str]:
    """Return the text of each page by its file name, such as `cpreplicate-sync.1`.

    `time` is that of the release, in seconds since the epoch.
    """
    day = datetime.fromtimestamp(time, timezone.utc).date().isoformat()
    found = list(_below(_commands.cli, (PROGRAM,), None))
    return {f"{page.name}.1": _text(page, found, day) for page in found}


def _below(
    command: click.Command, words: tuple[str, ...], parent: click.Context | None
) -> Iterator[Page]:
    """Yield a command, and those of a group behind it."""
    context = click.Context(command, info_name=words[-1], parent=parent, **command.context_settings)
    yield Page(words, command, context)
    for name, inner in _inner(command).items():
        yield from _below(inner, (*words, name), context)


def _inner(command: click.Command) -> dict[str, click.Command]:
    found = command.commands if isinstance(command, click.Group) else {}
    return {name: each for name, each in sorted(found.items()) if not each.hidden}


def _text(page: Page, all_pages: Sequence[Page], day: str) -> str:
    title = f'.TH {escaped(page.name.upper())} 1 {day} "{PROGRAM} {__version__}" "User Commands"'
    sections = (
        _name(page),
        _synopsis(page),
        _description(page),
        _commands_of(page),
        _options(page),
        _examples(page),
        _exit_status(page),
        _environment(page),
        _files(),
        _see_also(page, all_pages),
    )
    # words are not divided, and lines not filled up with blanks: names are to be copied
    layout = [".nh", ".ad l"]
    lines = [title, *layout, *(line for section in sections for line in section)]
    return "\n".join(lines) + "\n"


def _name(page: Page) -> list[str]:
    summary = page.command.get_short_help_str(200).rstrip(".")
    return [
        ".SH NAME",
        rf"{escaped(page.name)} \- {escaped(summary[0].lower() + summary[1:])}",
    ]


def _synopsis(page: Page) -> list[str]:
    pieces = page.command.collect_usage_pieces(page.context)
    return [".SH SYNOPSIS", f".B {escaped(' '.join(page.words))}", *map(_italic, pieces)]


def _description(page: Page) -> list[str]:
    paragraphs = inspect.cleandoc(page.command.help or "").split("\n\n")
    return [".SH DESCRIPTION", *_paragraphs(paragraphs)]


def _commands_of(page: Page) -> list[str]:
    commands = _inner(page.command)
    if not commands:
        return []
    rows = [
        (_reference("-".join((*page.words, name))), [each.get_short_help_str(200)])
        for name, each in commands.items()
    ]
    return [".SH COMMANDS", *_rows(rows)]


def _options(page: Page) -> list[str]:
    rows: dict[str, list[tuple[str, list[str]]]] = {group: [] for group in ("", *GROUPS)}
    for parameter in page.command.get_params(page.context):
        record = parameter.get_help_record(page.context)
        if isinstance(parameter, click.Option) and record is not None:
            rows[_group_of(page, parameter)].append((_flags(record[0]), [record[1]]))
    lines = [".SH OPTIONS"]
    for group in filter(rows.get, rows):
        lines += [f".SS {group}"] if group else []
        lines += _rows(rows[group])
    return lines


def _group_of(page: Page, parameter: click.Option) -> str:
    if isinstance(parameter, OptionParameter):
        return parameter.option.group
    has_groups = any(isinstance(each, OptionParameter) for each in page.command.params)
    return GROUPS[-1] if has_groups else ""


def _examples(page: Page) -> list[str]:
    examples = page.command.examples if isinstance(page.command, GroupedCommand) else ()
    if not examples:
        return []
    return [".SH EXAMPLES", ".nf", *map(escaped, examples), ".fi"]


def _exit_status(page: Page) -> list[str]:
    codes = page.command.exit_codes if isinstance(page.command, GroupedCommand) else {}
    if not codes:
        where = f"The page of each command lists its own. `{PROGRAM} help exit-codes` prints all."
        return [".SH EXIT STATUS", *_wrapped(where)]
    rows = [(f".B {code}", [codes[code]]) for code in sorted(codes)]
    return [".SH EXIT STATUS", *_rows(rows)]


def _environment(page: Page) -> list[str]:
    variable = (
        f".B {VARIABLE}",
        ["The file of options. If it is set and empty, no file is used."],
    )
    options = [each.option for each in page.command.params if isinstance(each, OptionParameter)]
    rows = [variable]
    if options:
        name = options[0].variable(page.words[-1])
        of_all = f"{PROGRAM}_{page.words[-1]}".upper().replace("-", "_") + "_OPTION"
        example = f"The value of an option, such as {name} of --{options[0].name}."
        rows.append((f".B {escaped(of_all)}", [example]))
    return [".SH ENVIRONMENT", *_rows(rows)]


def _files() -> list[str]:
    return [
        ".SH FILES",
        *_rows([(f".I {escaped(_OWN_CONFIG)}", []), (f".I {escaped(str(MACHINE))}", [])]),
        ".PP",
        *_wrapped("The file of options: the first of these that exists."),
    ]


def _see_also(page: Page, all_pages: Sequence[Page]) -> list[str]:
    others = [each.name for each in all_pages if each.name != page.name]
    if len(page.words) > 1:
        above = "-".join(page.words[:-1])
        beside = [each for each in others if each.rpartition("-")[0] == above and "-" in each]
        others = [*dict.fromkeys((PROGRAM, above)), *beside]
    references = [f"{_reference(name)} ," for name in others]
    return [
        ".SH SEE ALSO",
        *references[:-1],
        _reference(others[-1]),
        ".PP",
        rf"Documentation: {escaped(_DOCUMENTATION)}",
    ]


def _reference(name: str) -> str:
    return f".BR {escaped(name)} (1)"


def _rows(rows: Sequence[tuple[str, list[str]]]) -> list[str]:
    """Return tagged paragraphs: each has a line of roff and a text."""
    lines = []
    for tag, texts in rows:
        lines += [".TP", tag, *(line for text in texts for line in _wrapped(text))]
    return lines


def _paragraphs(texts: Sequence[str]) -> Iterator[str]:
    for number, text in enumerate(texts):
        if number:
            yield ".PP"
        yield from _wrapped(text)


def _wrapped(text: str) -> list[str]:
    """Return a text in lines. roff reads a line that begins with a dot as a request."""
    words = " ".join(text.split())
    lines = textwrap.wrap(words, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return [rf"\&{line}" if line.startswith(".") else line for line in map(escaped, lines)]


def _flags(text: str) -> str:
    """Return the flags of an option in bold, and what stands for its value in italics."""
    words = (
        rf"\fB{escaped(word)}\fR" if word.startswith("-") else rf"\fI{escaped(word)}\fR"
        for word in text.replace(",", " ,").split()
    )
    return " ".join(words).replace(r" \fI,\fR", ",")


def _italic(piece: str) -> str:
    return f".I {escaped(piece)}"


def escaped(text: str) -> str:
    """Return a text as roff prints it unchanged."""
    text = "".join(_ESCAPES.get(character, character) for character in text)
    return re.sub(r"[^\x00-\x7f]", lambda match: rf"\[u{ord(match[0]):04X}]", text)
