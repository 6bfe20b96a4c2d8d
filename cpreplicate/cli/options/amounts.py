"""Amounts as values of options: what `core.amounts` refuses is a wrong parameter of click."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

import click

from cpreplicate.core import amounts
from cpreplicate.errors import UsageError

In = TypeVar("In")
Out = TypeVar("Out")


def _parameter(parse: Callable[[In], Out]) -> Callable[[In], Out]:
    """Return a function that parses, and raises `click.BadParameter`, which names the option."""

    @wraps(parse)
    def parsed(given: In) -> Out:
        try:
            return parse(given)
        except UsageError as error:
            raise click.BadParameter(str(error)) from None

    return parsed


size = _parameter(amounts.size)
seconds = _parameter(amounts.seconds)
share = _parameter(amounts.share)
instant = _parameter(amounts.instant)
call_rate = _parameter(amounts.call_rate)
count = _parameter(amounts.count)
byte_rate = _parameter(amounts.byte_rate)
