"""The move of a job: stop it, copy its last point, promote that, and start it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import cast

from cpreplicate.core import uri
from cpreplicate.core.positions.ranges import described as described_problems
from cpreplicate.errors import (
    MetadataError,
    NotAtKafka,
    NotSwitched,
    NotThere,
    Refused,
    SwitchUnclear,
    described,
)
from cpreplicate.operations.handover.promote import PromoteRequest, Promotion, promote
from cpreplicate.operations.handover.switch.ending import ENDED, GOING_ON, end_job
from cpreplicate.operations.handover.switch.programs import named_jar, uploaded
from cpreplicate.operations.handover.switch.request import JobSwitch, Round
from cpreplicate.operations.handover.switch.rounds import copy_last, patient
from cpreplicate.operations.handover.switch.standstill import expected_standstill, least_standstill
from cpreplicate.operations.handover.switch.starting import (
    after_another,
    refuse_another_cluster,
    run_of,
    submit,
    wait_for_first_checkpoint,
    wait_until_it_runs,
    what_it_left,
)
from cpreplicate.operations.handover.switch.under_way import Switching
from cpreplicate.operations.kafka.check import KafkaCheck
from cpreplicate.storage import Transient

_CATCH_UP = 30.0  # seconds in which a mirror that still runs has what the job read last


def moved(run: Switching, rounds: tuple[Round, ...]) -> JobSwitch:
    """Stop the job, copy its last point, promote that, and start it."""
    log, origin, phases = run.log, run.clusters.origin, dict[str, float]()
    repeated = expected = least = None
    is_known = log.record.step == "starting" and _is_at_target(run)
    if log.record.step == "starting" and not is_known and run.clusters.target is not None:
        refuse_another_cluster(log.record.target_cluster, run.clusters.target, log.record)
    jar = None if is_known else _jar(run)
    if log.record.step in ("copying", "stopping"):
        if run.is_halted.is_set() and log.record.step == "copying":
            raise Refused(f"{log.record.name} was not stopped: another job was not switched")
        expected, least = _expected(run, rounds)
        ended = end_job(log, origin, run.request)
        repeated = ended.repeated
        log.write(step="ended", point=ended.point)
        phases = run.phases(phases, "ended")
        run.notify(f"the job has ended at {log.record.origin}: {ended.point}")
    if log.record.step == "ended" and log.record.checkpoint is None:
        own = log.root if log.record.stop == "savepoint" else None
        last, root = copy_last(run.request, str(log.record.point), log.record.name, run.notify, own)
        rounds = (*rounds, last)
        phases = run.phases(phases, "copied")
        log.write(replica=root, checkpoint=last.checkpoint)
    promotion = None if is_known else _promoted(run)
    phases = run.phases(phases, "promoted")
    result = JobSwitch(
        log.record.name,
        "promoted",
        log.record.job_id,
        replica=log.record.replica,
        checkpoint=log.record.checkpoint,
        starting=None if promotion is None else promotion.starting,
        rounds=rounds,
        phases=phases,
        repeated=repeated,
        expected=expected,
        least=least,
        warnings=() if promotion is None else promotion.warnings,
    )
    return result if run.clusters.target is None else _started(run, result, promotion, jar)


def _expected(run: Switching, rounds: Sequence[Round]) -> tuple[float | None, float | None]:
    """Return how long the job is expected to stand still, else how long at least, and print it."""
    expected = expected_standstill(run, rounds)
    if expected is not None:
        run.notify(f"the job is expected to stand still for about {expected:.1f} s")
        return expected, None
    least = least_standstill(run, rounds)
    if least is not None:
        run.notify(
            f"the last copy is expected to take about {rounds[-1].seconds:.1f} s, and the job to"
            f" stand still for at least {least:.1f} s. How long it takes to start at the target is"
            " not known: no switch of it was measured"
        )
    return None, least


def _jar(run: Switching) -> str | None:
    """Return the id of the jar at the target, which is uploaded before the job is stopped.

    A wrong word of whoever goes on with a switch does not take it back.
    """
    target, record = run.clusters.target, run.log.record
    if target is None:
        return None
    try:
        return uploaded(named_jar(run.request.program, target), target)
    except (NotThere, Refused) as error:
        if not record.is_open:
            raise
        raise SwitchUnclear(
            f"the switch of {record.name} came to {record.step!r}, and does not go on:"
            f" {described(error).rstrip('.')}. Correct it. {GOING_ON}"
        ) from error


def _is_at_target(run: Switching) -> bool:
    target = run.clusters.target
    return target is not None and target.state(run.log.record.new_job) is not None


def _promoted(run: Switching) -> Promotion:
    record = run.log.record
    request = PromoteRequest(
        str(record.replica),
        record.checkpoint,
        side=run.side,
        execution=run.request.sync.execution,
        lock_wait=patient(run.request.sync).lock_wait,
        kafka=run.request.kafka,
        is_synced=True,
    )
    promotion = _promoted_once_mirrored(request, run)
    if promotion.starting is None:
        raise NotSwitched(
            f"{record.checkpoint} of {record.replica} cannot be restored: `cpreplicate verify"
            f" {record.replica}` shows why"
        )
    if record.step == "ended":
        run.log.write(step="promoted")
    return promotion


def _promoted_once_mirrored(request: PromoteRequest, run: Switching) -> Promotion:
    """Promote a replica. A mirror that is seconds behind the job is waited for.

    Raises `NotSwitched` if it does not catch up.
    """
    until = time.monotonic() + min(_CATCH_UP, run.request.patience)
    is_waiting = False
    while True:
        try:
            return promote(request, run.notify)
        except NotAtKafka as error:
            found = cast(KafkaCheck, error.report)  # which is what raises it
            reason = f"{found.servers}: {described_problems(found.checked[0].problems)}"
        if time.monotonic() > until:
            raise NotSwitched(f"{request.checkpoint} does not fit {reason}")
        if not is_waiting:
            run.notify(f"waiting until a mirror has caught up at {reason}")
        is_waiting = True
        time.sleep(run.request.pause)


def _started(
    run: Switching, result: JobSwitch, promotion: Promotion | None, jar: str | None
) -> JobSwitch:
    """Start the job at the target, and return when it has completed a checkpoint there."""
    log, target = run.log, run.clusters.target
    assert target is not None
    record = log.record
    point = uri.join(str(record.replica), str(record.checkpoint))
    if promotion is not None:
        assert promotion.starting is not None, "else it raises"
        _refuse_taken_back(run)
        version = target.cluster().version  # else it is known that nothing was started
        log.write(step="starting", target_cluster=target.identity())
        asked = run_of(record, record.new_job, point, run.request.program)
        mode = promotion.starting.restore.claim_mode
        submit(asked._replace(claim_mode=mode), str(jar), version, target, run.request)
    phases = run.phases(dict(result.phases), "accepted")
    wait_until_it_runs(record.new_job, point, target, run.request, after_another(log))
    phases = run.phases(phases, "running")
    run.notify(f"the job runs at {record.target} as {record.new_job}")
    warnings = result.warnings
    try:
        wait_for_first_checkpoint(record.new_job, target, run.request)
        phases = run.phases(phases, "first_checkpoint")
    except SwitchUnclear as error:
        warnings = (*warnings, f"it runs, but {error}")
    log.write(step="started", **_measured(phases))
    return replace(
        result, outcome="switched", new_job=record.new_job, phases=phases, warnings=warnings
    )


def _refuse_taken_back(run: Switching) -> None:
    """Raise `SwitchUnclear` if another switch of the job has started it again where it ran.

    If it has ended there since, it may have gone on before. A cluster that does not answer proves
    nothing, and is not waited for.
    """
    record, origin, state = run.log.record, run.clusters.origin, None
    with suppress(Transient, MetadataError):
        state = origin.state(record.back_job)
    if state is None:
        return
    ends = after_another(run.log)
    if state in (*ENDED, "FAILED"):
        left = what_it_left(record.back_job, state, origin)
        left = left or f"It is not known to have completed a checkpoint since {record.point}"
        ends = f"{left}. If the job is to go on, start it from there by hand. {ends}"
    elif record.step != "starting":  # else --take-back has to know whether it runs at the target
        ends = "With --take-back, this switch ends, and the job runs there as it does"
    raise SwitchUnclear(
        f"{record.name} was started again at {record.origin} as {record.back_job}, and is {state}:"
        " another `switch` of it, into another TARGET_ROOT, failed and has started it there."
        f" Nothing more was started. {ends}"
    )


def _measured(phases: dict[str, float]) -> dict[str, float]:
    """Return the fields by which the next switch of the job expects its standstill."""
    if not {"ended", "copied", "running"} <= phases.keys():
        return {}  # a run that went on with it does not know how long it stood still for nothing
    return {"standstill": phases["running"], "copying": phases["copied"] - phases["ended"]}
