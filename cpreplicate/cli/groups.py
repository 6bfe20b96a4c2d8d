"""Help texts in which options stand under headings and exit codes in ascending order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import click

GROUPS = ("Basics", "Service", "Paths", "Storage", "Spark", "Limits", "Output")
_LAST_GROUP = GROUPS[-1]

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class GroupedOption(click.Option):
    """An option that the help shows under the heading `group`."""

    def __init__(self, *arguments: Any, group: str, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose help has examples, options under headings, and exit codes."""

    def __init__(
        self,
        *arguments: Any,
        examples: Sequence[str] = (),
        exit_codes: Mapping[int, str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(*arguments, **settings)
        self.examples = examples
        self.exit_codes = exit_codes or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. An option of all commands behind one is a mistake of its own."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if ctx.parent is not None and _has(ctx.parent.command, error.option_name):
                raise click.UsageError(
                    f"{error.option_name} is given before the command:"
                    f" {ctx.find_root().info_name} {error.option_name} … {ctx.info_name} …",
                    ctx,
                ) from error
            raise

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, then the description."""
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{example}\n")
        super().format_help_text(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under the headings of `GROUPS`."""
        rows: dict[str, list[tuple[str, str]]] = {group: [] for group in GROUPS}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row is not None and isinstance(parameter, click.Option):
                # the --help option is click's own and has no group
                rows[getattr(parameter, "group", _LAST_GROUP)].append(row)
        for group in filter(rows.get, GROUPS):
            with formatter.section(group):
                formatter.write_dl(rows[group])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes."""
        super().format_epilog(ctx, formatter)
        if self.exit_codes:
            with formatter.section("Exit codes"):
                formatter.write_dl(
                    [(f"{code:>3}", self.exit_codes[code]) for code in sorted(self.exit_codes)]
                )


class Commands(click.Group):
    """The group of all commands; their help is that of `GroupedCommand`."""

    command_class = GroupedCommand

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. An option of a command in front of it is a mistake of its own."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if any(_has(command, error.option_name) for command in self.commands.values()):
                raise click.UsageError(
                    f"{error.option_name} is given behind the command, as in:"
                    f" {ctx.info_name} COMMAND … {error.option_name} …",
                    ctx,
                ) from error
            raise


def _has(command: click.Command, option: str) -> bool:
    return any(option in parameter.opts for parameter in command.params)


def option(*names: str, group: str, **settings: Any) -> Decorator:
    """Return the decorator that adds an option to a command, under a heading of its help."""
    return click.option(*names, cls=GroupedOption, group=group, **settings)


basic = partial(option, group="Basics")
path = partial(option, group="Paths")
storage = partial(option, group="Storage")
spark = partial(option, group="Spark")
limit = partial(option, group="Limits")
service = partial(option, group="Service")
output = partial(option, group="Output")


def all_of(*decorators: Decorator) -> Decorator:
    """Return the decorator that adds several options, in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate
