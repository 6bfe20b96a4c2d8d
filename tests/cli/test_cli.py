"""The command line as a user runs it: exit codes, and what is printed to which stream."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import jobs
from tests.support.commandline import printed
from tests.support.corpus import ROOT, DataCentre
from tests.support.jobs import write_checkpoint
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.usefixtures("still_source")

JOB = "55d11b0e36f1bfdaa08cb74d9bea9f76"


class Cli:
    """Runs `cpreplicate` in a directory that holds `dcA`, a data centre of the corpus."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.source = DataCentre("2.3.0-rocks-incr", directory)
        self.remap = ("--remap", f"{self.source.remap.recorded}={self.source.path}")

    def __call__(self, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
        return printed(*words, cwd=self.directory, **environment)

    def process(self, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
        """The same in a process of its own, which takes most of a second to start."""
        return subprocess.run(
            [sys.executable, "-m", "cpreplicate", *map(str, words)],
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env={**os.environ, **environment},
        )

    def sync(self, number: int, *words: object) -> subprocess.CompletedProcess[str]:
        return self(*self.words_of_sync(number), *words)

    def words_of_sync(self, number: int) -> tuple[object, ...]:
        places = (f"dcA/ckpt/{JOB}/chk-{number}", "dcB")
        return ("sync", *places, *self.remap, "--runner", "inline")


@pytest.fixture
def cli(tmp_path):
    return Cli(tmp_path)


def test_sync_prints_its_result_on_stdout_and_its_narration_on_stderr(cli):
    done = cli.process(*cli.words_of_sync(6))
    assert done.returncode == 0
    assert "committed chk-6" in done.stdout
    assert f"flink run -s file:{cli.directory}/dcB/{JOB}/chk-6 -claimMode NO_CLAIM" in done.stdout
    assert "copying" in done.stderr
    assert "copying" not in done.stdout


def test_sync_json_is_as_documented(cli):
    result = json.loads(cli.sync(6, "--output", "json", "--actions").stdout)
    expected: dict[str, object] = {
        "checkpoint_id": 6,
        "base_checkpoint_id": None,
        "committed": True,
        "runner": "inline",
        "warnings": [],
    }
    assert {key: result[key] for key in expected} == expected
    assert result["copy"]["files"] == len(result["actions"]) > 0
    assert result["copy"]["bytes"] == sum(action["bytes"] for action in result["actions"])
    assert set(result["actions"][0]) == {"action", "source", "target", "bytes", "reason"}
    assert result["keep"] == result["delete"] == {"files": 0, "bytes": 0}


def test_diff_and_dry_run_show_the_same_rows_and_do_nothing(cli):
    words = (f"dcA/ckpt/{JOB}/chk-6", "dcB", *cli.remap, "--output", "ndjson")
    rows = cli("diff", *words).stdout
    assert rows == cli("sync", "--dry-run", *words).stdout
    assert {json.loads(row)["action"] for row in rows.splitlines()} == {"copy"}
    assert not (cli.directory / "dcB").exists()


def test_diff_exit_code_is_20_if_there_are_differences(cli):
    words = ("diff", "--exit-code", f"dcA/ckpt/{JOB}/chk-6", "dcB", *cli.remap)
    assert cli(*words).returncode == 20
    cli.sync(6)
    done = cli(*words)
    assert done.returncode == 0
    assert "nothing to do" in done.stdout


def test_verify_exits_4_and_names_what_is_missing(cli):
    cli.sync(6)
    assert cli("verify", f"dcB/{JOB}").returncode == 0
    lost = next((cli.directory / "dcB" / JOB / "shared").iterdir())
    lost.unlink()
    done = cli.process("verify", f"dcB/{JOB}", "--output", "json")
    assert done.returncode == 4
    assert json.loads(done.stdout)["missing"] == [f"shared/{lost.name}"]
    assert json.loads(done.stdout)["restorable"] is False


def test_verify_content_finds_a_flipped_bit(cli):
    cli.sync(6)
    file = next((cli.directory / "dcB" / JOB / "shared").iterdir())
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    file.write_bytes(damaged)
    assert cli("verify", f"dcB/{JOB}").returncode == 0
    done = cli("verify", f"dcB/{JOB}", "--content")
    assert done.returncode == 4
    assert f"corrupt: shared/{file.name}" in done.stdout


@pytest.mark.slow
def test_inspect_lists_operators_in_every_form(cli):
    words = ("inspect", f"dcA/ckpt/{JOB}/chk-6", *cli.remap)
    inspection = json.loads(cli(*words, "--output", "json").stdout)
    assert (inspection["checkpoint_id"], inspection["version"]) == (6, 6)
    assert len(inspection["operators"]) == 4
    assert inspection["foreign"] == {}
    assert all(operator["id"] in cli(*words).stdout for operator in inspection["operators"])
    rows = [
        json.loads(row) for row in cli(*words, "--refs", "--output", "ndjson").stdout.splitlines()
    ]
    assert len(rows) == inspection["handles"]
    assert len({row["uri"] for row in rows if row["uri"]}) == inspection["files"]


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("sync", "nowhere", "dcB"), 10, "nowhere"),
        (("verify", "nowhere"), 10, "holds no committed checkpoint"),
        (("sync", "a"), 2, "TARGET_ROOT"),
        (("sync", "a", "b", "--remap", "x"), 2, "FROM=TO"),
        (("inspect", "broken/chk-1"), 5, "broken/chk-1/_metadata"),
        (("verify", f"dcA/ckpt/{JOB}", "--checkpoint", "6"), 2, "chk-42"),
        (("diff", "gopher://x/y", "b"), 2, "gopher"),
    ],
)
def test_an_error_is_one_clear_line_with_its_exit_code(cli, words, code, expected):
    broken = cli.directory / "broken" / "chk-1"
    broken.mkdir(parents=True)
    (broken / "_metadata").write_bytes(b"\x49\x60\x67\x2d\0\0\0\x09")
    done = cli(*words)
    assert done.returncode == code
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_debug_shows_the_traceback(cli):
    assert "Traceback" in cli.process("--debug", "sync", "nowhere", "dcB").stderr


