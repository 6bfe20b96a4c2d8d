"""A hand-written encoder of what Flink's Kafka connector writes into operator states.

It shares nothing with `cpreplicate.core.positions`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tests.support.encoder import java_utf

NO_STOP = -(1 << 63)
SERIALIZER = (
    "org.apache.flink.api.common.typeutils.base.array."
    "BytePrimitiveArraySerializer$BytePrimitiveArraySerializerSnapshot"
)
READERS = "SourceReaderState"
WRITER = "writer_raw_states"
COMMITTER = "streaming_committer_raw_states"


def utf(text: str) -> bytes:
    data = java_utf(text)
    return struct.pack(">H", len(data)) + data


def i32(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}i", *numbers)


def i64(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}q", *numbers)


def block(data: bytes) -> bytes:
    return i32(len(data)) + data


def versioned(version: int, data: bytes) -> bytes:
    return i32(version) + block(data)


@dataclass(frozen=True)
class Split:
    topic: str
    partition: int
    start: int
    stop: int = NO_STOP
    cluster: str | None = None
    status: int = 0

    @property
    def plain(self) -> bytes:
        return utf(self.topic) + i32(self.partition) + i64(self.start, self.stop)

    @property
    def element(self) -> bytes:
        """The split as an element of `SourceReaderState`."""
        if self.cluster is None:
            return versioned(0, self.plain)
        return versioned(1, utf(self.cluster) + i32(0) + self.plain)


def enumerator_body(version: int, splits: Sequence[Split], is_done: bool = True) -> bytes:
    """The state of a `KafkaSource`'s enumerator, in version 2 (k3, k4) or 3 (k5)."""
    if version == 2:
        entries = b"".join(utf(each.topic) + i32(each.partition, each.status) for each in splits)
        return i32(len(splits)) + entries + bytes([is_done])
    entries = b"".join(block(each.plain) + i32(each.status) for each in splits)
    return i32(len(splits), 0) + entries + bytes([is_done])


def coordinator(version: int, splits: Sequence[Split], is_done: bool = True) -> bytes:
    return i32(1) + versioned(version, enumerator_body(version, splits, is_done))


def dynamic_coordinator(version: int, splits: Sequence[Split], servers: dict[str, str]) -> bytes:
    """That of a `DynamicKafkaSource`, in version 1 (k3) or 2 (k5): one stream for all topics."""
    clusters = b""
    for cluster, address in servers.items():
        topics = sorted({each.topic for each in splits if each.cluster == cluster})
        clusters += utf(cluster) + i32(len(topics)) + b"".join(map(utf, topics)) + utf(address)
        clusters += b"\0\0" if version == 2 else b""
    body = i32(1) + utf("stream") + i32(len(servers)) + clusters
    inner = version + 1
    body += i32(inner, len(servers))
    for cluster in servers:
        own = [each for each in splits if each.cluster == cluster]
        body += utf(cluster) + block(enumerator_body(inner, own))
    return i32(1) + versioned(version, body)


@dataclass(frozen=True)
class Transaction:
    name: str
    producer: int
    epoch: int = 0
    state: int = 0

    @property
    def request(self) -> bytes:
        committable = struct.pack(">hq", self.epoch, self.producer) + utf(self.name)
        return versioned(1, committable) + i32(0, self.state)


def listed(version: int, items: Sequence[bytes]) -> bytes:
    return i32(version, len(items)) + b"".join(map(block, items))


def committables(
    checkpoint: int, transactions: Sequence[Transaction], subtask_version: int = 2
) -> bytes:
    """An element of the committer's state: 1.20 writes subtasks in version 1, 2.x in version 2."""
    tail = i32(*[0] * (3 if subtask_version == 1 else 2))
    subtask = i32(0) + listed(0, [each.request for each in transactions]) + tail
    manager = i64(checkpoint) + i32(1) + listed(subtask_version, [subtask])
    return versioned(2, struct.pack(">I", 0xB91F252C) + listed(1, [manager]))


NO_COMMITTABLES = versioned(2, struct.pack(">I", 0xB91F252C) + listed(1, []))


@dataclass
class Stream:
    """The stream of an operator's list states, and the offsets of each."""

    data: bytes
    offsets: dict[str, tuple[int, ...]] = field(default_factory=dict)


def stream(
    lists: dict[str, Sequence[bytes]],
    version: int = 6,
    is_compressed: bool = False,
    serializer: str = SERIALIZER,
) -> Stream:
    """Return the list states as `OperatorBackendSerializationProxy` writes them."""
    data = i32(version) + (bytes([is_compressed]) if version > 5 else b"")
    data += struct.pack(">h", len(lists))
    for name in lists:
        data += utf(name) + i32(1, 1) + utf("OPERATOR_STATE_DISTRIBUTION_MODE")
        data += utf("SPLIT_DISTRIBUTE") + i32(1) + utf("VALUE_SERIALIZER") + i32(2)
        data += utf(serializer) + i32(3)
    data += struct.pack(">h", 0)
    out = Stream(data)
    if is_compressed:
        out.data += b"\xff\x06\x00\x00sNaPpY"
    for name, elements in lists.items():
        places = []
        for element in elements:
            places.append(len(out.data))
            out.data += chunks(block(element)) if is_compressed else block(element)
        out.offsets[name] = tuple(places)
    return out


def chunks(data: bytes) -> bytes:
    """Return data as Snappy chunks of the framing format: the first plain, others compressed."""
    head, rest = data[:3], data[3:]
    body = bytes(4) + head
    framed = b"\x01" + len(body).to_bytes(3, "little") + body
    for first in range(0, len(rest), 60_000):
        body = bytes(4) + pa.compress(rest[first : first + 60_000], "snappy", asbytes=True)
        framed += b"\0" + len(body).to_bytes(3, "little") + body
    return framed
