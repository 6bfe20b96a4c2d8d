"""A state handle and an operator, and the numbers by which columns name their fields."""

from __future__ import annotations

from typing import NamedTuple

KINDS = ("file", "relative", "segment", "inline", "empty", "directory")
FILE, RELATIVE, SEGMENT, INLINE, EMPTY, DIRECTORY = range(6)

STATES = (
    "coordinator",
    "operator",
    "operator-raw",
    "keyed",
    "keyed-raw",
    "channel-in",
    "channel-out",
)
COORDINATOR, OPERATOR, OPERATOR_RAW, KEYED, KEYED_RAW, CHANNEL_IN, CHANNEL_OUT = range(7)

PARTS = ("", "key-groups", "meta", "shared", "private", "delta", "task-owned-dir", "shared-dir")
WHOLE, KEY_GROUPS, META, SHARED, PRIVATE, DELTA, TASK_OWNED_DIR, SHARED_DIR = range(8)


class Operator(NamedTuple):
    """One operator.

    `id` is spelled as `OperatorID.toString()` does: the 16 bytes in the order of the file. `name`
    and `uid` are None before v5 and where absent. `subtasks` counts the entries present.
    """

    id: str
    name: str | None
    uid: str | None
    parallelism: int
    max_parallelism: int
    subtasks: int
    finished: bool


class Handle(NamedTuple):
    """One state handle: a row of `Metadata.handles`.

    `operator` is an index into `Metadata.operators`, `subtask` None for the coordinator. `path` is
    as recorded (None if the handle names no file), `size` is in bytes, and `position` is set for
    segments. `start` and `length` are the handle's bytes in the file. Rows of the kind `directory`
    are the two directories of a type-17 handle. They hold no state, but their paths are rewritten.
    """

    operator: int | None
    subtask: int | None
    state: str
    part: str
    kind: str
    path: str | None
    size: int
    position: int | None
    start: int
    length: int
