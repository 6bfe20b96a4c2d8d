"""What is wrong with credentials or a configuration ends a run at once, and says what to change."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import parts
from tests.support.kerberos import Secure

pytestmark = pytest.mark.xdist_group("kerberos")

CLIENTS = parts.cases(["native", "hadoop"], ["native"])
LONG = "60s"  # what is retried at all would not end
Failed = Callable[..., str]


@pytest.fixture
def failed(secure: Secure, checkpoint: str) -> Failed:
    """Runs `inspect`, which must end with exit 7, and returns its line."""

    def run(client: str, *words: object, retry_for: str = LONG, **environment: str) -> str:
        conf = [] if "--source-conf" in words else secure.conf[:2]
        chosen = ["--hdfs-client", client, "--retry-for", retry_for, "-q"]
        environment = {**secure.ticket("alice"), **environment}
        done = secure.run("inspect", checkpoint, *conf, *words, *chosen, **environment)
        assert done.returncode == 7, done
        (line,) = done.stderr.splitlines()
        assert checkpoint.rpartition("/")[0].split("/alice")[0] in line
        return line

    return run


@pytest.mark.parametrize("client", CLIENTS)
def test_no_ticket(secure: Secure, failed: Failed, client: str) -> None:
    line = failed(client, **secure.without_ticket)
    assert f"no valid Kerberos ticket in {secure.without_ticket['KRB5CCNAME']}. Run kinit" in line
    assert "--source-keytab" in line


@pytest.mark.parametrize("client", CLIENTS)
def test_an_expired_ticket(secure: Secure, failed: Failed, client: str, tmp_path: Path) -> None:
    secure.realms.a.kinit("alice", tmp_path / "ticket", life="1s")
    time.sleep(2)
    line = failed(client, KRB5CCNAME=f"FILE:{tmp_path}/ticket")
    assert "ticket has expired" in line or "no valid Kerberos ticket" in line
    assert "Run kinit" in line


@pytest.mark.parametrize("client", CLIENTS)
def test_a_configuration_without_kerberos(
    failed: Failed, configured: Callable[..., Path], client: str
) -> None:
    conf = configured({"hadoop.security.authentication": "simple"})
    line = failed(client, "--source-conf", conf)
    assert "Set hadoop.security.authentication=kerberos" in line


@pytest.mark.rest
def test_another_principal_of_the_namenode_is_found_by_hadoops_client(
    failed: Failed, configured: Callable[..., Path]
) -> None:
    conf = configured({"dfs.namenode.kerberos.principal": "nn/localhost@A.TEST"})
    line = failed("hadoop", "--source-conf", conf)
    assert "is hdfs/localhost@A.TEST, and the configuration expects nn/localhost@A.TEST" in line
    assert "Correct dfs.namenode.kerberos.principal" in line


def test_a_realm_that_no_kdc_knows(secure: Secure, failed: Failed, tmp_path: Path) -> None:
    conf = tmp_path / "krb5.conf"
    conf.write_text(secure.realms.conf.read_text().replace("localhost = A.", "localhost = C."))
    secure.realms.a.kinit("alice", tmp_path / "ticket")
    line = failed("native", KRB5_CONFIG=str(conf), KRB5CCNAME=f"FILE:{tmp_path}/ticket")
    assert "the KDC does not know the server's principal (krbtgt/C.TEST@A.TEST)" in line
    assert "[domain_realm]" in line


def test_no_library_of_kerberos(failed: Failed, tmp_path: Path) -> None:
    (tmp_path / "libgssapi_krb5.so.2").write_bytes(b"")
    line = failed("native", LD_LIBRARY_PATH=str(tmp_path))
    assert "Install libgssapi-krb5-2 (Debian, Ubuntu) or krb5-libs (RHEL)" in line


@pytest.mark.parametrize("client", CLIENTS)
def test_data_nodes_that_want_protection_are_named_after_the_retries(
    failed: Failed, configured: Callable[..., Path], client: str
) -> None:
    conf = configured({"dfs.data.transfer.protection": None})
    line = failed(client, "--source-conf", conf, retry_for="1s")
    assert "set dfs.data.transfer.protection as on the cluster" in line


@pytest.mark.parametrize("client", CLIENTS)
def test_a_user_who_may_not_be_another(failed: Failed, client: str) -> None:
    line = failed(client, HADOOP_PROXY_USER="bob", retry_for="1s")
    assert "not let this principal act for HADOOP_PROXY_USER" in line
    assert "hadoop.proxyuser." in line


@pytest.mark.parametrize("client", CLIENTS)
def test_a_user_who_may_be_another(secure: Secure, checkpoint: str, client: str) -> None:
    words = ["inspect", checkpoint, *secure.conf[:2], "--hdfs-client", client]
    environment = secure.ticket("bob")
    assert secure.run(*words, **environment).returncode == 1  # alice's directory
    done = secure.run(*words, HADOOP_PROXY_USER="alice", **environment)
    assert done.returncode == 0, done


@pytest.fixture(scope="module")
def tokens(secure: Secure, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The delegation token of alice for the first cluster."""
    path = tmp_path_factory.mktemp("tokens") / "alice.token"
    fetch(secure, "--renewer", "alice", path)
    return path


def fetch(secure: Secure, *words: object) -> None:
    """Run `hdfs fetchdt` as alice."""
    secure.java(
        "org.apache.hadoop.hdfs.tools.DelegationTokenFetcher", *words, **secure.ticket("alice")
    )


@pytest.mark.parametrize("client", CLIENTS)
def test_delegation_tokens_serve_a_cluster_that_is_named_by_its_host(
    secure: Secure, checkpoint: str, tokens: Path, client: str
) -> None:
    environment = {**secure.without_ticket, "HADOOP_TOKEN_FILE_LOCATION": str(tokens)}
    words = ["inspect", checkpoint, *secure.conf[:2], "--hdfs-client", client]
    done = secure.run(*words, **environment)
    assert done.returncode == 0, done


@pytest.mark.parametrize("client", CLIENTS)
def test_a_delegation_token_that_is_no_longer_valid(
    secure: Secure, failed: Failed, client: str, tmp_path: Path
) -> None:
    path = tmp_path / "cancelled.token"
    fetch(secure, "--renewer", "alice", path)
    fetch(secure, "--cancel", path)
    line = failed(client, HADOOP_TOKEN_FILE_LOCATION=str(path))
    assert "the delegation token is not valid" in line
    assert "unset that to use the ticket" in line
