"""Both clients of HDFS on secure clusters of two realms, one of which encrypts what it sends."""

from __future__ import annotations

import pytest

from tests.kerberos.conftest import replica_of
from tests.support import parts
from tests.support.kerberos import Secure

pytestmark = pytest.mark.xdist_group("kerberos")

CLIENTS = ["native", "hadoop"]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_ticket_serves_clusters_of_two_realms(
    secure: Secure, checkpoint: str, target: str, client: str
) -> None:
    ticket, chosen = secure.ticket("alice"), ["--hdfs-client", client]
    synced = secure.run("sync", checkpoint, target, *secure.conf, *chosen, **ticket)
    assert synced.returncode == 0, synced
    words = ["verify", replica_of(target), *secure.conf[2:], *chosen]
    verified = secure.run(*words, "--content", **ticket)
    assert verified.returncode == 0, verified


@pytest.mark.parametrize("client", parts.cases(CLIENTS, ["native"]))
def test_executors_use_the_ticket_of_their_host(
    secure: Secure, checkpoint: str, target: str, client: str
) -> None:
    words = ["--runner", "spark", "--master", "local[2]", "--hdfs-client", client]
    synced = secure.run("sync", checkpoint, target, *secure.conf, *words, **secure.ticket("alice"))
    assert synced.returncode == 0, synced
    assert "2 files" in synced.stdout + synced.stderr, synced
