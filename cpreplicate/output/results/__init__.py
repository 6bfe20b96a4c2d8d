"""How each kind of result is written: a module for each, with its text, its JSON and its ndjson.

A module is imported when its result is shown: a sync with nothing to do is quick without the
others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, Literal, TypeVar

Form = Literal["text", "json", "ndjson"]
R = TypeVar("R")

MODULES = {
    "Diagnosis": "diagnosis",
    "FleetReport": "fleet",
    "FleetStatus": "status",
    "Inspection": "inspection",
    "Forgotten": "forgetting",
    "KafkaCheck": "kafka_check",
    "Points": "points",
    "Promotion": "promotion",
    "PromotionOfAll": "promotions",
    "Rebase": "rebase",
    "References": "references",
    "Relocation": "relocation",
    "Replicated": "replicated",
    "Report": "report",
    "Sweep": "sweep",
    "Unsealing": "unsealing",
    "UnsealingOfAll": "unsealings",
    "Verifications": "verification",
}


@dataclass(frozen=True)
class Forms(Generic[R]):
    """The functions that return a result as text, as JSON, and as JSON objects one per line.

    `with_actions` has those that list every file of a result that has actions. A text that
    `is_narrated` is a line on stderr: stdout has nothing but JSON.
    """

    text: Callable[[R], str]
    json: Callable[[R], str]
    ndjson: Callable[[R], str]
    with_actions: Forms[R] | None = None
    is_narrated: bool = False


def forms_of(result: object) -> Forms[Any]:
    """Return the forms of a result, which the module for its class exports as `FORMS`."""
    module = import_module(f"{__name__}.{MODULES[type(result).__name__]}")
    forms: Forms[Any] = module.FORMS
    return forms
