"""The check of the Kafka at which a job would start. It only reads.

What it finds stops no sync: it is a warning, also that the Kafka does not answer.
"""

from __future__ import annotations

from cpreplicate import errors
from cpreplicate.core.positions.fingerprints import Fingerprint
from cpreplicate.core.positions.model import Positions
from cpreplicate.core.positions.ranges import described
from cpreplicate.core.positions.remedies import Remedy
from cpreplicate.core.sizes import counted
from cpreplicate.errors import Refused
from cpreplicate.operations.doctor.case import Case
from cpreplicate.operations.doctor.findings import Result, in_two, warning
from cpreplicate.operations.kafka import check as kafka_check
from cpreplicate.operations.kafka.positions import positions_of
from cpreplicate.operations.sync.place import known_root
from cpreplicate.protocol.fingerprint_record import read_fingerprints
from cpreplicate.protocol.replica import Replica
from cpreplicate.storage import Transient

_UNREACHED = "Check --kafka, --kafka-conf, the network and the broker, then run again"


def check_kafka(subject: Case) -> Result:
    """Check whether a job could go on from the source's newest checkpoint at the Kafka."""
    state, kafka = subject.source_state, subject.kafka
    assert state is not None
    assert kafka is not None
    request, servers = subject.request, kafka.cluster.servers
    found = positions_of(state.file, request.sides.source, request.remaps)
    assert found is not None, "it is returned wherever it is asked for"
    held = found.found
    try:
        listing = kafka_check.listed(kafka.cluster, [held])
        completed, kept = state.source.completed, _fingerprints(subject)
        at = kafka_check.findings(found, completed, kafka, listing, kept)
    except (Transient, Refused) as error:
        message, remedy = in_two(errors.described(error))
        return warning(message, remedy or _UNREACHED)
    if at.problems:
        message = f"no job can go on at {servers} from it now: {described(at.problems)}"
        return warning(message, _remedy(at.remedy))
    unknown = None if kafka.is_same else kafka_check.unknown_of(held, at.proofs, servers)
    if at.warnings:
        proven = "The job read them there" if kafka.is_same else "All positions are proven there"
        note = proven if unknown is None else f"Note that {unknown}"
        return warning("; ".join(at.warnings), note)
    return Result(_passed(held, servers, unknown, is_proven=not kafka.is_same))


def _fingerprints(subject: Case) -> tuple[Fingerprint, ...]:
    """Return those that are kept with the checkpoint in the replica, if that holds it already."""
    state = subject.source_state
    assert state is not None
    replica = Replica(known_root(subject.request), subject.request.sides.target)
    return read_fingerprints(replica, state.placement.name, state.source.completed)


def _passed(held: Positions, servers: str, unknown: str | None, is_proven: bool) -> str:
    if unknown is None and is_proven:
        proven = counted(len(held.positions), "position is proven", "positions are proven")
        return f"{proven} at {servers}"
    exist = counted(len(held.positions), "position exists", "positions exist")
    return f"{exist} at {servers}" if unknown is None else f"{exist} at {servers}. But {unknown}"


def _remedy(made: Remedy) -> str:
    """Return what to do at B when the job is to start there."""
    options = [f"--rename-topic {old}={new}" for old, new in made.topics.items()]
    options += ["--servers"] if made.clusters else []
    options += [f"--positions mm2:{made.alias}"] if made.alias is not None else []
    options += ["--positions clamp"] if made.is_clamped else []
    options += ["--positions fingerprint"] if made.is_translated else []
    options += ["--drop-pending"] if made.drops_pending else []
    rebase = f"`cpreplicate rebase` with {' '.join(options)}" if options else ""
    missing = {"no-topic", "no-partition"}.intersection(each.trouble for each in made.unsolved)
    create = "create what is missing there" if missing else ""
    parts = [create, f"derive a checkpoint by {rebase} before the job starts" if rebase else ""]
    text = "; ".join(filter(None, parts)) or "promote without --kafka if you know that it fits"
    return f"{text[0].upper()}{text[1:]}. `promote --kafka` prints the commands"
