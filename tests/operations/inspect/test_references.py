"""`inspect --refs`: each state handle, in every form, and as a table in a file."""

import json
import os
import stat

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cpreplicate.core.closure import closure
from cpreplicate.core.metadata import decode
from cpreplicate.core.uri import Remap
from cpreplicate.operations.inspect import references
from cpreplicate.operations.inspect.references import SCHEMA
from cpreplicate.storage import Side
from tests.support.commandline import printed
from tests.support.corpus import ROOT
from tests.support.encoder import Empty, File, Inline, KeyGroups, OperatorEntry, Subtask, Tree
from tests.support.encoder import encode as encoded
from tests.support.generate import synthetic
from tests.support.jobs import JOB
from tests.support.replicas import FILES, synced

CHECKPOINTS = sorted(ROOT.rglob("_metadata"))
REMAPS = (Remap("file:/srv/flink", "file:/mirror"),)


def expected(data, checkpoint, remaps=REMAPS):
    """The rows of a `_metadata`, handle by handle."""
    metadata = decode(data, checkpoint)
    uris = closure(metadata, remaps).uris
    return [
        {
            "operator": None if handle.operator is None else metadata.operators[handle.operator].id,
            "subtask": handle.subtask,
            "state": handle.state,
            "handle": handle.kind,
            "path": handle.path,
            "uri": None if handle.path is None else uris[handle.path],
            "size": handle.size,
            "position": handle.position,
        }
        for handle in metadata.handles
        if handle.kind != "directory"
    ]


def rows_of(found):
    return [row for batch in found.batches() for row in batch.to_pylist()]


@pytest.mark.parametrize("path", CHECKPOINTS, ids=lambda path: "-".join(path.parts[-5:-1:2]))
def test_the_rows_are_the_handles_of_the_file(path):
    checkpoint = f"file:{path.parent}"
    found = references(checkpoint, Side(), REMAPS)
    assert rows_of(found) == expected(path.read_bytes(), checkpoint)


@pytest.fixture
def odd(tmp_path):
    """A checkpoint whose paths need escapes, with handles that name no file."""
    paths = ['file:/a/"b\\', "file:/a/\u00e9\u4e2d", "file:/a/\U0001f600", "file:/a/x\ny"]
    entries = tuple(
        Subtask(index, keyed=KeyGroups(12, 0, (0,), stream))
        for index, stream in enumerate(
            [*(File(each, 5) for each in paths), Inline("i", b"abc"), Empty()]
        )
    )
    operator = OperatorEntry(bytes(16), len(entries), 128, entries, Inline("c", b"coordinator"))
    directory = tmp_path / JOB / "chk-1"
    directory.mkdir(parents=True)
    (directory / "_metadata").write_bytes(bytes(encoded(Tree(6, (operator,), 1)).data))
    return directory


def test_json_and_ndjson_are_what_json_dumps_writes(odd):
    rows = expected((odd / "_metadata").read_bytes(), f"file:{odd}", ())
    lines = printed("inspect", "--refs", odd, "--output", "ndjson").stdout
    assert lines == "".join(f"{json.dumps(row)}\n" for row in rows)
    assert json.loads(printed("inspect", "--refs", odd, "--output", "json").stdout) == rows


def test_text_is_a_table_whose_columns_are_as_wide_as_what_is_in_them(odd):
    head, *lines = printed("inspect", "--refs", odd).stdout.splitlines()
    assert head.split() == ["operator", "subtask", "state", "handle", "size", "position", "path"]
    assert len(lines) == 7
    column = head.index("path")
    assert [line[column:] for line in lines[1:5]] == [
        'file:/a/"b\\',
        "file:/a/\u00e9\u4e2d",
        "file:/a/\U0001f600",
        "file:/a/x\\ny",
    ]


@pytest.mark.parametrize("form", ["text", "json", "ndjson"])
@pytest.mark.parametrize("path", ["file:/a/lone\ud800x", "file:/a\ud800/x", "file:/a/../../x"])
def test_a_path_that_no_file_could_have_is_refused_as_without_refs_before_a_row_is_printed(
    tmp_path, path, form
):
    streams = [*[File(f"file:/a/{index}", 5) for index in range(3)], File(path, 5)]
    entries = tuple(
        Subtask(index, keyed=KeyGroups(12, 0, (0,), stream)) for index, stream in enumerate(streams)
    )
    operator = OperatorEntry(bytes(16), len(entries), 128, entries)
    (tmp_path / "_metadata").write_bytes(bytes(encoded(Tree(6, (operator,), 1)).data))
    summary = printed("inspect", tmp_path, "--output", form)
    rows = printed("inspect", "--refs", tmp_path, "--output", form)
    assert rows.returncode == summary.returncode == 6
    assert rows.stderr == summary.stderr
    errors = [json.loads(line)["error"] for line in rows.stdout.splitlines()]
    assert [f"cpreplicate: error: {error}\n" for error in errors] == (
        [] if form == "text" else [rows.stderr]
    )


@pytest.mark.parametrize("name", ["refs.parquet", "refs.arrow"])
def test_a_file_has_the_rows_with_the_documented_columns(tmp_path, odd, name):
    done = printed("inspect", "--refs", "--to", name, odd, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("", f"wrote 7 state handles to {name}\n")
    place = tmp_path / name
    table = pq.read_table(place) if name.endswith("t") else pa.ipc.open_file(place).read_all()
    assert table.schema.names == SCHEMA.names
    assert table.schema.metadata[b"cpreplicate.schema"] == b"1"
    rows = expected((odd / "_metadata").read_bytes(), f"file:{odd}", ())
    assert table.to_pylist() == rows
    done = printed("inspect", "--refs", "--to", name, odd, "--output", "json", cwd=tmp_path)
    result = json.loads(done.stdout)
    assert (result["file"], result["rows"]) == (name, 7)
    assert sorted(each.name for each in tmp_path.iterdir()) == [JOB, name]


def test_many_batches_are_one_array_and_one_file(tmp_path):
    (tmp_path / "_metadata").write_bytes(b"".join(synthetic(70_000, 10)))
    found = references(f"file:{tmp_path}", Side(), ())
    batches = list(found.batches())
    assert len(batches) > 1
    count = sum(batch.num_rows for batch in batches)
    array = json.loads(printed("inspect", "--refs", tmp_path, "--output", "json").stdout)
    assert len(array) == count
    for name in ("refs.parquet", "refs.arrow"):
        result = printed("inspect", "--refs", tmp_path, "--to", tmp_path / name, "--output", "json")
        assert json.loads(result.stdout)["rows"] == count
    for table in (
        pa.ipc.open_file(tmp_path / "refs.arrow").read_all(),
        pq.read_table(tmp_path / "refs.parquet"),
    ):
        assert table.slice(count - 1).to_pylist() == array[-1:]


def test_a_file_appears_when_it_is_complete_and_replaces_the_one_before(tmp_path, odd):
    place = tmp_path / "refs.parquet"
    place.write_bytes(b"before")
    assert printed("inspect", "--refs", "--to", place, f"{odd}-not").returncode == 10
    assert place.read_bytes() == b"before"
    assert printed("inspect", "--refs", "--to", place, odd).returncode == 0
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(place.stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("name", ["absent/a.arrow", "directory.arrow", f"{'n' * 300}.parquet"])
def test_a_file_that_cannot_be_written_ends_the_command_before_its_work(tmp_path, odd, name):
    (tmp_path / "directory.arrow").mkdir()
    for checkpoint in (odd, f"{odd}-not"):
        done = printed("inspect", "--refs", "--to", tmp_path / name, checkpoint)
        assert done.returncode == 2
        assert f"--to {tmp_path / name} cannot be written" in done.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == [JOB, "directory.arrow"]


def test_a_manifest_of_a_replica_is_not_overwritten(tmp_path):
    replica = synced(tmp_path, {1: FILES})
    manifest = replica / ".cpreplicate" / "chk-1.parquet"
    before = manifest.read_bytes()
    done = printed("inspect", "--refs", "--to", manifest, replica)
    assert done.returncode == 2
    assert f"--to {manifest} would be in the replica {replica}" in done.stderr
    assert manifest.read_bytes() == before
