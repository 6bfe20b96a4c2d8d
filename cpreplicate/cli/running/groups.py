"""Help texts in which options stand under headings and exit codes in ascending order."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import click

from cpreplicate.cli.files.config import load_config_of_command
from cpreplicate.cli.files.toml_options import options_of
from cpreplicate.cli.options.option import GROUPS, Option, OptionParameter, files
from cpreplicate.cli.running import advice, environment, failures
from cpreplicate.cli.running.advice import DOCUMENTATION, without_folder
from cpreplicate.cli.running.form import form_asked

_LAST_GROUP = GROUPS[-1]
_ALL = "all options"  # key of a context: its help shows them
SECTIONS = {
    "Daily": ("doctor", "diff", "sync", "watch", "fleet", "status", "list", "verify", "inspect"),
    "Switch": ("promote", "switch", "rebase", "unseal"),
    "Repair": ("sweep", "relocate", "forget"),
    "The program": ("config", "completion", "spark-script", "help", "version"),
}
"""The headings under which the commands stand in `cpreplicate --help`."""
_HEADING = "Commands"  # of a group in it


def config_option(
    callback: Callable[[click.Context, click.Parameter, str | None], None],
    variable: str | None = None,
) -> click.Option:
    """Return `--config`, which is given before or behind a command."""
    return click.Option(
        ["--config"],
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=callback,
        envvar=variable,
        shell_complete=files,
        help="A TOML file of options, storages and places; see configuration.md.",
    )


def help_of(command: click.Command, ctx: click.Context, *, with_all: bool = False) -> str:
    """Return the help of a command, with the options that most need or with all."""
    ctx.meta[_ALL] = with_all
    return command.get_help(ctx)


def _write_pages(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the man page, and where the pages are that help texts name: not below a package."""
    with formatter.section("Documentation"):
        for place in (f"man {ctx.command_path.replace(' ', '-')}", DOCUMENTATION):
            formatter.write(f"{'':{formatter.current_indent}}{place}\n")


def _help_all_option() -> click.Option:
    """Return `--help-all`, which prints the help with every option, and ends the command."""

    def show(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            click.echo(help_of(ctx.command, ctx, with_all=True), color=ctx.color)
            ctx.exit()

    return click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Show this message with every option, and exit.",
    )


class GroupedCommand(click.Command):
    """A command whose help has examples, options under headings, and exit codes."""

    def __init__(
        self,
        *arguments: Any,
        examples: Sequence[str] = (),
        exit_codes: Mapping[int, str] | None = None,
        options: Sequence[Option] = (),
        shows: str | None = None,
        reloads_with: str | None = None,
        only_reads: bool = False,
        keys: Sequence[Option] = (),
        essentials: str = "",
        **settings: Any,
    ) -> None:
        super().__init__(*arguments, **settings)
        self.params += [OptionParameter(option, self.name or "") for option in options]
        self.params.append(config_option(load_config_of_command))
        self.help = without_folder(self.help or "")
        for parameter in self.params:
            if isinstance(parameter, click.Option):
                parameter.help = without_folder(parameter.help or "")
        self.essentials = (
            essentials.split()
        )  # the options that `--help` shows: all, if none are named
        if self.essentials:
            self.params.append(_help_all_option())
        self.examples = examples
        self.shows = shows  # the command of which this one shows what it would do
        self.reloads_with = reloads_with  # the option with which it handles SIGHUP itself
        self.only_reads = only_reads  # whether it leaves each replica as it is
        self.keys = keys  # the options that the tables of its file hold, for each job
        self.exit_codes = exit_codes or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. An option of all commands behind one is a mistake of its own.

        A failure is reported in the form that the arguments ask for.
        """
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
        except Exception:  # of a converter, such as that of a URI: it does not have the context
            failures.expect(form_asked(ctx))
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. A failure is reported in the form that its arguments ask for.

        A command without options, such as `version`, does not ask the environment either.
        """
        only_reads = self.only_reads or ctx.params.get("dry_run", False)
        root = ctx.find_root().command
        commands = root.commands if isinstance(root, click.Group) else {}
        advise = partial(advice.advised, command=self, commands=commands, keys=self.keys)
        failures.expect(ctx.params.get("output", "text"), True, only_reads, advise)
        if self.reloads_with is None or ctx.params[self.reloads_with] is None:
            # one that came during the start arrives now
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])
        if options_of(self) and commands:
            environment.refuse_unknown(commands.values())
        return super().invoke(ctx)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, then the description."""
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{example}\n")
        super().format_help_text(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under the headings of `GROUPS`: what most need, or all."""
        rows: dict[str, list[tuple[str, str]]] = {group: [] for group in GROUPS}
        left_out = 0
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if not self._is_shown(parameter, ctx):
                left_out += 1
            elif row is not None and isinstance(parameter, OptionParameter):
                rows[parameter.option.group].append(row)
            elif row is not None and isinstance(parameter, click.Option):  # --help: click's own
                rows[_LAST_GROUP].append(row)
        for group in filter(rows.get, GROUPS):
            with formatter.section(group):
                formatter.write_dl(rows[group])
        if left_out:
            formatter.write_paragraph()
            formatter.write_text(f"{left_out} more options: {ctx.command_path} --help-all")

    def _is_shown(self, parameter: click.Parameter, ctx: click.Context) -> bool:
        """Return whether the help shows an option; all but arguments are options."""
        if not self.essentials or ctx.meta.get(_ALL) or isinstance(parameter, click.Argument):
            return True
        if isinstance(parameter, OptionParameter):
            return parameter.option.name in self.essentials
        return not {"--help", "--help-all"}.isdisjoint(parameter.opts)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes, and where there is more to read."""
        super().format_epilog(ctx, formatter)
        if self.exit_codes:
            with formatter.section("Exit codes"):
                formatter.write_dl(
                    [(f"{code:>3}", self.exit_codes[code]) for code in sorted(self.exit_codes)]
                )
        _write_pages(ctx, formatter)


class Commands(click.Group):
    """The group of all commands; their help is that of `GroupedCommand`."""

    command_class = GroupedCommand

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002  # click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the commands under the headings of `SECTIONS`."""
        width = formatter.width - 6 - max(map(len, self.commands))
        sections = (
            SECTIONS if self.commands.keys() & SECTIONS["Daily"] else {_HEADING: self.commands}
        )
        for heading, names in sections.items():
            commands = [(name, self.commands[name]) for name in names if name in self.commands]
            with formatter.section(heading):
                formatter.write_dl(
                    [(name, command.get_short_help_str(width)) for name, command in commands]
                )

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write where there is more to read."""
        super().format_epilog(ctx, formatter)
        _write_pages(ctx, formatter)

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
