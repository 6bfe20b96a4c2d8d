"""How each kind of result is written: a module for each, with its text, its JSON and its ndjson.

A module is imported when its result is shown: a sync with nothing to do is quick without the
others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Generic, Literal, TypeVar

Form = Literal["text", "json", "ndjson"]
Listing = Literal["totals", "all", "actions", "combined"]
"""How much of a plan is listed: totals and the largest groups of actions; all groups; every file;
every file as a sigil and its path."""
R = TypeVar("R")
Written = str | Iterator[str]
"""A result as it is printed: one text, or pieces of it that end with a line."""

MODULES = {
    "Comparison": "comparison",
    "Diagnosis": "diagnosis",
    "FleetReport": "fleet",
    "FleetStatus": "status",
    "Inspection": "inspection",
    "Forgotten": "forgetting",
    "KafkaCheck": "kafka_check",
    "NeededFiles": "part_files",
    "Points": "points",
    "PointsReading": "points",
    "Promotion": "promotion",
    "PromotionOfAll": "promotions",
    "Rebase": "rebase",
    "References": "references",
    "ReferencesFile": "export",
    "Relocation": "relocation",
    "Removal": "removal",
    "RemovalOfAll": "removals",
    "Replicated": "replicated",
    "Report": "report",
    "Sweep": "sweep",
    "StatusReading": "status",
    "SwitchOfAll": "switch",
    "Unsealing": "unsealing",
    "UnsealingOfAll": "unsealings",
    "Verifications": "verification",
}


@dataclass(frozen=True)
class Forms(Generic[R]):
    """The functions that return a result as text, as JSON, and as JSON objects one per line.

    `others` has those of other listings than the totals, for a result that has actions. A text
    that `is_narrated` is a line on stderr: stdout has nothing but JSON. `when_quiet` returns the
    warnings that are left of the text with `-q`. It returns None if the text is printed all the
    same, because it reports no success. A result without it was asked for, and is printed.
    """

    text: Callable[[R], Written]
    json: Callable[[R], Written]
    ndjson: Callable[[R], Written]
    others: Mapping[Listing, Forms[R]] = field(default_factory=dict)
    is_narrated: bool = False
    when_quiet: Callable[[R], Sequence[str] | None] | None = None


def forms_of(result: object) -> Forms[Any]:
    """Return the forms of a result, which the module for its class exports as `FORMS`."""
    module = import_module(f"{__name__}.{MODULES[type(result).__name__]}")
    forms: Forms[Any] = module.FORMS
    return forms
