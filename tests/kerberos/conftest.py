"""What the tests of secure clusters share."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cpreplicate.storage import Side
from tests.support.jobs import JOB, put_checkpoint
from tests.support.kerberos import Realm, Secure

FILES = {"shared/a": 100_000, "shared/b": 2000}


@pytest.fixture(scope="session")
def checkpoint(secure: Secure) -> str:
    """A checkpoint of alice's on the first cluster."""
    return written(secure, "alice", uuid.uuid4().hex, 1)


@pytest.fixture
def target(secure: Secure) -> str:
    """A directory of the test's own on the second cluster, which alice may make."""
    return f"{secure.b.uri}/alice/{uuid.uuid4().hex}"


@pytest.fixture
def configured(secure: Secure, tmp_path: Path) -> Callable[..., Path]:
    """Writes a configuration of the first cluster with other values, None for no such property."""

    def write(changes: dict[str, str | None]) -> Path:
        directory = tmp_path / "-".join(["conf", *changes])
        directory.mkdir()
        for path in (secure.directory / "conf-a").iterdir():
            lines = path.read_text().splitlines()
            kept = [line for line in lines if not any(f">{name}<" in line for name in changes)]
            (directory / path.name).write_text("\n".join(kept))
        given = [
            f"<property><name>{name}</name><value>{value}</value></property>"
            for name, value in changes.items()
            if value is not None
        ]
        file = directory / "hdfs-site.xml"
        text = file.read_text().replace("</configuration>", "\n".join([*given, "</configuration>"]))
        file.write_text(text)
        return directory

    return write


def written(
    secure: Secure, user: str, name: str, number: int, files: Mapping[str, int] = FILES
) -> str:
    """Write a checkpoint below the directory of a user of the first cluster; return its place."""
    realm = secure.realms.a
    options = (("", tuple(secure.a.conf.items())),)
    side = Side(options, principal=realm.principal(user), keytab=str(realm.keytab(user)))
    return put_checkpoint(side, f"{secure.a.uri}/{user}/{name}", number, files)


def replica_of(target: str) -> str:
    """Return the replica of the checkpoint's job in a TARGET_ROOT."""
    return f"{target}/{JOB}"


def keytab_of(side: str, realm: Realm, user: str) -> list[str]:
    """Return the options of a side's keytab."""
    principal = realm.principal(user)
    return [f"--{side}-keytab", str(realm.keytab(user)), f"--{side}-principal", principal]


@pytest.fixture(scope="session")
def cancelled(secure: Secure) -> Path:
    """A delegation token that is no longer valid."""
    path = secure.directory / "cancelled.token"
    name = "org.apache.hadoop.hdfs.tools.DelegationTokenFetcher"
    secure.java(name, "--renewer", "alice", path, **secure.ticket("alice"))
    secure.java(name, "--cancel", path, **secure.ticket("alice"))
    return path


@pytest.fixture
def expired(secure: Secure, tmp_path: Path) -> dict[str, str]:
    """The environment of a ticket of alice that has expired."""
    secure.realms.a.kinit("alice", tmp_path / "expired", life="1s")
    time.sleep(2)  # the KDC counts whole seconds
    return {"KRB5CCNAME": f"FILE:{tmp_path}/expired"}
