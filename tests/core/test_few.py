"""Few rows are handled in plain Python, many in columns: the results are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cpreplicate.core import path_columns
from cpreplicate.core.closure import closure
from cpreplicate.core.ledger import LedgerEntry
from cpreplicate.core.metadata import decode
from cpreplicate.core.metadata.rewrite import rewrite
from cpreplicate.core.path_columns import (
    Coded,
    Parts,
    are_plain,
    chosen,
    coded,
    directories,
    last_rows,
    parts_of,
    prefixed,
    rows_of,
    split,
    texts,
    without,
    without_prefix,
)
from cpreplicate.core.placement import Placement, are_replica_paths, has_special_name
from cpreplicate.core.plan import Committed, copies_and_keeps, deletes, not_needed
from cpreplicate.core.restore import PathSpeller
from cpreplicate.core.tables import Lengths
from tests.support.jobs import JOB, metadata_of

TEXT = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("/ab.%\0"), max_size=12
) | st.sampled_from(["_metadata", "shared/a", "chk-7/b", "x" * 300])
TEXTS = st.lists(TEXT, max_size=20)
NAMES = st.sampled_from([f"{where}/{n}" for where in ("shared", "taskowned") for n in "abcdef"])
ELSEWHERE = st.sampled_from(["hdfs://dcA/other/shared/ä", "hdfs://dcA/x y", "hdfs://dcA/%2e/z"])
SIZES = st.integers(0, 9)


def both_ways(compute: Callable[[], Any]) -> Any:
    """Return what is computed in plain Python, after it was found to be the same in columns."""
    results = []
    for few in (10**9, -1):
        with mock.patch.object(path_columns, "FEW", few):
            results.append(compute())
    assert results[0] == results[1]
    return results[0]


def plain(value: Any) -> Any:
    """Return columns as objects, with their types."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind, value.tolist()
    if isinstance(value, Coded | Parts):
        return value.tolist()
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return (str(value.type), value.to_pylist()) if hasattr(value, "to_pylist") else value


@given(TEXTS, TEXTS, st.integers(0, 3), st.data())
def test_columns_of_texts_are_the_same_both_ways(some, others, first, data):
    column, other = texts(some)[first:], texts(others)
    count = len(column)
    indexes = st.lists(st.integers(0, count - 1), max_size=20) if count else st.just([])
    rows = np.array(data.draw(indexes), np.int64)
    flags = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), np.bool_)
    for function, arguments in (
        (rows_of, (column, other)),
        (without, (column, other, texts(some[:1]))),
        (chosen, (column, rows)),
        (chosen, (column, flags)),
        (split, (column,)),
        (prefixed, ("é/", column)),
        (directories, (column,)),
        (last_rows, (column,)),
        (coded, (column,)),
        (are_plain, (column,)),
        (has_special_name, (column,)),
        (are_replica_paths, (column,)),
    ):
        both_ways(lambda function=function, arguments=arguments: plain(function(*arguments)))
    both_ways(lambda: plain(without_prefix(prefixed("é/", column), "é/")))
    both_ways(lambda: plain(parts_of(column).take(rows).texts()))
    data_column = column.cast("large_binary")
    both_ways(lambda: (plain(split(data_column)), plain(coded(data_column))))
    both_ways(lambda: plain(are_plain(data_column)))


FILES = st.dictionaries(
    NAMES.map(f"hdfs://dcA/{JOB}/{{}}".format) | ELSEWHERE, SIZES, min_size=1, max_size=20
)


@settings(max_examples=50)
@given(FILES, st.dictionaries(NAMES, SIZES), st.dictionaries(NAMES, SIZES), st.data())
def test_a_plan_is_the_same_both_ways(files, present, recorded, data):
    many = data.draw(st.sampled_from([0, 300]))
    files |= {f"hdfs://dcA/{JOB}/shared/many-{number}": number for number in range(many)}
    present |= {f"shared/many-{number}": number for number in range(0, many, 2)}
    former = data.draw(st.dictionaries(NAMES, SIZES)) | dict(list(present.items())[::3])
    written = metadata_of(7, files)

    def planned() -> Any:
        metadata = decode(written, f"hdfs://dcA/{JOB}/chk-7")
        needed = closure(metadata)
        placement = Placement(f"hdfs://dcA/{JOB}/chk-7", f"hdfs://dcA/{JOB}", "chk-7")
        placed = placement.place_all(needed.files, needed.plain)
        ledger = {path: LedgerEntry(size, 1, True) for path, size in recorded.items()}
        committed = [Committed("chk-6", 6, Lengths.of(former))]
        split_ = copies_and_keeps(placed, committed, present, ledger)
        going = not_needed(committed, placed.paths)
        gone = deletes(committed, going, Lengths.of(present))

        def spelled(mode: str) -> bytes:
            speller = PathSpeller(needed, placement, "hdfs://dcB/replica", mode)
            return b"".join(rewrite(written, metadata, speller, speller.moves()))

        return (
            *(dict(placed), split_.copies, tuple(split_.keeps), gone),
            *map(spelled, ("relative", "absolute")),
        )

    both_ways(planned)
