"""What a sync did, or would do."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.path_columns import texts, without
from cpreplicate.core.plan import Plan, Withdrawal, targets
from cpreplicate.core.restore import Restore
from cpreplicate.core.short_repr import short_repr
from cpreplicate.core.sizes import counted
from cpreplicate.core.start import NEVER_SEALED, Starting, starting
from cpreplicate.errors import CpreplicateError, KeepsLess, Refused, ReportRefused, TooManyDeletes
from cpreplicate.operations.sync.plan.groups import Group
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.source.state import SourceState
from cpreplicate.protocol import json_files
from cpreplicate.protocol.replica_state import State
from cpreplicate.protocol.retention_record import described
from cpreplicate.runners import TimedRunner

if TYPE_CHECKING:
    from cpreplicate.operations.kafka.fingerprints import Fingerprinted
    from cpreplicate.operations.kafka.positions import CheckpointPositions

_UNTOUCHED = re.compile(r"Nothing was (?:done|copied(?:, committed)?(?: or deleted)?)\b")


@short_repr(
    "plan.replica",
    "plan.checkpoint",
    "committed",
    "plan.copies",
    "plan.deletes",
    "warnings",
    "seconds",
)
@dataclass(frozen=True)
class Report:
    """The result of a sync: its plan, and how far that was carried out.

    `starting` is how a job is started from the checkpoint in the replica as it is, unsealed.
    `undeleted` are the files that were left to a `sweep` or to a `watch`. `refusal` is the error
    with which a sync would end before it carries out the plan. `completed` is when the checkpoint
    was completed at the source, in seconds since the epoch, None if that is not known. `positions`
    are those of a plan that is only shown. `phases` are parts of `seconds`: `read` until the plan
    was made, `copy` and `delete` in the runner, and `other`, such as the commit. `turned_from` are
    the checkpoints that were begun, and left for a newer one. `is_plan`: the plan is only shown.
    `groups` are its actions by operator and reason then. `is_lease_lost`: another run has taken the
    replica over since the commit, and deletes what is left. `fingerprints` is None if they were not
    asked for, or if nothing was committed.
    """

    plan: Plan
    starting: Starting
    committed: bool = False
    runner: str | None = None
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    undeleted: tuple[str, ...] = ()
    refusal: CpreplicateError | None = None
    completed: float | None = None
    positions: CheckpointPositions | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    turned_from: tuple[str, ...] = ()
    is_plan: bool = False
    groups: tuple[Group, ...] = ()
    is_lease_lost: bool = False
    fingerprints: Fingerprinted | None = None

    @property
    def restore(self) -> Restore:
        """How to restore the checkpoint with Flink's command line."""
        return self.starting.restore


class SyncCheck(NamedTuple):
    """The result of `check`: whether `replica`, a URI, holds `checkpoint` already.

    Otherwise, `files` are to be copied or deleted, and `deletes` of them are to be deleted. `bytes`
    are those of the copies, and `delete_bytes` those of the deletes. `withdrawals` are those of the
    plan. `completed` and `warnings` are as in `Report`.
    """

    replica: str
    checkpoint: str
    is_current: bool
    files: int
    bytes: int
    completed: float | None = None
    warnings: tuple[str, ...] = ()
    withdrawals: tuple[Withdrawal, ...] = ()
    deletes: int = 0
    delete_bytes: int = 0


def named(withdrawals: Sequence[Withdrawal]) -> str:
    """Return the checkpoints that are withdrawn, and when each was completed at the source."""
    clock = json_files.clock
    return ", ".join(
        f"{each.checkpoint} (completed {clock(each.completed)})" for each in withdrawals
    )


def refuse_to_keep_less(report: Report, request: SyncRequest) -> None:
    """Raise `KeepsLess`, with the report, if its plan keeps less than another place stated.

    `--keep-less` allows that.
    """
    plan, policy = report.plan, report.plan.policy
    if request.keep_less or not policy.is_less or policy.recorded is None:
        return
    names = named(plan.withdrawals)
    goes = f"It withdraws {names}" if names else "No checkpoint goes yet, but later ones would"
    refusal = (
        f"{policy.retention} keeps less than the policy that {plan.replica} records:"
        f" {described(policy.recorded)}. {goes}. Nothing was done. Leave out the --keep options to"
        " keep what is recorded, or give --keep-less to withdraw them and record the new policy"
    )
    raise KeepsLess(refusal, replace(report, refusal=Refused(refusal)))


def phases(read: float, runner: TimedRunner, seconds: float) -> dict[str, float]:
    """Return the `phases` of a report: what the runner did not take is `other`."""
    known = {"read": read, "copy": runner.copies, "delete": runner.deletes}
    return {**known, "other": max(0.0, seconds - sum(known.values()))}


def refuse_too_many_deletes(report: Report, state: State, request: SyncRequest) -> None:
    """Raise `TooManyDeletes`, with the report, if its plan deletes more than `--max-delete` allows.

    They are counted against the files that committed checkpoints reference. A pack counts as its
    members. What the new checkpoint needs is not deleted: it only moves, or is copied again. The
    `_metadata` of a checkpoint counts as a file, too: it may hold all of its state.
    """
    plan = report.plan
    if request.max_delete is None:
        return
    members: dict[str, set[str]] = {}
    for committed in state.committed:
        for path, member in committed.members.items():
            members.setdefault(member.pack, set()).add(path)
    files = {path for committed in state.committed for path in committed.files}
    count = sum(len(members.get(path, {path})) for path in files)
    gone = (members.get(action.target, {action.target}) for action in plan.deletes)
    needed = [targets(rows) for rows in (plan.copies, plan.repacks, plan.keeps)]
    deletes, withdrawn = len(without(texts(chain(*gone)), *needed)), len(plan.withdrawals)
    if not request.max_delete.allows(deletes + withdrawn, count + len(state.committed)):
        checkpoints = f" and {withdrawn} of {counted(len(state.committed), 'checkpoint')}"
        names = f" The checkpoints are {named(plan.withdrawals)}." if withdrawn else ""
        refusal = (
            f"{deletes} of {counted(count, 'file')}{checkpoints if withdrawn else ''} of"
            f" {plan.replica} would be deleted, but --max-delete allows {request.max_delete}."
            f" Nothing was copied, committed or deleted.{names} If that is right, give a higher"
            " --max-delete"
        )
        raise TooManyDeletes(refusal, replace(report, refusal=Refused(refusal)))


def correct_after_copies(error: CpreplicateError, files: int) -> None:
    """Let the message of an error count the files that the run had copied before.

    Checks are made again at each turn, and most of their messages state that nothing was done.
    """
    text = (
        f"Nothing was committed or deleted, and what was copied ({counted(files, 'file')}) stays"
        " useful"
    )
    corrected = _UNTOUCHED.sub(text, str(error))
    if not files or corrected == str(error):
        return
    error.args = (corrected, *error.args[1:])
    if isinstance(error, ReportRefused) and isinstance(error.report, Report):
        error.report = replace(error.report, refusal=Refused(corrected))


def report_of(plan: Plan, source_state: SourceState, started: float) -> Report:
    """Return the report of a plan, none of which is carried out yet."""
    checkpoint = uri.join(plan.replica, plan.checkpoint)
    start = starting(source_state.file.metadata, checkpoint, NEVER_SEALED, plan.paths)
    seconds = time.monotonic() - started
    return Report(
        plan,
        start,
        seconds=seconds,
        warnings=plan.warnings,
        completed=source_state.source.completed,
        phases={"read": seconds},
    )
