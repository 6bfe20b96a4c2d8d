"""The way back of a switch that did not reach its end: the job runs again where it ran."""

from __future__ import annotations

import shlex
from contextlib import suppress

from cpreplicate.core import uri
from cpreplicate.core.notify import Notify
from cpreplicate.errors import (
    CpreplicateError,
    FlinkRefused,
    MetadataError,
    NotSwitched,
    NotThere,
    Refused,
    SwitchUnclear,
)
from cpreplicate.flink.control import FlinkControl
from cpreplicate.operations.handover.switch.ending import (
    ENDED,
    cancel,
    wait_for,
    wait_for_end,
    when_gone,
)
from cpreplicate.operations.handover.switch.preview import origin_program
from cpreplicate.operations.handover.switch.programs import named_jar, uploaded
from cpreplicate.operations.handover.switch.request import Clusters, Program, SwitchRequest
from cpreplicate.operations.handover.switch.starting import (
    after_another,
    refuse_another_cluster,
    refuse_started,
    refuse_unless_started_here,
    run_of,
    submit,
    wait_until_it_runs,
    what_it_left,
)
from cpreplicate.operations.handover.unseal import UnsealRequest, unseal
from cpreplicate.protocol import seal
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.switch_record import NAME as SWITCH
from cpreplicate.protocol.switch_record import SwitchLog
from cpreplicate.storage import Side, Transient

_DEAD = (*ENDED, "FAILED", None)
_RUNS = "RUNNING"
_UNKNOWN = "not known"


def take_back(
    log: SwitchLog, clusters: Clusters, request: SwitchRequest, notify: Notify, is_refused: bool
) -> str:
    """Have the job run where it ran, from its last point, and return what was done.

    `is_refused`: the target answered that it does not start the job. Raises `SwitchUnclear` if it
    may run at the target, or its end at the origin is not proven. Then nothing is started.
    """
    log.check()
    record = log.record
    if record.step in ("starting", "promoted") and clusters.target is None:
        raise SwitchUnclear(
            f"{record.name}: its start was left to you, so it is not known whether it runs. If not,"
            f" {_by_hand(log)}"
        )
    if record.step == "starting":
        _end_at_target(log, clusters, request, is_refused)
        log.write(step="promoted")  # what follows may fail, and the target need not be asked again
    if record.step == "stopping":
        state = record.ended or _settled(log, clusters.origin, request)
        if state != _RUNS:
            _refuse_no_point(log, state)
        log.write(step="taken back")
        return f"the job {record.job_id} was not stopped, and is {state} at {record.origin}"
    if clusters.target is not None:
        refuse_started(record.new_job, clusters.target, request, after_another(log))
    sealed = _unseal(record.replica, request.sync.sides.target)
    return f"{_restart(log, clusters.origin, request, notify)}{sealed}"


def _settled(log: SwitchLog, origin: FlinkControl, request: SwitchRequest) -> str:
    """Return the state of a job that runs or has ended: one that fails may be restarted by Flink.

    A stop with a savepoint that fails makes the job fail, too.
    """

    job_id = log.record.job_id

    def settled() -> str | None:
        state = origin.state(job_id) or _UNKNOWN
        return state if state in (_RUNS, _UNKNOWN, "SUSPENDED", *_DEAD) else None

    what = f"the state of the job {job_id} at {origin.url}"
    return wait_for(settled, request, what, when_gone(log))


def _by_hand(log: SwitchLog) -> str:
    """Return how a job is taken back without asking the target."""
    record = log.record
    return (
        f"run `cpreplicate unseal {shlex.quote(record.replica or '')} --no-job-uses-it`, delete"
        f" .cpreplicate/{SWITCH} there, and start it at {record.origin} from {record.point}"
    )


def command_of(log: SwitchLog) -> str:
    """Return how a job is started again by hand."""
    return f"flink run -d -s {shlex.quote(log.record.point or '')} JAR"


def application_of(log: SwitchLog) -> str:
    """Return how a job of an application is started again by hand."""
    point = shlex.quote(log.record.point or "")
    return f"standalone-job.sh start -s {point} -j CLASS"


def _refuse_no_point(log: SwitchLog, state: str) -> None:
    record = log.record
    remedy = (
        "If it reached its end, there is nothing to start. If it ended with a savepoint, `sync`"
        f" that, and promote it by hand. Then delete .cpreplicate/{SWITCH} in {log.root}"
        if state == "FINISHED"
        else f"Look for its newest checkpoint in {record.directory}, and start it from there, or"
        " run the same `switch` again"
    )
    raise SwitchUnclear(
        f"{record.name}: the job {record.job_id} is {state} at {record.origin}, and"
        f" its last point is not known. Its replica is not sealed. {remedy}"
    )


