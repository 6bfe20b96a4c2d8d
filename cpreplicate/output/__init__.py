"""Everything that a person or a script reads: results on stdout, messages on stderr."""

from __future__ import annotations

from cpreplicate.output.log import narrate
from cpreplicate.output.results import Form, forms_of
from cpreplicate.output.streams import write_result

__all__ = ["Form", "show"]


def show(result: object, form: Form, actions: bool = False) -> OSError | None:
    """Print the result of an operation in a form; with `actions`, every file that it is about.

    Return the error if it cannot be written to stdout, so that the command can choose the exit
    code. Raises `KeyError` for an object that is no result.
    """
    forms = forms_of(result)
    if actions and forms.with_actions is not None:
        forms = forms.with_actions
    writers = {"text": forms.text, "json": forms.json, "ndjson": forms.ndjson}
    written = writers[form](result)
    if form == "text" and forms.is_narrated:
        narrate(written)
        return None
    return write_result(written) if written else None
