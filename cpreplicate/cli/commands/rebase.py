"""The `rebase` command, and the Kafka that a command asks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.options import options, upkeep_options
from cpreplicate.cli.options.option import files, is_on_command_line, location
from cpreplicate.cli.running import exit_codes
from cpreplicate.cli.running.requests import build, start_narration, target_side
from cpreplicate.cli.running.results import show_change
from cpreplicate.cli.running.selection import selected
from cpreplicate.errors import UsageError

if TYPE_CHECKING:
    from cpreplicate.core.positions.offsets import Choice
    from cpreplicate.kafka.cluster import KafkaCluster
    from cpreplicate.operations.kafka.check import KafkaAsked

_GROUP = "group:"
_CLAMP = "clamp"
_FINGERPRINT = "fingerprint"
_MIRROR_MAKER = "mm2:"


@cli.command(
    short_help="Derive a checkpoint for another Kafka.",
    examples=(
        "cpreplicate rebase --positions offsets.csv hdfs://dcB/flink/replicas/55d1...",
        "cpreplicate rebase --rename-topic orders=A.orders --drop-pending --dry-run REPLICA",
        "cpreplicate rebase --positions clamp --kafka kafka-b:9092 REPLICA",
        "cpreplicate rebase --positions fingerprint --kafka kafka-b:9092 REPLICA",
        "cpreplicate rebase --positions mm2:A --rename-topic orders=A.orders --kafka kafka-b:9092"
        " REPLICA",
        "cpreplicate rebase --forget chk-42-1 hdfs://dcB/flink/replicas/55d1...",
    ),
    exit_codes={
        **exit_codes.REPLICA,
        5: "metadata not understood",
        7: "a storage or the Kafka could not be reached within its time",
    },
    essentials=(
        "dry-run job checkpoint name positions rename-topic servers drop-pending forget kafka "
        "kafka-conf target-conf output"
    ),
    options=(
        options.DRY_RUN,
        *upkeep_options.REBASE,
        options.LOCK_WAIT,
        options.UNSAFE_LEASE,
        *options.OF_REPLICA,
    ),
)
@click.argument("replica", callback=location, shell_complete=files)
def rebase(
    replica: str,
    job: str | None,
    positions: str | None,
    forget: str | None,
    kafka: str | None,
    kafka_conf: str | None,
    output: Any,
    **values: Any,
) -> int:
    """Write a checkpoint of its own beside those of a replica, for a job that starts elsewhere.

    It holds other positions, topics or servers, or no pending transactions and part files, each
    only if asked for.
    The checkpoints of the replica stay as they are, and a sealed replica stays sealed. Flink
    restores the new one as it does the one that it was derived from.
    """
    from cpreplicate.operations.kafka import rebase as operation

    _refuse_contradictions({**values, "positions": positions}, forget)
    notify = start_narration(values)
    side = target_side(values)
    root = selected(replica, job, side)
    if forget is not None:
        dry_run, lock_wait = values["dry_run"], values["lock_wait"]
        forgotten = operation.forget(root, forget, side, dry_run, lock_wait, notify)
        return show_change(forgotten, output)
    if kafka is None and is_on_command_line("kafka_conf"):
        raise _without_kafka("--kafka-conf")
    at = None if kafka is None else cluster(kafka, kafka_conf, "", values["retry_for"])
    own = {
        "choice": _choice(positions, at),
        "by": _by(positions),
        "alias": _alias(positions),
        "kafka": at,
    }
    request = build(operation.RebaseRequest, values, replica=root, side=side, **own)
    report = operation.rebase(request, notify)
    return show_change(report, output, is_dry_run=request.dry_run)


def _refuse_contradictions(values: dict[str, Any], forget: str | None) -> None:
    """Raise `click.UsageError` if nothing is asked for, or anything beside `--forget`.

    `values` are by the names of the fields that options fill.
    """
    is_change = any(values[name] for name in ("positions", "topics", "servers", "drops_pending"))
    is_asked = any(map(is_on_command_line, ("kafka", "kafka_conf")))
    if forget is not None and (is_change or is_asked or values["checkpoint"] or values["name"]):
        raise click.UsageError(
            "--forget removes a derived checkpoint: it takes no change, --checkpoint, --name or"
            " Kafka beside it"
        )
    if forget is None and not is_change:
        raise click.UsageError(
            "nothing to change: give --positions, --rename-topic, --servers or --drop-pending, or"
            " --forget NAME"
        )


def _choice(positions: str | None, at: KafkaCluster | None) -> Choice:
    """Return how the new offsets are chosen, by the Kafka that is asked. Raises `UsageError`."""
    from cpreplicate.core.positions import offsets, ranges

    if positions is None:
        return offsets.unchanged
    if positions == _FINGERPRINT:  # the operation has those of the checkpoint
        _needed(at, "--positions fingerprint")
        return offsets.unchanged
    if positions.startswith(_MIRROR_MAKER):
        if not _alias(positions):
            raise UsageError("--positions mm2: needs the alias of the source behind it")
        _needed(at, positions)
        return offsets.unchanged  # the operation translates them
    if positions == _CLAMP:
        return ranges.clamped(_needed(at, "--positions clamp").ranges)
    if positions.startswith(_GROUP):
        group = positions.removeprefix(_GROUP)
        if not group:
            raise UsageError("--positions group: needs the name of a consumer group behind it")
        asked = _needed(at, positions)
        return offsets.looked_up(lambda partitions: asked.committed(group, partitions))
    try:
        lines = Path(positions).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"--positions {positions} cannot be read: {reason}") from error
    return offsets.as_rows(offsets.parse(lines, positions), None if at is None else at.topics())


def _by(positions: str | None) -> str | None:
    """Return what of the Kafka the new offsets are of, None if they are not of it."""
    if positions in (_CLAMP, _FINGERPRINT):
        return positions
    kinds = {_GROUP: "group", _MIRROR_MAKER: "mm2"}
    return next(
        (kind for start, kind in kinds.items() if (positions or "").startswith(start)), None
    )


def _alias(positions: str | None) -> str | None:
    """Return the alias of the source of a MirrorMaker 2 that has the new offsets."""
    is_alias = positions is not None and positions.startswith(_MIRROR_MAKER)
    return positions.removeprefix(_MIRROR_MAKER) if positions is not None and is_alias else None


def _needed(at: KafkaCluster | None, needed_for: str) -> KafkaCluster:
    """Return the Kafka that is asked. Raises `UsageError` without one."""
    if at is None:
        raise _without_kafka(needed_for)
    return at


def _without_kafka(needed_for: str) -> UsageError:
    return UsageError(f"{needed_for} needs --kafka HOST:PORT, the Kafka that is asked")


def cluster(
    servers: str | None, conf: str | None, needed_for: str, within: float = math.inf
) -> KafkaCluster:
    """Return the Kafka of `--kafka` and `--kafka-conf`. Raises `UsageError`.

    `within` limits the seconds in which it has to answer.
    """
    from cpreplicate.kafka.cluster import DEADLINE, KafkaCluster
    from cpreplicate.kafka.conf import properties

    if servers is None:
        raise _without_kafka(needed_for)
    own = {} if conf is None else properties(conf)
    return KafkaCluster(servers, own, min(within, DEADLINE))


def asked_kafka(values: dict[str, Any]) -> KafkaAsked | None:
    """Return the Kafka at which a job is to start, None without `--kafka`. Raises `UsageError`.

    A Kafka is asked for as long as a storage, --retry-for.
    """
    from cpreplicate.operations.kafka.check import KafkaAsked

    servers, conf, is_same = values["kafka"], values["kafka_conf"], values.get("same_kafka", False)
    not_read = frozenset(values.get("not_read", ()))
    if servers is None and not (conf or is_same):
        if not_read and not values.get("with_files"):
            raise UsageError("--not-read needs --kafka HOST:PORT or --with-files: what is asked")
        return None
    needed_for = "--same-kafka" if is_same else "--kafka-conf"
    at = cluster(servers, conf, needed_for, values["retry_for"])
    return KafkaAsked(at, conf, is_same, not_read)
