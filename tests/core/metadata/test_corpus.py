"""Decoding equals the reading of Flink's own loader for every checkpoint of the corpus."""

import io
import json
from pathlib import Path

import pytest

from cpreplicate.core.metadata import Absolute, decode, rewrite
from tests.support.corpus import RECORDED, ROOT
from tests.support.flinkrows import row_of_loader, rows_of_metadata, same_spelling

REFS = sorted(ROOT.glob("*/*.refs.jsonl"))


def metadata_of(refs: Path) -> tuple[bytes, str]:
    """Return the `_metadata` of which a file records what Flink reads, and its directory."""
    directory = refs.name.removesuffix(".refs.jsonl").replace("__", "/")
    place = refs.parent / directory / "_metadata"
    return place.read_bytes(), f"{RECORDED}/{refs.parent.name}/{directory}"


@pytest.mark.parametrize("refs", REFS, ids=lambda p: f"{p.parent.name}/{p.name[-30:-11]}")
@pytest.mark.parametrize("stream", [False, True], ids=["bytes", "stream"])
def test_every_handle_is_read_as_flinks_loader_reads_it(refs, stream):
    data, base = metadata_of(refs)
    *rows, summary = map(json.loads, refs.read_text().splitlines())
    metadata = decode(io.BytesIO(data) if stream else data, base)
    found, directories = rows_of_metadata(metadata)
    assert sorted(found, key=str) == sorted(
        map(row_of_loader, (row for row in rows if "size" in row)), key=str
    )
    loaded = [
        (row["op"], row["subtask"], row["taskOwnedDir"], row["sharedDir"])
        for row in rows
        if "taskOwnedDir" in row
    ]
    assert sorted(directories) == sorted(loaded)
    assert (metadata.version, metadata.checkpoint_id) == (
        summary["version"],
        summary["checkpointId"],
    )
    assert (len(metadata.operators), metadata.master_states) == (
        summary["operators"],
        summary["masterStates"],
    )


@pytest.mark.parametrize("refs", REFS, ids=lambda p: f"{p.parent.name}/{p.name[-30:-11]}")
def test_respelling_every_handle_as_it_was_changes_no_byte(refs):
    data, base = metadata_of(refs)
    assert b"".join(rewrite(data, decode(data, base), same_spelling)) == data


def test_the_corpus_is_not_empty():
    assert len(REFS) >= 28


def test_a_path_elsewhere_in_the_file_does_not_change():
    data, base = metadata_of(REFS[0])
    metadata = decode(data, base)
    chosen = next(handle for handle in metadata.handles if handle.path)
    changed = b"".join(
        rewrite(data, metadata, lambda h: Absolute("file:/x") if h.start == chosen.start else None)
    )
    assert changed[: chosen.start] == data[: chosen.start]
    assert changed.endswith(data[chosen.start + chosen.length :])