def test_flags_win_over_the_environment_and_that_over_the_file(cli):
    (cli.directory / "c.toml").write_text(
        '[sync]\npaths = "absolute"\noutput = "json"\nrunner = "inline"\n'
    )
    words = ("--config", "c.toml", "sync", "--dry-run", f"dcA/ckpt/{JOB}/chk-6", "dcB", *cli.remap)
    assert json.loads(cli(*words).stdout)["paths"] == "absolute"
    assert json.loads(cli(*words, CPREPLICATE_SYNC_PATHS="relative").stdout)["paths"] == "relative"
    flagged = cli(*words, "--paths", "absolute", CPREPLICATE_SYNC_PATHS="relative")
    assert json.loads(flagged.stdout)["paths"] == "absolute"


@pytest.mark.slow
def test_every_option_has_its_environment_variable_and_key_in_the_file(cli):
    words = ("sync", "--dry-run", f"dcA/ckpt/{JOB}/chk-6", "dcB", "--output", "json")
    elsewhere = cli(*words, *cli.remap, CPREPLICATE_SYNC_SOURCE_ROOT="/elsewhere")
    assert elsewhere.returncode == 0  # --remap names where the files are
    assert cli(*words, CPREPLICATE_SYNC_SOURCE_ROOT="/elsewhere").returncode == 6
    assert (
        json.loads(cli(*words, CPREPLICATE_SYNC_REMAP=cli.remap[1]).stdout)["copy"]["files"] == 28
    )
    (cli.directory / "c.toml").write_text(
        f'[sync]\nremap = ["{cli.remap[1]}"]\nsource-root = ["/elsewhere"]\n'
    )
    assert cli("--config", "c.toml", *words).returncode == 0


