"""Stock Flink restores a replica from an object store with its own filesystem, and what it writes
there is replicated.

Not from Azurite: Flink's `abfs:` calls the service of Data Lake Storage, which Azurite has not.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.commandline import printed
from tests.support.flink import ClaimMode, Flink, Plugin
from tests.support.stores import Store

pytestmark = [pytest.mark.stores, pytest.mark.flink]


def s3_of(store: Store) -> Mapping[str, str]:
    return {
        "s3.endpoint": store.options["endpoint_url"],
        "s3.endpoint.region": store.options["region"],
        "s3.access-key": store.options["key"],
        "s3.secret-key": store.options["secret"],
        "s3.path.style.access": "true",
        "s3.directory.marker.retention": "keep",  # else it deletes many in one call, which fails
        "s3.multiobjectdelete.enable": "false",
        "s3.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    }


def gs_of(store: Store) -> Mapping[str, str]:
    return {
        "gs.storage.root.url": f"{store.options['endpoint_url']}/",
        "gs.auth.null.enable": "true",
        "gs.auth.service.account.enable": "false",
    }


PLUGINS = {"versitygw": ("s3-fs-hadoop", s3_of), "fake_gcs_server": ("gs-fs-hadoop", gs_of)}


@pytest.fixture(scope="module", params=[*PLUGINS])
def store(request: pytest.FixtureRequest) -> Store:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Store)
    return found


@pytest.fixture(scope="module")
def flink_beside(store: Store) -> Iterator[Flink]:
    """Flink with the filesystem of the store."""
    name, configuration = PLUGINS[store.name.replace("-", "_")]
    with Flink("2", plugin=Plugin(name, configuration(store))) as flink:
        yield flink


@pytest.fixture
def root(store: Store) -> str:
    """A directory of the test's own in the store."""
    return f"{store.root}/{uuid.uuid4().hex}"


def synced(store: Store, checkpoint: Path | str, target: Path | str, *words: str) -> None:
    """Sync, with the options that reach the store on both sides."""
    words = (*words, *store.words("source"), *store.words("target"), "--runner", "inline")
    ended = printed("sync", checkpoint, target, *words)
    assert ended.returncode == 0, ended.stderr


def remove(store: Store, directory: str) -> None:
    """Delete all objects below a directory."""
    storage = store.side().storage(directory)
    for status in storage.list(directory):
        if status.is_directory:
            remove(store, status.uri)
        else:
            storage.delete(status.uri)


def assert_restores_twice(
    flink: Flink, replica: str, root: Path | str, claim_mode: ClaimMode = "NO_CLAIM"
) -> None:
    """Flink restores the replica exactly, and then the checkpoint that it took below the root."""
    first = flink.run(root, restore=replica, claim_mode=claim_mode, checkpoints=2)
    assert first.exact, first.failure
    second = flink.run(root, restore=first.newest_uri, claim_mode=claim_mode, checkpoints=1)
    assert second.exact, second.failure


def replica_of_a_job_that_is_gone(
    flink: Flink, store: Store, root: str, side: Path, paths: str
) -> str:
    """Replicate a job's checkpoint from files to the store, and remove the files."""
    source = flink.run(side, checkpoints=3)
    assert source.failure is None
    synced(store, source.newest, root, "--paths", paths)
    shutil.rmtree(side)
    return f"{root}/{source.job_id}/{source.newest.name}"


def test_a_replica_in_a_store_is_restored_exactly_with_the_source_gone(
    flink_beside: Flink, store: Store, root: str, tmp_path: Path
) -> None:
    place = (store, root, tmp_path / "a")
    replica = replica_of_a_job_that_is_gone(flink_beside, *place, "relative")
    assert_restores_twice(flink_beside, replica, tmp_path / "b")


@pytest.mark.parametrize("store", ["versitygw"], indirect=True)
class TestAJobWithCheckpointsInTheStore:
    """Not in fake-gcs-server, where Flink's own writer does not complete a `_metadata`."""

    def test_goes_on_from_its_replica_there_and_claims_it(
        self, flink_beside: Flink, store: Store, root: str, tmp_path: Path
    ) -> None:
        place = (store, root, tmp_path / "a")
        # after CLAIM, Flink cannot restore the follow-up of relative paths
        replica = replica_of_a_job_that_is_gone(flink_beside, *place, "absolute")
        assert_restores_twice(flink_beside, replica, root, "CLAIM")

    def test_is_replicated_there_and_to_files(
        self, flink_beside: Flink, store: Store, root: str, tmp_path: Path
    ) -> None:
        source = flink_beside.run(f"{root}/a", checkpoints=3)
        assert source.failure is None
        name = source.newest_uri.rpartition("/")[2]
        synced(store, source.newest_uri, f"{root}/b")
        synced(store, source.newest_uri, tmp_path / "c")
        remove(store, f"{root}/a")
        assert_restores_twice(flink_beside, f"{root}/b/{source.job_id}/{name}", f"{root}/b")
        replica = tmp_path / "c" / source.job_id / name
        here = flink_beside.run(tmp_path / "c", restore=replica, checkpoints=1)
        assert here.exact, here.failure
