"""A Kafka cluster, asked by `confluent_kafka`: the offsets that exist, and those of a group.

Each request is for all partitions at once. Nothing is written to the cluster.
"""

from __future__ import annotations

import errno
import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cpreplicate.core.positions.fingerprints import Seen, digest_of
from cpreplicate.core.positions.offsets import Partition
from cpreplicate.core.positions.ranges import Range, Span, Stamp
from cpreplicate.core.positions.topics import Topics
from cpreplicate.errors import NotThere, Refused, UsageError
from cpreplicate.storage import Transient

_log = logging.getLogger(__name__)
DEADLINE = 20.0  # seconds for all that a command asks of the cluster
# Seconds. Given none, librdkafka 2.16 answers with an offset of -1001, or frees a request twice.
_LEAST_DEADLINE = 1.0
_PAUSE = 0.2  # seconds before a partition without a leader, or a group, is asked again
_POLL = 1.0  # seconds; the client does not end a call when it learns that it cannot succeed
_READING = 5.0  # seconds in which the records that are asked for are read, or left out
_AT_ONCE = 500  # messages
_SMALL = {"fetch.message.max.bytes": 4096, "enable.partition.eof": True}
_WHOLE = {
    "fetch.message.max.bytes": 1 << 16,  # a fetch has one batch at least, however large
    "queued.min.messages": 1_000,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    # positions count the records of aborted transactions, and a mirror may copy them
    "isolation.level": "read_uncommitted",
}
_PROPERTY = re.compile(r'property[: ]+"?([a-z0-9._-]+)"?|: ([a-z0-9.]+) failed', re.IGNORECASE)
# librdkafka's codes of what does not pass by itself
_PERMANENT = (
    "_AUTHENTICATION",
    "_SSL",
    "SASL_AUTHENTICATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "TOPIC_AUTHORIZATION_FAILED",
)
_END = "_PARTITION_EOF"
_NO_BROKER = "_ALL_BROKERS_DOWN"
_NO_CONNECTION = "_TRANSPORT"
_REASONS = {
    "_RESOLVE": "the name of the host does not resolve",
    _NO_CONNECTION: "no connection, or it was closed",
    _NO_BROKER: "no broker takes a connection",
    "NOT_LEADER_FOR_PARTITION": "a partition has no leader",
    "LEADER_NOT_AVAILABLE": "a partition has no leader",
    "COORDINATOR_LOAD_IN_PROGRESS": "the coordinator of the group is starting",
    "COORDINATOR_NOT_AVAILABLE": "the group has no coordinator",
    "NOT_COORDINATOR": "the group has no coordinator",
}


