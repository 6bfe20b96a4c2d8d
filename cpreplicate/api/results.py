"""Results as the JSON documents of the command line."""

from __future__ import annotations

import json
from typing import Any

from cpreplicate.api import values
from cpreplicate.operations.verify.verify import Verification, Verifications
from cpreplicate.output.results import MODULES, forms_of

_OF_A_COMMAND = ("started", "finished")


def to_dict(result: object, *, actions: bool = False) -> dict[str, Any]:
    """Return a result as the JSON of its command has it: see docs/json.md.

    `started` and `finished` are left out, which are those of a command. With `actions`, every file
    of a plan or of a sweep is in it. Raises `UsageError` for an object that is no result.
    """
    if isinstance(result, Verification):
        result = Verifications((result,))
    if type(result).__name__ not in MODULES:
        raise values.wrong("result", result, "what a function of the API returned")
    forms = forms_of(result)
    if values.flag("actions", actions):
        forms = forms.others.get("actions", forms)
    written = forms.json(result)
    document: dict[str, Any] = json.loads(written if isinstance(written, str) else "".join(written))
    return {name: value for name, value in document.items() if name not in _OF_A_COMMAND}
