"""An S3 that ignores conditional puts holds no lease: it is found once a replica, and refused."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import s3fs

from tests.support import parts
from tests.support.commandline import printed, run
from tests.support.doctor import Examined, examined
from tests.support.jobs import JOB, write_checkpoint
from tests.support.s3 import FaultyProxy, S3Server, side_options

pytestmark = pytest.mark.s3

REFUSED = 6
BOTH = ("If-None-Match", "If-Match")
FILES = {"shared/a": 1000}
NEXT = {"shared/b": 2000}


class Store:
    """A bucket of the test's own behind a proxy, and a job whose checkpoints go there."""

    def __init__(self, server: S3Server, proxy: FaultyProxy, directory: Path) -> None:
        self.bucket = server.make_bucket(f"unsafe-{uuid.uuid4().hex}").removeprefix("s3://")
        self.proxy, self.target = proxy, f"s3://{self.bucket}/replicas"
        self.replica = f"{self.target}/{JOB}"
        self.source, self._directory = directory / JOB, directory
        self._words = [f"{name}={value}" for name, value in side_options(proxy.endpoint).items()]
        self.client = s3fs.S3FileSystem(
            **server.options, use_listings_cache=False, skip_instance_cache=True
        )
        write_checkpoint(directory, 1, FILES)

    def go_on(self) -> None:
        """Let the job complete another checkpoint."""
        write_checkpoint(self._directory, 2, NEXT)

    def words(self, command: str, *more: str) -> list[object]:
        places = [self.source, self.target] if command in ("sync", "doctor") else [self.replica]
        return [command, *places, *(f"--target-conf={word}" for word in self._words), *more]

    def doctor(self, *more: str) -> Examined:
        return examined(*self.words("doctor", *more)[1:])

    @property
    def marker_path(self) -> str:
        return f"{self.bucket}/replicas/{JOB}/.cpreplicate/replica.json"

    def marker(self) -> dict[str, Any]:
        return dict(json.loads(self.client.cat_file(self.marker_path)))

    def objects(self) -> list[str]:
        return sorted(self.client.find(self.bucket))

    def probes(self) -> int:
        """Return how many puts tried a condition since the proxy was healed."""
        return sum("condition-" in line for line in self.proxy.requests if line.startswith("PUT"))


@pytest.fixture
def store(s3: S3Server, tmp_path: Path) -> Iterator[Store]:
    with FaultyProxy(s3.endpoint) as proxy:
        yield Store(s3, proxy, tmp_path)


@pytest.mark.parametrize("ignored", [BOTH, BOTH[:1], BOTH[1:]], ids=" and ".join)
def test_a_sync_is_refused_before_it_leaves_anything(
    store: Store, ignored: tuple[str, ...]
) -> None:
    store.proxy.ignore(*ignored)
    ended = run(*store.words("sync"))
    assert ended.code == REFUSED
    assert f"does not honour {' and '.join(ignored)}: two runs at the same time" in ended.message
    assert "--unsafe-lease" in ended.message
    assert store.objects() == []


@pytest.mark.rest
def test_with_the_option_a_sync_warns_and_every_later_run_probes_again(store: Store) -> None:
    store.proxy.ignore(*BOTH)
    ended = printed(*store.words("sync", "--unsafe-lease"))
    assert ended.returncode == 0, ended
    assert "warning: " in ended.stderr
    assert "each hold the lease" in ended.stderr
    assert "conditional_puts" not in store.marker()
    store.go_on()
    assert run(*store.words("sync")).code == REFUSED
    assert f"{store.bucket}/replicas/{JOB}/chk-2/_metadata" not in store.objects()
    assert not any("condition-" in path for path in store.objects())


@pytest.mark.parametrize("error", ["501 NotImplemented", parts.rest("400 InvalidArgument")])
def test_a_store_that_refuses_requests_with_conditions_is_found_and_can_be_accepted(
    store: Store, error: str
) -> None:
    is_refused = "\r\nif-"  # of a read, too, which every service takes
    store.proxy.answer(
        lambda head: error if is_refused in head and not head.startswith("get ") else None
    )
    ended = run(*store.words("sync"))
    assert ended.code == REFUSED
    assert "does not honour If-None-Match" in ended.message
    assert "--unsafe-lease" in ended.message
    found = store.doctor()
    assert found.names("failed") == ["target write"], found.checks
    assert "does not honour If-None-Match and If-Match" in found.text("target write")
    assert store.objects() == []
    for command in ("sync", "sync", "promote"):
        ended = run(*store.words(command, "--unsafe-lease"))
        assert ended.code == 0, ended.message
        store.go_on()


