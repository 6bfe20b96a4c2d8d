"""The start of a job from a checkpoint, and the proof that it began with its state."""

from __future__ import annotations

import shlex
import time
from contextlib import suppress

from cpreplicate.core import uri
from cpreplicate.core.placement import CHECKPOINT_NAME
from cpreplicate.errors import FlinkRefused, MetadataError, NotSwitched, SwitchUnclear
from cpreplicate.flink.control import FlinkControl, Run, Version, is_same_place
from cpreplicate.operations.handover.switch.ending import (
    ENDED,
    cancel,
    restored_from,
    wait_for,
    wait_for_end,
)
from cpreplicate.operations.handover.switch.request import Program, SwitchRequest
from cpreplicate.protocol.switch_record import NAME as SWITCH
from cpreplicate.protocol.switch_record import SwitchLog, SwitchRecord
from cpreplicate.storage import Transient

_DUPLICATE = "already been submitted"
_LATE = "TimeoutException"
_OVER = ("CANCELED", "FAILED")
_ANSWER = 30.0  # seconds in which a cluster is asked again before a job starts without its answer


def run_of(record: SwitchRecord, job_id: str, point: str, program: Program) -> Run:
    """Return how a program is run as a job, from a point, with the claim mode of Flink."""
    arguments = tuple(each.replace("{job}", record.name) for each in program.arguments)
    return Run(job_id, point, None, program.entry_class, arguments, program.parallelism)


def refuse_another_cluster(known: str | None, cluster: FlinkControl, record: SwitchRecord) -> None:
    """Raise `SwitchUnclear` if a cluster that may have been asked to start a job is another one.

    It would start the job a second time: only one cluster never has an id twice.
    """
    if known is not None and cluster.identity() != known:
        raise SwitchUnclear(
            f"{record.name} may have been started by {cluster.url}, which is not the JobManager any"
            " more that was asked: its URL leads elsewhere, or it was restarted. Nothing was done."
            " Have the URL lead to the former one, and run again. If you know that the job runs"
            f" nowhere, delete .cpreplicate/{SWITCH} in {record.replica}, and start it by hand"
        )


def submit(
    run: Run, jar_id: str, version: Version, cluster: FlinkControl, request: SwitchRequest
) -> None:
    """Have a cluster run a job, also if an answer is lost: it never has an id twice.

    Raises `NotSwitched` if it refuses; then the job does not run there.
    """

    def submitted() -> str | None:
        try:
            return cluster.run(jar_id, run, version)
        except FlinkRefused as error:
            if _DUPLICATE in str(error):
                return run.job_id
            if _LATE in str(error):  # of a call within the JobManager: it may still start
                return None
            raise

    try:
        what = f"an answer of {cluster.url} to the start of {run.job_id}"
        answered = wait_for(submitted, request, what)
    except FlinkRefused as error:
        raise NotSwitched(f"{cluster.url} does not start the job: {error}") from error
    if answered != run.job_id:
        cancel(answered, cluster, request)
        wait_for_end(answered, cluster, request)
        raise NotSwitched(
            f"{cluster.url} started the job {answered} instead of {run.job_id}. It was cancelled"
        )


def wait_until_it_runs(
    job_id: str, point: str, cluster: FlinkControl, request: SwitchRequest, advice: str
) -> None:
    """Return once each task of a job runs, and it was restored from a point.

    Raises `NotSwitched` if it ended, or began with empty state; then it may still run. Raises
    `SwitchUnclear` with the advice if another switch has started it, from another point.
    """
    refresh = cluster.cluster().refresh

    def runs() -> bool | None:
        _refuse_ended(job_id, cluster)
        return cluster.has_all_tasks(job_id) or None

    wait_for(runs, request, f"the start of each task of {job_id} at {cluster.url}")
    restored = restored_from(job_id, cluster, request, refresh)
    if restored is None:
        raise NotSwitched(
            f"{cluster.url} started the job {job_id} from empty state, not from {point}: it was"
            " cancelled"
        )
    if is_same_place(restored, point):
        return
    if _is_own(restored, job_id):
        _refuse_unless_gone_on(restored, point, job_id, cluster)
    else:
        raise _started_by_another(f"runs at {cluster.url} from {restored}", job_id, advice)


def refuse_started(job_id: str, cluster: FlinkControl, request: SwitchRequest, advice: str) -> None:
    """Raise `SwitchUnclear` if a job has not ended that this switch has not started, or has ended.

    Another switch of the same job has started it then, whatever it was restored from since. A
    cluster that does not answer is asked again for half a minute; then it counts as one without it.
    """
    state = _state_in_time(job_id, cluster, request)
    if state not in (None, *ENDED, "FAILED"):
        raise _started_by_another(f"is {state} at {cluster.url}", job_id, advice)


