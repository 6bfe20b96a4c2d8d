"""A Kafka cluster, asked by `confluent_kafka`: the offsets that exist, and those of a group.

Each request is for all partitions at once. Nothing is written to the cluster.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import re
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from cpreplicate.core.positions.offsets import Partition
from cpreplicate.core.positions.ranges import Range
from cpreplicate.errors import NotThere, Refused, UsageError
from cpreplicate.storage import Transient

_log = logging.getLogger(__name__)
_DEADLINE = 20.0  # seconds for all that a command asks of the cluster
_POLL = 1.0  # seconds; the client does not end a call when it learns that it cannot succeed
_PROPERTY = re.compile(r'property[: ]+"?([A-Za-z0-9._-]+)"?')
# librdkafka's codes of what does not pass by itself
_PERMANENT = (
    "_AUTHENTICATION",
    "_SSL",
    "SASL_AUTHENTICATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
)


class KafkaCluster:
    """The cluster behind some bootstrap servers.

    `properties` are those of librdkafka, such as `sasl.password`. No value of them is in a message.
    Raises `UsageError` if the client is not installed, or does not take a property.
    """

    def __init__(
        self, servers: str, properties: Mapping[str, str], deadline: float = _DEADLINE
    ) -> None:
        self._servers, self._deadline = servers, deadline
        self._error: Any = None
        self._admin = self._connected({**properties, "bootstrap.servers": servers})

    def topics(self) -> Mapping[str, Collection[int]]:
        """Return the partitions of each topic. Raises `Transient` and `Refused`."""
        until = time.monotonic() + self._deadline
        while True:
            try:
                found = self._admin.list_topics(timeout=_POLL).topics
                return {name: frozenset(topic.partitions) for name, topic in found.items()}
            except self._failure as error:
                self._refuse_permanent()
                if time.monotonic() > until:
                    raise self._unreachable(error) from None

    def ranges(self, partitions: Sequence[Partition]) -> dict[Partition, Range]:
        """Return the offsets of those of these partitions that exist."""
        topics = self.topics()
        there = [each for each in partitions if each[1] in topics.get(each[0], ())]
        if not there:
            return {}
        from confluent_kafka.admin import OffsetSpec

        begins = self._offsets(there, OffsetSpec.earliest())
        ends = self._offsets(there, OffsetSpec.latest())
        return {each: Range(begins[each], ends[each]) for each in there}

    def committed(self, group: str, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Return the offsets that a consumer group committed in these partitions.

        Raises `NotThere` if it committed none in any of them.
        """
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        self.topics()  # which fails within the deadline if the cluster cannot be reached
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(*each) for each in partitions])
        futures = self._admin.list_consumer_group_offsets(
            [asked], request_timeout=self._deadline
        ).values()
        found = {
            (each.topic, each.partition): each.offset
            for future in futures
            for each in self._result(future).topic_partitions
            if each.offset >= 0 and each.error is None
        }
        if not found:
            raise NotThere(
                f"the consumer group {group} of {self._servers} has committed no offset in the"
                " partitions of the checkpoint. Nothing was written"
            )
        return found

    def _offsets(self, partitions: Sequence[Partition], spec: Any) -> dict[Partition, int]:
        from confluent_kafka import TopicPartition

        asked = {TopicPartition(*each): spec for each in partitions}
        futures = self._admin.list_offsets(asked, request_timeout=self._deadline)
        return {
            (each.topic, each.partition): self._result(future).offset
            for each, future in futures.items()
        }

    def _result(self, future: Any) -> Any:
        try:
            return future.result(timeout=self._deadline + _POLL)
        except (self._failure, TimeoutError) as error:
            self._refuse_permanent()
            raise self._unreachable(error) from None

    def _connected(self, properties: Mapping[str, str]) -> Any:
        try:
            from confluent_kafka import KafkaException
            from confluent_kafka.admin import AdminClient
        except ImportError as error:
            raise UsageError(
                "--kafka needs the package confluent-kafka: install cpreplicate[kafka]"
            ) from error
        self._failure: type[Exception] = KafkaException
        try:
            return AdminClient({**properties, "error_cb": self._note}, logger=_silent())
        except (KafkaException, TypeError, ValueError) as error:
            raise UsageError(f"--kafka-conf: {_property_of(error)}") from None

    def _note(self, error: Any) -> None:
        """Keep the last error that the client reports by itself: a timeout does not say why."""
        self._error = error

    def _refuse_permanent(self) -> None:
        """Raise `Refused` if what the client reported does not pass by itself."""
        if self._error is not None and self._error.name() in _PERMANENT:
            raise Refused(
                f"{self._servers} refuses the connection ({self._error.name().lstrip('_')}): check"
                " security.protocol, the certificates and the credentials in --kafka-conf"
            )

    def _unreachable(self, error: BaseException) -> Transient:
        _log.debug("%s: %s, %s", self._servers, error, self._error)
        reason = "does not answer"
        with contextlib.suppress(AttributeError, IndexError):
            reason = self._error.name().lstrip("_").lower().replace("_", " ")
        return Transient(
            errno.ETIMEDOUT, f"Kafka could not be reached within its time ({reason})", self._servers
        )


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
    name = found[1] if found is not None else "a property"
    return (
        f"{name} is not taken by the client, or not with this value. The properties are those of"
        " librdkafka"
    )
