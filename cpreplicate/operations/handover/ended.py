"""A source whose checkpoints are gone: its job has ended, and may have gone further than a replica.

Flink deletes the retained checkpoints of a job that finishes, and of one that is stopped with a
savepoint, which only a person or its JobManager knows.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from cpreplicate.core import uri
from cpreplicate.core.placement import JOB_ID
from cpreplicate.errors import MetadataError, Refused
from cpreplicate.operations.replicas.source_look import Behind, impatient, of_ended
from cpreplicate.protocol import json_files
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_name import is_distinctive, word_of
from cpreplicate.protocol.savepoints import LastSavepoint, newest_savepoint
from cpreplicate.storage import Side, Transient

if TYPE_CHECKING:
    from cpreplicate.flink import FlinkRest


def refuse_to_go_back(
    behind: Behind,
    name: str,
    replica: Replica,
    held: str | None,
    source: Side | None,
    clusters: Sequence[FlinkRest] = (),
) -> None:
    """Raise `Refused` if a job may have gone further, with the savepoint that is known.

    That is the one which one of the JobManagers `clusters` names, else one that can be seen. The
    replica's checkpoint `name` may be that savepoint already: `held` is the one that it is.
    """
    if not behind.is_ended:
        return
    advice = _advice(str(behind.source), replica, held, source, clusters)
    raise Refused(
        f"{replica.root}: {of_ended(behind.source, name, behind.own)}. Nothing was changed."
        f" {advice} If {name} is what you want,"
        " give --go-back: what the job did since then is done again"
    )


def _advice(
    job_root: str,
    replica: Replica,
    held: str | None,
    source: Side | None,
    clusters: Sequence[FlinkRest],
) -> str:
    id_ = uri.name(job_root)
    found = _reported(id_, clusters)
    if found is None and source is not None:
        found = newest_savepoint(job_root, impatient(source))
    if held is not None and found is not None and uri.name(found.path) == uri.name(held):
        return (
            f"That is its savepoint {held} already. Flink did not record in it that it ended the"
            " job, as Flink before 1.17 never does: if the job did nothing after it, nothing is"
            " done again."
        )
    place = shlex.quote("SAVEPOINT" if found is None else found.path)
    root, word = shlex.quote(uri.parent(replica.root)), shlex.quote(word_of(replica.root))
    command = f"run `cpreplicate sync {place} {root} --job {word}`, and promote again."
    if found is None:
        where = "" if clusters else " (--flink URL asks it)"
        who = f"Its JobManager{where}, or the output of `flink stop`,"
        return f"{who} names the savepoint: {command}"
    completed = json_files.clock(found.completed)
    if found.is_reported:
        named = f"Its JobManager names its last savepoint, {found.path}, completed {completed}"
        return f"{named}: {command}"
    return (
        f"{found.path}, completed {completed}, begins with {id_[:6]} as the id of the job does: if"
        f" it is of this job, {command}"
    )


def _reported(job_id: str, clusters: Sequence[FlinkRest]) -> LastSavepoint | None:
    """Return the last savepoint of a job that a JobManager names; one may not answer any more.

    Of several, each may have a job of a fixed id.
    """
    is_asked = is_distinctive(job_id) or (JOB_ID.fullmatch(job_id) and len(clusters) == 1)
    found: list[LastSavepoint] = []
    for cluster in clusters if is_asked else ():
        with suppress(Transient, MetadataError):
            savepoint = cluster.checkpoints(job_id).savepoint
            if savepoint is not None:
                found.append(LastSavepoint(savepoint.path, savepoint.completed, is_reported=True))
    return max(found, key=lambda each: each.completed or 0.0, default=None)
