"""Keep with a checkpoint by which records its positions are known at the Kafka that its job reads.

They are read beside the copies. What fails is a warning: no checkpoint waits or fails for it. A
Kafka that did not answer is not asked for a while, so that its jobs do not hold up others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import lru_cache

from cpreplicate.kafka.cluster import KafkaCluster
from cpreplicate.kafka.conf import properties
from cpreplicate.operations.change.change import Change
from cpreplicate.operations.kafka.fingerprints import Fingerprinted, Taken, take
from cpreplicate.operations.kafka.positions import positions_of
from cpreplicate.operations.sync.source.state import SourceState
from cpreplicate.protocol.fingerprint_record import record_fingerprints
from cpreplicate.protocol.lease import JUST_CHECKED
from cpreplicate.storage import Transient
from cpreplicate.storage.waiting.side_call import SideCall, in_thread

LIMIT = 10.0  # seconds in which the records of a checkpoint are read, or left out
_READING = 0.9  # of these: what could not be read by then is left out of what is kept
PAUSE = 60.0  # seconds for which a Kafka is not asked that did not answer
OPTION = "--kafka-source"


def kafka_source(servers: str, conf: str | None) -> KafkaCluster:
    """Return the Kafka that a job reads; one client serves all jobs. Raises `UsageError`."""
    own = {} if conf is None else properties(conf, f"{OPTION}-conf")
    return _connected(servers, tuple(sorted(own.items())))


@lru_cache(maxsize=16)
def _connected(servers: str, own: tuple[tuple[str, str], ...]) -> KafkaCluster:
    return KafkaCluster(servers, dict(own), LIMIT, OPTION)


class Silence:
    """Which Kafkas did not answer, by their servers, and until when they are not asked."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def begin(self, servers: str) -> None:
        """Record that a Kafka did not answer."""
        self._until[servers] = self._clock() + PAUSE

    def has(self, servers: str) -> bool:
        """Return whether a Kafka is not asked now."""
        return self._clock() < self._until.get(servers, -math.inf)


_SILENCE = Silence()  # of all jobs of this process


class Fingerprinting:
    """Reads the fingerprints of a checkpoint in another thread, from now on."""

    def __init__(self, source_state: SourceState, silence: Silence = _SILENCE) -> None:
        self._began = time.monotonic()
        self._checkpoint = source_state.placement.name
        self._completed = source_state.source.completed
        self._servers, self._silence = source_state.request.kafka_source, silence
        self._call: SideCall[Taken] | None = None
        self._error: str | None = None
        if self._servers is not None:
            self._begin(source_state, self._servers)

    def _begin(self, source_state: SourceState, servers: str) -> None:
        if self._silence.has(servers):
            self._error = f"the Kafka did not answer before, and is asked again after {PAUSE:g} s"
            return
        try:
            until = self._began + _READING * LIMIT
            self._call = in_thread(lambda: _taken(source_state, until), "fingerprints")
        except RuntimeError as error:  # the system has no thread left
            self._error = str(error)

    def keep(self, change: Change) -> Fingerprinted | None:
        """Write the fingerprints beside the record of the checkpoint, which is committed.

        Waits for their reading no longer than what is left of `LIMIT`. Each failure is returned,
        also that of the write. Returns None if they are not asked for.
        """
        if self._call is None:
            return None if self._error is None else Fingerprinted(error=self._error)
        assert self._servers is not None, "it is asked"
        if not self._call.wait_or_be_cancelled(self._began + LIMIT - time.monotonic()):
            self._silence.begin(self._servers)
            return Fingerprinted(error=f"the Kafka did not answer within {LIMIT:g} s")
        try:
            taken = self._result(self._call, self._servers)
            self._write(taken, change)
        except Exception as error:  # noqa: BLE001  # the checkpoint is as good without them
            return Fingerprinted(error=str(error) or type(error).__name__)
        return Fingerprinted(len(taken.fingerprints), taken.without)

    def _result(self, call: SideCall[Taken], servers: str) -> Taken:
        try:
            return call.result()
        except Transient:  # of this Kafka, or of the source
            self._silence.begin(servers)
            raise

    def _write(self, taken: Taken, change: Change) -> None:
        if taken.fingerprints:
            change.lease.check(JUST_CHECKED)
            kept = taken.fingerprints, self._completed
            record_fingerprints(change.replica, self._checkpoint, *kept)


def _taken(source_state: SourceState, until: float) -> Taken:
    """Return what could be read until a time of the monotonic clock."""
    request = source_state.request
    assert request.kafka_source is not None
    found = positions_of(source_state.file, request.sides.source, request.remaps)
    assert found is not None, "it is returned wherever it is asked for"
    kafka = kafka_source(request.kafka_source, request.kafka_source_conf)
    return take(kafka, found.found, until - time.monotonic())
