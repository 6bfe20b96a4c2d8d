"""The pages of the site that are generated from the code, so that they cannot drift from it.

`generated` returns the Markdown of each by its path below docs/. It needs no mkdocs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.options.option import GROUPS, OptionParameter
from cpreplicate.cli.running.groups import GroupedCommand
from cpreplicate.output import metrics
from tests.support import pages as documented_pages

DOCS = Path(__file__).parent.parent.parent / "docs"
COMMANDS = "reference/commands"
_SPECIAL = re.compile(r"([\\*_\[\]<>|])")
_CODE = re.compile(r"(`[^`]*`)")
_DEPTH = 3  # levels of objects in an object that a schema's table shows


def generated() -> dict[str, str]:
    """Return the Markdown of the generated pages by path."""
    return {
        **command_pages(),
        "reference/exit-codes.md": exit_codes(),
        "reference/schemas.md": schemas(),
        "reference/metrics.md": metric_families(),
        "reference/not-run.md": not_run(DOCS),
    }


def command_pages() -> dict[str, str]:
    """Return a page for each command, and one that lists them."""
    commands = dict(_commands(cli, ()))
    rows = [
        (f"[cpreplicate {name}]({_file(name)})", escaped(command.get_short_help_str(200)))
        for name, command in commands.items()
    ]
    common = table(("option", "meaning"), map(_option_row, _options(cli)))
    index = (
        "# Commands\n\n"
        f"{table(('command', 'what it does'), rows)}\n\n"
        "## Options of all commands\n\nThey are given before the command.\n\n"
        f"{common}\n\n"
        "An option of a command is also set by the environment variable"
        " `CPREPLICATE_<COMMAND>_<OPTION>`, or by its name in"
        " [the file of options](../../configuration.md). The command line comes first, then the"
        " environment.\n"
    )
    pages = {f"{COMMANDS}/{_file(name)}": _command(name, each) for name, each in commands.items()}
    return {f"{COMMANDS}/README.md": index, **pages}


def _commands(group: click.Group, before: tuple[str, ...]) -> Iterator[tuple[str, GroupedCommand]]:
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from _commands(command, (*before, name))
        elif isinstance(command, GroupedCommand) and not command.hidden:
            yield " ".join((*before, name)), command


def _file(name: str) -> str:
    return f"{name.replace(' ', '-')}.md"


def _command(name: str, command: GroupedCommand) -> str:
    context = click.Context(command, info_name=f"cpreplicate {name}")
    parts = [f"# cpreplicate {name}", _block([command.get_usage(context).removeprefix("Usage: ")])]
    parts += [_paragraphs(command.help or "")]
    parts += ["## Examples", _block(command.examples)] if command.examples else []
    for group in GROUPS:
        options = [
            each
            for each in _options(command)
            if (each.option.group if isinstance(each, OptionParameter) else GROUPS[-1]) == group
        ]
        if options:
            parts += [f"## {group}", table(("option", "meaning"), map(_option_row, options))]
    rows = [(str(code), escaped(text)) for code, text in sorted(command.exit_codes.items())]
    if rows:
        parts += ["## Exit codes", table(("exit", "meaning"), rows)]
        parts += ["[Messages](../../errors.md) are listed by exit code."]
    return "\n\n".join(parts) + "\n"


def _options(command: click.Command) -> list[click.Option]:
    context = click.Context(command)
    shown = [each for each in command.get_params(context) if isinstance(each, click.Option)]
    return [each for each in shown if not each.hidden]


def _option_row(option: click.Option) -> tuple[str, str]:
    """Return how an option is written, and its help; the default stands at its end."""
    record = option.get_help_record(click.Context(click.Command("any")))
    assert record is not None
    written, text = record
    return f"`{written}`".replace("|", "\\|"), escaped(text)


def exit_codes() -> str:
    """Return the page of exit codes by command."""
    users: dict[int, dict[str, list[str]]] = {}
    for name, command in _commands(cli, ()):
        for code, meaning in command.exit_codes.items():
            users.setdefault(code, {}).setdefault(meaning, []).append(name)
    rows = [
        (str(code), escaped(meaning), ", ".join(_linked(name) for name in names))
        for code, meanings in sorted(users.items())
        for meaning, names in sorted(meanings.items())
    ]
    return (
        "# Exit codes\n\n"
        f"{table(('exit', 'meaning', 'commands'), rows)}\n\n"
        "[Messages](../errors.md) has the message, cause and remedy for each code,"
        " [Output for scripts](../json.md#exit-codes) what a script may rely on.\n"
    )


def _linked(name: str) -> str:
    return f"[{name}](commands/{_file(name)})"


def metric_families() -> str:
    """Return the page of the metrics."""
    rows = [
        (f"`{each.name}`", ", ".join(f"`{label}`" for label in each.labels), escaped(each.help))
        for each in metrics.FAMILIES
    ]
    others = [
        (f"`{each.name}`", escaped(each.help))
        for each in vars(metrics).values()
        if isinstance(each, metrics.Described)
    ]
    of_tuples = (*metrics.LOAD_GAUGES, *metrics.HOUSEKEEPING)
    others += [(f"`{each.name}`", escaped(each.help)) for each in of_tuples]
    return (
        "# Metrics\n\n"
        "[Monitoring](../monitoring.md) describes how they are read, and the alerts.\n\n"
        "## Of each job\n\n"
        f"{table(('metric', 'labels', 'meaning'), rows)}\n\n"
        "## Of the process\n\n"
        f"{table(('metric', 'meaning'), others)}\n"
    )


def schemas() -> str:
    """Return the page of the JSON schemas in docs/schemas."""
    parts = ["# JSON schemas", "[Output for scripts](../json.md) explains the fields."]
    for path in sorted((DOCS / "schemas").glob("*.json")):
        schema = json.loads(path.read_text())
        parts += [f"## {escaped(schema.get('title', path.stem))}"]
        parts += [escaped(schema.get("description", ""))]
        parts += [f"[schemas/{path.name}](../schemas/{path.name})"]
        rows = list(_fields(schema, ""))
        parts += [table(("field", "type", "meaning"), rows)] if rows else []
    return "\n\n".join(filter(None, parts)) + "\n"


def _fields(schema: Mapping[str, Any], before: str) -> Iterator[tuple[str, str, str]]:
    """Yield a row for each field of a schema's objects, nested ones behind a dot."""
    for name, field in schema.get("properties", {}).items():
        described = field if isinstance(field, dict) else {}
        yield f"`{before}{name}`", _type(described), escaped(described.get("description", ""))
        if name in cli.commands:  # a table of its options: each is in `options`, and on its page
            continue
        inner = described.get("items", described)
        suffix = "[]." if inner is not described else "."
        if isinstance(inner, dict) and before.count(".") < _DEPTH:
            yield from _fields(inner, f"{before}{name}{suffix}")


