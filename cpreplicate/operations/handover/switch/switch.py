"""`switch`: the planned move of a running job, step by step.

Preview, copies while it runs, its last point, the proof of its end, the last copy, the promotion,
and its start. Each step is recorded before it is taken, so that the same command continues one that
died.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Event

from cpreplicate.core import sizes, uri
from cpreplicate.core.notify import Notify
from cpreplicate.core.plan import total
from cpreplicate.errors import (
    CpreplicateError,
    LeaseHeld,
    NotSwitched,
    NotThere,
    Refused,
    SwitchUnclear,
    described,
)
from cpreplicate.flink import RunningJob
from cpreplicate.operations.handover.promote import PromoteRequest, Promotion, promote
from cpreplicate.operations.handover.switch.ending import (
    ENDED,
    GOING_ON,
    end_job,
    is_ending,
    take_checkpoint,
)
from cpreplicate.operations.handover.switch.preview import (
    is_left,
    of_newest,
    preview,
    refuse,
    refuse_another_life,
    running_job,
    sync_of,
)
from cpreplicate.operations.handover.switch.programs import named_jar, uploaded
from cpreplicate.operations.handover.switch.request import (
    Clusters,
    JobSwitch,
    Preview,
    Round,
    SwitchRequest,
)
from cpreplicate.operations.handover.switch.starting import (
    run_of,
    submit,
    wait_for_first_checkpoint,
    wait_until_it_runs,
)
from cpreplicate.operations.handover.switch.taking_back import take_back
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.protocol.switch_record import (
    SwitchLog,
    SwitchRecord,
    new_id,
    read_switch,
    switching,
)
from cpreplicate.storage import Side

_TRIGGERED_ROUNDS = 3
_READ_AT_ONCE = 16
_LEAST_WAIT = 60.0  # seconds for the lease of a replica


@dataclass(frozen=True)
class _Switching:
    """A switch that is under way: its log, and who is asked. `may_stop` raises if it must not."""

    log: SwitchLog
    clusters: Clusters
    request: SwitchRequest
    notify: Notify
    is_halted: Event

    @property
    def side(self) -> Side:
        return self.request.sync.sides.target

    def sync(self, place: str) -> Round:
        return _round(self.request, place, self.log.record.name, self.notify)[0]

    def phases(self, phases: dict[str, float], name: str) -> dict[str, float]:
        """Return the phases with one more, that ends now."""
        stopped = self.log.record.stopped
        return phases if stopped is None else {**phases, name: time.time() - stopped}


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
    found = _records(target_root, side)
    for root, record in found:
        if record.is_open and request.job in (record.name, record.job_id):
            with switching(root, side, record, notify) as log:
                if is_left(log.record, clusters.origin):
                    if not request.dry_run:
                        log.write(step="started")
                    continue
                _refuse_ended(log.record)
                _refuse_other(root, log.record, request, clusters)
                run = _Switching(log, clusters, request, notify, is_halted)
                return _carried_out(run, ())
    if request.take_back:
        raise NotThere(f"no switch of {request.job!r} in {target_root} is open. Nothing was done")
    try:
        job = running_job(request.job, clusters.origin)
    except NotThere:
        for _, record in found:
            named = request.job in (record.name, record.job_id)
            if named and record.step == "started" and _runs_there(record, clusters):
                return _switched_before(record)
        raise
    return _begun(job, request, clusters, notify, is_halted)


def _begun(
    job: RunningJob, request: SwitchRequest, clusters: Clusters, notify: Notify, is_halted: Event
) -> JobSwitch:
    seen = preview(job, request, clusters)
    if request.dry_run:
        return _shown(seen)
    refuse(seen)
    for warning in seen.warnings:
        notify(warning)
    first, root = _round(request, seen.directory, seen.name, notify)
    target = "" if clusters.target is None else clusters.target.url
    record = SwitchRecord(
        seen.name,
        seen.job_id,
        seen.directory,
        clusters.origin.url,
        target,
        request.stop,
        *(new_id(), new_id(), new_id()),
    )
    with switching(root, request.sync.sides.target, record, notify) as log:
        run = _Switching(log, clusters, request, notify, is_halted)
        if log.record.is_open:
            _refuse_other(root, log.record, request, clusters)
            return _carried_out(run, (first,))
        return _carried_out(run, _copied_ahead(run, first))


def _shown(seen: Preview) -> JobSwitch:
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
        warnings=seen.warnings,
        exit_code=code,
        error=seen.refusals[0] if seen.refusals else None,
    )


def _carried_out(run: _Switching, rounds: tuple[Round, ...]) -> JobSwitch:
    """Go on from where the record is, and take the switch back if that fails."""
    log = run.log
    if run.request.dry_run:
        raise Refused(
            f"a switch of {log.record.name} came to {log.record.step!r}. Nothing was done. Run it"
            " without --dry-run to go on, or with --take-back"
        )
    if run.request.take_back or log.record.step == "restarting":
        return _taken_back(run)
    try:
        return _moved(run, rounds)
    except SwitchUnclear:
        raise
    except (CpreplicateError, OSError) as error:
        if not log.record.is_open:
            raise
        run.notify(f"the switch failed, and is taken back: {described(error)}")
        text = described(error).rstrip(".")
        done = _taken_back_after(error, run)
        raise NotSwitched(f"{log.record.name} was not switched: {text}. Now {done}") from error


def _taken_back_after(error: Exception, run: _Switching) -> str:
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


def _moved(run: _Switching, rounds: tuple[Round, ...]) -> JobSwitch:
    """Stop the job, copy its last point, promote that, and start it."""
    log, origin, phases, repeated = run.log, run.clusters.origin, dict[str, float](), None
    is_known = log.record.step == "starting" and _is_at_target(run)
    jar = None if is_known else _jar(run)
    if log.record.step in ("copying", "stopping"):
        if run.is_halted.is_set() and log.record.step == "copying":
            raise Refused(f"{log.record.name} was not stopped: another job was not switched")
        ended = end_job(log, origin, run.request)
        repeated = ended.repeated
        log.write(step="ended", point=ended.point)
        phases = run.phases(phases, "ended")
        run.notify(f"the job has ended at {log.record.origin}: {ended.point}")
    if log.record.step == "ended":
        last, root = _round(run.request, str(log.record.point), log.record.name, run.notify)
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
        warnings=() if promotion is None else promotion.warnings,
    )
    return result if run.clusters.target is None else _started(run, result, promotion, jar)


def _jar(run: _Switching) -> str | None:
    """Return the id of the jar at the target, which is uploaded before the job is stopped.

    A wrong word of whoever goes on with a switch does not take it back.
    """
    target, record = run.clusters.target, run.log.record
    if target is None:
        return None
    try:
        named = named_jar(run.request.program, target)
    except (NotThere, Refused) as error:
        if not record.is_open:
            raise
        raise SwitchUnclear(
            f"the switch of {record.name} came to {record.step!r}, and does not go on:"
            f" {described(error).rstrip('.')}. Correct it. {GOING_ON}"
        ) from error
    return uploaded(named, target)


def _is_at_target(run: _Switching) -> bool:
    target = run.clusters.target
    return target is not None and target.state(run.log.record.new_job) is not None


def _promoted(run: _Switching) -> Promotion:
    record = run.log.record
    request = PromoteRequest(
        str(record.replica),
        record.checkpoint,
        side=run.side,
        execution=run.request.sync.execution,
        lock_wait=_patient(run.request.sync).lock_wait,
    )
    promotion = promote(request, run.notify)
    if promotion.starting is None:
        raise NotSwitched(
            f"{record.checkpoint} of {record.replica} cannot be restored: `cpreplicate verify"
            f" {record.replica}` shows why"
        )
    if record.step == "ended":
        run.log.write(step="promoted")
    return promotion


def _started(
    run: _Switching, result: JobSwitch, promotion: Promotion | None, jar: str | None
) -> JobSwitch:
    """Start the job at the target, and return when it has completed a checkpoint there."""
    log, target = run.log, run.clusters.target
    assert target is not None
    record = log.record
    point = uri.join(str(record.replica), str(record.checkpoint))
    if promotion is not None:
        assert promotion.starting is not None, "else it raises"
        version = target.cluster().version  # else it is known that nothing was started
        log.write(step="starting")
        asked = run_of(record, record.new_job, point, run.request.program)
        mode = promotion.starting.restore.claim_mode
        submit(asked._replace(claim_mode=mode), str(jar), version, target, run.request)
    phases = run.phases(dict(result.phases), "accepted")
    wait_until_it_runs(record.new_job, point, target, run.request)
    phases = run.phases(phases, "running")
    run.notify(f"the job runs at {record.target} as {record.new_job}")
    warnings = result.warnings
    try:
        wait_for_first_checkpoint(record.new_job, target, run.request)
        phases = run.phases(phases, "first_checkpoint")
    except SwitchUnclear as error:
        warnings = (*warnings, f"it runs, but {error}")
    log.write(step="started")
    return replace(
        result, outcome="switched", new_job=record.new_job, phases=phases, warnings=warnings
    )


def _taken_back(run: _Switching) -> JobSwitch:
    """Have the job run where it ran, as asked for."""
    log, origin = run.log, run.clusters.origin
    if log.record.step == "stopping" and is_ending(log.record, origin):
        with suppress(NotSwitched):  # its savepoint failed: it runs on
            log.write(step="ended", point=end_job(log, origin, run.request).point)
    done = take_back(log, run.clusters, run.request, run.notify, is_refused=False)
    run.notify(done)
    return JobSwitch(log.record.name, "taken back", log.record.job_id, warnings=(done,))


def _copied_ahead(run: _Switching, first: Round) -> tuple[Round, ...]:
    """Copy while the job runs until little is left, at last from a checkpoint that is taken now.

    A compaction can make the next checkpoint large, whatever the last one was.
    """
    request, record, rounds = run.request, run.log.record, [first]
    while rounds[-1].bytes > request.small and len(rounds) < request.most_rounds:
        rounds.append(run.sync(record.directory))
    for _ in range(_TRIGGERED_ROUNDS):
        if not _is_triggered(run):
            break
        rounds.append(run.sync(record.directory))
        if rounds[-1].bytes <= request.small:
            break
    if rounds[-1].bytes > request.small:
        run.notify(
            f"the last round still copied {sizes.size(rounds[-1].bytes)}: the last point may need"
            " as much, while the job stands still"
        )
    return tuple(rounds)


def _is_triggered(run: _Switching) -> bool:
    """Have a job that is not to be stopped yet complete a checkpoint."""
    try:
        job_id, origin = run.log.record.job_id, run.clusters.origin
        return take_checkpoint(job_id, new_id(), origin, run.request) is not None
    except SwitchUnclear as error:
        name = run.log.record.name
        raise NotSwitched(f"{name} was not stopped, and runs on: {error}") from error


def _round(request: SwitchRequest, place: str, name: str, notify: Notify) -> tuple[Round, str]:
    """Copy a checkpoint, and return what was copied, and the replica."""
    started = time.monotonic()
    asked = sync_of(_patient(request.sync), place, name)
    plan = of_newest(request, lambda: sync(asked, notify), notify).plan
    copied, seconds = total(plan.copies), time.monotonic() - started
    notify(f"copied {sizes.size(copied)} for {plan.checkpoint} in {seconds:.1f} s")
    return Round(plan.checkpoint, len(plan.copies), copied, seconds), plan.replica


def _patient(request: SyncRequest) -> SyncRequest:
    """Return a request that waits for a service that replicates the job, too: its lease ends."""
    return replace(request, lock_wait=max(request.lock_wait, _LEAST_WAIT))


def _records(target_root: str, side: Side) -> list[tuple[str, SwitchRecord]]:
    """Return the records of switches below a target root; a damaged one concerns its own job."""

    def read(root: str) -> SwitchRecord | None:
        try:
            return read_switch(side, root)
        except Refused:
            return None

    children = side.storage(target_root).list(target_root)
    roots = [uri.join(target_root, each.name) for each in children if each.is_directory]
    with ThreadPoolExecutor(_READ_AT_ONCE, "switch") as pool:
        found = zip(roots, pool.map(read, roots), strict=True)
        return [(root, record) for root, record in found if record is not None]


def _refuse_ended(record: SwitchRecord) -> None:
    """Raise `LeaseHeld` if another run ended a switch before this one had its lease."""
    if not record.is_open:
        raise LeaseHeld(
            f"another run ended the switch of {record.name} meanwhile: it came to {record.step!r}."
            " Nothing was done. --dry-run shows how it is now"
        )


def _refuse_other(
    root: str, record: SwitchRecord, request: SwitchRequest, clusters: Clusters
) -> None:
    _refuse_other_clusters(root, record, request, clusters)
    refuse_another_life(root, record, request, clusters)


def _runs_there(record: SwitchRecord, clusters: Clusters) -> bool:
    """Return whether a job was switched between these clusters, and did not end since."""
    target = clusters.target
    if target is None or (record.origin, record.target) != (clusters.origin.url, target.url):
        return False
    return target.state(record.new_job) not in (*ENDED, "FAILED", None)


def _refuse_other_clusters(
    root: str, record: SwitchRecord, request: SwitchRequest, clusters: Clusters
) -> None:
    """Raise `Refused` if an open switch is between other clusters, or ends in another way."""
    target = "" if clusters.target is None else clusters.target.url
    if (record.origin, record.target, record.stop) != (clusters.origin.url, target, request.stop):
        start_at = f" --start-at {record.target}" if record.target else ""
        raise Refused(
            f"{root} has an open switch of {record.name}, which came to {record.step!r}. Nothing"
            f" was done. Go on with it as it was begun: --flink {record.origin}{start_at} --stop"
            f" {record.stop}"
        )


def _switched_before(record: SwitchRecord) -> JobSwitch:
    return JobSwitch(
        record.name,
        "switched before",
        record.job_id,
        record.new_job,
        record.replica,
        record.checkpoint,
    )
