"""`--report`: each command writes a page beside its result."""

import re

import click
import pytest

from cpreplicate.errors import NotThere, Refused
from tests.support.commandline import printed, run
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, synced

COMMANDS = {
    "inspect": ("dcA/JOB", "chk-3 holds 10 files"),
    "diff": ("dcA/JOB dcB", "1 of 10 files"),
    "sync": ("dcA/JOB dcB --runner inline", "1 of 10 files"),
    "verify": ("dcB/JOB", "chk-2 can be restored"),
    "fleet": ("jobs.toml --dry-run", "Of 1 job, 1 to be replicated"),
    "status": ("dcB", "1 replica: 1 ready to be promoted"),
    "list": ("dcB", "1 replica holds 2 checkpoints"),
    "forget": ("--dry-run --last-point dcB/JOB", "1 of 1 replica would be removed"),
}


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """A replica of two checkpoints, and a third one at the source."""
    synced(tmp_path, {1: FILES, 2: FILES}, keep=2)
    write_checkpoint(tmp_path / "dcA", 3, {**FILES, "shared/new": 10})
    (tmp_path / "jobs.toml").write_text(
        f'[[job]]\nsource = "{tmp_path}/dcA/{JOB}"\ntarget = "{tmp_path}/dcB"\n'
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def words_of(command):
    return [command, *COMMANDS[command][0].replace("JOB", JOB).split()]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_writes_a_page_that_begins_with_the_answer(directory, command):
    ended = run(*words_of(command), "--report", "page.html")
    assert ended.code == 0, ended.message
    text = (directory / "page.html").read_text()
    answer = text[text.index('class="answer') :]
    assert COMMANDS[command][1] in answer[:500]


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"sync"}))
def test_the_output_is_the_same_with_a_page(command):
    without, with_page = (
        run(*words_of(command), "--output", "ndjson", *more).out
        for more in ([], ["--report", "page.html"])
    )
    assert without
    assert re.sub(r"\d", "", without) == re.sub(r"\d", "", with_page)  # times differ


@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_that_cannot_be_written_ends_a_command_before_its_work(directory, command):
    before = sorted(directory.rglob("*"))
    done = printed(*words_of(command), "--report", "no/such/page.html")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "--report no/such/page.html cannot be written" in done.stderr
    assert "Nothing was done." in done.stderr
    assert sorted(directory.rglob("*")) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_in_a_replica_ends_a_command_before_its_work(directory, command):
    before = sorted(directory.rglob("*"))
    done = printed(*words_of(command), "--report", f"dcB/{JOB}/page.html")
    assert done.returncode == 2
    assert f"--report dcB/{JOB}/page.html would be in the replica" in done.stderr
    assert sorted(directory.rglob("*")) == before


def test_refs_and_positions_have_the_page_of_inspect(directory):
    for option in ("--refs", "--positions"):
        assert run("inspect", f"dcA/{JOB}", option, "--report", "page.html").code == 0
        assert "State handles" in (directory / "page.html").read_text()


def test_a_refused_plan_has_a_page(directory):
    write_checkpoint(directory / "dcA", 4, {"shared/a": 100})
    ended = run(*words_of("sync"), "--max-delete", "0", "--report", "page.html")
    assert ended.code == Refused.exit_code
    text = (directory / "page.html").read_text()
    assert 'class="answer bad"' in text
    assert "Nothing was done, because a sync is refused" in text


def test_a_page_of_a_sync_reads_the_committed_checkpoint_of_the_replica(directory):
    assert run(*words_of("sync"), "--report", "page.html").code == 0
    text = (directory / "page.html").read_text()
    assert "Bytes by operator and kind of state" in text
    assert "Kept checkpoints" in text
    assert "not shown" not in text


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(28, "No space left on device"), "be written: No space left on device"),
        (NotThere("chk-1 is gone"), "be made: chk-1 is gone"),
        (MemoryError("of 16 GiB"), "be made: unexpected MemoryError: of 16 GiB"),
    ],
)
@pytest.mark.parametrize(("command", "code"), [("sync", 0), ("diff", 1)])
def test_a_page_that_is_lost_is_a_warning_after_a_change_and_else_a_failure(
    directory, command, code, error, message, monkeypatch
):
    def fails(*_words):
        raise error

    monkeypatch.setattr("cpreplicate.output.report.file.write_page", fails)
    done = printed(*words_of(command), "--report", "page.html")
    assert done.returncode == code
    assert f"the report could not {message}" in done.stderr
    assert not (directory / "page.html").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["list", "dcB", "--report", "page.txt"], "ends in .html"),
        (["fleet", "jobs.toml", "--every", "1m", "--report", "page.html"], "does not go with"),
    ],
)
@pytest.mark.usefixtures("directory")
def test_a_mistake_is_refused(words, message):
    with pytest.raises(click.UsageError, match=message):
        run(*words)


def test_a_configuration_sets_the_page(directory):
    (directory / "config.toml").write_text('[list]\nreport = "page.html"\n')
    assert run("--config", "config.toml", "list", "dcB").code == 0
    assert (directory / "page.html").exists()
