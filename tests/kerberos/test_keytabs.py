"""Keytabs: each side has a user of its own, on the driver and on executors."""

from __future__ import annotations

import base64
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kerberos.conftest import keytab_of, replica_of
from tests.support import parts
from tests.support.kerberos import Secure
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.xdist_group("kerberos")

CLIENTS = ["native", parts.nightly("hadoop")]


@pytest.fixture
def bobs(target: str) -> str:
    """A directory of the test's own on the second cluster, which bob may make and alice not see."""
    return target.replace("/alice/", "/bob/")


def own_users(secure: Secure) -> list[str]:
    """Return the options for alice of one realm at the source, and bob of the other."""
    realms = secure.realms
    return [*keytab_of("source", realms.a, "alice"), *keytab_of("target", realms.b, "bob")]


@pytest.mark.parametrize("client", CLIENTS)
def test_each_side_has_the_user_of_its_keytab(
    secure: Secure, checkpoint: str, bobs: str, client: str
) -> None:
    chosen, nobody = ["--hdfs-client", client], secure.without_ticket
    words = ["sync", checkpoint, bobs, *secure.conf, *own_users(secure), *chosen]
    synced = secure.run(*words, **nobody)
    assert synced.returncode == 0, synced
    verifying = ["verify", replica_of(bobs), *secure.conf[2:], "--content", *chosen]
    as_bob = secure.run(*verifying, *keytab_of("target", secure.realms.b, "bob"), **nobody)
    assert as_bob.returncode == 0, as_bob
    as_alice = secure.run(*verifying, *keytab_of("target", secure.realms.b, "alice"), **nobody)
    assert as_alice.returncode == 1, as_alice
    assert "permission denied" in as_alice.stderr


@pytest.mark.rest
@pytest.mark.parametrize("client", CLIENTS)
def test_spark_ships_keytabs_to_executors_and_nothing_secret_is_shown(
    secure: Secure, checkpoint: str, bobs: str, client: str, tmp_path: Path
) -> None:
    realms = secure.realms
    keytabs = [tmp_path / "alice.keytab", tmp_path / "bob.keytab"]
    shutil.copy(realms.a.keytab("alice"), keytabs[0])
    shutil.copy(realms.b.keytab("bob"), keytabs[1])
    # on each process its own working directory: the executors have only what Spark ships
    here = "/proc/self/cwd"
    words = [
        *("--source-keytab", f"{here}/alice.keytab", "--source-principal", "alice@A.TEST"),
        *("--target-keytab", f"{here}/bob.keytab", "--target-principal", "bob@B.TEST"),
        *("--runner", "spark", "--master", "local-cluster[1,1,1024]", "--hdfs-client", client),
        *("--conf", f"spark.files={keytabs[0]},{keytabs[1]}"),
        *("--conf", "spark.eventLog.enabled=true", "--conf", f"spark.eventLog.dir={tmp_path}"),
        *("--verbose", "--log-file", tmp_path / "log", "--actions", "--output", "json"),
    ]
    with shown_commands() as commands:
        command = ["sync", checkpoint, bobs, *secure.conf, *words]
        synced = secure.run_in(tmp_path, *command, **secure.without_ticket)
    assert synced.returncode == 0, synced
    assert any(b"org.apache.spark" in command for command in commands)
    events = [path for path in tmp_path.rglob("*") if path.is_file() and path not in keytabs]
    assert len(events) > 1
    written = b"\0".join(path.read_bytes() for path in events)
    shown = written + b"\0".join(commands) + synced.stdout.encode() + synced.stderr.encode()
    for keytab in keytabs:
        for key in keys_of(keytab):
            for form in (key, key.hex().encode(), base64.b64encode(key)):
                assert form not in shown


def keys_of(keytab: Path) -> list[bytes]:
    """Return the keys in a keytab, as MIT's tool shows them."""
    done = subprocess.run(
        ["klist", "-k", "-K", str(keytab)], capture_output=True, text=True, check=True
    )
    keys = [line.rpartition("(0x")[2].rstrip(")") for line in done.stdout.splitlines()]
    found = [bytes.fromhex(key) for key in keys if len(key) in (32, 64)]
    assert found, done.stdout
    return found


class shown_commands:  # noqa: N801  # a context
    """Collects the command lines of all processes of this machine while the block runs."""

    def __enter__(self) -> set[bytes]:
        self.found: set[bytes] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()
        return self.found

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(timeout=PATIENCE)

    def _collect(self) -> None:
        while not self._ended.wait(0.1):
            self.found.update(command_lines())


def command_lines() -> Iterator[bytes]:
    """Yield the command line of each process."""
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            yield (directory / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