def _end_at_target(
    log: SwitchLog, clusters: Clusters, request: SwitchRequest, is_refused: bool
) -> None:
    """Return once the job does not run at the target. Raises `SwitchUnclear` otherwise."""
    target, job_id = clusters.target, log.record.new_job
    assert target is not None
    try:
        state = target.state(job_id)
    except Transient as error:
        raise SwitchUnclear(
            f"{log.record.name}: it is not known whether the job {job_id} runs, because"
            f" {target.url} does not answer: {error}. Run the same command when it answers. If you"
            f" know that it does not run, {_by_hand(log)}"
        ) from error
    if state is None and not is_refused:
        raise SwitchUnclear(
            f"{log.record.name}: {target.url} does not know the job {job_id}, which proves nothing:"
            " it may be about to start. Run the same `switch` again, without --take-back: it asks"
            " for the same id, which no cluster starts twice"
        )
    if state not in _DEAD:
        point = uri.join(str(log.record.replica), str(log.record.checkpoint))
        refuse_unless_started_here(job_id, point, target, request, after_another(log))
        cancel(job_id, target, request)
        wait_for_end(job_id, target, request)


def _unseal(root: str | None, side: Side) -> str:
    """Remove the seal of a replica, or return why it stays: the job must run all the same."""
    try:
        if root is not None and seal.is_sealed(Replica(root, side)):
            unseal(UnsealRequest(root, None, side))
    except (CpreplicateError, OSError) as error:
        return f". Its replica stays sealed: {error}"
    return ""


def _restart(log: SwitchLog, origin: FlinkControl, request: SwitchRequest, notify: Notify) -> str:
    """Start the job again from its last point, and return what was done."""
    record, program = log.record, origin_program(request)
    start = f"Start it at {record.origin} from {record.point}, such as by `{command_of(log)}`"
    if record.step == "restarting":
        refuse_another_cluster(record.origin_cluster, origin, record)
    _refuse_gone_on(log, origin)
    jar_id = _jar_at_origin(log, origin, program)
    if jar_id is None:
        log.write(step="taken back")
        raise SwitchUnclear(
            f"{record.name} was stopped and does not run: {record.origin} takes no jars. {start}."
            f" An application is started by `{application_of(log)}`"
        )
    version = origin.cluster().version
    log.write(step="restarting", origin_cluster=origin.identity())
    notify(f"starting the job again at {record.origin} from {record.point}")
    run = run_of(record, record.back_job, str(record.point), program)
    try:
        submit(run, jar_id, version, origin, request)
        wait_until_it_runs(run.job_id, run.path, origin, request, after_another(log))
    except (NotSwitched, FlinkRefused) as error:
        _refuse_gone_on(log, origin)
        log.write(step="taken back")
        raise SwitchUnclear(
            f"the job could not be started again: {_text(error)}. {start}"
        ) from error
    log.write(step="taken back")
    return f"it runs again at {record.origin} as {record.back_job}, from {record.point}"


def _refuse_gone_on(log: SwitchLog, origin: FlinkControl) -> None:
    """Raise `SwitchUnclear` if the job was started again before, went on from there, and has ended.

    This switch ends: its point is not the last one any more. A cluster that does not answer is
    asked again by what starts the job.
    """
    record, state = log.record, None
    with suppress(Transient, MetadataError):
        state = origin.state(record.back_job)
    if state not in (*ENDED, "FAILED"):
        return
    if (left := what_it_left(record.back_job, str(state), origin)) is not None:
        log.write(step="taken back")
        raise SwitchUnclear(
            f"{record.name} was started again at {record.origin} as {record.back_job}, and is"
            f" {state}. Nothing more was started, and this switch has ended. {left}. If the job is"
            " to go on, start it from there by hand"
        )


def _jar_at_origin(log: SwitchLog, origin: FlinkControl, program: Program) -> str | None:
    """Return the id of what is run, None if the origin takes no jars. Raises `SwitchUnclear`.

    The record stays open then: a word that is corrected has the same command go on.
    """
    record = log.record
    try:
        if not origin.cluster().can_submit:
            return None
        return uploaded(named_jar(program, origin), origin)
    except (NotThere, Refused, Transient) as error:
        remedy = "when it answers" if isinstance(error, Transient) else "with another --origin-jar"
        raise SwitchUnclear(
            f"{record.name} was stopped and does not run: {_text(error)}. Run `switch` with"
            f" --take-back {remedy}. Or start the job at {record.origin} from {record.point}, such"
            f" as by `{command_of(log)}`, and delete .cpreplicate/{SWITCH} in the replica"
        ) from error


def _text(error: Exception) -> str:
    return str(error).rstrip(".")
