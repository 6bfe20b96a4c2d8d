"""Everything that a person or a script reads: results on stdout, messages on stderr."""

from __future__ import annotations

from typing import Any

from cpreplicate.core import uri
from cpreplicate.output.log import is_quiet, narrate, write_warning
from cpreplicate.output.results import Form, Forms, Listing, Written, forms_of
from cpreplicate.output.streams import write_result

__all__ = ["Form", "Listing", "show"]


def show(
    result: object, form: Form, listing: Listing = "totals", *, has_passwords: bool = True
) -> OSError | None:
    """Print the result of an operation in a form, and of its actions as many as are to be listed.

    With `-q`, the text of a success is not printed, but its warnings are. Without `has_passwords`,
    the users of URIs that have a password are left out: the stdout of a service is a log.

    Return the error if the result cannot be written to stdout, so that the command can choose the
    exit code. Raises `KeyError` for an object that is no result.
    """
    forms = forms_of(result)
    if form == "text" and listing == "totals" and is_quiet() and _is_reduced(forms, result):
        return None
    forms = forms.others.get(listing, forms)
    writers = {"text": forms.text, "json": forms.json, "ndjson": forms.ndjson}
    written = writers[form](result)
    if form == "text" and forms.is_narrated:
        narrate(str(written))
        return None
    return _write(written, has_passwords)


def _write(written: Written, has_passwords: bool) -> OSError | None:
    for piece in (written,) if isinstance(written, str) else written:
        text = piece if has_passwords else uri.without_password(piece)
        if text and (error := write_result(text)) is not None:
            return error
    return None


def _is_reduced(forms: Forms[Any], result: object) -> bool:
    """Return whether `-q` leaves of a text nothing but warnings, which are then on stderr."""
    warnings = None if forms.when_quiet is None else forms.when_quiet(result)
    for warning in warnings or ():
        write_warning(warning)
    return warnings is not None