def test_relative_paths_that_lose_data_are_warned_of(cli):
    folder = ROOT / "2.3.0-changelog"
    remap = f"file:/srv/flink/datacenter/2.3.0-changelog={folder}"
    source = next((folder / "ckpt").glob("*/chk-8"))
    done = cli("diff", source, "dcB", "--remap", remap, "--paths", "relative")
    assert "warning: relative paths with changelog state" in done.stdout
    assert "do not restore it" in done.stdout
    assert "flink run" not in done.stdout


@pytest.mark.parametrize("words", [["--help"], ["sync", "--help"]])
def test_help_imports_nothing_that_is_slow_to_import(words):
    assert not {"pyspark", "pyarrow", "numpy", "fsspec", "asyncio", "requests"} & modules(words)


def test_a_dry_run_needs_no_spark_however_much_there_is_to_do(cli):
    words = [
        "sync",
        "--dry-run",
        "--runner",
        "spark",
        f"{cli.source.job_root(JOB)}/chk-6",
        f"{cli.directory}/dcB",
        *cli.remap,
    ]
    assert "pyspark" not in modules(words)


def test_a_run_with_nothing_to_do_imports_neither_spark_nor_what_services_need(cli):
    cli.sync(6)
    words = ["sync", f"{cli.source.job_root(JOB)}/chk-6", f"{cli.directory}/dcB", *cli.remap]
    imported = modules(words)
    assert not {"pyspark", "asyncio", "requests"} & imported
    of_results = "cpreplicate.output.results."
    assert {each for each in imported if each.startswith(of_results)} == {f"{of_results}report"}


def modules(words: list[str]) -> set[str]:
    """What a fresh process that runs the command has imported at its end."""
    code = "\n".join(
        [
            "import atexit, sys",
            "from cpreplicate.cli import main",
            f"sys.argv[1:] = {words!r}",
            "atexit.register(lambda: print('\\n' + ' '.join(sys.modules)))",
            "main()",
        ]
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    return set(done.stdout.splitlines()[-1].split())


def test_verbose_reports_both_estimates_also_of_a_dry_run(cli):
    for words in (["--dry-run"], []):
        done = cli("sync", f"dcA/ckpt/{JOB}/chk-6", "dcB", *cli.remap, "--verbose", *words)
        assert done.returncode == 0
        assert "runner: inline (auto, " in done.stderr
        assert "s, Spark about " in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--conf", "spark.executor.cores"], "expected a property of Spark"),
        (["--properties-file", "/nonexistent"], "No such file"),
        (["--batch-bytes", "many"], "expected a size"),
        (["--batch-files", "0"], "0: expected a whole number, 1 or more"),
        (["--batch-files", "many"], "many: expected a whole number, 1 or more"),
        (["--batch-files", ""], "the value is empty"),
        (["--max-rps", "many"], "many: expected a number"),
        (["--keep-within", "-1h"], "begins with a dash\n"),
        (["--keep", "--keep-less"], "begins with a dash\n"),
    ],
)
def test_an_invalid_option_of_a_runner_is_refused_before_anything_is_done(cli, words, expected):
    done = cli.sync(6, *words)
    assert done.returncode == 2
    assert expected in done.stderr
    assert not (cli.directory / "dcB").exists()


@pytest.mark.parametrize(("mode", "code"), [((), 2), (("--pack", "off"), 2), (("--pack", "on"), 0)])
def test_a_size_for_packs_is_refused_where_none_are_written(cli, mode, code):
    done = cli.sync(6, *mode, "--pack-below", "1KiB")
    assert (done.returncode, "--pack-below has no effect" in done.stderr) == (code, code == 2)


def test_verify_of_all_checkpoints_takes_no_name_of_one(cli):
    done = cli("verify", "dcB", "--all", "--checkpoint", "chk-1")
    assert done.returncode == 2
    assert "--checkpoint does not go with --all" in done.stderr


