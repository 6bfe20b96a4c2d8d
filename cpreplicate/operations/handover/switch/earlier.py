"""Switches that were begun before: what their records hold, and who may go on with them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from cpreplicate.core import uri
from cpreplicate.core.placement import CHECKPOINT_NAME, OWN
from cpreplicate.errors import LeaseHeld, MetadataError, Refused, SwitchUnclear
from cpreplicate.flink import RunningJob
from cpreplicate.flink.control import FlinkControl, is_same_place
from cpreplicate.operations.handover.switch.ending import ENDED, promotion_by_hand, restored_from
from cpreplicate.operations.handover.switch.request import Clusters, JobSwitch, SwitchRequest
from cpreplicate.protocol.switch_record import NAME, SwitchRecord, id_of_next, read_switch
from cpreplicate.storage import Side, Transient

_READ_AT_ONCE = 16


def records(target_root: str, side: Side) -> list[tuple[str, SwitchRecord]]:
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


def last_of(job: str, known: Sequence[SwitchRecord]) -> SwitchRecord | None:
    """Return the last switch of a job that one run brought to its end, None without one."""
    measured = [
        each for each in known if job in (each.name, each.job_id) and each.standstill is not None
    ]
    return max(measured, key=lambda each: each.stopped or 0.0, default=None)


def refuse_ended(record: SwitchRecord) -> None:
    """Raise `LeaseHeld` if another run ended a switch before this one had its lease."""
    if not record.is_open:
        raise LeaseHeld(
            f"another run ended the switch of {record.name} meanwhile: it came to {record.step!r}."
            " Nothing was done. --dry-run shows how it is now"
        )


def refuse_other(
    root: str, record: SwitchRecord, request: SwitchRequest, clusters: Clusters
) -> None:
    """Raise `Refused` or `SwitchUnclear` if an open switch is another one than is asked for."""
    _refuse_other_clusters(root, record, request, clusters)
    _refuse_another_life(root, record, request, clusters)


def runs_there(record: SwitchRecord, clusters: Clusters) -> bool:
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


def switched_before(record: SwitchRecord) -> JobSwitch:
    """Return the result of a switch that an earlier run ended."""
    return JobSwitch(
        record.name,
        "switched before",
        record.job_id,
        record.new_job,
        record.replica,
        record.checkpoint,
    )


def is_left(record: SwitchRecord, origin: FlinkControl) -> bool:
    """Return whether a job whose start was left to the operator runs at the origin since."""
    return record.is_left_to_operator and bool(_alive(record.name, origin))


def _refuse_another_life(
    root: str, record: SwitchRecord, request: SwitchRequest, clusters: Clusters
) -> None:
    """Raise `SwitchUnclear` if the job of an open switch was started by somebody else since.

    A JobManager that does not answer proves nothing here; what needs its answer asks again.
    """
    origin, target = clusters
    _refuse_another_cluster(record, origin)
    if record.step == "stopping":
        _refuse_begun_anew(root, record, request, origin)
    ended = () if record.step == "stopping" or request.take_back else (record.job_id,)
    _refuse(
        root, record, [job for job in _alive(record.name, origin) if job.job_id in ended], origin
    )
    if request.job != record.job_id:
        own = (record.job_id, record.back_job)
        _refuse_others(root, record, own, origin)
    if target is not None:
        _refuse_others(root, record, (record.new_job,), target)


def _refuse_another_cluster(record: SwitchRecord, origin: FlinkControl) -> None:
    """Raise `SwitchUnclear` if a job has the id of that of a switch, and another name.

    Each application with high availability has the same id. A job that was not asked to stop there
    is not stopped by what goes on with the switch.
    """
    if record.step == "stopping" and record.ended is None:
        _refuse_other_jobmanager(record, origin)
    for job in _jobs(origin):
        if job.job_id == record.job_id and job.name != record.name:
            raise SwitchUnclear(
                f"the job {record.job_id} is {job.name} at {origin.url}, and a switch of it as"
                f" {record.name} is open: the URL leads to another cluster now. Nothing was done."
                f" Have {origin.url} lead to the former one, and run again"
            )


def _refuse_other_jobmanager(record: SwitchRecord, origin: FlinkControl) -> None:
    known = None
    with suppress(Transient, MetadataError):  # one that does not answer stops nothing
        known = origin.identity()
    if None not in (known, record.origin_cluster) and known != record.origin_cluster:
        raise SwitchUnclear(
            f"{origin.url} is not the JobManager any more that was asked to stop {record.name}: its"
            " URL leads to another cluster now, or it was restarted. Nothing was done. Have the URL"
            " lead to the former one, and run again. If that one was restarted, make sure that"
            f" the job runs nowhere, and start it from its newest checkpoint in {record.directory}"
        )


def _refuse_begun_anew(
    root: str, record: SwitchRecord, request: SwitchRequest, origin: FlinkControl
) -> None:
    """Raise `SwitchUnclear` if a job that was asked to stop began again, not from its last point.

    An application with high availability that is started again after its end has the same id, and
    its URL leads to what counts as the same cluster. One whose JobManager was lost before the end
    is restored from its own newest checkpoint, and goes on. One that was seen to end does not.
    """
    for job in _alive(record.name, origin):
        if job.job_id != record.job_id or _is_same_life(job, record):
            continue
        restored = restored_from(job.job_id, origin, request, origin.cluster().refresh)
        if record.ended is None and restored is not None and _goes_on(restored, record):
            continue
        last = uri.join(record.directory, f"chk-{record.least}") if record.least else "CHECKPOINT"
        place = "SAVEPOINT" if record.stop == "savepoint" else shlex.quote(last)
        raise SwitchUnclear(
            f"{record.name} was asked to stop, and runs at {origin.url} as {job.job_id} again, from"
            f" {restored or 'empty state'}: after its end, something started it anew. Nothing was"
            " done. Disable what starts it, such as systemd, and cancel it. To have its last point"
            f" go on, {promotion_by_hand(root, place)}"
        )


def _goes_on(restored: str, record: SwitchRecord) -> bool:
    """Return whether a job was restored from what it completed itself before it was to stop."""
    name = uri.name(restored)
    is_own = is_same_place(uri.parent(restored), record.directory)
    return (
        is_own
        and CHECKPOINT_NAME.fullmatch(name) is not None
        and int(name.removeprefix("chk-")) >= record.least
    )


def _is_same_life(job: RunningJob, record: SwitchRecord) -> bool:
    """Return whether a job was not started again since its switch began: its ids follow from it."""
    return id_of_next(job.job_id, job.name, job.began, "target") == record.new_job


def _refuse_others(
    root: str, record: SwitchRecord, own: tuple[str, ...], cluster: FlinkControl
) -> None:
    others = [job for job in _alive(record.name, cluster) if job.job_id not in own]
    _refuse(root, record, others, cluster)


def _refuse(
    root: str, record: SwitchRecord, found: list[RunningJob], cluster: FlinkControl
) -> None:
    if found:
        raise SwitchUnclear(
            f"a job {record.name} runs at {cluster.url} as {found[0].job_id}, and {root} has an"
            f" open switch of {record.job_id}, which came to {record.step!r}: it could run twice."
            " Nothing was done. If it is this job, started again by somebody, delete"
            f" {uri.join(root, f'{OWN}/{NAME}')}, and run again. If it is another one of this name"
            f" at {record.origin}, give --job {record.job_id}"
        )


def _alive(name: str, cluster: FlinkControl) -> list[RunningJob]:
    return [job for job in _jobs(cluster) if job.name == name and not job.has_ended]


def _jobs(cluster: FlinkControl) -> tuple[RunningJob, ...]:
    with suppress(Transient, MetadataError):
        return cluster.jobs().jobs
    return ()
