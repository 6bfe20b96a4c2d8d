"""What the tests of secure clusters share."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from cpreplicate.storage import Side
from tests.support.hdfs import HdfsCluster
from tests.support.jobs import JOB, put_checkpoint
from tests.support.kerberos import Secure

FILES = {"shared/a": 100_000, "shared/b": 2000}


@pytest.fixture(scope="session")
def checkpoint(secure: Secure) -> str:
    """A checkpoint of alice's on the first cluster."""
    root = f"{secure.a.uri}/alice/{uuid.uuid4().hex}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5CCNAME", secure.ticket("alice")["KRB5CCNAME"])
        return put_checkpoint(side_of(secure.a), root, 1, FILES)


@pytest.fixture
def target(secure: Secure) -> str:
    """A directory of the test's own on the second cluster, which alice may make."""
    return f"{secure.b.uri}/alice/{uuid.uuid4().hex}"


@pytest.fixture
def configured(secure: Secure, tmp_path: Path) -> Callable[..., Path]:
    """Writes a configuration of the first cluster with other values, None for no such property."""

    def write(changes: dict[str, str | None]) -> Path:
        for path in (secure.directory / "conf-a").iterdir():
            lines = path.read_text().splitlines()
            kept = [line for line in lines if not any(f">{name}<" in line for name in changes)]
            (tmp_path / path.name).write_text("\n".join(kept))
        given = [
            f"<property><name>{name}</name><value>{value}</value></property>"
            for name, value in changes.items()
            if value is not None
        ]
        file = tmp_path / "hdfs-site.xml"
        text = file.read_text().replace("</configuration>", "\n".join([*given, "</configuration>"]))
        file.write_text(text)
        return tmp_path

    return write


def side_of(cluster: HdfsCluster) -> Side:
    """Return the side of a cluster, for the user of the environment's ticket."""
    return Side((("", tuple(cluster.conf.items())),))


def replica_of(target: str) -> str:
    """Return the replica of the checkpoint's job in a TARGET_ROOT."""
    return f"{target}/{JOB}"
