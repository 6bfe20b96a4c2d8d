"""Runs that outlive their tickets: a keytab gets new ones, and services wait for them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.kerberos.conftest import keytab_of, replica_of, written
from tests.support import parts
from tests.support.kerberos import Secure
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.xdist_group("kerberos")

_MANY = {f"shared/{number}": 5000 for number in range(30)}  # 37 s at 4 KB/s
_LIFE = 12  # seconds: more than the tickets of `short` last

of_each_service = pytest.mark.parametrize(
    ("command", "client"),
    [
        ("watch", "native"),
        parts.rest("fleet", "hadoop"),
        parts.nightly("watch", "hadoop"),
        parts.nightly("fleet", "native"),
    ],
)


class Running:
    """A command of cpreplicate that runs, and what it has printed."""

    def __init__(self, secure: Secure, log: Path, words: Sequence[object], cache: str) -> None:
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cpreplicate", *map(str, words)],
                env={**os.environ, **secure.realms.environment, "KRB5CCNAME": cache},
                stdout=output,
                stderr=output,
            )
        self._log = log

    def text(self) -> str:
        """Return what it has printed."""
        return self._log.read_text()

    def prints(self, part: str, after: str = "") -> None:
        """Wait until it has printed a text, behind another one that it has printed before."""
        wait_until(lambda: part in self.text()[max(self.text().find(after), 0) :], part)
        assert self.process.poll() is None, self.text()


@contextlib.contextmanager
def running(secure: Secure, log: Path, words: Sequence[object], cache: str) -> Iterator[Running]:
    """Run a command until the end of the block."""
    started = Running(secure, log, words, cache)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait(timeout=PATIENCE)


@pytest.mark.rest
@of_each_service
def test_a_service_outlives_the_ticket_of_its_keytab(
    secure: Secure, tmp_path: Path, command: str, client: str
) -> None:
    name = uuid.uuid4().hex
    job = written(secure, "short", name, 1).rpartition("/")[0]
    target = f"{secure.b.uri}/short/{name}"
    words = [*service(secure, tmp_path, command, client, job, target)]
    words += [*keytab_of("source", secure.realms.a, "short")]
    words += [*keytab_of("target", secure.realms.a, "short")]
    with running(secure, tmp_path / "log", words, secure.without_ticket["KRB5CCNAME"]) as service_:
        service_.prints("chk-1")
        time.sleep(_LIFE)
        secure.a.restart_namenode()  # so that connections are made again
        secure.b.failover()
        written(secure, "short", name, 2)
        service_.prints("chk-2")


@of_each_service
def test_a_service_goes_on_when_there_is_a_new_ticket(
    secure: Secure, checkpoint: str, target: str, command: str, client: str, tmp_path: Path
) -> None:
    cache = tmp_path / "ticket"
    secure.realms.a.kinit("alice", cache, life="1s")
    time.sleep(2)
    job = checkpoint.rpartition("/")[0]
    words = service(secure, tmp_path, command, client, job, target)
    with running(secure, tmp_path / "log", words, f"FILE:{cache}") as service_:
        service_.prints("tried again")
        assert "ticket" in service_.text()
        secure.realms.a.kinit("alice", cache)
        service_.prints("chk-1", after="tried again")
    verifying = ["verify", replica_of(target), *secure.conf[2:]]
    assert secure.run(*verifying, **secure.ticket("alice")).returncode == 0


def service(
    secure: Secure, directory: Path, command: str, client: str, job: str, target: str
) -> list[object]:
    """Return the command of a service that follows a job."""
    if command == "watch":
        chosen = ["--hdfs-client", client, "--interval", "1s"]
        return ["watch", job, target, *secure.conf, *chosen]
    config = directory / "jobs.toml"
    config.write_text(f'[[job]]\nname = "orders"\nsource = "{job}"\ntarget = "{target}"\n')
    chosen = ["--hdfs-client", client, "--every", "1s", "--max-backoff", "2s"]
    return ["fleet", config, *secure.conf, *chosen]


@pytest.mark.parametrize("client", [parts.rest("native"), parts.nightly("hadoop")])
def test_a_sync_outlives_the_ticket_of_its_keytab(
    secure: Secure, tmp_path: Path, client: str
) -> None:
    name = uuid.uuid4().hex
    source = written(secure, "short", name, 1, _MANY)
    target = f"{secure.b.uri}/short/{name}"
    words = ["sync", source, target, *secure.conf, "--hdfs-client", client]
    words += [*keytab_of("source", secure.realms.a, "short")]
    words += [*keytab_of("target", secure.realms.a, "short"), "--bandwidth", "4KB/s"]
    with running(secure, tmp_path / "log", words, secure.without_ticket["KRB5CCNAME"]) as sync:
        time.sleep(_LIFE)
        assert sync.process.poll() is None, sync.text()
        secure.b.failover()
        assert sync.process.wait(PATIENCE) == 0, sync.text()
