"""The model of a decoded `_metadata`."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from cpreplicate.core.metadata.columns import Handles
from cpreplicate.core.metadata.handle import Operator


@dataclass(frozen=True)
class Metadata:
    """A decoded `_metadata` of `length` bytes, which is in the directory `base_uri`.

    `inline_bytes` counts byte-stream handles and in-memory changelog increments; `changelog` and
    `file_merging` are True if any handle is of those kinds. `operator_states` are pairs
    of numbers, one after the other: the first byte of an operator state handle, and its operator.
    `ends_job`: it is the savepoint with which the job was stopped; Flink records that from 1.17 on.
    """

    version: int
    checkpoint_id: int
    base_uri: str
    length: int
    operators: tuple[Operator, ...]
    handles: Handles
    master_states: int
    inline_bytes: int
    changelog: bool
    file_merging: bool
    operator_states: array[int]
    ends_job: bool = False
