"""Runs a real Kafka broker in KRaft mode on loopback: its jars come from Maven, by `tests/kafka`.

The broker is killed when the tests end, however they end.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.support import building
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE, wait_until

PROJECT = Path(__file__).resolve().parent.parent / "kafka"
USER, PASSWORD, STORE_PASSWORD = "reader", "sesame-open", "keystore-password"
_CLUSTER_ID = "Y3ByZXBsaWNhdGUtdGVzdA"  # 16 bytes in Base64
_QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
JVM = ["-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", _QUIET]
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
# codes of a coordinator that cannot answer yet
_STARTING = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")
_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{_LOGIN} user_{USER}="{PASSWORD}";',
    "ssl.keystore.type": "PKCS12",
    "ssl.keystore.password": STORE_PASSWORD,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.retention.check.interval.ms": "3600000",
    "broker.session.timeout.ms": "3600000",  # else a broker that stood still for 9 s is fenced
}


class Kafka:
    """A broker. `servers` take anyone, `secured` those who know the password, over TLS."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="cpreplicate-kafka-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.servers = self.secured = ""
        self.certificate = self._directory / "ca.pem"
        self._store = self._directory / "store.p12"

    def __enter__(self) -> Kafka:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        self._admin = AdminClient(self._client())
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a client of `secured`."""
        return {
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self.certificate),
            "sasl.mechanisms": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }

    def create(self, topic: str, ends: Mapping[int, int] | None = None, partitions: int = 1) -> str:
        """Create a topic whose partitions hold so many records, and return its name."""
        _all(self._admin.create_topics([NewTopic(topic, partitions, 1)]))
        self._wait_for(topic, partitions)
        for partition, count in (ends or {}).items():
            self.write(topic, partition, count)
        return topic

    def write(self, topic: str, partition: int, count: int, time: int = 0) -> None:
        """Append records to a partition, with this time in milliseconds, or that of now."""
        producer = Producer(self._client(**{"linger.ms": 0}))  # it knows the partitions of now
        for number in range(count):
            producer.produce(topic, str(number), partition=partition, timestamp=time)
        assert producer.flush(PATIENCE) == 0

    def create_dated_by_broker(self, topic: str) -> str:
        """Create a topic whose records have the time at which the broker wrote them."""
        config = {"message.timestamp.type": "LogAppendTime"}
        _all(self._admin.create_topics([NewTopic(topic, 1, 1, config=config)]))
        self._wait_for(topic, 1)
        return topic

    def hide(self, topic: str) -> None:
        """Take the right to describe a topic from all but another user."""
        resource = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
        of_other = ("User:other", "*", AclOperation.DESCRIBE, AclPermissionType.ALLOW)
        _all(self._admin.create_acls([AclBinding(*resource, *of_other)]))
        wait_until(
            lambda: topic not in self._admin.list_topics(timeout=PATIENCE).topics,
            f"{topic} to be hidden",
        )

    @contextmanager
    def open_transaction(self, topic: str, partition: int) -> Iterator[None]:
        """Keep a transaction open that wrote a record to a partition."""
        producer = Producer(self._client(**{"transactional.id": f"open-{topic}"}))
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
        producer.produce(topic, "open", partition=partition)
        assert producer.flush(PATIENCE) == 0
        yield
        producer.abort_transaction(PATIENCE)

    def widen(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        _all(self._admin.create_partitions([NewPartitions(topic, partitions)]))
        self._wait_for(topic, partitions)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete the records of a partition below an offset."""
        _all(self._admin.delete_records([TopicPartition(topic, partition, offset)]))

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets of a consumer group, once its coordinator has started."""
        consumer = Consumer(self._client(**{"group.id": group}))
        places = [TopicPartition(*each, offset) for each, offset in offsets.items()]

        def is_committed() -> bool:
            try:
                consumer.commit(offsets=places, asynchronous=False)
            except KafkaException as error:
                if error.args[0].name() not in _STARTING:
                    raise
                return False
            return True

        try:
            wait_until(is_committed, f"the offsets of the group {group}")
        finally:
            consumer.close()

    def _wait_for(self, topic: str, partitions: int) -> None:
        """Wait until clients see all partitions: the broker answers before it knows them."""

        def are_known() -> bool:
            found = self._admin.list_topics(timeout=PATIENCE).topics.get(topic)
            return found is not None and len(found.partitions) == partitions

        wait_until(are_known, f"{topic} with {partitions} partitions")

    def _start(self) -> None:
        """Start the broker, again where another process took one of its ports meanwhile."""
        jars = class_path(PROJECT)
        self._make_certificate()
        while not self._is_started(jars):
            pass

    def _is_started(self, jars: str) -> bool:
        file = self._directory / "server.properties"
        properties = {**_PROPERTIES, **self._own_properties()}
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        words = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(file)]
        _run("java", *JVM, "-cp", jars, *words)
        command = ["java", *JVM, "-cp", jars, "kafka.Kafka", str(file)]
        log = self._directory / "log"
        with log.open("wb") as out:
            # if this process is killed, the broker is, too
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        wait_until(lambda: self._has_ended(log) or self._answers(), "the broker", pause=0.1)
        return not self._has_ended(log)

    def _own_properties(self) -> dict[str, str]:
        open_, secured, controller = (f"127.0.0.1:{free_port()}" for _ in range(3))
        self.servers, self.secured = open_, secured
        data = self._directory / "data"
        shutil.rmtree(data, ignore_errors=True)
        return {
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{open_},SASL_SSL://{secured},CONTROLLER://{controller}",
            "ssl.keystore.location": str(self._store),
            "log.dirs": str(data),
        }

    def _has_ended(self, log: Path) -> bool:
        """Return whether a port was taken. Fails if the broker ended for another reason."""
        assert self._process is not None
        if self._process.poll() is None:
            return False
        printed = log.read_text(errors="replace")
        assert "Address already in use" in printed, printed[-4000:]
        return True

    def _answers(self) -> bool:
        with suppress(KafkaException):
            return bool(AdminClient(self._client()).list_topics(timeout=2).brokers)
        return False

    def _client(self, **properties: object) -> dict[str, Any]:
        """Return the properties of a client that prints nothing."""
        return {"bootstrap.servers": self.servers, "log_level": 0, **properties}

    def _make_certificate(self) -> None:
        store = ["-keystore", str(self._store), "-storepass", STORE_PASSWORD]
        key = ["-genkeypair", "-keyalg", "EC", "-alias", "broker", "-dname", "CN=broker"]
        _run("keytool", *key, "-ext", "san=ip:127.0.0.1", "-storetype", "PKCS12", *store)
        _run(
            "keytool",
            "-exportcert",
            "-rfc",
            "-alias",
            "broker",
            *store,
            "-file",
            str(self.certificate),
        )


def _all(futures: Mapping[Any, Future[Any]]) -> None:
    for future in futures.values():
        future.result(PATIENCE)


def class_path(project: Path) -> str:
    """Return the class path of a project, resolved once by Maven: offline where it is cached."""
    target = project / "target"
    found, stamp = target / "classpath.txt", target / "stamp"
    poms = sorted({PROJECT / "pom.xml", project / "pom.xml"})
    wanted = "\n".join(file.read_text() for file in poms)
    with building.alone():
        if not (stamp.exists() and stamp.read_text() == wanted):
            words = ["mvn", "-q", "-B", "-f", str(project / "pom.xml")]
            try:
                _run(*words, "dependency:build-classpath", "--offline")
            except AssertionError:
                _run(*words, "dependency:build-classpath")
            stamp.write_text(wanted)
    return found.read_text().strip()


def _run(*command: str) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}"


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """A broker that all tests share: each makes topics of its own."""
    with Kafka() as started:
        yield started