def refuse_unless_started_here(
    job_id: str, point: str, cluster: FlinkControl, request: SwitchRequest, advice: str
) -> None:
    """Raise `SwitchUnclear` unless this switch has started a job that is to be cancelled.

    It has if the job was restored from the point of its replica, or runs from empty state. Flink
    names the last restore only: a job that was restored again since, from its own checkpoint, may
    be that of another switch, into another TARGET_ROOT.
    """
    by_hand = (
        f"It was left running. If no other `switch` of it was run, cancel it at {cluster.url}, and"
        " run with --take-back again: what it did there is processed again then. Or run without"
        f" --take-back, to have it stay there. Else: {advice}"
    )
    restored = restored_from(job_id, cluster, request, cluster.cluster().refresh, by_hand)
    if restored is None and cluster.has_all_tasks(job_id):
        return
    if restored is not None and is_same_place(restored, point):
        return
    if restored is not None and not _is_own(restored, job_id):
        raise _started_by_another(f"runs at {cluster.url} from {restored}", job_id, advice)
    found = "is not reported" if restored is None else f"is {restored}, its own checkpoint"
    raise SwitchUnclear(
        f"the job {job_id} has not ended at {cluster.url}, and from what it was restored last"
        f" {found}: whether this `switch` started it, or another one, is not known. {by_hand}"
    )


def _is_own(restored: str, job_id: str) -> bool:
    """Return whether a job was restored again, from a checkpoint that it took itself."""
    return uri.name(uri.parent(restored)) == job_id


def _state_in_time(job_id: str, cluster: FlinkControl, request: SwitchRequest) -> str | None:
    """Return the state of a job, None also if a cluster does not answer for a time."""
    until = time.monotonic() + min(_ANSWER, request.patience)
    while True:
        try:
            return cluster.state(job_id)
        except (Transient, MetadataError):
            if time.monotonic() > until:
                return None
        time.sleep(request.pause)


def _started_by_another(found: str, job_id: str, advice: str) -> SwitchUnclear:
    return SwitchUnclear(
        f"the job {job_id} {found}: another `switch` of the same job started it, into another"
        f" TARGET_ROOT. It was left running, and nothing was started. {advice}"
    )


def after_another(log: SwitchLog) -> str:
    """Return how a switch ends whose job another one has started."""
    replica = log.record.replica
    unsealed = (
        f"run `cpreplicate unseal {shlex.quote(replica)} --no-job-uses-it` if it is sealed, and "
        if replica is not None
        else ""
    )
    return f"To have {log.root} followed again, {unsealed}delete .cpreplicate/{SWITCH} there"


def what_it_left(job_id: str, state: str, cluster: FlinkControl) -> str | None:
    """Return what a job that has ended left, after which its former last point is none any more.

    None if it completed nothing that is known.
    """
    if state == "FINISHED":
        return "It reached its end there, or ended with a savepoint, which is its last point then"
    newest = None
    with suppress(Transient, MetadataError):
        newest = cluster.newest_checkpoint(job_id)
    return None if newest is None else f"It went on there to {newest.path}: that is its last point"


def _refuse_unless_gone_on(own: str, point: str, job_id: str, cluster: FlinkControl) -> None:
    """Raise `SwitchUnclear` unless a job restored again, from its own checkpoint, began at a point.

    Flink counts on from the number of the checkpoint that a job began with, and from 1 without one.
    The job runs on.
    """
    names = [uri.name(place) for place in (own, point)]
    numbers = [int(name.removeprefix("chk-")) for name in names if CHECKPOINT_NAME.fullmatch(name)]
    if len(numbers) == len(names) and numbers[0] > numbers[1]:
        return
    raise SwitchUnclear(
        f"the job {job_id} runs at {cluster.url}, and was restored again meanwhile, from {own}:"
        f" whether it began from {point} is not known. It was left running. Look into its output,"
        " and cancel it there before you start the job elsewhere"
    )


def wait_for_first_checkpoint(job_id: str, cluster: FlinkControl, request: SwitchRequest) -> str:
    """Return the name of the first checkpoint of a job that runs. Raises `NotSwitched`."""

    def completed() -> str | None:
        _refuse_ended(job_id, cluster)
        newest = cluster.newest_checkpoint(job_id)
        return None if newest is None else uri.name(newest.path)

    return wait_for(completed, request, f"a checkpoint of {job_id} at {cluster.url}")


def _refuse_ended(job_id: str, cluster: FlinkControl) -> None:
    state = cluster.state(job_id)
    if state == "FINISHED":
        raise SwitchUnclear(
            f"the job {job_id} has FINISHED at {cluster.url}: it reached its end there. Nothing was"
            " started elsewhere"
        )
    if state in _OVER:
        raise NotSwitched(
            f"the job {job_id} is {state} at {cluster.url}. Look into its exceptions there"
        )
