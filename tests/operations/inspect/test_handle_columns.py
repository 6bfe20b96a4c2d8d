"""Every state handle of a checkpoint in columns."""

import numpy as np
import pytest

from cpreplicate.core.state_sizes import KINDS as STATE_KINDS
from cpreplicate.operations.inspect import references
from cpreplicate.operations.inspect.handle_columns import handle_columns
from cpreplicate.storage import Side
from tests.support.corpus import ROOT

CHECKPOINTS = sorted(path.parent for path in ROOT.rglob("_metadata"))


@pytest.mark.parametrize(
    "checkpoint", CHECKPOINTS, ids=lambda path: f"{path.parts[-4]}-{path.name}"
)
def test_the_handles_are_those_of_inspect_refs_in_their_order(checkpoint):
    path = f"file:{checkpoint}"
    found, batches = handle_columns(path, Side(), ()), references(path, Side(), ()).batches()
    rows = [row for batch in batches for row in batch.to_pylist()]
    ids = [operator.id for operator in found.inspection.operators]
    assert [ids[number] if number >= 0 else None for number in found.operator.tolist()] == [
        row["operator"] for row in rows
    ]
    assert [None if each < 0 else each for each in found.subtask.tolist()] == [
        row["subtask"] for row in rows
    ]
    is_channel = np.array([row["state"].startswith("channel") for row in rows])
    sizes = np.array([row["size"] for row in rows])
    assert (found.sizes[~is_channel] == sizes[~is_channel]).all()
    assert (found.sizes[is_channel] < sizes[is_channel]).all()  # a part of the file each
    assert [None if each < 0 else each for each in found.positions.tolist()] == [
        row["position"] for row in rows
    ]
    assert list(found.paths) == [row["path"] for row in rows]
    assert list(found.held_as) == [row["handle"] for row in rows]
    for kind, row in zip(found.state_kind.tolist(), rows, strict=True):
        name = STATE_KINDS[kind]
        assert row["state"].startswith(name) or (name == "changelog" and row["state"] == "keyed")


@pytest.mark.parametrize(
    ("written_by", "kind"),
    [
        ("2.3.0-changelog", "changelog"),
        ("1.20.5-unaligned", "channel"),
        ("1.20.5-hashmap", "keyed"),
    ],
)
def test_each_kind_of_state_that_flink_writes_has_its_bytes(written_by, kind):
    newest = next(each for each in CHECKPOINTS if written_by in each.parts)
    found = handle_columns(f"file:{newest}", Side(), ())
    sizes = found.sizes[found.state_kind == STATE_KINDS.index(kind)]
    assert sizes.sum() > 0


@pytest.mark.parametrize(
    "checkpoint", CHECKPOINTS, ids=lambda path: f"{path.parts[-4]}-{path.name}"
)
def test_the_bytes_of_operators_and_subtasks_are_those_of_the_summary(checkpoint):
    found = handle_columns(f"file:{checkpoint}", Side(), ())
    for number, operator in enumerate(found.inspection.operators):
        assert found.operator_sizes[found.operator == number].sum() == operator.bytes
        if operator.skew is not None:
            of_largest = (found.operator == number) & (found.subtask == operator.skew.largest)
            assert found.subtask_sizes[of_largest].sum() == operator.skew.largest_bytes
