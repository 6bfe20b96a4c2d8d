"""Copies from the replicas of earlier jobs, which the target holds already.

A job that was restored from an earlier one references files of that job. Such a file is copied
within the target if a manifest of the earlier job's replica lists it. That replica is not changed,
but for its lease.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

from cpreplicate.core import uri
from cpreplicate.core.ledger import LedgerTable, MemberTable
from cpreplicate.core.notify import Notify
from cpreplicate.core.path_columns import chosen, rows_of, texts
from cpreplicate.core.plan import Plan, TargetCopy, targets
from cpreplicate.core.reuse import JobLedger, OfAJob, of_earlier_jobs, reusing, target_copies
from cpreplicate.errors import CpreplicateError, LeaseHeld, Refused, TargetGone, described
from cpreplicate.operations.change.change import refuse_links
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.source.state import SourceState
from cpreplicate.protocol import replica_state, same_place, seal
from cpreplicate.protocol.lease import Lease
from cpreplicate.protocol.manifest import Manifest
from cpreplicate.protocol.marker import read_marker, source_name
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_name import Named, find_replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.runners import Copy, Part
from cpreplicate.storage import Side


def with_earlier_replicas(plan: Plan, source_state: SourceState, notify: Notify) -> Plan:
    """Return the plan whose copies come from replicas of earlier jobs, where these hold the files.

    Nothing is changed. Costs no call at the source. A replica that cannot be used is reported, and
    its files are copied from the source.
    """
    request = source_state.request
    if not plan.copies or request.sides.preserve:
        return plan  # the attributes to be preserved are those of the source
    needed = source_state.needed
    files = needed.take(rows_of(needed.paths, targets(plan.copies)) >= 0)
    reused: dict[str, TargetCopy] = {}
    for root, job in of_earlier_jobs(files, source_state.source.job_root).items():
        try:
            reused.update(_held(job, root, plan.replica, request))
        except (CpreplicateError, OSError) as error:
            notify(
                f"the replica of {root} is not used: its files are copied from the source."
                f" {described(error)}"
            )
    return reusing(plan, reused) if reused else plan


def _held(job: OfAJob, root: str, new: str, request: SyncRequest) -> dict[str, TargetCopy]:
    """Return which files of the job at `root` of the source its replica holds, if there is one.

    They are by their paths in `new`, the replica into which they are copied. Raises `Refused` if
    the replica of the earlier job is not usable.
    """
    named = Named(source_name(request.sides.source, root), is_lone=False)
    replica = Replica(
        find_replica(named, request.target_root, request.sides.target), request.sides.target
    )
    if replica.root == new:  # the job's directory was moved
        return {}
    if read_marker(replica.side, replica.root) is None:
        return {}  # there is none
    same_place.refuse_nested(replica, request.sides.source, root)
    state = replica_state.examine(replica)
    _refuse_unusable(state, request.sides.source, root)
    found = target_copies(job, _ledger_of(job, state, replica), replica.root)
    refuse_links(uri.directories(place.path for place in found.values()), replica)
    return found


def _refuse_unusable(state: State, side: Side, root: str) -> None:
    """Raise `Refused` unless the directory is the replica of the job at `root`, and only that."""
    marker = state.marker
    is_of_job = marker is not None and marker.job == uri.name(root)
    if marker is None or not is_of_job or not marker.names(source_name(side, root)):
        raise Refused(f"It is not a replica of {root}")
    if seal.NAME in state.own:
        raise Refused("It is sealed: a job may run from it and delete its files")
    if state.unrecorded:
        raise Refused(f"{state.unrecorded[0]} in it is another program's: a job may use it")
    if state.links:
        raise Refused(f"{state.links[0]} in it is a symbolic link or a mount")


def _ledger_of(job: OfAJob, state: State, replica: Replica) -> JobLedger:
    """Return what the manifests of committed checkpoints list, and what is there of it."""
    manifests = list(_manifests(state, replica))
    files = LedgerTable.merged([listed.entries.ledger for listed in manifests])
    members = MemberTable.merged([listed.members for listed in manifests])
    wanted = members.take(rows_of(members.paths, job.paths) >= 0)
    plain = chosen(job.paths, rows_of(job.paths, files.paths) >= 0)
    asked = texts([*plain.to_pylist(), *wanted.used_packs])
    growing = frozenset[str]().union(*(each.growing or () for each in state.committed))
    return JobLedger(files, wanted, replica.lengths_of(asked, files.paths), growing)


def _manifests(state: State, replica: Replica) -> Iterator[Manifest]:
    """Yield the manifests that describe committed checkpoints, that of the newest one last."""
    for committed in reversed(state.committed):
        listed = committed.listed or replica.manifest(committed.name)
        if listed is not None and listed.metadata == committed.metadata:
            yield listed


@contextmanager
def leased(
    reused: Mapping[str, TargetCopy], side: Side, notify: Notify
) -> Iterator[dict[str, TargetCopy]]:
    """Hold the leases of the replicas that are read while the block runs.

    Provides the files whose replicas could be leased. A lease that another run holds is not waited
    for: two runs that read each other's replica would wait for each other.
    """
    with ExitStack() as stack:
        usable = {
            replica
            for replica in sorted({place.replica for place in reused.values()})
            if _lease(replica, side, stack, notify)
        }
        yield {target: place for target, place in reused.items() if place.replica in usable}


def _lease(replica: str, side: Side, stack: ExitStack, notify: Notify) -> bool:
    lease = Lease(replica, side, makes_root=False)
    try:
        lease.take(0.0, notify)
    except (LeaseHeld, TargetGone, Refused, OSError) as error:
        notify(f"{replica} is not used: its files are copied from the source. {described(error)}")
        return False
    stack.callback(_give_back, lease)
    return True


def _give_back(lease: Lease) -> None:
    with suppress(OSError):  # it expires
        lease.give_back()


def tasks(
    reused: Mapping[str, TargetCopy], replica: Replica, packed: frozenset[str], pack_stem: str
) -> Sequence[Copy]:
    """Return the copies into a replica; those that are `packed` become members of packs."""
    stem = replica.uri_of(pack_stem)
    return [
        Copy(
            uri.join(place.replica, place.path),
            replica.uri_of(target),
            place.length,
            pack=stem if target in packed else None,
            part=Part(place.offset, place.crc32c),
            inside=replica.root,
        )
        for target, place in reused.items()
    ]