@pytest.mark.rest
def test_a_deleted_object_that_a_service_takes_for_one_is_told_apart_from_another_run(
    store: Store,
) -> None:
    """As some do on a bucket with versions, where a delete leaves a marker."""
    deleted: set[str] = set()

    def rule(head: str) -> str | None:
        verb, path, _ = head.split(" ", 2)
        path = path.partition("?")[0]
        if verb == "delete":
            deleted.add(path)
        return "412 PreconditionFailed" if "if-none-match" in head and path in deleted else None

    assert run(*store.words("sync")).code == 0
    store.go_on()
    store.proxy.answer(rule)
    deleted.add(f"/{store.bucket}/replicas/{JOB}/.cpreplicate/lease")
    ended = run(*store.words("sync"))
    assert ended.code == REFUSED
    assert "does not honour If-None-Match where an object was deleted" in ended.message
    found = store.doctor()
    assert (found.code, found.names("failed")) == (REFUSED, ["target write"])
    assert run(*store.words("sync", "--unsafe-lease")).code == 0


@pytest.mark.rest
@pytest.mark.parametrize("command", ["sweep", "relocate"])
def test_what_changes_a_replica_of_an_earlier_version_is_refused(
    store: Store, command: str
) -> None:
    assert run(*store.words("sync")).code == 0
    forget_note(store)
    store.proxy.ignore(*BOTH)
    assert run(*store.words(command)).code == REFUSED
    assert run(*store.words(command, "--unsafe-lease")).code == 0


@pytest.mark.rest
def test_a_promotion_is_not_held_up(store: Store) -> None:
    """It deletes nothing, and is urgent."""
    assert run(*store.words("sync")).code == 0
    forget_note(store)
    store.proxy.ignore(*BOTH)
    store.proxy.requests.clear()
    assert run(*store.words("promote")).code == 0
    assert store.probes() == 0
    ended = run(*store.words("unseal", "--no-job-uses-it"))
    assert ended.code == REFUSED
    assert run(*store.words("unseal", "--no-job-uses-it", "--unsafe-lease")).code == 0


def test_a_store_with_both_conditions_is_probed_once_a_replica(store: Store) -> None:
    assert run(*store.words("sync")).code == 0
    assert store.marker()["conditional_puts"] is True
    assert store.probes() == 4
    store.go_on()
    assert run(*store.words("sync")).code == 0
    assert run(*store.words("sweep")).code == 0
    assert store.probes() == 4
    assert not any("condition-" in path for path in store.objects())


@pytest.mark.rest
def test_a_marker_of_an_earlier_version_gets_the_note_and_keeps_the_rest(store: Store) -> None:
    assert run(*store.words("sync")).code == 0
    before = forget_note(store)
    store.proxy.heal()
    store.go_on()
    assert run(*store.words("sync")).code == 0
    assert store.probes() == 4
    after = store.marker()
    assert after.pop("conditional_puts") is True
    assert {**after, "time": 0} == {**before, "time": 0}


def forget_note(store: Store) -> dict[str, Any]:
    """Write the marker as an earlier version did, and return it."""
    marker = store.marker()
    del marker["conditional_puts"]
    store.client.pipe_file(store.marker_path, json.dumps(marker).encode())
    return marker


@pytest.mark.rest
def test_doctor_finds_it(store: Store) -> None:
    assert store.doctor().code == 0
    store.proxy.ignore(*BOTH)
    found = store.doctor()
    assert (found.code, found.names("failed")) == (REFUSED, ["target write"])
    assert "does not honour If-None-Match and If-Match" in found.text("target write")
    accepted = store.doctor("--unsafe-lease")
    assert (accepted.code, accepted.names("warning")) == (0, ["target write"])
    assert store.objects() == []
