"""The last point of a job, and the proof that it has ended."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

from cpreplicate.core import uri
from cpreplicate.errors import (
    CpreplicateError,
    FlinkRefused,
    MetadataError,
    NotSwitched,
    Refused,
    SwitchUnclear,
    described,
)
from cpreplicate.flink import CompletedCheckpoint
from cpreplicate.flink.control import (
    TRIGGER_ID_SINCE,
    FlinkControl,
    Operation,
    Restored,
    is_same_place,
)
from cpreplicate.operations.handover.switch.preview import sync_of
from cpreplicate.operations.handover.switch.request import SwitchRequest
from cpreplicate.protocol.source import Source, find, read_newest
from cpreplicate.protocol.switch_record import NAME as SWITCH
from cpreplicate.protocol.switch_record import SwitchLog, SwitchRecord, marks, new_id
from cpreplicate.storage import Transient

ENDED = ("CANCELED", "FINISHED")
"""The states that prove the end of a job: nothing starts it again."""
GOING_ON = "The same command goes on from there; with --take-back, it has the job run where it ran"
_FAILED = "FAILED"
_KEPT = 6  # minutes after which a JobManager has forgotten a mark
_FRESH = 200.0  # seconds for which a mark is surely kept: `rest.async.store-duration` is 5 minutes
_OVER = (404, 409)  # how Flink answers to a second cancel of a job, or once it is over
_MARGIN = 2.0  # seconds after which a job that runs reports from what it was restored
T = TypeVar("T")


class Ended(NamedTuple):
    """The last point of a job that has ended, as its JobManager names it.

    `repeated` are the seconds, at most, before its end whose records are processed again; None if
    that is not known.
    """

    point: str
    repeated: float | None = None


def wait_for(
    ask: Callable[[], T | None], request: SwitchRequest, what: str, advice: str = GOING_ON
) -> T:
    """Return what is known once it is. A JobManager that does not answer is asked again.

    Raises `SwitchUnclear` with the advice after the time of the request.
    """
    until = time.monotonic() + request.patience
    problem = ""
    while True:
        try:
            if (found := ask()) is not None:
                return found
            problem = ""
        except Transient as error:
            problem = f" The last answer: {error}."
        if time.monotonic() > until:
            raise SwitchUnclear(
                f"{what} was not seen within {request.patience:g} s.{problem} {advice}"
            )
        time.sleep(request.pause)


def restored_from(
    job_id: str,
    cluster: FlinkControl,
    request: SwitchRequest,
    refresh: float,
    advice: str = GOING_ON,
) -> str | None:
    """Return the path from which a job that runs was restored, None if it began with empty state.

    `refresh` is that of the cluster. Raises as `wait_for`.
    """
    until = time.monotonic() + 2 * refresh + _MARGIN

    def restored() -> Restored | None:
        found = cluster.restored(job_id)
        return None if found is None or (found.path is None and time.monotonic() < until) else found

    what = f"from what {job_id} was restored at {cluster.url}"
    return wait_for(restored, request, what, advice).path


def when_gone(log: SwitchLog) -> str:
    """Return what an operator does if the JobManager of a job that was to end is gone for good."""
    record = log.record
    place = "SAVEPOINT" if record.stop == "savepoint" else shlex.quote(record.directory)
    return (
        f"{GOING_ON}. The JobManager of an application ends with its job, and does not answer any"
        " more: make sure that its process has ended, and that nothing starts it again. Then"
        f" {promotion_by_hand(log.root, place)}"
    )


def promotion_by_hand(root: str, place: str) -> str:
    """Return how the last point of a job, at `place`, is promoted without its JobManager."""
    return (
        f"run `cpreplicate sync {place} {shlex.quote(uri.parent(root))}` with the options of"
        f" `switch`, `cpreplicate promote {shlex.quote(root)}`, and delete .cpreplicate/{SWITCH}"
        " there"
    )


def take_checkpoint(
    job_id: str, trigger_id: str, origin: FlinkControl, request: SwitchRequest
) -> int | None:
    """Have a job complete a checkpoint and return its number, None if Flink cannot be asked.

    Raises `NotSwitched` if it fails; the job runs on.
    """
    triggered = partial(origin.trigger_checkpoint, job_id, trigger_id)  # never a second one
    if not wait_for(triggered, request, f"an answer of {origin.url}"):
        return None
    done = _done(
        lambda: origin.checkpoint_result(job_id, trigger_id), request, "the end of a checkpoint"
    )
    if done.failure is not None or done.checkpoint_id is None:
        raise NotSwitched(
            f"the checkpoint that {job_id} was asked for at {origin.url} failed: {done.failure}. It"
            " was not stopped, and runs on"
        )
    return done.checkpoint_id


def end_job(log: SwitchLog, origin: FlinkControl, request: SwitchRequest) -> Ended:
    """Stop a job with its last point, and return that when the end is proven.

    A job whose end was seen before is not asked again. Raises `SwitchUnclear` if it is not proven.
    """
    job_id = log.record.job_id
    if log.record.ended is not None:
        return Ended(_last_point(log, origin, request, log.record.ended))
    state = origin.state(job_id)
    if log.record.step == "copying" and state in (*ENDED, "CANCELLING"):
        raise SwitchUnclear(
            f"{log.record.name} is {state} at {origin.url}, and this `switch` did not stop it."
            " Nothing was done. Somebody else stopped it, such as a `switch` into another"
            " TARGET_ROOT, or it has ended by itself. Make sure that it is not started elsewhere,"
            " and start it where it ran, or promote its replica by hand"
        )
    if state == "CANCELLING":
        state = wait_for_end(job_id, origin, request, when_gone(log))
    if state in ENDED:
        return Ended(_last_point(log, origin, request, state))
    if state is None or state == _FAILED:
        raise _unproven(log, origin, state)
    if request.stop == "savepoint":
        return _end_by_savepoint(log, origin, request)
    return _end_by_checkpoint(log, origin, request)


def is_ending(record: SwitchRecord, origin: FlinkControl) -> bool:
    """Return whether a job that was asked to stop has ended, or is about to.

    While it takes its last savepoint, it is reported as RUNNING.
    """
    state = record.ended or origin.state(record.job_id)
    if state in (*ENDED, "CANCELLING"):
        return True
    if state is None or record.stop != "savepoint":
        return False
    asked = origin.savepoint_result(record.job_id, record.stop_id)
    return asked.is_known and asked.failure is None


def wait_for_end(
    job_id: str, cluster: FlinkControl, request: SwitchRequest, advice: str = GOING_ON
) -> str:
    """Return the state in which a job ended: CANCELED, FINISHED or FAILED.

    Only those in `ENDED` prove that nothing starts it again. Raises `SwitchUnclear` if it does not
    end in time.
    """

    def ended() -> str | None:
        state = cluster.state(job_id)
        return state if state in (*ENDED, _FAILED) else None

    return wait_for(ended, request, f"the end of the job {job_id} at {cluster.url}", advice)


def cancel(job_id: str, cluster: FlinkControl, request: SwitchRequest) -> None:
    """Have a job cancelled, also if an answer is lost; its end is to be waited for.

    Flink 1.13 does not know a job any more that is cancelled twice. Raises `FlinkRefused` if it is
    refused otherwise.
    """

    def cancelled() -> bool:
        try:
            cluster.cancel(job_id)
        except FlinkRefused as error:
            if error.status not in _OVER:
                raise
        return True

    wait_for(cancelled, request, f"an answer of {cluster.url}")


def _end_by_checkpoint(log: SwitchLog, origin: FlinkControl, request: SwitchRequest) -> Ended:
    job_id, claimed = log.record.job_id, time.monotonic()
    _claim(log, origin, request)
    taken, trigger_id = time.monotonic(), new_id()  # that of an earlier try is of its checkpoint
    log.write(step="stopping", stop_id=trigger_id)
    number = take_checkpoint(job_id, trigger_id, origin, request)
    if time.monotonic() - claimed > _FRESH:
        _claim(log, origin, request)
    _refuse_elsewhere(log, _newest(log, origin, request))
    log.write(stopped=time.time(), least=number or 0)
    asked = time.monotonic()
    cancel(job_id, origin, request)
    state = wait_for_end(job_id, origin, request, when_gone(log))
    _refuse_unproven(log, origin, state)
    repeated = None if number is None else asked - taken
    return Ended(_last_point(log, origin, request, state), repeated)


def _newest(log: SwitchLog, origin: FlinkControl, request: SwitchRequest) -> CompletedCheckpoint:
    """Return what a job that runs completed last since its JobManager began. It had one before.

    Raises `NotSwitched` if there is none in time; the job runs on.
    """
    job_id = log.record.job_id
    what, advice = f"a checkpoint of {job_id} at {origin.url}", "Run again once it completed one"
    try:
        return wait_for(partial(origin.newest_checkpoint, job_id), request, what, advice)
    except SwitchUnclear as error:
        raise NotSwitched(str(error)) from error


def _refuse_elsewhere(log: SwitchLog, newest: CompletedCheckpoint) -> None:
    """Raise `NotSwitched` if a job that runs writes its checkpoints elsewhere than it did.

    An application with high availability has the same id when it is deployed anew.
    """
    record = log.record
    if not _is_in(record.directory, newest):
        raise NotSwitched(
            f"{record.name} writes its checkpoints to {uri.parent(newest.path)} now, and wrote them"
            f" to {record.directory} when this switch began: it was started again since. It was not"
            " stopped by this run. Run again, which copies those of the new directory"
        )


def _is_in(directory: str, checkpoint: CompletedCheckpoint) -> bool:
    return is_same_place(uri.parent(checkpoint.path), directory)


def _claim(log: SwitchLog, origin: FlinkControl, request: SwitchRequest) -> None:
    """Have the JobManager know that this switch stops the job. Flink before 1.17 cannot.

    The marks of others are looked for before that, and after it: of two switches, at least one sees
    the other. Raises `Refused` then, and the job runs on; `SwitchUnclear` if it is ending.
    """
    _refuse_stopping(log, origin, request)
    if not log.record.claim:
        log.write(claim=new_id())
    found = marks(log.record)
    _refuse_claimed(log, found.others, origin, request)
    for each in found.own:
        mark = partial(origin.mark, found.job_id, each)
        if not wait_for(mark, request, f"an answer of {origin.url}"):
            return
    _refuse_claimed(log, found.others, origin, request)


def _refuse_stopping(log: SwitchLog, origin: FlinkControl, request: SwitchRequest) -> None:
    """Raise `SwitchUnclear` while a job ends with a savepoint, for longer than marks are kept."""
    is_stopping = partial(origin.is_stopping, log.record.job_id)
    if wait_for(is_stopping, request, f"an answer of {origin.url}"):
        raise SwitchUnclear(
            f"{log.record.name} takes a savepoint with which it ends, at {origin.url}, and this run"
            " did not ask for it. Nothing was done. Wait until it has ended, or runs on, and run"
            " again. If it has ended, the savepoint is its last point: `sync` and promote that one"
        )


def _refuse_claimed(
    log: SwitchLog, others: Iterable[str], origin: FlinkControl, request: SwitchRequest
) -> None:
    record, job_id = log.record, marks(log.record).job_id
    for each in others:
        is_marked = partial(origin.is_marked, job_id, each)
        if not wait_for(is_marked, request, f"an answer of {origin.url}"):
            continue
        if record.is_open:
            log.write(step="taken back")
        raise Refused(
            f"{record.name} was not stopped by this run: another `switch` of it, into another"
            f" TARGET_ROOT, has claimed it at {origin.url}, and may stop it. Wait for that one. If"
            f" none is at work any more, run again in {_KEPT} minutes: until then, the JobManager"
            " may know of the claim"
        )


def _end_by_savepoint(log: SwitchLog, origin: FlinkControl, request: SwitchRequest) -> Ended:
    job_id = log.record.job_id
    is_asked = log.record.step == "stopping"
    if not (is_asked and origin.savepoint_result(job_id, log.record.stop_id).is_known):
        _stop_with_savepoint(log, origin, request)
    trigger_id = log.record.stop_id
    done = _done(lambda: origin.savepoint_result(job_id, trigger_id), request, "the savepoint")
    if done.failure is not None or done.path is None:
        raise NotSwitched(
            f"the savepoint with which {job_id} was to end at {origin.url} failed: {done.failure}"
        )
    _refuse_unproven(log, origin, wait_for_end(job_id, origin, request, when_gone(log)))
    return Ended(done.path, 0.0)


def _stop_with_savepoint(log: SwitchLog, origin: FlinkControl, request: SwitchRequest) -> None:
    """Have a job take its last savepoint, also if an answer is lost.

    Flink before 1.15 chooses the id by which it knows the savepoint. If that answer is lost, the
    job may end without that anybody knows with which savepoint.
    """
    _claim(log, origin, request)
    version, newest = origin.cluster().version, origin.newest_checkpoint(log.record.job_id)
    if newest is not None:
        _refuse_elsewhere(log, newest)
    least = log.record.least if newest is None else newest.checkpoint_id
    log.write(step="stopping", stop_id=new_id(), stopped=time.time(), least=least)

    def stopped() -> str:
        try:
            return origin.stop_with_savepoint(
                log.record.job_id,
                log.record.stop_id,
                version,
                request.savepoints,
                request.savepoint_format,
            )
        except Transient as error:
            if version >= TRIGGER_ID_SINCE:
                raise
            raise SwitchUnclear(
                f"{log.record.name} may be ending with a savepoint that is not known: {error}. Wait"
                f" for its end at {origin.url}, and look for the savepoint"
            ) from error

    trigger_id = wait_for(stopped, request, f"an answer of {origin.url}")
    if trigger_id != log.record.stop_id:
        log.write(stop_id=trigger_id)


def _done(ask: Callable[[], Operation], request: SwitchRequest, what: str) -> Operation:
    def done() -> Operation | None:
        found = ask()
        return found if found.is_done else None

    return wait_for(done, request, what)


def _last_point(log: SwitchLog, origin: FlinkControl, request: SwitchRequest, state: str) -> str:
    """Return the last point of a job that has ended in a state. Raises `SwitchUnclear`.

    If it is not found, the end is recorded: a JobManager may end with its job, and cannot be asked
    again.
    """
    _refuse_finished(log, origin, state)
    try:
        if log.record.stop == "savepoint":
            return _savepoint(log, origin, request, state)
        return _point(log, origin, request)
    except BaseException:
        with suppress(CpreplicateError, OSError):
            log.write(ended=state)
        raise


def _refuse_finished(log: SwitchLog, origin: FlinkControl, state: str) -> None:
    """Raise `SwitchUnclear` if a job that was to be cancelled ended before. Nothing is to go on.

    From its last checkpoint, it would process again what it has done.
    """
    if state != "FINISHED" or log.record.stop == "savepoint":
        return
    log.write(step="taken back")
    raise SwitchUnclear(
        f"{log.record.name} has FINISHED at {origin.url}, before it was cancelled: it reached its"
        " end, or somebody stopped it with a savepoint. Nothing was started, and this switch has"
        " ended. If it reached its end, there is nothing to do. Else `sync` that savepoint, and"
        " promote it by hand"
    )


def _point(log: SwitchLog, origin: FlinkControl, request: SwitchRequest) -> str:
    """Return the last point of a job that has ended: one that completed meanwhile counts, too.

    Its number is at least that of the last checkpoint that was asked for, and of what its
    JobManager reports, if that still answers. Raises `SwitchUnclear`.
    """
    record = log.record
    reported = _reported(log, origin)
    found = _newest_in_directory(log, request)
    number = int(uri.name(found.checkpoint).removeprefix("chk-"))
    known = max(record.least, reported.checkpoint_id if reported is not None else 0)
    if number < known:
        raise SwitchUnclear(
            f"{record.name} has ended, and its checkpoint {known} is not in {found.root}, whose"
            f" newest whole one is chk-{number}. The job was not started anywhere. Look for"
            f" chk-{known}, and promote it by hand"
        )
    return uri.join(record.directory, uri.name(found.checkpoint))


def _reported(log: SwitchLog, origin: FlinkControl) -> CompletedCheckpoint | None:
    """Return what the JobManager of a job that has ended reports as its last checkpoint.

    None if it does not answer: that of an application ends with its job. Raises `SwitchUnclear` if
    it is in another directory.
    """
    record, reported = log.record, None
    with suppress(Transient, MetadataError):
        reported = origin.newest_checkpoint(record.job_id)
    if reported is not None and not _is_in(record.directory, reported):
        raise SwitchUnclear(
            f"{record.name} has ended, and its last checkpoint is {reported.path}, not in"
            f" {record.directory}: it was started again since this switch began. The job was not"
            " started anywhere. `sync` that checkpoint into another TARGET_ROOT, promote it by"
            f" hand, and delete .cpreplicate/{SWITCH} in {log.root}"
        )
    return reported


def _newest_in_directory(log: SwitchLog, request: SwitchRequest) -> Source:
    """Return the newest whole checkpoint of a job that has ended. Raises `SwitchUnclear`."""
    record = log.record
    try:
        sync = sync_of(request.sync, record.directory, record.name)
        side = sync.sides.source
        found = find(sync.source, side, sync.allow_older)
        return read_newest(found, side, sync.allow_older)[0]
    except (CpreplicateError, OSError) as error:
        raise SwitchUnclear(
            f"{record.name} has ended, and its last point was not found:"
            f" {described(error).rstrip('.')}. The job was not started anywhere. Correct that."
            f" {GOING_ON}"
        ) from error


def _savepoint(log: SwitchLog, origin: FlinkControl, request: SwitchRequest, state: str) -> str:
    """Return the savepoint with which a job ended before this run. Raises `SwitchUnclear`."""
    record = log.record

    def done() -> Operation | None:
        found = origin.savepoint_result(record.job_id, record.stop_id)
        return found if found.is_done or not found.is_known else None

    found = wait_for(done, request, f"the savepoint of {record.name}", when_gone(log))
    if found.path is not None:
        return found.path
    if not found.is_known:
        raise SwitchUnclear(
            f"{record.name} has ended, and {origin.url} does not know its savepoint any more. The"
            " job was not started anywhere. Look for the savepoint, `sync` it, and promote it by"
            " hand"
        )
    remedy = (
        "It reached its end, and there is nothing to start"
        if state == "FINISHED"
        else f"Look for its newest checkpoint in {record.directory}, and promote that by hand"
    )
    raise SwitchUnclear(
        f"{record.name} is {state} at {origin.url}, and the savepoint with which it was to end"
        f" failed: {found.failure}. The job was not started anywhere. {remedy}. Then delete"
        f" .cpreplicate/{SWITCH} in {log.root}"
    )


def _refuse_unproven(log: SwitchLog, origin: FlinkControl, state: str) -> None:
    if state not in ENDED:
        raise _unproven(log, origin, state)


def _unproven(log: SwitchLog, origin: FlinkControl, state: str | None) -> SwitchUnclear:
    record = log.record
    found = "does not know it" if state is None else f"reports it as {state}"
    return SwitchUnclear(
        f"{record.name}: the end of the job {record.job_id} is not proven: {origin.url} {found},"
        " which proves nothing. It was not started anywhere else. Make sure that it has ended, and"
        " promote its replica by hand"
    )
