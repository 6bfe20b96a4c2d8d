"""What a command does with its result: choose the exit code, show a plan that was refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EPIPE
from typing import TYPE_CHECKING, Any, TypeVar

from cpreplicate.cli.running import failures
from cpreplicate.cli.running.report_file import WritePage
from cpreplicate.errors import CpreplicateError, ReportRefused, described

if TYPE_CHECKING:
    from cpreplicate.operations.sync.report import Report
    from cpreplicate.output import Form, Listing

R = TypeVar("R")
_log = logging.getLogger(__name__)
_WORK_IS_DONE = "The work is done, and the exit code is its own"


def listing_of(actions: bool) -> Listing:
    """Return what `--actions` asks for."""
    return "actions" if actions else "totals"


def show_read(
    result: object, form: Form, listing: Listing = "totals", page: WritePage | None = None
) -> int:
    """Print the result of a command that only reads, write its page, and return the exit code.

    Without its result the command did nothing. No message is printed for a reader that closed the
    pipe early, such as `head`.
    """
    from cpreplicate.output import show
    from cpreplicate.output.log import write_error

    unwritten, code = show(result, form, listing), 0
    if unwritten is None:
        failures.result_is_printed()
    else:
        code = failures.UNWRITTEN
        if unwritten.errno != EPIPE:
            write_error(failures.unwritten_text(unwritten))
    if problem := _unwritten_page(page):
        write_error(problem)
        code = failures.UNWRITTEN
    return code


def show_change(
    result: object,
    form: Form,
    listing: Listing = "totals",
    page: WritePage | None = None,
    *,
    is_dry_run: bool = False,
) -> int:
    """Print the result of a command that changed a replica, write its page, and return the exit
    code.

    The exit code is about the work that was done. A result that is lost is a warning. With
    `is_dry_run` nothing was done: the command only reads.
    """
    from cpreplicate.output.log import write_warning

    result = advised(result)
    if is_dry_run:
        return show_read(result, form, listing, page)
    show_one_of_many(result, form, listing, has_passwords=True)
    failures.result_is_printed()
    if problem := _unwritten_page(page):
        write_warning(f"{problem}. {_WORK_IS_DONE}")
    return 0


def advised(result: R) -> R:
    """Return the results of jobs with errors that name options of this command; others as given."""
    from dataclasses import replace

    from cpreplicate.operations.change.job_result import JobResults

    if not isinstance(result, JobResults):
        return result
    jobs = [
        job if job.error is None else replace(job, error=failures.advised(job.error))
        for job in result.jobs
    ]
    return replace(result, jobs=tuple(jobs))


def show_one_of_many(
    result: object, form: Form, listing: Listing = "totals", *, has_passwords: bool = False
) -> None:
    """Print one of the results of a command that runs until it is stopped."""
    from cpreplicate.output import show
    from cpreplicate.output.log import write_warning

    unwritten = show(result, form, listing, has_passwords=has_passwords)
    if unwritten is not None:
        write_warning(f"{failures.unwritten_text(unwritten)}. {_WORK_IS_DONE}")


@contextmanager
def showing_refused_plan(
    form: Form,
    listing: Listing = "totals",
    page_of: Callable[[Report], WritePage | None] | None = None,
) -> Iterator[None]:
    """Print the report of a refusal, then raise: a plan that would delete more than `--max-delete`
    allows, or keeps less than the replica records, or what is in the way of a start at another
    Kafka.

    `page_of` returns what writes the page of such a plan.
    """
    from cpreplicate.output import show
    from cpreplicate.output.log import write_warning

    try:
        yield
    except ReportRefused as error:
        if show(error.report, form, listing) is None:
            failures.result_is_printed()
        if page_of is not None:
            problem = _unwritten_page(page_of(_refused(error)))
            if problem is not None:
                write_warning(problem)
        raise


def _refused(error: ReportRefused) -> Any:
    """Return the report of a refusal, in which the error is its reason."""
    from dataclasses import replace

    report: Any = error.report
    return replace(report, refusal=error)


def _unwritten_page(page: WritePage | None) -> str | None:
    """Write a page. Return the problem if that failed, whatever it is: the work is done."""
    try:
        if page is not None:
            page()
    except OSError as error:
        return f"the report could not be written: {described(error)}"
    except CpreplicateError as error:
        return f"the report could not be made: {error}"
    except Exception as error:  # noqa: BLE001  # a mistake in a page says nothing of the work
        _log.debug("the report could not be made", exc_info=True)
        return f"the report could not be made: unexpected {type(error).__name__}: {error}"
    return None
