"""A source whose checkpoints are gone: its job has ended, and may have gone further than a replica.

Flink deletes the retained checkpoints of a job that finishes, and of one that is stopped with a
savepoint, which only a person or its JobManager knows.
"""

from __future__ import annotations

import shlex

from cpreplicate.core import uri
from cpreplicate.core.placement import JOB_ID
from cpreplicate.errors import Refused
from cpreplicate.operations.replicas.source_look import Behind, impatient
from cpreplicate.protocol import json_files
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_name import is_savepoint_name
from cpreplicate.protocol.replica_state import State
from cpreplicate.protocol.savepoints import newest_savepoint
from cpreplicate.protocol.source import read_metadata
from cpreplicate.storage import Side


def may_have_gone_further(behind: Behind, name: str, replica: Replica, state: State) -> bool:
    """Return whether a job may have gone further than a checkpoint, with all of its own deleted.

    It has not if that is the savepoint with which it was stopped, as Flink records from 1.17 on. A
    source that is a savepoint itself has no newer one.
    """
    if not behind.look.is_gone or behind.source is None:
        return False
    savepoint = state.records[name].savepoint
    if savepoint == behind.source or is_savepoint_name(uri.name(behind.source)):
        return False
    return (
        savepoint is None or not read_metadata(replica.uri_of(name), replica.side).metadata.ends_job
    )


def refuse_to_go_back(behind: Behind, name: str, replica: Replica, source: Side | None) -> None:
    """Raise `Refused` if a job may have gone further, with the savepoint that can be seen."""
    if not behind.is_ended:
        return
    completed = json_files.clock(behind.own.completed if behind.own.is_dated else None)
    raise Refused(
        f"{replica.root}: {behind.source} holds no checkpoint any more. Its job has ended, or was"
        " stopped with a savepoint: Flink deletes its checkpoints then. To start it from"
        f" {name}, completed {completed}, may take it back. Nothing was changed."
        f" {_advice(behind, replica, source)} If {name} is what you want, give --go-back: what"
        " the job did since then is done again"
    )


def _advice(behind: Behind, replica: Replica, source: Side | None) -> str:
    id_ = uri.name(str(behind.source))
    found = None if source is None else newest_savepoint(str(behind.source), impatient(source))
    root, name = shlex.quote(uri.parent(replica.root)), shlex.quote(uri.name(replica.root))
    if found is None:
        return (
            "Its JobManager, or the output of `flink stop`, names the savepoint: run `cpreplicate"
            f" sync SAVEPOINT {root} --job {name}`, and promote again."
        )
    whose = f"begins with {id_[:6]} as the id of the job does" if JOB_ID.fullmatch(id_) else ""
    return (
        f"{found.checkpoint}, completed {json_files.clock(found.completed)}, {whose}: if it is of"
        f" this job, run `cpreplicate sync {shlex.quote(found.checkpoint)} {root} --job {name}`,"
        " and promote again."
    )