class KafkaCluster:
    """The cluster behind some bootstrap servers.

    `properties` are those of librdkafka, such as `sasl.password`. No value of them is in a message.
    It has `deadline` seconds to answer, and one at least.
    `option` is that which named the servers, for messages. Raises `UsageError` if the client is not
    installed, or does not take a property.
    """

    def __init__(
        self,
        servers: str,
        properties: Mapping[str, str],
        deadline: float = DEADLINE,
        option: str = "--kafka",
    ) -> None:
        self._servers, self._option = servers, option
        self._deadline = max(deadline, _LEAST_DEADLINE)
        self._error: Any = None
        self._properties = {**properties, "bootstrap.servers": servers}
        self._admin = self._connected(self._properties)

    @property
    def servers(self) -> str:
        """The bootstrap servers."""
        return self._servers

    def topics(self) -> Topics:
        """Return the partitions of each topic. Raises `Transient` and `Refused`."""
        until = time.monotonic() + self._deadline
        while True:
            try:
                found = self._admin.list_topics(timeout=_POLL).topics
                return {name: frozenset(topic.partitions) for name, topic in found.items()}
            except self._failure as error:
                self._admin.poll(0)  # without it, the client does not report its errors
                self._refuse_permanent(error)
                if time.monotonic() > until:
                    raise self._unreachable(error) from None

    def ranges(
        self, partitions: Sequence[Partition], topics: Topics | None = None
    ) -> dict[Partition, Range]:
        """Return the offsets of those of these partitions that exist.

        `topics` are those of the cluster, which else are asked for.
        """
        known = self.topics() if topics is None else topics
        there = [each for each in partitions if each[1] in known.get(each[0], ())]
        if not there:
            return {}
        from confluent_kafka.admin import OffsetSpec

        begins = self._offsets(dict.fromkeys(there, OffsetSpec.earliest()))
        ends = self._offsets(dict.fromkeys(there, OffsetSpec.latest()))
        return {each: Range(begins[each], ends[each]) for each in there}

    def denied(self, topics: Sequence[str]) -> set[str]:
        """Return those of some topics that the user may not describe: a listing leaves them out."""
        from confluent_kafka import TopicCollection

        asked = TopicCollection(list(topics))
        try:
            futures = self._admin.describe_topics(asked, request_timeout=self._deadline)
        except self._failure:
            return set()
        return {name for name, future in futures.items() if self._is_denied(future)}

    def _is_denied(self, future: Any) -> bool:
        try:
            future.result(timeout=self._deadline + _POLL)
        except (self._failure, TimeoutError) as error:
            return _name_of(error) == "TOPIC_AUTHORIZATION_FAILED"
        return False

    def since(self, time: float, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Return the offset of the first record with this time or later, where there is one.

        `time` is in seconds since the epoch.
        """
        from confluent_kafka.admin import OffsetSpec

        spec = OffsetSpec.for_timestamp(round(time * 1000))
        found = self._offsets(dict.fromkeys(partitions, spec))
        return {each: offset for each, offset in found.items() if offset >= 0}

    def first_at(self, times: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return the offset of the first record with a time of its own or later, where one is.

        Times are in milliseconds since the epoch, those of records.
        """
        from confluent_kafka.admin import OffsetSpec

        specs = {each: OffsetSpec.for_timestamp(time) for each, time in times.items()}
        return {each: offset for each, offset in self._offsets(specs).items() if offset >= 0}

    def records(
        self, spans: Mapping[Partition, Span], within: float = _READING
    ) -> dict[Partition, tuple[Seen, ...]]:
        """Return the records in a span of each partition, those of aborted transactions included.

        Partitions that may not be read, or not within so many seconds, are left out.
        """
        from confluent_kafka import Consumer

        own = {"group.id": "cpreplicate", "enable.auto.commit": False, **_WHOLE}
        consumer = Consumer({**self._properties, **own}, logger=_silent())
        try:
            return _Reading(consumer, spans).records(time.monotonic() + within)
        except self._failure:
            _log.debug("%s: no record could be read", self._servers)
            return {}
        finally:
            consumer.close()

    def stable_ends(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Return up to where no transaction is open in some partitions that exist."""
        from confluent_kafka import IsolationLevel
        from confluent_kafka.admin import OffsetSpec

        committed = {"isolation_level": IsolationLevel.READ_COMMITTED}
        return self._offsets(dict.fromkeys(partitions, OffsetSpec.latest()), **committed)

    def transaction_limit(self) -> float | None:
        """Return how long a transaction may be open, in seconds, None if that may not be read."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        try:
            brokers = self._admin.list_topics(timeout=self._deadline).brokers
            resource = ConfigResource(ResourceType.BROKER, str(min(brokers)))
            (future,) = self._admin.describe_configs([resource]).values()
            entry = future.result(timeout=self._deadline)["transaction.max.timeout.ms"]
            return int(entry.value) / 1000
        except (self._failure, TimeoutError, KeyError, ValueError):
            return None

    def stamps(self, offsets: Mapping[Partition, int]) -> dict[Partition, Stamp]:
        """Return the time of the record at an offset of each partition.

        One record of each is read. Those that may not be read are left out.
        """
        from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, TopicPartition

        own = {"group.id": "cpreplicate", "enable.auto.commit": False, **_SMALL}
        consumer = Consumer({**self._properties, **own}, logger=_silent())
        found: dict[Partition, Stamp] = {}
        left, until = set(offsets), time.monotonic() + min(self._deadline, _READING)
        try:
            consumer.assign([TopicPartition(*each, at) for each, at in offsets.items()])
            while left and time.monotonic() < until:
                for message in consumer.consume(_AT_ONCE, timeout=_PAUSE):
                    partition = message.topic(), message.partition()
                    if partition not in left:
                        continue
                    left.remove(partition)
                    consumer.incremental_unassign([TopicPartition(*partition)])
                    if message.error() is None:
                        kind, time_ = message.timestamp()
                        found[partition] = Stamp(time_ / 1000, kind == TIMESTAMP_LOG_APPEND_TIME)
        except self._failure:
            _log.debug("%s: no record could be read", self._servers)
        finally:
            consumer.close()
        return found

    def log(self, topic: str) -> Iterator[tuple[bytes, bytes, float]]:
        """Yield key, value and time of each record in a topic's first partition.

        Records without a key or a value are left out. Raises `Transient` if none arrives within the
        deadline, and `Refused` if the user may not read it.
        """
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        own = {"group.id": "cpreplicate", "enable.auto.commit": False, "enable.partition.eof": True}
        consumer = Consumer({**self._properties, **own}, logger=_silent())
        until = time.monotonic() + self._deadline
        try:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            while True:
                for message in consumer.consume(_AT_ONCE, timeout=_PAUSE):
                    if (error := message.error()) is not None:
                        if error.name() == _END:
                            return
                        self._refuse_permanent(error)
                        continue
                    until = time.monotonic() + self._deadline
                    if message.key() is not None and message.value() is not None:
                        yield message.key(), message.value(), message.timestamp()[1] / 1000
                if time.monotonic() > until:
                    raise self._unreachable(TimeoutError())
        finally:
            consumer.close()

    def committed(self, group: str, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Return the offsets that a consumer group committed in these partitions.

        Raises `NotThere` if it committed none in any of them.
        """
        self.topics()  # which fails within the deadline if the cluster cannot be reached
        found = {
            (each.topic, each.partition): each.offset
            for each in self._committed(group, partitions)
            if each.offset >= 0 and each.error is None
        }
        if not found:
            raise NotThere(
                f"the consumer group {group} of {self._servers} has committed no offset in the"
                " partitions of the checkpoint. Nothing was written"
            )
        return found

    def _committed(self, group: str, partitions: Sequence[Partition]) -> list[Any]:
        """Return what a group committed. A coordinator that is starting is asked again."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        until = time.monotonic() + self._deadline
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(*each) for each in partitions])
        while True:
            futures = self._admin.list_consumer_group_offsets(
                [asked], request_timeout=self._deadline
            )
            try:
                return list(self._result(futures[group]).topic_partitions)
            except Transient:
                if time.monotonic() > until:
                    raise
                time.sleep(_PAUSE)

    def _offsets(self, specs: Mapping[Partition, Any], **options: Any) -> dict[Partition, int]:
        """Return an offset of each partition. One that has no leader just now is asked again."""
        from confluent_kafka import TopicPartition

        until = time.monotonic() + self._deadline
        found: dict[Partition, int] = {}
        while left := [each for each in specs if each not in found]:
            asked = {TopicPartition(*each): specs[each] for each in left}
            futures = self._admin.list_offsets(asked, request_timeout=self._deadline, **options)
            failures = []
            for each, future in futures.items():
                try:
                    found[each.topic, each.partition] = self._result(future).offset
                except Transient as error:
                    failures.append(error)
            if failures and time.monotonic() > until:
                raise failures[0]
            time.sleep(_PAUSE if failures else 0)
        return found

    def _result(self, future: Any) -> Any:
        try:
            return future.result(timeout=self._deadline + _POLL)
        except (self._failure, TimeoutError) as error:
            self._admin.poll(0)
            self._refuse_permanent(error)
            raise self._unreachable(error) from None

    def _connected(self, properties: Mapping[str, str]) -> Any:
        """Return a client of the cluster. Raises `UsageError` if it takes no such properties."""
        try:
            from confluent_kafka import KafkaException
            from confluent_kafka.admin import AdminClient
        except ImportError as error:
            raise UsageError(
                f"{self._option} needs the package confluent-kafka: pip install confluent-kafka"
            ) from error
        self._failure: type[Exception] = KafkaException
        try:
            return AdminClient({**properties, "error_cb": self._note}, logger=_silent())
        except (KafkaException, TypeError, ValueError) as error:
            raise UsageError(f"{self._option}-conf: {_property_of(error)}") from None

    def _note(self, error: Any) -> None:
        """Keep what the client reports by itself: a timeout does not say why.

        An error that passes does not replace one that does not, and none is replaced by the last
        one, which has no reason.
        """
        is_kept = _name_of(self._error) in _PERMANENT or error.name() == _NO_BROKER
        if self._error is None or not is_kept:
            self._error = error

    def _refuse_permanent(self, failure: BaseException) -> None:
        """Raise `Refused` if what the client reported does not pass by itself."""
        for name in map(_name_of, (failure, self._error)):
            if name in _PERMANENT:
                raise Refused(
                    f"{self._servers} refuses the connection or the request ({name.lstrip('_')}):"
                    " check security.protocol, the certificates and the credentials in"
                    f" {self._option}-conf, and the rights of the user. Nothing was changed"
                )

    def _unreachable(self, error: BaseException) -> Transient:
        name = _name_of(error)
        _log.debug("%s: %s, %s", self._servers, name, _name_of(self._error))
        if name not in _REASONS or name == _NO_CONNECTION:  # of these the client reports why
            name = _name_of(self._error) or name
        reason = _REASONS.get(name, "no answer")
        return Transient(
            errno.ETIMEDOUT,
            f"Kafka could not be reached within {self._deadline:g} s ({reason}; check the address,"
            f" and security.protocol in {self._option}-conf)",
            self._servers,
        )


class _Reading:
    """Reads spans of partitions with one consumer, each until its end."""

    def __init__(self, consumer: Any, spans: Mapping[Partition, Span]) -> None:
        self._consumer = consumer
        self._spans = {each: span for each, span in spans.items() if span.first < span.last}
        self._found: dict[Partition, list[Seen]] = {each: [] for each in spans}
        self._left = set(self._spans)

    def records(self, until: float) -> dict[Partition, tuple[Seen, ...]]:
        """Return what could be read until a time of the monotonic clock."""
        from confluent_kafka import TopicPartition

        starts = [TopicPartition(*each, self._spans[each].first) for each in self._spans]
        self._consumer.assign(starts)
        while self._left and time.monotonic() < until:
            for message in self._consumer.consume(_AT_ONCE, timeout=_PAUSE):
                partition = message.topic(), message.partition()
                if partition in self._left and self._is_done(partition, message):
                    self._left.discard(partition)
                    self._consumer.incremental_unassign([TopicPartition(*partition)])
        return {
            each: tuple(records) for each, records in self._found.items() if each not in self._left
        }

    def _is_done(self, partition: Partition, message: Any) -> bool:
        """Take a message of a partition, and return whether nothing more of it is asked for."""
        from confluent_kafka import KafkaError

        error = message.error()
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                del self._found[partition]
            return True
        span, records = self._spans[partition], self._found[partition]
        if message.offset() >= span.last:
            return True
        try:
            records.append(_seen(message))
        except UnicodeError:  # the client takes names of headers for UTF-8, which Kafka does not
            del self._found[partition]
            return True
        return message.offset() >= span.last - 1 or len(records) >= span.most


def _seen(message: Any) -> Seen:
    from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME

    kind, time_ = message.timestamp()
    digest = digest_of(message.key(), message.value(), message.headers() or ())
    return Seen(message.offset(), time_, kind == TIMESTAMP_LOG_APPEND_TIME, digest)


def _name_of(error: Any) -> str:
    """Return the name of the code of an error of the client, empty if it has none."""
    first = error.args[0] if isinstance(error, Exception) and error.args else error
    return str(first.name()) if hasattr(first, "name") else ""


def _silent() -> logging.Logger:
    """Return a logger for the client, which else writes to stderr."""
    logger = logging.getLogger(f"{__name__}.client")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger


def _property_of(error: Exception) -> str:
    """Return which property the client does not take. The client's own text may hold its value."""
    found = _PROPERTY.search(str(error))
    name = (found[1] or found[2]) if found is not None else "a property"
    return (
        f"{name} is not taken by the client, or not with this value. The properties are those of"
        " librdkafka"
    )
