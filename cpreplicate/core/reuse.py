"""Files of earlier jobs, which a checkpoint references after a restore. Pure.

The replica of an earlier job may hold such a file already. It is copied from there then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cpreplicate.core import uri
from cpreplicate.core.closure import FileTable
from cpreplicate.core.ledger import LedgerTable, MemberTable
from cpreplicate.core.path_columns import Texts, chosen, rows_of, texts
from cpreplicate.core.placement import are_replica_paths
from cpreplicate.core.plan import Action, Plan, TargetCopy
from cpreplicate.core.tables import Lengths

# a job's directory, and what is in it; the last job id of a path counts
_OF_A_JOB = re.compile(r"(.*/[0-9a-f]{32})/((?:shared|taskowned|chk-\d+)/(?:.*/)?)")


class OfAJob(NamedTuple):
    """Files of one earlier job: `files` by their path in the new replica.

    `paths` are the same files' paths in the job's directory, so in its replica, too.
    """

    files: FileTable
    paths: Texts


class JobLedger(NamedTuple):
    """What a replica holds: its recorded files with their lengths there, and members of packs.

    `present` are the lengths of files and packs as they are. `growing` files may be longer at the
    source by now.
    """

    files: LedgerTable
    members: MemberTable
    present: Lengths
    growing: frozenset[str]


def of_earlier_jobs(files: FileTable, job_root: str | None) -> dict[str, OfAJob]:
    """Return the files below the directories of other jobs, by these directories at the source.

    Merged files are left out: they grow, so what another replica has of one may be too short.
    """
    sources = files.sources
    roots = [match and match[1] for match in map(_OF_A_JOB.fullmatch, sources.prefixes)]
    found: dict[str, OfAJob] = {}
    for root in sorted({root for root in roots if root} - {job_root}):
        is_below = np.array([each == root for each in roots], np.bool_)
        rows = np.flatnonzero(is_below[sources.codes] & ~files.is_segment)
        paths = _relative(sources.take(rows).texts(), root)
        is_usable = are_replica_paths(paths)
        if is_usable.any():
            found[root] = OfAJob(files.take(rows[is_usable]), chosen(paths, is_usable))
    return found


def ids_of_earlier_jobs(files: FileTable, job: str) -> tuple[str, ...]:
    """Return the ids of the other jobs in whose directories files are."""
    matches = map(_OF_A_JOB.fullmatch, files.sources.prefixes)
    return tuple(sorted({uri.name(match[1]) for match in matches if match} - {job}))


def _relative(uris: Texts, root: str) -> Texts:
    return texts(path[len(root) + 1 :] for path in uris.to_pylist())


def target_copies(job: OfAJob, ledger: JobLedger, replica: str) -> dict[str, TargetCopy]:
    """Return the files that a replica holds as they were recorded, by their path in the new one.

    Their CRC32C is known, cpreplicate wrote them, and they have at least their extents.
    """
    found = _packed(job, ledger, replica)
    found.update(_plain(job, ledger, replica))
    return found


def _plain(job: OfAJob, ledger: JobLedger, replica: str) -> dict[str, TargetCopy]:
    """Return the files outside of packs that can be copied from the replica of the job."""
    recorded, lengths = ledger.files.at(job.paths), ledger.present.at(job.paths)
    is_whole = (recorded.crcs >= 0) & recorded.is_written & (recorded.bytes == lengths)
    is_whole &= recorded.bytes >= job.files.extents
    is_whole &= rows_of(job.paths, texts(ledger.growing)) < 0
    targets, paths = chosen(job.files.paths, is_whole), chosen(job.paths, is_whole)
    return {
        target: TargetCopy(replica, path, None, length, crc32c)
        for target, path, length, crc32c in zip(
            targets.to_pylist(),
            paths.to_pylist(),
            recorded.bytes[is_whole].tolist(),
            recorded.crcs[is_whole].tolist(),
            strict=True,
        )
    }


def _packed(job: OfAJob, ledger: JobLedger, replica: str) -> dict[str, TargetCopy]:
    """Return the members of packs that can be copied from the replica of the job."""
    rows = rows_of(job.paths, ledger.members.paths)
    is_member = rows >= 0
    members, files = ledger.members.take(rows[is_member]), job.files.take(is_member)
    is_whole = (members.crcs >= 0) & (members.bytes >= files.extents)
    is_whole &= members.ends <= members.by_pack(_whole_packs(members, ledger))
    targets = chosen(files.paths, is_whole).to_pylist()
    places = members.take(is_whole).values()
    return {
        target: TargetCopy(replica, member.pack, member.offset, member.length, member.crc32c or 0)
        for target, member in zip(targets, places, strict=True)
    }


def _whole_packs(members: MemberTable, ledger: JobLedger) -> dict[str, int]:
    """Return the lengths of the packs that are as long as recorded."""
    packs = texts(members.used_packs)
    recorded, lengths = ledger.files.at(packs).bytes, ledger.present.at(packs)
    rows = zip(packs.to_pylist(), recorded.tolist(), lengths.tolist(), strict=True)
    return {pack: length for pack, known, length in rows if 0 <= known == length}


def reusing(plan: Plan, reused: Mapping[str, TargetCopy]) -> Plan:
    """Return the plan with copies of these targets from within the target, the others not."""
    if not (reused or plan.reused):
        return plan
    copies = tuple(_explained(action, plan.reused, reused) for action in plan.copies)
    targets = {action.target for action in copies}
    kept = {target: place for target, place in reused.items() if target in targets}
    return replace(plan, copies=copies, reused=kept)


def _explained(
    action: Action, before: Mapping[str, TargetCopy], reused: Mapping[str, TargetCopy]
) -> Action:
    if action.target in reused:
        job = uri.name(reused[action.target].replica)
        return action._replace(reason=f"copied from the replica of {job}")
    if action.target in before:
        job = uri.name(before[action.target].replica)
        return action._replace(reason=f"could not be copied from the replica of {job}")
    return action
