"""One option: everything that its commands, the environment and TOML files derive from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from cpreplicate.cli.options.kinds import FLAG, LOCATION, TEXT, Kind

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

PREFIX = "CPREPLICATE"  # of environment variables
_OUTPUT = "Output"
GROUPS = ("Basics", "Service", "Paths", "Storage", "Spark", "Limits", _OUTPUT)


@dataclass(frozen=True)
class Option:
    """One option of one or several commands.

    `name` is how the command line spells it, and its key in a TOML file. `default` is written as on
    the command line. `fills` is the field of the request that takes the value, if it has another
    name. `is_general` is False where one value would mean another thing for each command, so that
    `[options]` cannot hold it.
    """

    group: str
    name: str
    help: str
    kind: Kind = FLAG
    default: str | int | None = None
    metavar: str | None = None
    is_multiple: bool = False
    short: str | None = None
    fills: str | None = None
    is_general: bool = True

    @property
    def field(self) -> str:
        """The field of the request that takes the value."""
        return self.fills or self.name.replace("-", "_")

    def variable(self, command: str) -> str:
        """Return the environment variable that sets the option of a command."""
        return f"{PREFIX}_{command}_{self.name}".upper().replace("-", "_")


def is_on_command_line(field: str) -> bool:
    """Return whether the command line has the option of this field.

    One of a file of options may be for another run of the command.
    """
    context = click.get_current_context()
    return context.get_parameter_source(field) is ParameterSource.COMMANDLINE


basic = partial(Option, "Basics")
service = partial(Option, "Service")
path = partial(Option, "Paths")
storage = partial(Option, "Storage")
spark = partial(Option, "Spark")
limit = partial(Option, "Limits")
output = partial(Option, _OUTPUT)


class OptionParameter(click.Option):
    """The parameter of a command that an option describes."""

    def __init__(self, option: Option, command: str) -> None:
        self.option = option
        kind = option.kind
        # click distinguishes a default of None from no default
        given: dict[str, Any] = {} if option.default is None else {"default": option.default}
        # since 8.3, `is_flag=False` lets an option without a default omit its value
        given |= {"is_flag": True} if kind is FLAG else {}
        flags = [f"--{option.name}", *([option.short] if option.short else [])]
        super().__init__(
            [*flags, option.field],
            type=kind.click_type,
            multiple=option.is_multiple,
            metavar=option.metavar or kind.metavar,
            callback=_value,
            help=option.help,
            show_default=option.default is not None,
            envvar=option.variable(command),
            **given,
        )

    def value_from_envvar(self, ctx: click.Context) -> Any:
        """Return the value of the environment variable, None if it is not set.

        Raises `click.BadParameter` if it is empty, which click takes for not set: then
        `CPREPLICATE_SYNC_MAX_DELETE=$CAP` would delete without a limit.
        """
        for name in self._variables(ctx):
            if not os.environ.get(name, "set").strip() and not ctx.resilient_parsing:
                raise click.BadParameter(
                    f"the environment variable {name} is empty. Unset it, or give it a value",
                    ctx,
                    self,
                )
        return super().value_from_envvar(ctx)

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Return how a message names the option: by its variable, if that has the value."""
        hint = super().get_error_hint(ctx)
        source = None if ctx is None else ctx.get_parameter_source(self.name or "")
        if ctx is None or source is not click.core.ParameterSource.ENVIRONMENT:
            return hint
        name = next(each for each in self._variables(ctx) if os.environ.get(each))
        return f"{hint} of the environment variable {name}"

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the text of the option's variable, else of that of the command that is shown."""
        texts = (os.environ.get(name) for name in self._variables(ctx))
        return next(filter(None, texts), None)

    def _variables(self, ctx: click.Context) -> list[str]:
        """Return the variables that set the option; the first wins."""
        shown = command_that_is_shown(ctx.command, ctx.find_root().command)
        is_inherited = shown is not None and self.option in inherited(ctx.command, shown)
        others = [self.option.variable(shown.name or "")] if shown and is_inherited else []
        return [str(self.envvar), *others]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return what a shell completes a value to."""
        kind = self.option.kind
        if kind.is_path:
            return files(ctx, self, incomplete)
        if kind.words:
            return click.Choice(kind.words).shell_complete(ctx, self, incomplete)
        return super().shell_complete(ctx, incomplete)


def command_that_is_shown(command: click.Command, root: click.Command) -> click.Command | None:
    """Return the command of which one shows what it would do, such as `sync` of `diff`, or None."""
    name = getattr(command, "shows", None)
    return root.commands.get(name) if name and isinstance(root, click.Group) else None


def inherited(command: click.Command, shown: click.Command) -> list[Option]:
    """Return the options that a command has in common with the one that it shows.

    How a result is printed is not among them, nor is what differs on purpose.
    """
    own = [each.option for each in command.params if isinstance(each, OptionParameter)]
    return [option for option in deciding(shown) if option in own]


def deciding(command: click.Command) -> list[Option]:
    """Return the options of a command that decide what it does, not how that is printed."""
    options = (each.option for each in command.params if isinstance(each, OptionParameter))
    return [option for option in options if option.group != _OUTPUT]


def _value(_context: click.Context, parameter: click.Parameter, texts: Any) -> Any:
    assert isinstance(parameter, OptionParameter)
    return parameter.option.kind.value(texts)


def location(_context: click.Context, _parameter: click.Parameter, texts: Any) -> Any:
    """Convert an argument, or several, to URIs. One that need not be given is None."""
    return LOCATION.value(texts)


def files(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Have a shell complete a value to the files and directories of this machine."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def given(_context: click.Context, _parameter: click.Parameter, text: Any) -> Any:
    """Return an argument as it is. Raises `click.BadParameter` if it is empty."""
    return TEXT.value(text)
