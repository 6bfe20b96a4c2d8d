"""Estimate what a run will take, and record what it took for the next estimates."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import NamedTuple

from cpreplicate.core import cost_model, packs, uri
from cpreplicate.core.closure import FileTable
from cpreplicate.core.cost_model import Bounds, CallCosts, Learned, Rates, Took, Work
from cpreplicate.core.packs import PackOptions
from cpreplicate.core.plan import Plan, total
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.source import SourceState
from cpreplicate.runners import TimedRunner, rates
from cpreplicate.runners.choose import runner_choice, spark_speed
from cpreplicate.runners.options import is_submitted
from cpreplicate.runners.startup_times import key
from cpreplicate.storage import Side, Sides
from cpreplicate.storage.sides import HDFS_SCHEMES

_SPARK_TASKS = 3.0  # seconds of its first tasks and of its end, beside those to start
_COMMAND = 0.4  # seconds of Python's start and imports, which no run can measure
_NAMENODE_SCHEMES = (*HDFS_SCHEMES, "webhdfs", "swebhdfs")


class Estimate(NamedTuple):
    """What a run will take: seconds, expected to lie between `low` and `high`, and calls.

    The calls are those to the NameNodes, None for a site without one. `is_learned`: most of the
    seconds follow from rates of earlier runs.
    """

    seconds: float
    low: float
    high: float
    source_calls: int | None
    target_calls: int | None
    is_learned: bool


@dataclass(frozen=True)
class Estimates:
    """What a run by this runner will take if nothing is packed, and with packs.

    `packed` is None if the plan has nothing that could be packed. `is_packed`: the plan packs.
    `runs` between the same sites, by the same runner, were recorded before.
    """

    runner: str
    runs: int
    is_packed: bool
    unpacked: Estimate
    packed: Estimate | None

    @property
    def planned(self) -> Estimate:
        """The estimate of the plan as it is."""
        return self.packed if self.is_packed and self.packed is not None else self.unpacked

    @property
    def alternative(self) -> Estimate | None:
        """The estimate of the same work with packs instead of without, or the other way round."""
        return self.unpacked if self.is_packed else self.packed


def estimates(plan: Plan, source_state: SourceState, request: SyncRequest) -> Estimates | None:
    """Return what the run of a plan will take, None if there is nothing to do."""
    if plan.empty:
        return None
    packable = _packable(plan, source_state.needed, request)
    plain_work = _work(plan, frozenset(), request)
    known = _known(plan, plain_work, request)
    packed_work = _work(plan, packable, request)
    return Estimates(
        runner=known.runner,
        runs=known.runs,
        is_packed=bool(plan.packed),
        unpacked=_estimate(plain_work, plan, known, request),
        packed=_estimate(packed_work, plan, known, request) if packable else None,
    )


def record(plan: Plan, request: SyncRequest, runner: TimedRunner, whole: float) -> None:
    """Record what the run of a plan took, in all `whole` seconds, unless a limit decided it.

    Copies within the target show nothing of the two sites.
    """
    if plan.reused:
        return
    work = _work(plan, plan.packed, request)
    known = _known(plan, work, request, runner.name)
    start = min(known.start, runner.copies)
    took = Took(whole - start, runner.copies - start, runner.deletes, runner.others)
    if cost_model.is_limited(work, _bounds(plan, request), took):
        return
    shown = cost_model.samples(work, took, known.learned)
    if known.speedup != 1:
        shown = ((name, value / _gain(name, known.speedup)) for name, value in shown)
    rates.record(plan.source, plan.replica, _kind(known.runner, request), shown)


class _Known(NamedTuple):
    """The runner of a plan, and what is known of it between these sites.

    The `learned` rates are those of all its workers, `speedup` times those of one process.
    """

    runner: str
    start: float
    speedup: float
    runs: int
    learned: Learned


def _known(plan: Plan, work: Work, request: SyncRequest, runner: str | None = None) -> _Known:
    """Return what is known of `runner`, or of the one that would be chosen."""
    execution = request.execution
    if runner is None:
        files = work.files + work.packed + work.deletes
        bandwidth = request.sides.target.limits.bandwidth
        runner = runner_choice(execution, files, work.bytes + work.packed_bytes, bandwidth).runner
    is_spark = runner == "spark"
    recorded = rates.recorded(plan.source, plan.replica, _kind(runner, request))
    learned = cost_model.learned(_defaults(plan, request.sides, is_spark), recorded.samples)
    if not is_spark:
        return _Known(runner, 0.0, 1.0, recorded.runs, learned)
    spark = spark_speed(execution, is_started=is_submitted())
    faster = learned._replace(rates=learned.rates.times_as_fast(spark.speedup))
    return _Known(runner, spark.start, spark.speedup, recorded.runs, faster)


def _gain(name: str, speedup: float) -> float:
    return 1.0 if name.startswith("fixed") else speedup


def _kind(runner: str, request: SyncRequest) -> str:
    """Return the name under which rates of a runner are recorded."""
    name = "inline"
    if runner == "spark":
        name = f"spark {key(request.execution.spark_master() or 'local')}"
    client = request.sides.target.hdfs_client
    return name if client == "native" else f"{name}, {client} client"


def _estimate(work: Work, plan: Plan, known: _Known, request: SyncRequest) -> Estimate:
    bounds, learned = _bounds(plan, request), known.learned
    seconds = cost_model.seconds(work, learned, bounds, _COMMAND + known.start)
    is_first = plan.base_checkpoint_id is None
    source = cost_model.FIRST_SOURCE_CALLS if is_first else cost_model.SOURCE_CALLS
    target = cost_model.FIRST_TARGET_CALLS if is_first else cost_model.TARGET_CALLS
    return Estimate(
        *seconds,
        source_calls=_calls(plan.source, work, source, seconds.expected),
        target_calls=_calls(plan.replica, work, target, seconds.expected),
        is_learned=cost_model.learned_share(work, learned) > 0.5,
    )


def _calls(location: str, work: Work, costs: CallCosts, seconds: float) -> int | None:
    has_namenode = _scheme(location) in _NAMENODE_SCHEMES
    return cost_model.calls(work, costs, seconds) if has_namenode else None


def _packable(plan: Plan, needed: FileTable, request: SyncRequest) -> frozenset[str]:
    """Return what the plan packs, or would pack with `--pack on`."""
    if plan.packed:
        return plan.packed
    if request.sides.preserve:
        return frozenset()  # refused with packs
    return packs.to_pack(plan.copies, needed, (), PackOptions("on", request.packing.below))


def _work(plan: Plan, packed: Container[str], request: SyncRequest) -> Work:
    """Return the work of a plan if these targets are packed."""
    count, size, directories = 0, 0, set()
    for action in plan.copies:
        directories.add(uri.parent(action.target))
        if action.target in packed:
            count += 1
            size += action.bytes if action.target not in plan.reused else 0
    within = total(plan.reused_copies)
    reads = plan.keeps if request.check_content else ()
    return Work(
        files=len(plan.copies) - count,
        bytes=total(plan.copies) - within - size,
        packed=count + len(plan.repacks),
        packed_bytes=size + total(plan.repacks),
        deletes=0 if request.async_deletes else len(plan.deletes),
        read=len(reads),
        read_bytes=total(reads),
        directories=len(directories),
        within=len(plan.reused),
        within_bytes=_passing(plan, packed, request),
    )


def _passing(plan: Plan, packed: Container[str], request: SyncRequest) -> int:
    """Return the bytes of copies within the target that no service copies by itself."""
    by_service = request.sides.target.storage(plan.replica).copies_within
    return sum(
        action.bytes
        for action in plan.reused_copies
        if not by_service
        or action.target in packed
        or plan.reused[action.target].offset is not None
    )


def _defaults(plan: Plan, sides: Sides, is_spark: bool) -> Rates:
    schemes = {_scheme(plan.source), _scheme(plan.replica)}
    if schemes == {"file"}:
        inline = cost_model.LOCAL_RATES
    elif sides.target.storage(plan.replica).closes_slowly:
        inline = cost_model.HDFS_RATES
    else:
        inline = cost_model.OTHER_RATES
    return inline.later(_SPARK_TASKS) if is_spark else inline


def _bounds(plan: Plan, request: SyncRequest) -> Bounds:
    sides, limits = request.sides, request.sides.target.limits
    return Bounds(
        bandwidth=limits.bandwidth,
        operations=limits.calls,
        read=1 if _is_limited(plan.source) else 0,
        put=_put_operations(plan.replica, sides.target),
        is_one_cluster=sides.source.identity(plan.source) == sides.target.identity(plan.replica),
    )


def _put_operations(location: str, side: Side) -> int:
    return side.storage(location).put_calls if _is_limited(location) else 0


def _is_limited(location: str) -> bool:
    """Return whether `--max-rps` holds for a location: for services, not for local files."""
    return _scheme(location) != "file"


def _scheme(location: str) -> str:
    return location.partition(":")[0]
