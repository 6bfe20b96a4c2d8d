"""Stock Flink goes on from a replica of a job with a FileSink: with the part files that are listed,
or without them from a derived checkpoint.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support import commandline, parts
from tests.support.sink_flink import SinkJob, committed, numbers

pytestmark = pytest.mark.xdist_group("sinks")

UNTIL, HALT_AT = 4000, 3


def run(*words: object, code: int = 0) -> dict[str, Any]:
    ended = commandline.run(*words, "--output", "json")
    assert ended.code == code, ended
    return dict(json.loads(ended.out))


class Handover:
    """A job that died at A, its replica, and what it had written there, which is gone at B."""

    def __init__(self, version: str, sink: str, directory: Path) -> None:
        self.job, self.directory, self.out = SinkJob(version), directory, directory / "out"
        self.sink = sink
        halted = self._run("dcA", haltAt=HALT_AT, perCheckpoint=300)
        assert halted == {"event": "halted", "checkpoint": HALT_AT}
        (source,) = (directory / "dcA").iterdir()
        self.source = source / f"chk-{HALT_AT}"
        run("sync", self.source, directory / "dcB", "--runner", "inline", "-q")
        self.replica = directory / "dcB" / source.name
        self.listed = run("inspect", self.source, "--with-files")["files"]
        self.contents = {each["place"]: _content(each) for each in self.listed}
        named = {each["target"] for each in self.listed}
        before = (each for each in committed(self.out) if f"file:{each}" not in named)
        self.before = numbers(each.read_bytes() for each in before)
        shutil.rmtree(self.out)

    def _run(self, checkpoints: str, out: Path | None = None, **arguments: object):
        return self.job.run(
            out=f"file:{out or self.out}",
            checkpoints=f"file:{self.directory / checkpoints}",
            until=UNTIL,
            sink=self.sink,
            **arguments,
        )

    def restored(self, start: Path, out: Path | None = None) -> str | None:
        """Run the job to its end from a checkpoint, and return why it failed."""
        failure: str | None = self._run("flinkB", out, from_=f"file:{start}")["failure"]
        return failure

    def copy(self) -> None:
        """Copy the part files that are listed to where the state names them, until committed."""
        for each in self.listed:
            path = Path(each["path"].removeprefix("file:"))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.contents[each["place"]] + b"behind the checkpoint")

    def written(self, out: Path | None = None) -> Counter[int]:
        """Return how often each number was written, at A before what is listed, and at B.

        A StreamingFileSink does not commit its last files where its input ends.
        """
        place = out or self.out
        is_whole = self.sink != "streaming"
        files = committed(place) if is_whole else (each for each in place.glob("*/*"))
        return self.before + numbers(each.read_bytes() for each in files)


def _content(of: dict[str, Any]) -> bytes:
    assert of["presence"] == "there"
    return Path(of["place"].removeprefix("file:")).read_bytes()[: of["length"]]


@pytest.mark.parametrize(
    ("version", "sink"),
    [
        ("2", "row"),
        parts.rest("1", "row"),
        parts.rest("1", "streaming"),
        parts.rest("2", "compacting"),
    ],
)
def test_a_job_with_a_sink_of_files_goes_on_elsewhere(version, sink, tmp_path):
    at_a = Handover(version, sink, tmp_path)
    assert {each["kind"] for each in at_a.listed} == {"in-progress", "pending"}
    refused = run("promote", at_a.replica, "--with-files", code=6)
    assert {each["presence"] for each in refused["files"]} == {"missing"}
    assert [each["path"] for each in refused["files"]] == [each["path"] for each in at_a.listed]
    checkpoint = at_a.replica / f"chk-{HALT_AT}"
    failure = at_a.restored(checkpoint)
    assert failure is not None
    assert "FileNotFoundException" in failure

    derived = run("rebase", at_a.replica, "--drop-pending")
    dropped = [
        each for each in derived["dropped_files"] if each["kind"] in ("in-progress", "pending")
    ]
    assert [each["path"] for each in dropped] == [each["path"] for each in at_a.listed]
    elsewhere = tmp_path / "elsewhere"
    assert at_a.restored(at_a.replica / derived["derived"], elsewhere) is None
    missing = Counter(range(UNTIL)) - at_a.written(elsewhere)
    assert missing == numbers(at_a.contents.values())
    assert sum(at_a.written(elsewhere).values()) == UNTIL - sum(missing.values())
    assert not at_a.out.exists() or not list(committed(at_a.out))

    shutil.rmtree(at_a.out, ignore_errors=True)
    at_a.copy()
    promoted = run("promote", at_a.replica, "--with-files")
    assert promoted["promoted"]
    assert at_a.restored(checkpoint) is None
    assert at_a.written() == Counter(range(UNTIL))
