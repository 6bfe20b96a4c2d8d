"""Part files that a state names outside of the checkpoint are named, looked for, and left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cpreplicate.core.positions.model import PartFile, Positions
from cpreplicate.core.uri import Remap
from cpreplicate.operations.kafka.part_files import needed_files
from cpreplicate.operations.kafka.positions import positions_of
from cpreplicate.protocol.source import read_metadata
from cpreplicate.storage import Side
from tests.support import commandline
from tests.support import sink_states as written
from tests.support.encoder import OperatorEntry, RelativeFile, Segment, Subtask, Tree, encode
from tests.support.jobs import JOB
from tests.support.kafka_jobs import SINK, inline, sink_operator, source_operator, subtask
from tests.support.kafka_states import (
    COMMITTER,
    READERS,
    WRITER,
    Split,
    Transaction,
    coordinator,
    stream,
)
from tests.support.sink_states import Part, Upload

DATA = Path(__file__).parents[2] / "data" / "sinks"
OPERATOR = "09" * 16
SPLITS = [Split("orders", 0, 7)]


def held(checkpoint: Path, remaps=()) -> Positions:
    found = positions_of(read_metadata(f"file:{checkpoint}", Side()), Side(), remaps)
    assert found is not None
    return found.found


@pytest.mark.parametrize("folder", sorted(each.name for each in DATA.iterdir()))
def test_the_part_files_of_a_real_checkpoint_are_those_that_were_there(folder):
    there = set((DATA / folder / "files").read_text().split())
    everything = held(DATA / folder / "chk-3")
    assert [each for each in everything.unread if each.is_of_files] == []
    found = everything.part_files
    in_progress = [each for each in found if each.kind == "in-progress"]
    assert len(in_progress) == 4  # two buckets of two subtasks
    assert {each.path for each in in_progress} <= there
    pending = [each for each in found if each.kind == "pending"]
    assert all(there & {each.path, each.target} for each in pending)
    assert all(0 < each.length < 4000 for each in (*in_progress, *pending))
    assert {each.kind for each in found} <= {"in-progress", "pending", "to-remove"}
    assert all((each.upload is not None) == folder.endswith("-s3") for each in in_progress)


class Site:
    """A job with a sink of files at A, and its replica at B. The sink wrote below `out`."""

    def __init__(self, root: Path) -> None:
        self.root, self.out = root, root / "out"
        self.replica = root / "dcB" / JOB
        self.open = self.part("part-1", 10)
        self.closed = self.part("part-0", 20)

    def part(self, name: str, length: int) -> Part:
        place = self.out / "b"
        return Part(f"{place}/{name}", f"{place}/.{name}.inprogress.7", length, is_local=True)

    def metadata(self, *operators: OperatorEntry) -> None:
        directory = self.root / "dcA" / JOB / "chk-1"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "_metadata").write_bytes(encode(Tree(6, operators, 1)).data)

    def sync(self) -> None:
        source = self.root / "dcA" / JOB / "chk-1"
        self.run("sync", source, self.root / "dcB", "--runner", "inline", "-q")

    def of_files(self) -> None:
        """A replica of a job with one file in progress, and one pending."""
        self.metadata(self.writer(), self.committer())
        self.sync()

    def writer(self, *elements: bytes) -> OperatorEntry:
        elements = elements or (written.bucket(3, self.open, path=f"file:{self.out}/b"),)
        return operator("out: Writer", {WRITER: elements})

    def committer(self) -> OperatorEntry:
        element = written.collected("2.3", 1, [written.committable(2, pending=self.closed)])
        return operator("out: Committer", {COMMITTER: [element]}, SINK)

    def put(self, *paths: str, less: int = 0) -> None:
        for path, part in zip(paths, (self.open, self.closed), strict=False):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(b"x" * (part.length - less))

    @staticmethod
    def run(*words: object, code: int = 0) -> Any:
        ended = commandline.run(*words, "--output", "json")
        assert ended.code == code, ended
        return json.loads(ended.out) if ended.out else ended.message

    def promote(self, *words: object, code: int = 0) -> dict[str, Any]:
        return dict(self.run("promote", self.replica, "--with-files", *words, code=code))


def operator(name: str, lists: dict[str, Any], of: bytes = bytes([9]) * 16) -> OperatorEntry:
    states = stream(lists)
    return OperatorEntry(of, 1, 16, (subtask(0, states, inline(states.data)),), None, name)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_promote_names_part_files_and_goes_on(site):
    site.of_files()
    promotion = site.run("promote", site.replica)
    assert promotion["promoted"]
    in_progress, pending = promotion["warnings"][:2]
    assert "1 part file in progress (10 bytes) of out: Writer" in in_progress
    assert "does not start where they are missing" in in_progress
    assert "1 part file pending (20 bytes) of out: Committer" in pending
    assert [each["kind"] for each in promotion["part_files"]] == ["in-progress", "pending"]
    text = commandline.run("promote", site.replica).out
    assert text.count("does not start where they are missing") == 1


def test_promote_with_files_refuses_what_is_missing_and_names_what_helps(site):
    site.of_files()
    refused = site.promote(code=6)
    assert [each["presence"] for each in refused["files"]] == ["missing", "missing"]
    assert refused["rebase"].endswith(f"{JOB} --checkpoint chk-1 --drop-pending")
    message = commandline.run("promote", site.replica, "--with-files").message
    assert "2 part files were not found with all bytes" in message
    assert "Nothing was changed" in message
    assert not (site.replica / ".cpreplicate" / "sealed").exists()


@pytest.mark.parametrize("is_committed", [False, True])
def test_promote_with_files_takes_what_is_there_also_by_its_last_name(site, is_committed):
    site.of_files()
    site.put(site.open.path, site.closed.target if is_committed else site.closed.path)
    assert site.promote("--dry-run")["dry_run"]
    assert site.promote()["promoted"]


def test_a_file_in_progress_counts_by_its_place_and_length(site):
    site.of_files()
    site.put(site.open.target, site.closed.path)  # the job has gone on at A, and committed it
    assert [each["presence"] for each in site.promote(code=6)["files"]] == ["missing", "there"]
    site.put(site.open.path, less=1)
    refused = site.promote(code=6)["files"]
    assert [(each["presence"], each["found"]) for each in refused] == [("short", 9), ("there", 20)]


@pytest.mark.parametrize("word", [OPERATOR, "out: Writer"])
def test_an_operator_is_taken_as_it_is_if_that_is_stated(site, word):
    site.of_files()
    Path(site.closed.path).parent.mkdir(parents=True)
    Path(site.closed.path).write_bytes(b"x" * 20)
    site.promote("--not-read", "another", code=6)
    assert site.promote("--not-read", word)["promoted"]


def test_an_upload_and_a_filesystem_that_does_not_answer_are_in_the_way(site):
    upload = Upload("out/b/part-0", "id-of-s3", [("1", 500)], "out/_tmp_7", 33)
    elsewhere = Part("nosuch://dcA/out/b/part-2", "nosuch://dcA/out/b/.part-2.inprogress.3", 3)
    site.metadata(
        site.writer(
            written.bucket(3, upload, path="s3://bucket/out/b"),
            written.bucket(3, elsewhere, path="nosuch://dcA/out/b"),
        )
    )
    site.sync()
    first, second = site.promote(code=6)["files"]
    assert (first["presence"], first["upload"]) == ("upload", "id-of-s3")
    assert first["place"] == "s3://bucket/out/_tmp_7"
    assert second["presence"] == "not looked for"
    assert "nosuch" in second["reason"]


@pytest.mark.parametrize("is_completed", [False, True])
def test_a_pending_upload_that_was_completed_is_there_by_its_last_name(site, is_completed):
    target = f"file:{site.out}/b/part-0"
    upload = Upload(f"{site.out}/b/part-0", "id-of-s3", [("1", 20)])
    committable = written.committable(2, pending=upload, target=target)
    element = written.collected("2.3", 1, [committable])
    site.metadata(operator("out: Committer", {COMMITTER: [element]}, SINK))
    site.sync()
    if is_completed:
        (site.out / "b").mkdir(parents=True)
        (site.out / "b" / "part-0").write_bytes(b"x" * 20)
    (listed,) = site.run("inspect", site.replica / "chk-1", "--with-files")["files"]
    assert (listed["place"], listed["upload"]) == (target, "id-of-s3")
    assert listed["presence"] == ("there" if is_completed else "upload")


def test_a_pending_upload_whose_bucket_is_not_recorded_is_not_looked_for(site):
    upload = Upload("out/b/part-0", "id-of-s3", [("1", 20)])
    element = written.collected("1.14", 1, [written.committable(1, pending=upload)])
    site.metadata(operator("out: Committer", {COMMITTER: [element]}, SINK))
    site.sync()
    (listed,) = site.run("inspect", site.replica / "chk-1", "--with-files")["files"]
    assert (listed["place"], listed["presence"]) == ("out/b/part-0", "upload")


def test_a_list_for_copying_has_a_line_for_each_file(site):
    site.of_files()
    site.put(site.open.path, site.closed.target)
    checkpoint = site.replica / "chk-1"
    ended = commandline.run("inspect", checkpoint, "--with-files")
    assert ended.out.splitlines() == [
        f"file:{site.open.path} 10 there",
        f"file:{site.closed.target} 20 there",
    ]
    listed = site.run("inspect", checkpoint, "--with-files")
    assert (listed["bytes"], listed["rebase"]) == (30, None)


def test_a_list_of_files_that_were_copied_is_looked_for_at_the_copy(site):
    site.of_files()
    site.put(site.open.path, site.closed.path)
    moved = site.out.rename(site.root / "copy")
    remaps = [Remap(f"file:{site.out}", f"file:{moved}")]
    found = needed_files(f"file:{site.replica}/chk-1", Side(), remaps)
    assert not found.absent
    assert found.files[0].place == f"file:{site.open.path}"


def test_a_checkpoint_without_part_files_says_so(site):
    site.metadata(operator("custom: Writer", {WRITER: [written.versioned(1, b"own")]}))
    ended = commandline.run("inspect", site.root / "dcA" / JOB / "chk-1", "--with-files")
    assert ended.out.startswith("# the state of ")
    site.sync()
    assert site.promote()["promoted"]


def test_with_files_is_given_alone():
    for other in ("--refs", "--positions", "--stat"):
        with pytest.raises(Exception, match="cannot be given together"):
            commandline.run("inspect", "/nowhere", "--with-files", other)


@pytest.mark.parametrize("handle", ["inline", "file", "segment"])
def test_a_derived_checkpoint_names_no_part_file_wherever_the_states_are(site, handle):
    lists = {
        WRITER: [written.bucket(3, site.open), written.bucket(3, None)],
        "end_of_input_state": [b"own"],
    }
    states = stream(lists)
    directory = site.root / "dcA" / JOB / "chk-1"
    directory.mkdir(parents=True)
    (directory / "state").write_bytes(states.data)
    length = len(states.data)
    place = {
        "inline": inline(states.data),
        "file": RelativeFile("state", length),
        "segment": Segment(0, length, 0, f"file:{directory}/state", "id"),
    }[handle]
    own = OperatorEntry(bytes([9]) * 16, 1, 16, (subtask(0, states, place),), None, "out: Writer")
    site.metadata(own, site.committer())
    site.sync()
    before = {each.name: each.read_bytes() for each in (site.replica / "chk-1").iterdir()}
    result = site.run("rebase", site.replica, "--drop-pending")
    assert [(each["kind"], each["length"]) for each in result["dropped_files"]] == [
        ("in-progress", 10),
        ("bucket", 0),
        ("pending", 20),
    ]
    derived = site.replica / result["derived"]
    assert held(derived) == Positions()
    assert {each.name: each.read_bytes() for each in (site.replica / "chk-1").iterdir()} == before
    verified = site.run("verify", site.replica, "--checkpoint", result["derived"], "--content")
    assert verified["restorable"]
    assert site.promote("--checkpoint", result["derived"])["promoted"]


def test_rebase_reports_what_is_lost_and_keeps_part_files_unless_asked(site):
    entry = source_operator([of_splits()], coordinator(3, SPLITS))
    site.metadata(entry, site.writer(), site.committer())
    site.sync()
    dropped = commandline.run("rebase", site.replica, "--drop-pending", "--dry-run").out
    assert (
        "1 part file in progress is left out, 10 bytes: the records in them are missing" in dropped
    )
    assert f"    file:{site.open.path} (10 bytes)" in dropped
    (site.root / "offsets").write_text("orders,0,9\n")
    kept = site.run("rebase", site.replica, "--positions", site.root / "offsets")
    assert "2 part files are outside of the checkpoint" in kept["warnings"][0]
    assert len(held(site.replica / kept["derived"]).part_files) == 2


def of_splits() -> Subtask:
    states = stream({READERS: [each.element for each in SPLITS]})
    return subtask(0, states, inline(states.data))


def table_operator(lists: dict[str, Any], name: str) -> OperatorEntry:
    """An operator whose lists have serializers of their own."""
    states = stream(lists, serializer="org.apache.flink.api.common.typeutils.base.StringSerializer")
    return OperatorEntry(
        bytes([9]) * 16, 1, 16, (subtask(0, states, inline(states.data)),), None, name
    )


ICEBERG = {"iceberg-files-committer-state": [b"own"], "iceberg-flink-job-id": [b"id"]}
PAIMON = {COMMITTER: [written.versioned(5, b"own")], "commit_user_state": [b"user"]}
OF_SINK = written.utf("ab" * 16) + written.utf("cd" * 16) + b"manifest"


@pytest.mark.parametrize(
    ("operator", "sink"),
    [
        (table_operator(ICEBERG, "orders"), "a sink of Iceberg"),
        (table_operator(PAIMON, "orders"), "a sink of Paimon"),
        (
            operator(
                "orders",
                {
                    COMMITTER: [
                        written.collected("2.3", 1, [OF_SINK], version=1),
                    ]
                },
            ),
            "a sink of Iceberg",
        ),
        (
            operator("orders", {COMMITTER: [written.collected("2.3", 1, [b"own"], version=1)]}),
            "a sink that is not known",
        ),
    ],
    ids=["iceberg", "paimon", "IcebergSink", "another"],
)
def test_a_sink_that_is_not_read_is_named_and_nothing_is_left_out_of_it(site, operator, sink):
    entry = source_operator([of_splits()], coordinator(3, SPLITS))
    site.metadata(entry, operator, sink_operator(Transaction("tx-0-3", 70)))
    site.sync()
    (unread,) = held(site.replica / "chk-1").unread
    assert (
        unread.reason
        == f"it is {sink}, and what its state names outside of the checkpoint is not read"
    )
    assert (unread.is_of_files, unread.is_obstacle) == (True, False)
    assert site.promote("--dry-run", code=6)["unread"]
    message = site.run("rebase", site.replica, "--drop-pending", code=6)
    assert f"the state of operator orders names: it is {sink}" in message
    result = site.run("rebase", site.replica, "--drop-pending", "--not-read", "orders")
    assert len(result["dropped"]) == 1
    assert held(site.replica / result["derived"]).unread == (unread,)
    (site.root / "offsets").write_text("orders,0,9\n")  # no state of a sink is in the way of this
    assert site.run("rebase", site.replica, "--positions", site.root / "offsets")["written"]


def test_a_writer_with_more_state_than_is_read_is_no_obstacle_for_kafka(site):
    directory = site.root / "dcA" / JOB / "chk-1"
    directory.mkdir(parents=True)
    states = stream({WRITER: [b"x" * 100]})
    (directory / "state").write_bytes(states.data + bytes(9 << 20))
    place = RelativeFile("state", len(states.data) + (9 << 20))
    site.metadata(OperatorEntry(SINK, 1, 16, (subtask(0, states, place),), None, "own"))
    (unread,) = held(directory).unread
    assert (unread.is_of_files, unread.is_obstacle) == (True, False)


def test_doctor_and_diff_name_part_files(site):
    site.metadata(site.writer(), site.committer())
    words = (site.root / "dcA" / JOB, site.root / "dcB")
    finding = next(
        each for each in site.run("doctor", *words)["checks"] if each["check"] == "part files"
    )
    assert finding["status"] == "warning"
    assert "1 part file in progress (10 bytes) of out: Writer" in finding["message"]
    assert "--with-files" in finding["remedy"]
    assert len(site.run("diff", *words)["part_files"]) == 2
    site.metadata(operator("own", {WRITER: [written.versioned(1, b"own")]}))
    finding = next(
        each for each in site.run("doctor", *words)["checks"] if each["check"] == "part files"
    )
    assert finding["status"] == "ok"


def test_a_file_to_remove_is_not_needed():
    file = PartFile(OPERATOR, "to-remove", "hdfs://a/x", None, 0)
    assert not file.is_needed


def test_promote_of_all_fails_only_for_the_job_whose_files_are_missing(site):
    site.of_files()
    report = site.run("promote", "--all", "--yes", "--with-files", site.root / "dcB", code=3)
    (job,) = report["jobs"]
    assert job["exit_code"] == 6
    assert "2 part files were not found" in job["error"]
