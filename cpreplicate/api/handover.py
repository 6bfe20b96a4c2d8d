"""Replicas are handed over to jobs, and taken back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from cpreplicate.api import values
from cpreplicate.api.cancellation import Cancellation
from cpreplicate.api.places import AnyPath, AnyPlace, place_of
from cpreplicate.api.running import execution_of, running
from cpreplicate.api.values import Amount
from cpreplicate.core.notify import Notify, silent
from cpreplicate.errors import UsageError
from cpreplicate.operations.handover import promote as _promote
from cpreplicate.operations.handover import unseal as _unseal
from cpreplicate.operations.handover.promote import PromoteRequest, Promotion
from cpreplicate.operations.handover.unseal import Unsealing, UnsealRequest
from cpreplicate.operations.kafka.check import KafkaAsked
from cpreplicate.operations.verify.verify import Sample
from cpreplicate.runners import ExecutionOptions

if TYPE_CHECKING:
    from cpreplicate.flink.control import FlinkControl


def promote(
    replica: AnyPlace,
    checkpoint: str | None = None,
    *,
    as_of: datetime | Amount | None = None,
    source: AnyPlace | None = None,
    max_lag: Amount | None = None,
    allow_older: bool = False,
    content: Amount = 0.0,
    kafka: str | None = None,
    kafka_conf: AnyPath | None = None,
    same_kafka: bool = False,
    with_files: bool = False,
    with_positions: bool = False,
    not_read: Sequence[str] = (),
    flink: Sequence[str] = (),
    dry_run: bool = False,
    lock_wait: Amount = 0.0,
    unsafe_lease: bool = False,
    execution: ExecutionOptions | None = None,
    on_message: Notify = silent,
    cancellation: Cancellation | None = None,
) -> Promotion:
    """Verify a replica, make its paths absolute and seal it, as `cpreplicate promote`.

    The newest checkpoint is taken, or `chk-N`, or the newest one that was completed at or before
    `as_of`. The source that the replica records is asked how far it is ahead; its storage is
    reached as `source`, by default as the replica's. Look at `is_promoted` of the result: a replica
    that cannot be restored is left as it is, and raises nothing. Raises `Lagging` over `max_lag`.

    With the bootstrap servers `kafka`, the newest checkpoint from which a job can go on there is
    taken; `kafka_conf` is a file of librdkafka's properties. With `with_files`, the part files of
    sinks are looked for. `not_read` are operators, by id or name, whose state either may leave
    unread. `flink` are URLs of JobManagers, which are asked how a job ended whose source holds no
    checkpoint any more. Raises `NotAtKafka` and `PartFilesMissing`.
    """
    if checkpoint is not None and as_of is not None:
        raise UsageError("checkpoint and as_of both choose a checkpoint: give one")
    place = place_of("replica", replica)
    reached = place if source is None else place_of("source", source)
    side = replace(place.side(), unsafe_lease=values.flag("unsafe_lease", unsafe_lease))
    not_read = values.words("not_read", not_read)
    if not_read and kafka is None and not values.flag("with_files", with_files):
        raise UsageError("not_read needs kafka, or with_files=True: what is asked")
    request = PromoteRequest(
        place.uri,
        None if checkpoint is None else values.of_type("checkpoint", checkpoint, str, "a name"),
        Sample(share=values.share("content", content)),
        values.seconds("lock_wait", lock_wait),
        side,
        execution_of(execution),
        values.optional(values.instant, "as_of", as_of),
        values.flag("dry_run", dry_run),
        values.flag("with_positions", with_positions),
        values.flag("with_files", with_files),
        not_read,
        _asked(kafka, kafka_conf, values.flag("same_kafka", same_kafka), not_read, side.retry_for),
        reached.side(),
        max_lag=values.optional(values.seconds, "max_lag", max_lag),
        allow_older=values.flag("allow_older", allow_older),
        clusters=_clusters(flink),
    )
    with running(on_message, cancellation):
        return _promote.promote(request, on_message)


def _asked(
    servers: str | None,
    conf: AnyPath | None,
    is_same: bool,
    not_read: Sequence[str],
    within: float,
) -> KafkaAsked | None:
    """Return the Kafka at which a job is to start, None if none is asked. Raises `UsageError`."""
    file = values.optional(values.path, "kafka_conf", conf)
    if servers is None:
        if file is not None or is_same:
            raise UsageError("kafka_conf and same_kafka need kafka, the Kafka that is asked")
        return None
    from cpreplicate.kafka.cluster import DEADLINE, KafkaCluster
    from cpreplicate.kafka.conf import properties

    values.text("kafka", servers)
    own = {} if file is None else properties(file, "the option kafka_conf of the API,")
    cluster = KafkaCluster(servers, own, min(within, DEADLINE))
    return KafkaAsked(cluster, file, is_same, frozenset(not_read))


def _clusters(urls: Sequence[str]) -> tuple[FlinkControl, ...]:
    """Return clients of JobManagers. Raises `UsageError` for what is no URL."""
    from cpreplicate.flink.control import FlinkControl

    return tuple(FlinkControl(url) for url in values.words("flink", urls))


def unseal(
    replica: AnyPlace,
    job: AnyPlace | None = None,
    *,
    no_job_uses_it: bool = False,
    dry_run: bool = False,
    unsafe_lease: bool = False,
    cancellation: Cancellation | None = None,
) -> Unsealing:
    """Remove the seal of a promoted replica, as `cpreplicate unseal`.

    `job` is the checkpoint directory of the job that was started from it: its storage is reached as
    the replica's. Or `no_job_uses_it` states that there is none. Raises `Refused` if a job may need
    the replica's files.
    """
    if (job is None) is not values.flag("no_job_uses_it", no_job_uses_it):
        raise UsageError(
            "give either job, the checkpoint directory of the job that was started from the"
            " replica, or no_job_uses_it=True"
        )
    place = place_of("replica", replica)
    used_by = None if job is None else place_of("job", job).uri
    side = replace(place.side(), unsafe_lease=values.flag("unsafe_lease", unsafe_lease))
    request = UnsealRequest(place.uri, used_by, side, values.flag("dry_run", dry_run))
    with running(silent, cancellation):
        return _unseal.unseal(request)