def _type(field: Mapping[str, Any]) -> str:
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "enum" in field:
        return ", ".join(f"`{json.dumps(each)}`" for each in field["enum"])
    kind = field.get("type")
    if isinstance(kind, list):
        return " or ".join(kind)
    several = field.get("anyOf") or field.get("oneOf")
    return kind or (" or ".join(map(_type, several)) if several else "")


def not_run(docs: Path) -> str:
    """Return the page of the blocks that carry a mark `not-run`, with the reasons."""
    root = docs.parent
    rows = [
        (f"{path.relative_to(root)}, line {block.line}", escaped(block.reason))
        for path in [root / "README.md", *sorted(docs.rglob("*.md"))]
        for block in documented_pages.blocks(path.read_text())
        if block.reason is not None
    ]
    return (
        "# Commands that no test runs\n\n"
        "`tests/users/test_pages_run.py` runs the commands in the blocks of all pages on `file:`,"
        " but for those below. These are parsed.\n\n"
        f"{table(('block', 'reason'), rows)}\n"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; the cells are Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def escaped(text: str) -> str:
    """Return a text as Markdown in one line that shows it as it is; code stays code."""
    parts = _CODE.split(" ".join(text.split()))
    return "".join(
        part.replace("|", "\\|") if part.startswith("`") else _SPECIAL.sub(r"\\\1", part)
        for part in parts
    )


def _block(lines: Sequence[str]) -> str:
    return "\n".join(("```", *lines, "```"))


def _paragraphs(text: str) -> str:
    r"""Return the description of a command; what stands behind a line `\b` keeps its lines."""
    parts = []
    for paragraph in text.split("\n\n"):
        head, _, rest = paragraph.partition("\n")
        parts.append(_block(rest.splitlines()) if head.strip() == "\b" else escaped(paragraph))
    return "\n\n".join(parts)