def test_a_value_of_the_environment_is_refused_with_the_name_of_its_variable(cli, monkeypatch):
    monkeypatch.setenv("CPREPLICATE_SYNC_KEEP", "3h")
    for command in ("sync", "diff"):
        done = cli(command, f"dcA/ckpt/{JOB}/chk-6", "dcB", *cli.remap)
        assert done.returncode == 2
        assert "'--keep' of the environment variable CPREPLICATE_SYNC_KEEP: 3h:" in done.stderr


def ended(process):
    """Return what a process printed to stderr until its end: sooner than a copy would take."""
    try:
        return process.communicate(timeout=PATIENCE)[1]
    finally:
        process.kill()


def test_an_interrupt_breaks_off_large_files_that_are_being_copied(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, {f"shared/{number}": 30_000_000 for number in range(3)})
    words = [
        "sync",
        tmp_path / "dcA" / jobs.JOB,
        tmp_path / "dcB",
        "--runner",
        "inline",
        "--bandwidth",
        "10KB/s",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "cpreplicate", *map(str, words)], stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: len(list((tmp_path / "dcB").glob("*/shared/*"))) == 3)
    process.send_signal(signal.SIGINT)
    stderr = ended(process)
    assert (process.returncode, "Traceback" in stderr) == (130, False)
    assert list((tmp_path / "dcB").glob("*/shared/*")) == []


def test_an_interrupt_breaks_off_packs_that_are_being_written(tmp_path):
    sizes = {f"shared/{number}": 500_000 for number in range(60)}
    write_checkpoint(tmp_path / "dcA", 1, sizes)
    words = ["--runner", "inline", "--pack", "on", "--bandwidth", "10KB/s"]
    command = [sys.executable, "-m", "cpreplicate", "sync", tmp_path / "dcA" / jobs.JOB]
    process = subprocess.Popen(
        [*map(str, command), str(tmp_path / "dcB"), *words], stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: list((tmp_path / "dcB").glob("*/packed/*")))
    process.send_signal(signal.SIGINT)
    stderr = ended(process)
    assert (process.returncode, "Traceback" in stderr) == (130, False)
    assert list((tmp_path / "dcB").glob("*/packed/*")) == []


@pytest.mark.parametrize(
    "checkpoint",
    ["hdfs://nosuchhost.invalid:8020/a/chk-1", "webhdfs://nosuchhost.invalid:9870/a/chk-1"],
)
def test_a_host_name_that_does_not_resolve_ends_with_7_and_its_retries_are_shown(cli, checkpoint):
    done = cli("inspect", checkpoint, "--retry-for", "2s")
    assert done.returncode == 7
    retrying, *_, error = done.stderr.splitlines()  # reported again every ten seconds
    assert retrying.startswith(f"{checkpoint}/_metadata: ")
    assert "; trying again for up to " in retrying
    assert error.startswith(f"cpreplicate: error: {checkpoint}/_metadata: ")
    assert "longer than --retry-for allows (2 s)" in error


def test_retries_are_events_where_progress_is(cli):
    words = (
        "hdfs://nosuchhost.invalid:8020/dcB",
        *cli.remap,
        "--retry-for",
        "4s",
        "--progress",
        "ndjson",
    )
    done = cli("sync", f"dcA/ckpt/{JOB}/chk-6", *words)
    first = json.loads(done.stderr.splitlines()[0])
    assert first["event"] == "narration"
    assert "; trying again for up to " in first["text"]
    assert done.returncode == 7


def test_a_forgotten_remap_is_suggested_by_every_command_that_plans(cli):
    for words in (["diff"], ["sync", "--dry-run"], ["sync"]):
        done = cli(*words, f"dcA/ckpt/{JOB}/chk-6", "dcB")
        assert done.returncode == 10
        assert done.stdout == ""
        (line,) = done.stderr.splitlines()
        assert (
            f"Run again with --remap {cli.source.remap.recorded}={cli.source.remap.actual}." in line
        )
        assert line.count("file:/srv/flink/") == 1 + 5
        assert "and 19 more" in line
