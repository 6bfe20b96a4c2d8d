"""Everything that a person or a script reads: results on stdout, messages on stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpreplicate.output.log import (
    narrate,
    narrate_failure,
    narrate_in_file,
    write_error,
    write_lines,
    write_warning,
)
from cpreplicate.output.results import Form, forms_of
from cpreplicate.output.streams import write_messages, write_result
from cpreplicate.runners import ShowProgress

if TYPE_CHECKING:
    from cpreplicate.output import progress

__all__ = [
    "Form",
    "narrate",
    "narrate_failure",
    "narrate_in_file",
    "show",
    "show_progress",
    "write_error",
    "write_lines",
    "write_messages",
    "write_warning",
]


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


def show_progress(form: progress.Form, in_file: bool) -> ShowProgress | None:
    """Return the function that shows progress in a form, and in the log file.

    Returns None if it is to be shown nowhere.
    """
    from cpreplicate.output import progress  # a run without progress is quick without it

    return progress.progress(form, in_file)
