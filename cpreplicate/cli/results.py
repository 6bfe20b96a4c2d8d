"""What a command does with its result: choose the exit code, show a plan that was refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from errno import EPIPE
from typing import TYPE_CHECKING

from cpreplicate.cli import failures
from cpreplicate.errors import NotAtKafka, TooManyDeletes

if TYPE_CHECKING:
    from cpreplicate.output import Form, Listing

UNWRITTEN = 1


def listing_of(actions: bool) -> Listing:
    """Return what `--actions` asks for."""
    return "actions" if actions else "totals"


def show_read(result: object, form: Form, listing: Listing = "totals") -> int:
    """Print the result of a command that only reads, and return the exit code.

    Without its result the command did nothing. No message is printed for a reader that closed the
    pipe early, such as `head`.
    """
    from cpreplicate.output import show
    from cpreplicate.output.log import write_error

    unwritten = show(result, form, listing)
    if unwritten is None:
        failures.result_is_printed()
        return 0
    if unwritten.errno != EPIPE:
        write_error(_text(unwritten))
    return UNWRITTEN


def show_change(result: object, form: Form, listing: Listing = "totals") -> int:
    """Print the result of a command that changed a replica, and return the exit code.

    The exit code is about the work that was done. A result that is lost is a warning.
    """
    show_one_of_many(result, form, listing)
    failures.result_is_printed()
    return 0


def show_one_of_many(result: object, form: Form, listing: Listing = "totals") -> None:
    """Print one of the results of a command that runs until it is stopped."""
    from cpreplicate.output import show
    from cpreplicate.output.log import write_warning

    unwritten = show(result, form, listing)
    if unwritten is not None:
        write_warning(f"{_text(unwritten)}. The work is done, and the exit code is its own")


@contextmanager
def showing_refused_plan(form: Form, listing: Listing = "totals") -> Iterator[None]:
    """Print the report of a refusal, then raise: a plan that would delete more than `--max-delete`
    allows, or what is in the way of a start at another Kafka.
    """
    from cpreplicate.output import show

    try:
        yield
    except (TooManyDeletes, NotAtKafka) as error:
        if show(error.report, form, listing) is None:
            failures.result_is_printed()
        raise


def _text(unwritten: OSError) -> str:
    return f"the result could not be written to stdout: {unwritten.strerror or unwritten}"
