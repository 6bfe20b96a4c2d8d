"""A sync that is worth Spark: chosen by itself, stopped by signals, resumed by running again."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from cpreplicate.cli.submitted import SCRIPT
from cpreplicate.core.placement import OWN
from cpreplicate.runners import startup_times
from tests.support import checker, corpus
from tests.support.jobs import JOB, write_checkpoint
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.xdist_group("spark")

MANY = {f"shared/{number:04d}": 5000 + number for number in range(300)}
LARGE = {f"shared/{number}": 2 << 20 for number in range(24)}


def sync(tmp_path, number, *words):
    source = tmp_path / "dcA" / JOB / f"chk-{number}"
    command = [
        sys.executable,
        "-m",
        "cpreplicate",
        "sync",
        str(source),
        str(tmp_path / "dcB"),
        "--output",
        "json",
        *words,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(process):
    out, narration = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, narration
    return json.loads(out)


def test_much_goes_to_spark_and_the_next_checkpoint_does_not(tmp_path, monkeypatch):
    """What is much depends on how quickly Spark started here the last time: in no time, as far as
    this test is concerned.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    startup_times.record("local", 0.1)
    write_checkpoint(tmp_path / "dcA", 1, MANY)
    first = finished(sync(tmp_path, 1))
    assert first["runner"] == "spark"
    assert first["copy"]["files"] == 300
    write_checkpoint(tmp_path / "dcA", 2, {**dict(list(MANY.items())[5:]), "shared/new": 70_000})
    second = finished(sync(tmp_path, 2))
    assert second["runner"] == "inline"
    assert (second["copy"]["files"], second["keep"]["files"], second["delete"]["files"]) == (
        1,
        295,
        5,
    )
    replica = tmp_path / "dcB" / JOB
    assert checker.faults(replica) == []
    assert len(corpus.tree(replica)) == 296 + 1
    assert (replica / "shared" / "new").read_bytes() == (
        tmp_path / "dcA" / JOB / "shared" / "new"
    ).read_bytes()


@pytest.mark.rest
def test_a_file_that_cannot_be_copied_ends_with_3_and_the_old_checkpoint_is_whole(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, {"shared/old": 100})
    finished(sync(tmp_path, 1))
    write_checkpoint(tmp_path / "dcA", 2, MANY)
    (tmp_path / "dcB" / JOB / "shared" / "0007" / "in the way").mkdir(parents=True)
    process = sync(tmp_path, 2, "--master", "local[2,2]")
    narration = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 3
    assert "1 of 300 copies failed" in narration
    assert "shared/0007" in narration
    assert "Traceback" not in narration
    replica = tmp_path / "dcB" / JOB
    assert [each.parent.name for each in replica.glob("chk-*/_metadata")] == ["chk-1"]
    assert checker.faults(replica) == []


@pytest.mark.parametrize(("name", "code"), [(signal.SIGTERM, 143)])
@pytest.mark.rest
def test_a_run_stopped_in_the_middle_leaves_no_process_and_is_resumed(name, code, tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, LARGE)
    slowly = ("--bandwidth", "1MB/s", "--progress", "ndjson")  # 48 seconds, if nobody stops it
    process = sync(tmp_path, 1, "--runner", "spark", "--master", "local[2]", *slowly)
    shared = tmp_path / "dcB" / JOB / "shared"
    reported = files_reported(process, 4)
    children = descendants(process.pid)
    process.send_signal(name)
    narration = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == code
    assert "Traceback" not in narration
    wait_until(lambda: not any(alive(child) for child in children))
    copied = {file.name: changed(file) for file in whole(shared)}
    assert not list((tmp_path / "dcB" / JOB).glob("chk-*/_metadata"))
    result = finished(sync(tmp_path, 1, "--runner", "inline"))
    # what tasks had reported is not copied again
    kept = [name for name, written in copied.items() if changed(shared / name) == written]
    assert len(copied) >= result["keep"]["files"] == len(kept) >= reported
    assert checker.faults(tmp_path / "dcB" / JOB) == []


def files_reported(process, least):
    """Return how many files the progress reports as copied, once these are enough."""
    for line in process.stderr:
        files = int(json.loads(line).get("files", 0))
        if files >= least:
            return files
    raise AssertionError("it ended first")


def changed(file):
    """Return what is another once a file is written again."""
    return (file.stat().st_mtime_ns, file.stat().st_ino)


def whole(directory):
    return [file for file in directory.iterdir() if not file.name.startswith(".")]


def descendants(pid):
    """Every process below one, by /proc."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.rest
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_who_ends_spark_submit_ends_its_command_with_it(tmp_path, number):
    """Spark itself leaves the program alone, which would commit later."""
    checkpoint = write_checkpoint(tmp_path / "dcA", 1, LARGE)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    program = [f"{submit}", "--conf", f"spark.pyspark.python={sys.executable}", f"{SCRIPT}"]
    words = ["sync", f"{checkpoint}", f"{tmp_path}/dcB"]
    slowly = ["--runner", "inline", "--bandwidth", "1KB/s"]
    process = subprocess.Popen([*program, *words, *slowly], stderr=subprocess.DEVNULL)
    lease = tmp_path / "dcB" / JOB / OWN / "lease"
    wait_until(lease.exists, "the sync")
    command = holder_of(lease)
    process.send_signal(number)
    process.wait()
    wait_until(lambda: not Path(f"/proc/{command}").exists(), "the end of the command")
    assert not (tmp_path / "dcB" / JOB / "chk-1" / "_metadata").exists()


def holder_of(lease):
    """The process that holds a lease."""
    return json.loads(lease.read_text())["pid"]
