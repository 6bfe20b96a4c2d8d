"""What a replica has, asked for with few calls."""

import errno

import pytest

from cpreplicate.core.path_columns import texts
from cpreplicate.protocol import manifest
from cpreplicate.protocol.digest import Digest
from cpreplicate.protocol.manifest import Manifest, ManifestTable
from cpreplicate.protocol.replica import Replica
from cpreplicate.storage import DamagedFile, Side
from cpreplicate.storage.backends.local.local import LocalStorage
from cpreplicate.storage.wrappers.base import StorageWrapper
from tests.support.faults import Faulty
from tests.support.registry import serving


class Counting(StorageWrapper):
    """A storage that counts calls by verb."""

    def __init__(self, inner):
        super().__init__(inner)
        self.calls = []

    def before(self, verb, uri):  # noqa: ARG002  # the verb is enough
        self.calls.append(verb)


@pytest.fixture
def counting(tmp_path):
    storage = Counting(LocalStorage())
    (tmp_path / "shared").mkdir()
    for name, length in (("a", 3), ("b", 5)):
        (tmp_path / "shared" / name).write_bytes(b"x" * length)
    (tmp_path / "shared" / "link").symlink_to("a")
    with serving("file", storage):
        yield Replica(f"file:{tmp_path}", Side()), storage


@pytest.mark.parametrize(
    ("others", "verbs"), [(5, ["list"]), (10_000, ["stat", "stat", "stat"])], ids=["few", "many"]
)
def test_files_among_many_are_asked_for_one_by_one(counting, others, verbs):
    replica, storage = counting
    asked = texts(["shared/a", "shared/b", "shared/link"])
    among = texts([f"shared/{number}" for number in range(others)])
    lengths = replica.lengths_of(asked, among)
    assert (lengths["shared/a"], lengths["shared/b"]) == (3, 5)
    assert lengths.keys() == {"shared/a", "shared/b"}  # a link counts as absent
    assert storage.calls == verbs


def test_a_name_that_is_no_text_is_not_among_the_files_of_a_replica(counting, tmp_path):
    replica, _ = counting
    (tmp_path / "shared" / "\udcff").write_bytes(b"x")
    assert sorted(replica.present(["shared"])) == ["shared/a", "shared/b"]


@pytest.mark.parametrize(("length", "is_ours"), [(100, True), (99, False), (101, False)])
def test_a_damaged_metadata_is_ours_only_with_the_length_of_its_manifest(tmp_path, length, is_ours):
    def damaged(verb, uri):
        is_read = verb == "open" and uri.endswith("chk-7/_metadata")
        return DamagedFile(errno.EIO, "it is damaged", uri) if is_read else None

    storage, root = LocalStorage(), f"file:{tmp_path}"
    storage.put(f"{root}/chk-7/_metadata", lambda: [bytes(length)])
    manifest.write(storage, root, "chk-7", Manifest(7, Digest(100, 1), ManifestTable.of({})))
    with serving("file", Faulty(storage, damaged)):
        replica = Replica(root, Side())
        if is_ours:
            found = replica.metadata_bytes("chk-7")
            assert found == (Digest(100, 1), None, True)
            assert replica.committed_checkpoint("chk-7", found).is_damaged
        else:  # another program may have written it
            with pytest.raises(DamagedFile):
                replica.metadata_bytes("chk-7")
