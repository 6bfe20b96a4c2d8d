"""Both clients of HDFS on secure clusters: pairs of client, runner, credentials, protection, realms
and failover.

The second cluster is an HA pair of another realm, with privacy by AES. What a case does not have
is in `make nightly`: `test_matrix.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kerberos.conftest import FILES, keytab_of, replica_of
from tests.support import parts
from tests.support.doctor import parsed
from tests.support.hdfs import HdfsCluster
from tests.support.jobs import write_checkpoint
from tests.support.kerberos import Secure

pytestmark = pytest.mark.xdist_group("kerberos")

CLIENTS = ["native", "hadoop"]
FALLBACK = "ipc.client.fallback-to-simple-auth-allowed=true"
_SPARK = ("--runner", "spark", "--master", "local[2]")


class Case(NamedTuple):
    """A sync as alice, to the cluster `to`, from the cluster `of` or from a local directory."""

    client: str
    runner: str
    credentials: str
    of: str
    to: str

    def __str__(self) -> str:
        return "-".join((*self[:3], f"{self.of or 'local'}_to_{self.to}"))


_MAIN = (Case("native", "inline", "ticket", "a", "b"),)
_REST = (
    Case("hadoop", "inline", "tokens", "a", "a"),  # of a host and port
    Case("native", "inline", "tokens", "", "b"),  # of an HA pair
    Case("native", "spark", "tokens", "a", "a"),
    Case("hadoop", "spark", "ticket", "a", "a"),
    Case("hadoop", "spark", "tokens", "a", "b"),
    Case("hadoop", "inline", "keytab", "a", "b"),
)


@pytest.fixture(scope="session")
def tokens(secure: Secure) -> Path:
    """A file with a delegation token of alice's for each cluster."""
    path = secure.directory / "alice.tokens"
    for cluster in (secure.a, secure.b):
        secure.get_token(cluster, path)
    return path


@pytest.mark.parametrize("case", parts.cases((*_MAIN, *_REST), _MAIN), ids=str)
def test_a_client_writes_and_reads_before_and_after_a_failover(
    secure: Secure, checkpoint: str, request: pytest.FixtureRequest, tmp_path: Path, case: Case
) -> None:
    cluster: HdfsCluster = getattr(secure, case.to)
    target = f"{cluster.uri}/alice/{case}"
    source = checkpoint if case.of else str(write_checkpoint(tmp_path / "source", 1, FILES))
    words = (["--source-conf", secure.directory / "conf-a"] if case.of else []) + _to(secure, case)
    environment = _environment(secure, case, request)
    runner = _SPARK if case.runner == "spark" else ()
    if case.credentials == "keytab":
        words += keytab_of("source", secure.realms.a, "alice")
    if case.to == "b":
        cluster.failover()
    synced = secure.run("sync", source, target, *words, *runner, **environment)
    assert synced.returncode == 0, synced
    assert "2 files" in synced.stdout + synced.stderr, synced
    if case.to == "b":
        cluster.failover()
    verifying = ["verify", replica_of(target), *_to(secure, case), "--content"]
    verified = secure.run(*verifying, **environment)
    assert verified.returncode == 0, verified


def _to(secure: Secure, case: Case) -> list[object]:
    words: list[object] = ["--target-conf", secure.directory / f"conf-{case.to}"]
    words += ["--hdfs-client", case.client]
    if case.credentials == "keytab":
        words += keytab_of("target", secure.realms.a, "alice")
    return words


def _environment(secure: Secure, case: Case, request: pytest.FixtureRequest) -> dict[str, str]:
    if case.credentials == "ticket":
        return secure.ticket("alice")
    if case.credentials == "keytab":
        return secure.without_ticket
    path = request.getfixturevalue("tokens")
    return {**secure.without_ticket, "HADOOP_TOKEN_FILE_LOCATION": str(path)}


@pytest.mark.parametrize("client", ["native", parts.nightly("hadoop")])
def test_a_user_who_may_be_another(secure: Secure, checkpoint: str, client: str) -> None:
    words = ["inspect", checkpoint, *secure.conf[:2], "--hdfs-client", client]
    environment = secure.ticket("bob")
    assert secure.run(*words, **environment).returncode == 1  # alice's directory
    done = secure.run(*words, HADOOP_PROXY_USER="alice", **environment)
    assert done.returncode == 0, done


@pytest.fixture(scope="module")
def insecure() -> Iterator[HdfsCluster]:
    """A cluster without Kerberos, to which all users may write; closed with the tests."""
    with HdfsCluster(datanodes=1) as cluster:
        cluster.chmod("/", 0o777)
        yield cluster


@pytest.mark.rest
@pytest.mark.parametrize("client", parts.cases(CLIENTS, ["native"]))
def test_a_secure_source_with_a_target_without_kerberos(
    secure: Secure, checkpoint: str, insecure: HdfsCluster, tmp_path: Path, client: str
) -> None:
    """Hadoop's client needs the property on both sides: its JVM has one IPC client."""
    target, chosen = f"{insecure.uri}/{client}", ["--hdfs-client", client]
    conf = ["--target-conf", insecure.write_conf_dir(tmp_path / "insecure")]
    ticket, place = secure.ticket("alice"), [checkpoint, target]
    if client == "hadoop":
        words, remedy = [*place, *secure.conf[:2], *conf, *chosen, "-q"], f"Set {FALLBACK} for both"
        refused = secure.run("sync", *words, **ticket)
        assert refused.returncode == 7, refused
        assert remedy in refused.stderr
        done = secure.run("doctor", *words, "--output", "json", "--retry-for", "1s", **ticket)
        found = parsed(done.returncode, done.stdout)
        assert found.code == 7, found
        assert found.status("target reach") == "failed", found
        assert remedy in found.text("target reach")
        for side in ("source", "target"):
            conf += [f"--{side}-conf", FALLBACK]
    synced = secure.run("sync", *place, *secure.conf[:2], *conf, *chosen, **ticket)
    assert synced.returncode == 0, synced
    verified = secure.run("verify", replica_of(target), *conf[:2], "--content")
    assert verified.returncode == 0, verified
