"""`--report` and `--to`: the result of a command in a file, as a page or as a table.

No file that an option names is written into a replica.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

import click

if TYPE_CHECKING:
    from cpreplicate.operations.inspect.overview import Overview

WritePage: TypeAlias = Callable[[], None]
"""Writes a page. Raises `OSError`."""


def refuse_unwritable(option: str, path: str | None) -> None:
    """Raise `click.UsageError` if `path` cannot be written, or is in a replica.

    It is called before any work is done. A replica has only files that cpreplicate recorded there,
    its manifests among them.
    """
    if path is None:
        return
    from cpreplicate.operations.inspect.result_file import try_to_write

    refuse_in_replica(option, path)
    try:
        try_to_write(path)
    except OSError as error:
        raise click.UsageError(
            f"{option} {path} cannot be written: {error.strerror or error}. Nothing was done."
            " Create its directory, or give another file"
        ) from error


def refuse_in_replica(option: str, path: str | None) -> None:
    """Raise `click.UsageError` if `path` is in a replica on this machine's filesystem."""
    if path is None:
        return
    from cpreplicate.operations.inspect.result_file import replica_around

    with suppress(OSError):  # a directory that cannot be entered: writing reports that
        if replica := replica_around(path):
            raise click.UsageError(
                f"{option} {path} would be in the replica {replica}, where only cpreplicate's own"
                " files are. Nothing was done. Give a file elsewhere"
            )


def page_writer(
    path: str | None,
    result: object | Callable[[], object],
    overview: Callable[[], Overview] | None = None,
) -> WritePage | None:
    """Return what writes the page of a result to `path`, None without a path.

    A result that is read while it is printed is given as a function that returns it. `overview`
    reads what the page shows beside the result.
    """
    if path is None:
        return None

    def write() -> None:
        from cpreplicate.operations.inspect.overview import Overview
        from cpreplicate.output.report.file import write_page

        found = result() if callable(result) else result
        write_page(path, found, Overview() if overview is None else overview())

    return write
