"""The commands `help`, `version` and `spark-script`."""

from __future__ import annotations

import difflib
import platform
from importlib.metadata import PackageNotFoundError, version

import click

from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.running.groups import GroupedCommand, help_of
from cpreplicate.cli.submitted import SCRIPT
from cpreplicate.version import __version__

_EXIT_CODES = "exit-codes"
_PACKAGES = ("click", "pyarrow", "hdfs-native", "fsspec", "s3fs", "pyspark", "confluent-kafka")


def _topics(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the topics that begin with a text."""
    return [topic for topic in (*cli.commands, _EXIT_CODES) if topic.startswith(incomplete)]


@cli.command(
    "help",
    short_help="Print the help of a command or a topic.",
    only_reads=True,
    examples=("cpreplicate help", "cpreplicate help sync", "cpreplicate help exit-codes"),
    exit_codes={0: "done", 2: "no such topic"},
)
@click.argument("topic", nargs=-1, shell_complete=_topics)
@click.option("--all", "with_all", is_flag=True, help="Show every option of the command.")
@click.pass_context
def show_help(context: click.Context, topic: tuple[str, ...], with_all: bool) -> None:
    """Print the help of a command, or of exit-codes: what each of them means."""
    root = context.find_root()
    if topic == (_EXIT_CODES,):
        click.echo(_exit_codes())
        return
    command: click.Command = cli
    for word in topic:
        command, root = _inner(command, word, root)
    click.echo(help_of(command, root, with_all=with_all))


def _inner(
    command: click.Command, word: str, parent: click.Context
) -> tuple[click.Command, click.Context]:
    """Return a command of a group, with the context of its help."""
    commands = command.commands if isinstance(command, click.Group) else {}
    if word not in commands:
        topics = [*commands, _EXIT_CODES]
        near = difflib.get_close_matches(word, topics, 1)
        hint = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(sorted(topics))}."
        raise click.UsageError(f"no topic {word!r}. {hint}")
    found = commands[word]
    return found, click.Context(found, info_name=word, parent=parent)


def _exit_codes() -> str:
    """Return a line for each exit code and meaning, and the commands that end with it."""
    users: dict[tuple[int, str], list[str]] = {}
    for name, command in cli.commands.items():
        if isinstance(command, GroupedCommand):
            for code, meaning in command.exit_codes.items():
                users.setdefault((code, meaning), []).append(name)
    lines = (
        f"{code:>3}  {meaning} ({', '.join(sorted(names))})"
        for (code, meaning), names in sorted(users.items())
    )
    return "\n".join(lines)


@cli.command(
    "version",
    short_help="Print the version.",
    only_reads=True,
    examples=("cpreplicate version",),
    exit_codes={0: "done"},
)
def show_version() -> None:
    """Print the version of cpreplicate, and those of Python and of the packages that matter."""
    found = ((name, _version(name)) for name in _PACKAGES)
    lines = [
        f"cpreplicate {__version__}",
        f"Python {platform.python_version()} on {platform.platform()}",
        *(f"{name} {number}" for name, number in found if number is not None),
    ]
    click.echo("\n".join(lines))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cli.command(
    "spark-script",
    short_help="Print the path of the file that spark-submit runs.",
    only_reads=True,
    examples=("cpreplicate spark-script",),
    exit_codes={0: "done"},
)
def print_spark_script() -> None:
    """Print the path of the Python file by which spark-submit runs a command of cpreplicate.

    As in: spark-submit "$(cpreplicate spark-script)" sync SOURCE TARGET_ROOT --runner spark
    """
    click.echo(SCRIPT)
