"""Tables of very many rows, of which a page has the largest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from cpreplicate.output.report.model import Column

MOST_ROWS = 400_000
"""Rows of a page: as many random names as fit into 15 MB, which a browser opens in a second."""


def largest(sizes: Sequence[int], most: int = MOST_ROWS) -> npt.NDArray[np.int64]:
    """Return the places of the largest sizes, in their order; all of them if they are not many."""
    if len(sizes) <= most:
        return np.arange(len(sizes))
    order = np.argsort(-np.array(sizes, np.int64), kind="stable")
    return np.sort(order[:most])


def chosen(column: Column, places: npt.NDArray[np.int64]) -> Column:
    """Return a column with some of its rows."""
    if len(places) == len(column.values):
        return column
    return replace(column, values=[column.values[place] for place in places.tolist()])
