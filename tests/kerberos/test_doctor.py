"""`doctor` on secure clusters: it names what the configuration of a side lacks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import parts
from tests.support.doctor import Examined, parsed
from tests.support.kerberos import Secure

pytestmark = pytest.mark.xdist_group("kerberos")

Configure = Callable[[dict[str, str | None]], Path]


@pytest.fixture
def doctor(secure: Secure, checkpoint: str, target: str) -> Callable[..., Examined]:
    """Runs `doctor` as alice, with other options of the source if they are given."""

    def run(*words: object, **environment: str) -> Examined:
        conf = secure.conf[2:] if "--source-conf" in words else secure.conf
        command = ["doctor", checkpoint, target, *conf, *words, "--output", "json"]
        command += ["--retry-for", "1s", "-q"]
        done = secure.run(*command, **{**secure.ticket("alice"), **environment})
        assert not done.stderr, done
        return parsed(done.returncode, done.stdout)

    return run


@pytest.mark.parametrize("client", parts.cases(["native", "hadoop"], ["native"]))
def test_a_sync_that_could_run(doctor: Callable[..., Examined], client: str) -> None:
    found = doctor("--hdfs-client", client)
    assert found.code == 0
    assert found.names("failed") == found.names("warning") == []


def test_no_ticket(secure: Secure, doctor: Callable[..., Examined]) -> None:
    found = doctor(**secure.without_ticket)
    assert found.code == 7
    assert found.names("failed") == ["source reach", "target reach"]
    assert "no valid Kerberos ticket" in found.text("source reach")
    assert "Run kinit" in found.text("source reach")


def test_a_configuration_without_kerberos(
    doctor: Callable[..., Examined], configured: Configure
) -> None:
    conf = configured({"hadoop.security.authentication": "simple"})
    found = doctor("--source-conf", conf)
    assert found.code == 7
    assert found.names("failed") == ["source conf"]
    assert "demands Kerberos" in found.text("source conf")
    assert "Set hadoop.security.authentication=kerberos in --source-conf" in found.text(
        "source conf"
    )


def test_another_principal_of_the_namenode(
    doctor: Callable[..., Examined], configured: Configure
) -> None:
    conf = configured({"dfs.namenode.kerberos.principal": "nn/localhost@A.TEST"})
    found = doctor("--source-conf", conf)
    assert (found.code, found.status("source conf")) == (0, "warning")
    assert "is hdfs/localhost, and the configuration expects nn/localhost" in found.text(
        "source conf"
    )


def test_data_nodes_that_want_protection(
    doctor: Callable[..., Examined], configured: Configure
) -> None:
    found = doctor("--source-conf", configured({"dfs.data.transfer.protection": None}))
    assert found.code == 7
    assert "set dfs.data.transfer.protection" in found.text("source checkpoint")
