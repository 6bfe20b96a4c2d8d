"""Write a page to a file."""

from __future__ import annotations

from cpreplicate.operations.inspect.overview import Overview
from cpreplicate.operations.inspect.result_file import replacing
from cpreplicate.output.report import page_of
from cpreplicate.output.report.page import html_of


def write_page(path: str, result: object, overview: Overview) -> None:
    """Write the page of a result. A reader finds the former file or the whole new one.

    Raises `OSError`.
    """
    data = html_of(page_of(result, overview)).encode()
    with replacing(path) as temporary:
        temporary.write_bytes(data)
