"""What a sync remembers of the files that it writes is what they hold: the next one reads no more.

A service reads at each turn what it wrote at the former one.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpreplicate.core.memory import Memo
from cpreplicate.core.metadata import decode
from cpreplicate.core.packs import PackOptions
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.protocol import manifest, parquet_files, replica
from cpreplicate.protocol.replica import CommittedCheckpoint, Replica
from cpreplicate.storage import Side
from tests.support import corpus
from tests.support.encoder import File, Incremental, OperatorEntry, Subtask, Tree, encode
from tests.support.jobs import JOB, write_checkpoint, write_merged

NAMES = st.sampled_from("abcdef") | st.sampled_from([" a", "a b", "ä", "%2e", "x" * 201, "\\"])
PLACES = st.sampled_from([f"{JOB}/shared/", f"{JOB}/chk-7/", f"{JOB}/taskowned/d/", "else/where/"])
FILES = st.dictionaries(st.tuples(PLACES, NAMES).map("".join), st.integers(1, 9), max_size=6)


def plain(checkpoint: CommittedCheckpoint) -> Any:
    """Return all that is known of a checkpoint, as objects and with the types of columns."""
    files = checkpoint.files
    columns = list(files.items()), files.bytes.dtype, str(files.paths.type)
    others = checkpoint.outside, checkpoint.growing, dict(checkpoint.members), checkpoint.listed
    names = checkpoint.name, checkpoint.checkpoint_id, checkpoint.metadata
    return *names, columns, *others, checkpoint.is_damaged


def listed(found: manifest.Manifest | None) -> Any:
    """Return all rows of a manifest, in order, with the types of their columns."""
    assert found is not None
    tables = found.entries, found.members, found.prefixes
    types = [getattr(found.entries, name) for name in found.entries.columns]
    kinds = [column.dtype if isinstance(column, np.ndarray) else column.type for column in types]
    return found[:2], [list(table.items()) for table in tables], kinds


def compare(root: str) -> None:
    """Compare what is remembered of a replica with what is decoded."""
    held = Replica(root, Side())
    [name] = held.committed_names()
    data = held.metadata_bytes(name)
    assert data is not None
    assert data.in_memory is not None
    metadata = decode(data.in_memory, held.uri_of(name))
    decoded = held.referenced_by(name, data.digest, data.in_memory, metadata)
    assert plain(held.committed_checkpoint(name, data)) == plain(decoded)
    remembered = held.manifest(name)
    with nothing_remembered():
        assert listed(remembered) == listed(held.manifest(name))


def silent(_line: str) -> None:
    """These tests do not read progress messages."""


def nothing_remembered() -> Any:
    return mock.patch.object(Memo, "get", return_value=None)


def written(place: Path, files: dict[str, int], version: int) -> Path:
    """Write a checkpoint of files that may be of other jobs, and have any names."""
    for name, size in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    handles = tuple((f"{name}.sst", File(f"file:{place}/{name}", files[name])) for name in files)
    state = Incremental(11, 7, "backend", (0, 128), 1, None, handles, handles[:1])
    tree = Tree(version, (OperatorEntry(bytes(16), 1, 128, (Subtask(0, keyed=state),)),), 7)
    directory = place / JOB / "chk-7"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "_metadata").write_bytes(encode(tree).data)
    return directory


@settings(max_examples=40, deadline=None)
@given(FILES, st.sampled_from([3, 6]), st.sampled_from(["relative", "absolute"]))
def test_what_is_remembered_of_a_published_checkpoint_is_what_is_decoded(files, version, paths):
    with tempfile.TemporaryDirectory() as directory:
        place, target = Path(directory, "dcA"), Path(directory, "dcB")
        checkpoint = written(place, {n: s for n, s in files.items() if "\\" not in n}, version)
        request = SyncRequest(
            source=f"file:{checkpoint}", target_root=f"file:{target}", paths=paths
        )
        report = sync(request, silent)
        assert report.committed
        compare(report.plan.replica)


@pytest.mark.parametrize("paths", ["auto", "relative", "absolute"])
@pytest.mark.parametrize("folder", sorted(folder.name for folder in corpus.ROOT.iterdir()))
def test_so_it_is_of_each_job_of_the_corpus(folder, paths, tmp_path):
    centre = corpus.DataCentre(folder, tmp_path)
    source, target = f"file:{centre.job_root(centre.jobs()[-1])}", f"file:{tmp_path}/dcB"
    report = sync(SyncRequest(source, target, remaps=(centre.remap,), paths=paths), silent)
    compare(report.plan.replica)


@pytest.mark.parametrize("packing", ["on", "off"])
def test_so_it_is_of_packs_and_of_merged_files(packing, tmp_path):
    write_checkpoint(tmp_path / "dcA", 7, dict.fromkeys(["shared/a", "shared/b"], 9))
    write_merged(tmp_path / "dcA", 8, {"shared/c": 30}, {"shared/c": (3, 9)})
    for number in (7, 8):
        source, target = f"file:{tmp_path}/dcA/{JOB}/chk-{number}", f"file:{tmp_path}/dcB"
        packed = PackOptions(mode=packing)
        compare(sync(SyncRequest(source, target, packing=packed), silent).plan.replica)


def test_the_next_sync_decodes_nothing_that_this_process_has_written(tmp_path):
    target, files = f"file:{tmp_path}/dcB", dict.fromkeys(["shared/a", "shared/b"], 9)
    for number in (7, 8):
        source = f"file:{write_checkpoint(tmp_path / 'dcA', number, files)}"
        with (
            mock.patch.object(replica, "decoded", side_effect=AssertionError),
            mock.patch.object(parquet_files, "decoded", side_effect=AssertionError),
        ):
            assert sync(SyncRequest(source, target), silent).committed


def test_what_another_program_wrote_meanwhile_is_read(tmp_path):
    target, files = f"file:{tmp_path}/dcB", dict.fromkeys(["shared/a", "shared/b"], 9)
    first, second = (write_checkpoint(tmp_path / "dcA", number, files) for number in (7, 8))
    sync(SyncRequest(f"file:{first}", target), silent)
    place = tmp_path / "dcB" / JOB / ".cpreplicate" / "chk-7.parquet"
    damaged = bytearray(place.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    place.write_bytes(damaged)
    with mock.patch.object(parquet_files, "decoded", wraps=parquet_files.decoded) as decoded:
        sync(SyncRequest(f"file:{second}", target), silent)
    assert bytes(damaged) in [call.args[0] for call in decoded.call_args_list]
