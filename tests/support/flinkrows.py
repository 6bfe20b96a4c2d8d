"""Our reading of a `_metadata` in the words of Flink's loader, so that the two can be compared row
by row.
"""

from __future__ import annotations

from typing import Any

from cpreplicate.core.metadata import Absolute, Handle, Metadata, Relative

TYPES = {"file": 2, "relative": 6, "segment": 15, "inline": 1, "empty": 16}
STATES = {
    "coordinator": "coordinator",
    "op-managed": "operator",
    "keyed": "keyed",
    "chan-in": "channel-in",
    "chan-out": "channel-out",
}
PARTS = {
    "incr-meta": "meta",
    "incr-shared": "shared",
    "incr-private": "private",
    "chlg-delta": "delta",
}
PARTS |= {"KeyGroupsStateHandle": "key-groups", "KeyGroupsSavepointStateHandle": "key-groups"}


def row_of_loader(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row of Flink's loader in the order of `rows_of_metadata`."""
    state, _, role = row["kind"].removesuffix("/").partition("/")
    part = PARTS.get(role.removeprefix("chlg-mat/").split("/")[0], "")
    path = row.get("path")
    subtask = row["subtask"] if row["subtask"] >= 0 else None
    return (
        row["op"],
        subtask,
        STATES[state],
        part,
        row["type"],
        path,
        row.get("startPos"),
        row["size"],
    )


def rows_of_metadata(metadata: Metadata) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """(handles as (operator, subtask, state, part, type, path, position, size), merge directories
    of each subtask).
    """
    rows, pending, directories = [], [], []
    for handle in metadata.handles:
        operator = metadata.operators[handle.operator].id if handle.operator is not None else None
        if handle.kind == "directory":
            pending.append(handle.path)
            if len(pending) == 2:
                directories.append((operator, handle.subtask, *pending))
                pending = []
            continue
        path = f"{metadata.base_uri}/{handle.path}" if handle.kind == "relative" else handle.path
        rows.append(
            (
                operator,
                handle.subtask,
                handle.state,
                handle.part,
                TYPES[handle.kind],
                path,
                handle.position,
                handle.size,
            )
        )
    return rows, directories


def same_spelling(handle: Handle) -> Absolute | Relative | None:
    """The spelling that a handle has."""
    if handle.path is None:
        return None
    return Relative(handle.path) if handle.kind == "relative" else Absolute(handle.path)
