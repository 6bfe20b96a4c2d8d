"""Whether a job can go on at the Kafka of its target, before it is stopped."""

from __future__ import annotations

from typing import NamedTuple

from cpreplicate.core.positions.ranges import described
from cpreplicate.core.sizes import counted
from cpreplicate.errors import Refused
from cpreplicate.operations.kafka import check as kafka_check
from cpreplicate.operations.kafka.check import KafkaAsked
from cpreplicate.operations.sync.report import Report
from cpreplicate.storage import Transient


class AtKafka(NamedTuple):
    """What was found at a Kafka, None if none was asked, and what is in the way there."""

    found: str | None = None
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def checked_at_kafka(report: Report, kafka: KafkaAsked | None) -> AtKafka:
    """Return whether the job of a report can go on at a Kafka from its newest checkpoint."""
    if kafka is None:
        return AtKafka()
    assert report.positions is not None, "they are returned wherever they are asked for"
    held, servers = report.positions.found, kafka.cluster.servers
    try:
        listing = kafka_check.listed(kafka.cluster, [held])
        at = kafka_check.findings(report.positions, report.completed, kafka, listing)
    except (Transient, Refused) as error:
        return AtKafka(f"{servers} was not asked", (str(error),))
    if at.problems:
        reason = (
            f"the job cannot go on at {servers} from {report.plan.checkpoint}:"
            f" {described(at.problems)}. If a mirror still runs, wait until it has caught up. Else"
            " `cpreplicate promote --kafka` of a replica prints what helps"
        )
        return AtKafka(f"it cannot go on at {servers}", (reason,))
    warnings = (*at.warnings, kafka_check.unknown(servers))
    exist = counted(len(held.positions), "position exists", "positions exist")
    return AtKafka(f"{exist} at {servers}", (), warnings)
