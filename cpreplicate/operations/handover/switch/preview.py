"""What is known of a switch before anything is stopped, and what is in its way."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from cpreplicate.core import uri
from cpreplicate.core.notify import Notify, silent
from cpreplicate.core.plan import total
from cpreplicate.core.sizes import counted
from cpreplicate.errors import FlinkRefused, NoSpace, NotThere, Refused, SourceMovedOn
from cpreplicate.flink import RunningJob
from cpreplicate.flink.control import Cluster, FlinkControl, Slots
from cpreplicate.operations.change.probe import try_sync
from cpreplicate.operations.change.space import space_left
from cpreplicate.operations.handover.switch.at_kafka import checked_at_kafka
from cpreplicate.operations.handover.switch.programs import named_jar
from cpreplicate.operations.handover.switch.request import (
    Clusters,
    Preview,
    Program,
    Round,
    SwitchRequest,
)
from cpreplicate.operations.handover.switch.standstill import seconds_of_call
from cpreplicate.operations.kafka import part_files
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest, is_outside_roots
from cpreplicate.protocol.replica import Replica

_SAVEPOINTS = ("state.savepoints.dir", "execution.checkpointing.savepoint-dir")
_KUBERNETES, _NAMESPACE = "kubernetes.cluster-id", "kubernetes.namespace"
_SUSPENDED = '{"spec":{"job":{"state":"suspended"}}}'
T = TypeVar("T")


def running_job(name: str, origin: FlinkControl) -> RunningJob:
    """Return the job of a name, or an id, that has not ended.

    Raises `NotThere` if there is none, and `Refused` if there are several.
    """
    alive = [job for job in origin.jobs().jobs if not job.has_ended]
    found = [job for job in alive if name in (job.name, job.job_id)]
    if not found:
        names = ", ".join(sorted({job.name for job in alive})[:5]) or "none"
        raise NotThere(
            f"no job {name!r} runs at {origin.url}: there run {names}. Nothing was done. If another"
            " `switch` stopped it, give the same --flink, --start-at and TARGET_ROOT as it had"
        )
    if len(found) > 1:
        ids = ", ".join(job.job_id for job in found)
        raise Refused(
            f"{len(found)} jobs {name!r} run at {origin.url}: {ids}. Nothing was done. Give the id"
            " of one of them to --job"
        )
    return found[0]


def source_of_job(job: RunningJob, origin: FlinkControl) -> str:
    """Return the directory of a job, as its JobManager names it. Raises `Refused` without one."""
    newest = origin.newest_checkpoint(job.job_id)
    if newest is None:
        raise Refused(
            f"the job {job.name}, {job.job_id}, has not completed a checkpoint yet. Nothing was"
            " done. Wait for its first one, or enable checkpoints"
        )
    if uri.name(newest.path) != f"chk-{newest.checkpoint_id}":
        raise Refused(
            f"{newest.path} is reported as checkpoint {newest.checkpoint_id} of the job"
            f" {job.job_id}, and is not named so. Nothing was done. Check the URL of the JobManager"
        )
    return uri.parent(newest.path)


def sync_of(template: SyncRequest, place: str, name: str) -> SyncRequest:
    """Return the request of a round: `place` is as the JobManager names it.

    Raises `Refused` if that is outside of the roots that may be read.
    """
    path = uri.remap(place, template.remaps)
    if is_outside_roots(path, template):
        raise Refused(
            f"{path} is outside the source's roots. Nothing was read from there. If the job"
            " writes there, name the directory with --source-root"
        )
    return replace(template, source=path, name=name)


def of_newest(request: SwitchRequest, ask: Callable[[], T], notify: Notify = silent) -> T:
    """Return what is asked of the newest checkpoint. One that is subsumed meanwhile is left."""
    for _ in range(request.most_rounds - 1):
        try:
            return ask()
        except SourceMovedOn as error:
            notify(f"{error}. The newest one is taken")
    return ask()


def preview(job: RunningJob, request: SwitchRequest, clusters: Clusters) -> Preview:
    """Return what a switch would do, and what is in its way. Change nothing."""
    directory = source_of_job(job, clusters.origin)
    with_positions = request.kafka is not None
    asked = sync_of(request.sync, directory, job.name)
    report = of_newest(request, lambda: diff(asked, with_positions=with_positions))
    origin, plan = clusters.origin.cluster(), report.plan
    at_kafka = checked_at_kafka(report, request.kafka)
    replica = Replica(plan.replica, request.sync.sides.target)
    seen = Preview(
        name=job.name,
        job_id=job.job_id,
        directory=directory,
        newest=plan.checkpoint,
        replica=plan.replica,
        behind=Round(plan.checkpoint, len(plan.copies), total(plan.copies), 0.0),
        starting=report.starting,
        origin_version=origin.version_text,
        files=len(plan.copies) + len(plan.keeps),
        bytes=total(plan.copies) + total(plan.keeps),
        withdraws=tuple(each.checkpoint for each in plan.withdrawals),
        space=space_left(replica),
        call=seconds_of_call(replica),
        kafka=at_kafka.found,
        refusals=(
            *_of_origin(job, request, clusters.origin),
            *_of_report(report, request),
            *at_kafka.refusals,
        ),
        warnings=(
            *report.warnings,
            *at_kafka.warnings,
            *part_files.warnings_of(report.positions),
            *_of_no_trigger(job, request, clusters.origin, origin),
        ),
    )
    seen = _with_way_back(seen, request, clusters.origin, origin)
    return seen if clusters.target is None else _with_target(seen, request, clusters, origin)


def refuse(seen: Preview) -> None:
    """Raise `Refused` if something is in the way of a switch."""
    if seen.refusals:
        more = counted(len(seen.refusals) - 1, "more reason", "more reasons")
        others = f" --dry-run shows {more}"
        raise Refused(
            f"{seen.name} was not stopped, and nothing was changed: {seen.refusals[0]}"
            f"{others if len(seen.refusals) > 1 else ''}"
        )


def _of_report(report: Report, request: SwitchRequest) -> Iterator[str]:
    if report.refusal is not None:
        yield str(report.refusal)
        return
    try:
        try_sync(Replica(report.plan.replica, request.sync.sides.target), request.sync.target_root)
    except OSError as error:
        yield f"{error.strerror or error}. Grant the right to write there"
    except NoSpace as error:
        yield str(error)


def _of_origin(job: RunningJob, request: SwitchRequest, origin: FlinkControl) -> Iterator[str]:
    if job.state != "RUNNING":
        yield (
            f"the job is {job.state}, not RUNNING. Wait until it runs, or look into its exceptions"
        )
    checkpointing = origin.checkpointing(job.job_id)
    is_retained = checkpointing is not None and checkpointing.is_retained
    if request.stop == "checkpoint" and not is_retained:
        yield (
            "its checkpoints are not retained when it is cancelled. Set"
            " execution.checkpointing.externalized-checkpoint-retention: RETAIN_ON_CANCELLATION and"
            " restart it, or give --stop savepoint"
        )
    configuration = origin.configuration()
    if request.stop == "savepoint":
        yield from _of_savepoints(job, request, origin, configuration)
    if configuration.get(_KUBERNETES):
        yield _of_kubernetes(origin.url, configuration)


def _of_kubernetes(url: str, configuration: Mapping[str, str]) -> str:
    """Return why a job on Kubernetes is not stopped, and how it is by whoever keeps it there."""
    name, namespace = configuration[_KUBERNETES], configuration.get(_NAMESPACE, "default")
    suspend = ["kubectl", "-n", namespace, "patch", "flinkdeployment", name, "--type", "merge"]
    return (
        f"{url} runs on Kubernetes as {name} in the namespace {namespace}: the operator, or a"
        " deployment, may start the job again after its end. Have it ended there instead. Of a"
        f" FlinkDeployment, `{shlex.join([*suspend, '-p', _SUSPENDED])}` does that. The steps"
        ' before and after it are in docs/before-a-switch.md, "From Kubernetes"'
    )


def _of_no_trigger(
    job: RunningJob, request: SwitchRequest, origin: FlinkControl, cluster: Cluster
) -> Iterator[str]:
    """Yield what a stop by checkpoint means where no checkpoint is taken when asked for."""
    if request.stop != "checkpoint" or cluster.can_trigger:
        return
    checkpointing = origin.checkpointing(job.job_id)
    interval = "" if checkpointing is None else f", each {checkpointing.interval:g} s"
    yield (
        f"Flink {cluster.version_text} takes no checkpoint when asked: {job.name} goes on from the"
        f" newest one that it took by itself{interval}, and what it did since then is processed"
        " again. With --stop savepoint, nothing is"
    )


def _of_savepoints(
    job: RunningJob, request: SwitchRequest, origin: FlinkControl, configuration: Mapping[str, str]
) -> Iterator[str]:
    configured = (configuration[name] for name in _SAVEPOINTS if configuration.get(name))
    place = request.savepoints or next(configured, None)
    if place is None:
        yield (
            f"{origin.url} has no directory for savepoints. Give --savepoints DIR, or set"
            f" {_SAVEPOINTS[-1]}"
        )
        return
    try:
        sync_of(request.sync, uri.absolute(place, "/"), job.name)
    except Refused as error:
        yield str(error)


def _with_way_back(
    seen: Preview, request: SwitchRequest, origin: FlinkControl, cluster: Cluster
) -> Preview:
    """Return a preview with what is run at the origin if the switch fails."""
    reason = "it takes no jars"
    if cluster.can_submit:
        try:
            return replace(seen, way_back=named_jar(origin_program(request), origin))
        except (NotThere, Refused) as error:
            reason = str(error)
    warning = (
        f"if the switch fails after {seen.name} was stopped, you start it again at {origin.url}:"
        f" the command for it is printed then. The reason: {reason}"
    )
    return replace(seen, warnings=(*seen.warnings, warning))


def origin_program(request: SwitchRequest) -> Program:
    """Return what is run at the origin: without a jar of its own, that of the target."""
    own = request.origin_program
    return own if own.jar is not None else own._replace(jar=request.program.jar)


def _with_target(
    seen: Preview, request: SwitchRequest, clusters: Clusters, origin: Cluster
) -> Preview:
    target = clusters.target
    assert target is not None
    cluster = target.cluster()
    jar, refused_jar = _jar(request, target, cluster)
    slots = target.slots()
    needed = request.program.parallelism or clusters.origin.slots_needed(seen.job_id)
    too_old, older = _of_versions(target.url, cluster, origin)
    unknown = _unknown_to_operator(target.url, target.configuration())
    refusals = (
        _same_manager(clusters.origin.url, target.url),
        refused_jar,
        _too_few_slots(target.url, slots, needed),
        _runs_there(seen, clusters.origin.url, target),
        too_old,
    )
    return replace(
        seen,
        target_version=cluster.version_text,
        jar=jar,
        slots=(needed, slots.free),
        refusals=(*seen.refusals, *(each for each in refusals if each is not None)),
        warnings=(*seen.warnings, *(each for each in (older, unknown) if each is not None)),
    )


def _unknown_to_operator(url: str, configuration: Mapping[str, str]) -> str | None:
    """Return what it means that a job is started by REST on Kubernetes, None elsewhere."""
    if not configuration.get(_KUBERNETES):
        return None
    return (
        f"{url} runs on Kubernetes as {configuration[_KUBERNETES]}: no resource of the operator has"
        " a job that is started by REST: it neither upgrades nor restarts it. Without --start-at,"
        " the part of a FlinkDeployment or FlinkSessionJob that starts the job is printed"
    )


def _same_manager(origin_url: str, target_url: str) -> str | None:
    if target_url != origin_url:
        return None
    return "--flink and --start-at are the same JobManager. Give the other one"


def _jar(
    request: SwitchRequest, target: FlinkControl, cluster: Cluster
) -> tuple[str | None, str | None]:
    """Return the id of the jar that starts the job, or None and why there is none."""
    if not cluster.can_submit:
        return None, (
            f"{target.url} takes no jars: web.submit.enable is false, or it runs one application."
            " Give the URL of a session cluster, or leave out --start-at and start the job yourself"
        )
    try:
        return named_jar(request.program, target), None
    except (NotThere, Refused, FlinkRefused) as error:
        return None, str(error)


def _too_few_slots(url: str, slots: Slots, needed: int) -> str | None:
    if slots.free >= needed:
        return None
    return (
        f"{url} has {slots.free} free slots of {slots.total}, and the job needs"
        f" {needed}. Add TaskManagers, or cancel what runs there"
    )


def _runs_there(seen: Preview, origin_url: str, target: FlinkControl) -> str | None:
    """Return why the job cannot start beside what runs at the target, if it cannot."""
    same = [job for job in target.jobs().jobs if job.name == seen.name and not job.has_ended]
    if any(job.job_id == seen.job_id for job in same):
        return (
            f"{target.url} runs the job {seen.job_id} itself: it leads to the same cluster as"
            f" {origin_url}. Give the other one to --start-at"
        )
    if same:
        return (
            f"a job {seen.name} runs at {target.url} already: {same[0].job_id}. Cancel it first, or"
            " give the other URL"
        )
    return None


def _of_versions(url: str, cluster: Cluster, origin: Cluster) -> tuple[str | None, str | None]:
    """Return why the version of the target refuses the job, and what it may not restore."""
    if cluster.version[0] < origin.version[0]:
        return (
            f"{url} is Flink {cluster.version_text}, which cannot read checkpoints of"
            f" {origin.version_text}. Upgrade it",
            None,
        )
    if cluster.version < origin.version:
        return None, (
            f"{url} is Flink {cluster.version_text}, older than {origin.version_text}: Flink"
            " does not promise that it can restore the job"
        )
    return None, None
