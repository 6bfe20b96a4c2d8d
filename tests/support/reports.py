"""Results that pages are made of, in the states that an operator meets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cpreplicate.core.plan import Action, Keeps, Plan
from cpreplicate.core.restore import Restore
from cpreplicate.core.start import Starting
from cpreplicate.core.state_sizes import KINDS as STATE_KINDS
from cpreplicate.operations.inspect import Inspection, OperatorSummary
from cpreplicate.operations.inspect.handle_columns import HandleColumns
from cpreplicate.operations.sync.report import Report

COMMAND = "flink run -s hdfs://b/job/chk-7 JAR"
GIB = 1 << 30


def plan_of(
    copies: Mapping[str, int] = {},
    keeps: Mapping[str, int] = {},
    deletes: Mapping[str, int] = {},
    publish: bool = True,
) -> Plan:
    """A plan for these files: path in the replica to bytes."""
    return Plan(
        source="hdfs://a/job/chk-7",
        replica="hdfs://b/job",
        checkpoint="chk-7",
        checkpoint_id=7,
        base_checkpoint_id=6,
        publish=publish,
        copies=tuple(
            Action("copy", f"hdfs://a/job/{path}", path, size, "new")
            for path, size in copies.items()
        ),
        keeps=Keeps.joined([]).and_others(
            [
                Action("keep", f"hdfs://a/job/{path}", path, size, "shared with chk-6")
                for path, size in keeps.items()
            ]
        ),
        deletes=tuple(
            Action("delete", None, path, size, "only chk-6 needed it")
            for path, size in deletes.items()
        ),
        withdrawals=(),
        paths="relative",
        paths_reported="relative",
        paths_reason="safe",
    )


def report_of(plan: Plan, **fields: Any) -> Report:
    """The report of a plan."""
    starting = Starting(
        "hdfs://b/job/chk-7", Restore("NO_CLAIM", tuple(COMMAND.split()), "safe"), {}, {}, 0
    )
    return Report(plan, starting, **fields)


def handles_of(operators: Mapping[str, Sequence[int]], kind: str = "keyed") -> HandleColumns:
    """A checkpoint whose operators have a file of these bytes for each subtask."""
    summaries = tuple(
        OperatorSummary(
            f"{number:032x}", name, None, len(sizes), 128, len(sizes), sum(sizes), 1, {}, {}
        )
        for number, (name, sizes) in enumerate(operators.items())
    )
    rows = [
        (number, subtask, size)
        for number, sizes in enumerate(operators.values())
        for subtask, size in enumerate(sizes)
    ]
    count, whole = len(rows), sum(size for _, _, size in rows)
    inspection = Inspection(
        "hdfs://a/job/chk-7", 7, 6, summaries, count, count, whole, 0, {}, {}, {}
    )
    bytes_of = np.array([row[2] for row in rows], np.int64)
    return HandleColumns(
        inspection,
        operator=np.array([row[0] for row in rows], np.int64),
        subtask=np.array([row[1] for row in rows], np.int64),
        state_kind=np.full(count, STATE_KINDS.index(kind), np.int64),
        held_as=["file"] * count,
        sizes=bytes_of,
        operator_sizes=bytes_of,
        subtask_sizes=bytes_of,
        positions=np.full(count, -1, np.int64),
        paths=[f"hdfs://a/job/shared/{number:04}" for number in range(count)],
    )
