"""`switch`: the planned move of a running job, step by step.

Preview, copies while it runs, its last point, the proof of its end, the last copy, the promotion,
and its start. Each step is recorded before it is taken, so that the same command continues one that
died.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Event

from cpreplicate.core.notify import Notify
from cpreplicate.errors import (
    CpreplicateError,
    NotSwitched,
    NotThere,
    Refused,
    SwitchUnclear,
    described,
)
from cpreplicate.flink import RunningJob
from cpreplicate.operations.handover.switch.earlier import (
    is_left,
    last_of,
    records,
    refuse_ended,
    refuse_other,
    runs_there,
    switched_before,
)
from cpreplicate.operations.handover.switch.ending import GOING_ON, end_job, is_ending
from cpreplicate.operations.handover.switch.moving import moved
from cpreplicate.operations.handover.switch.preview import preview, refuse, running_job
from cpreplicate.operations.handover.switch.request import (
    Clusters,
    JobSwitch,
    Preview,
    Round,
    SwitchRequest,
)
from cpreplicate.operations.handover.switch.rounds import copied_ahead, copy_round, refuse_damaged
from cpreplicate.operations.handover.switch.standstill import least_of_calls
from cpreplicate.operations.handover.switch.taking_back import take_back
from cpreplicate.operations.handover.switch.under_way import Switching
from cpreplicate.protocol.switch_record import SwitchRecord, id_of_next, new_id, switching
from cpreplicate.storage import Transient


def switch(
    request: SwitchRequest, clusters: Clusters, notify: Notify, is_halted: Event | None = None
) -> JobSwitch:
    """Move a job to another cluster, and return what became of it.

    One that died is continued, or taken back if that is asked for. Once `is_halted` is set, a job
    that runs is not stopped any more. Raises what is in the way before anything is stopped,
    `NotSwitched` if it runs again where it ran, and `SwitchUnclear` if a person has to act.
    """
    is_halted = is_halted or Event()
    target_root, side = request.sync.target_root, request.sync.sides.target
    found = records(target_root, side)
    former = last_of(request.job, [record for _, record in found])
    for root, record in found:
        if record.is_open and request.job in (record.name, record.job_id):
            with switching(root, side, record, notify) as log:
                if is_left(log.record, clusters.origin):
                    if not request.dry_run:
                        log.write(step="started")
                    continue
                refuse_ended(log.record)
                refuse_other(root, log.record, request, clusters)
                return _carried_out(Switching(log, clusters, request, notify, is_halted), ())
    if request.take_back:
        raise NotThere(f"no switch of {request.job!r} in {target_root} is open. Nothing was done")
    try:
        job = running_job(request.job, clusters.origin)
    except NotThere:
        for _, record in found:
            named = request.job in (record.name, record.job_id)
            if named and record.step == "started" and runs_there(record, clusters):
                return switched_before(record)
        raise
    return _begun(job, request, clusters, notify, is_halted, former)


def _begun(
    job: RunningJob,
    request: SwitchRequest,
    clusters: Clusters,
    notify: Notify,
    is_halted: Event,
    former: SwitchRecord | None,
) -> JobSwitch:
    if is_halted.is_set():
        raise Refused(f"{job.name} was not stopped: another job was not switched")
    seen = preview(job, request, clusters)
    if request.dry_run:
        return _shown(seen, former)
    refuse(seen)
    for warning in seen.warnings:
        notify(warning)
    first, root = copy_round(request, seen.directory, seen.name, notify)
    target = "" if clusters.target is None else clusters.target.url
    record = SwitchRecord(
        seen.name,
        seen.job_id,
        seen.directory,
        clusters.origin.url,
        target,
        request.stop,
        new_id(),
        id_of_next(job.job_id, job.name, job.began, "target"),
        id_of_next(job.job_id, job.name, job.began, "origin"),
        origin_cluster=clusters.origin.identity(),
        switch_id=new_id(),
    )
    with switching(root, request.sync.sides.target, record, notify) as log:
        run = Switching(log, clusters, request, notify, is_halted, former)
        if log.record.is_open:
            refuse_other(root, log.record, request, clusters)
            return _carried_out(run, (first,))
        rounds = copied_ahead(run, first)
        refuse_damaged(run, root, rounds[-1].checkpoint)
        return _carried_out(run, rounds)


def _shown(seen: Preview, former: SwitchRecord | None) -> JobSwitch:
    """Return the result of a dry run."""
    code = Refused.exit_code if seen.refusals else 0
    return JobSwitch(
        seen.name,
        "failed" if seen.refusals else "can be switched",
        seen.job_id,
        replica=seen.replica,
        checkpoint=seen.newest,
        preview=seen,
        starting=seen.starting,
        expected=None if former is None else former.standstill,
        least=least_of_calls(seen.call) if former is None else None,
        warnings=seen.warnings,
        exit_code=code,
        error=seen.refusals[0] if seen.refusals else None,
    )


def _carried_out(run: Switching, rounds: tuple[Round, ...]) -> JobSwitch:
    """Go on from where the record is, and take the switch back if that fails."""
    log = run.log
    if run.request.dry_run:
        raise Refused(
            f"a switch of {log.record.name} came to {log.record.step!r}. Nothing was done. Run it"
            " without --dry-run to go on, or with --take-back"
        )
    if run.request.take_back or log.record.step == "restarting":
        return _taken_back_if_reached(run)
    try:
        return moved(run, rounds)
    except SwitchUnclear:
        raise
    except (CpreplicateError, OSError) as error:
        if not log.record.is_open:
            raise
        run.notify(f"the switch failed, and is taken back: {described(error)}")
        text = described(error).rstrip(".")
        done = _taken_back_after(error, run)
        raise NotSwitched(f"{log.record.name} was not switched: {text}. Now {done}") from error


def _taken_back_after(error: Exception, run: Switching) -> str:
    """Have the job run where it ran, because of an error. Raises `SwitchUnclear` if that fails."""
    run.log.check()
    is_refused = isinstance(error, NotSwitched)
    try:
        return take_back(run.log, run.clusters, run.request, run.notify, is_refused)
    except SwitchUnclear:
        raise
    except (CpreplicateError, OSError) as second:
        raise SwitchUnclear(
            f"{run.log.record.name} was not switched: {described(error).rstrip('.')}. It could not"
            f" be taken back: {described(second).rstrip('.')}. {GOING_ON}"
        ) from second


def _taken_back_if_reached(run: Switching) -> JobSwitch:
    try:
        return _taken_back(run)
    except Transient as error:
        record = run.log.record
        raise SwitchUnclear(
            f"the switch of {record.name} came to {record.step!r}. It could not be taken back:"
            f" {described(error).rstrip('.')}. {GOING_ON}"
        ) from error


def _taken_back(run: Switching) -> JobSwitch:
    """Have the job run where it ran, as asked for."""
    log, origin = run.log, run.clusters.origin
    if log.record.step == "stopping" and is_ending(log.record, origin):
        with suppress(NotSwitched):  # its savepoint failed: it runs on
            log.write(step="ended", point=end_job(log, origin, run.request).point)
    done = take_back(log, run.clusters, run.request, run.notify, is_refused=False)
    run.notify(done)
    return JobSwitch(log.record.name, "taken back", log.record.job_id, warnings=(done,))
