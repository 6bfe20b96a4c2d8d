"""Variables of the environment that begin with CPREPLICATE_: each sets something, or is refused."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping

import click

from cpreplicate.cli.files.config import VARIABLE
from cpreplicate.cli.files.toml_options import options_of
from cpreplicate.cli.options.option import PREFIX
from cpreplicate.cli.running.signals import VARIABLE as STOP_WITHIN
from cpreplicate.errors import UsageError

_EXECUTOR_PYTHON = f"{PREFIX}_PYTHON"  # read by what scripts/executor_archive.sh builds
# What Kubernetes sets in each pod for a Service whose name begins with `cpreplicate`.
_SERVICE_LINK = re.compile(
    rf"{PREFIX}(_\w+)?_"
    r"(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)


def known(commands: Iterable[click.Command]) -> Iterator[str]:
    """Yield the variables of the program, and of the options of these commands."""
    yield from (VARIABLE, STOP_WITHIN, _EXECUTOR_PYTHON)
    for command in commands:
        for parameter in options_of(command).values():
            yield parameter.option.variable(command.name or "")


def refuse_unknown(
    commands: Iterable[click.Command], environ: Mapping[str, str] = os.environ
) -> None:
    """Raise `UsageError` for a variable that would set nothing. Its value may be a secret."""
    ours = [name for name in environ if name.startswith(f"{PREFIX}_")]
    valid = set(known(commands)) if ours else set()
    unknown = (name for name in ours if name not in valid and not _SERVICE_LINK.fullmatch(name))
    for name in sorted(unknown):
        raise UsageError(
            f"the environment variable {name} sets nothing. {_hint(name, valid)}, or unset it"
        )


def _hint(name: str, valid: Iterable[str]) -> str:
    of_suffix = {each.removeprefix(PREFIX): each for each in sorted(valid)}
    near = difflib.get_close_matches(name.removeprefix(PREFIX), of_suffix, 1)
    if near:
        return f"Did you mean {of_suffix[near[0]]}? Correct it"
    return f"Name it {PREFIX}_COMMAND_OPTION, such as {PREFIX}_SYNC_KEEP"
