"""What is counted has its noun in the singular if there is one of it."""

import ast
import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import cpreplicate
from tests.support.commandline import printed
from tests.support.jobs import JOB, write_checkpoint

PACKAGE = Path(cpreplicate.__file__).parent
VERBS = {"does", "equals", "follows", "has", "holds", "is", "lags", "was"}
ONE_OF_MANY = re.compile(r"(?<![\w.,:/-])1 ((?:[a-z]+ )?[a-z]+s)\b")
NOUN = re.compile(
    r" (?:more |other |packed |pending |referenced |state )?"
    r"(actions|bytes|checkpoints|commands|copies|directories|entries|files|handles|ids|jobs|members|operators|orphans|packs|partitions|places|points|positions"
    r"|reasons|replicas|roots|rows|snapshots|sources|storages|tasks|topics|transactions)\b"
)
CONSTANT = re.compile(r"_?[A-Z][A-Z_]*")
MANY = {  # always more than one where the message is
    "cli/commands/handover.py": {"taken"},
    "cli/commands/switch.py": {"len(jobs)"},
    "core/metadata/mutf8.py": {"len(data)"},
    "core/positions/sinks/part_files.py": {"len(found)"},
    "core/positions/snappy.py": {"size"},
    "core/positions/topics.py": {"count"},
    "flink/client.py": {"self._limits.bytes"},
    "operations/handover/switch/preview.py": {"len(found)"},
    "operations/handover/unseal.py": {"len(known)"},
    "operations/kafka/check.py": {"count"},
    "operations/kafka/operator_reader.py": {"len(lists)", "handle.size"},
    "operations/replicas/selection.py": {"len(lives)", "len(same) + 1", "len(of_id)"},
    "operations/sync/source/incomplete.py": {"self.all_files"},
    "operations/sync/source/state.py": {"len(found)"},
    "output/report/page.py": {"whole"},
    "output/report/pages/operators.py": {"count"},
    "output/report/pages/verification.py": {"len(found)", "names"},
    "output/restore_pages.py": {"len(found)"},
    "protocol/parquet_files.py": {"len(data)", "length", "rows", "sum(sizes)"},
    "runners/spark/session.py": {"cores"},
    "storage/backends/hdfs/common.py": {"self.block_size"},
}


def plurals(path: Path) -> Iterator[str]:
    """Yield what a module inserts in front of a noun in the plural."""
    for node in ast.walk(ast.parse(path.read_text())):
        parts = node.values if isinstance(node, ast.JoinedStr) else []
        for inserted, text in pairwise(parts):
            if (
                isinstance(inserted, ast.FormattedValue)
                and isinstance(text, ast.Constant)
                and NOUN.match(str(text.value))
            ):
                yield ast.unparse(inserted.value)


def test_no_message_inserts_a_count_in_front_of_a_noun_in_the_plural():
    found = {
        str(path.relative_to(PACKAGE)): {each for each in plurals(path) if not CONSTANT.match(each)}
        for path in PACKAGE.rglob("*.py")
    }
    assert {place: each for place, each in found.items() if each} == MANY


def wrong(text: str) -> list[str]:
    """Return the counts of one whose noun is in the plural."""
    return [found[0] for found in ONE_OF_MANY.finditer(text) if VERBS.isdisjoint(found[1].split())]


def test_the_pattern_finds_what_it_is_for():
    assert wrong("copies 1 files; 1 packed files, 21 files, 1 replica holds") == [
        "1 files",
        "1 packed files",
    ]


@pytest.fixture
def directory(tmp_path):
    """One job with one checkpoint of one file of one byte, and a replica of the one before."""
    write_checkpoint(tmp_path / "dcA", 1, {"shared/a": 1})
    assert printed("sync", tmp_path / "dcA" / JOB, tmp_path / "dcB").returncode == 0
    write_checkpoint(tmp_path / "dcA", 2, {"chk-2/b": 1})
    (tmp_path / "jobs.toml").write_text(
        f'[[job]]\nsource = "{tmp_path}/dcA/{JOB}"\ntarget = "{tmp_path}/dcB"\n'
    )
    return tmp_path


COMMANDS = {
    "diff": ("dcA/JOB", "dcB", "--report", "page.html"),
    "doctor": ("dcA/JOB", "dcB"),
    "fleet": ("jobs.toml",),
    "fleet --dry-run": ("jobs.toml",),
    "forget --dry-run": ("dcB/JOB", "--last-point"),
    "forget --all --ended --dry-run": ("dcB", "--yes"),
    "inspect": ("dcA/JOB", "--report", "page.html"),
    "inspect --positions": ("dcA/JOB",),
    "list": ("dcB", "--report", "page.html"),
    "promote --dry-run": ("dcB/JOB",),
    "promote --all --yes": ("dcB",),
    "relocate --paths absolute": ("dcB/JOB",),
    "status": ("dcB", "--report", "page.html"),
    "status --max-lag 1s": ("dcB", "--source", "dcA"),
    "sweep": ("dcB/JOB",),
    "sync --check-content": ("dcA/JOB", "dcB"),
    "verify --content": ("dcB/JOB", "--report", "page.html"),
}


def everything(directory: Path, command: str) -> str:
    """Return what a command prints, and its page."""
    places = [
        f"{directory}/{word}".replace("JOB", JOB) if word[0] != "-" else word
        for word in COMMANDS[command]
    ]
    done = printed(*command.split(), *places)
    assert done.returncode in (0, 10, 20, 21), done
    page = directory / "page.html"
    return done.stdout + done.stderr + (page.read_text() if page.exists() else "")


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_prints_a_plural_of_one(directory, command):
    assert wrong(everything(directory, command)) == []


def test_no_failure_prints_a_plural_of_one(directory):
    (directory / "dcA" / JOB / "chk-2" / "b").unlink()
    missing = printed("sync", directory / "dcA" / JOB, directory / "dcB")
    assert "1 referenced file is missing" in missing.stderr
    (directory / "dcB" / JOB / "shared" / "a").write_bytes(b"")
    short = printed("verify", directory / "dcB" / JOB)
    shutil.rmtree(directory / "dcA")
    gone = printed("fleet", directory / "jobs.toml")
    assert (short.returncode, gone.returncode) == (4, 10)
    assert [wrong(each.stdout + each.stderr) for each in (missing, short, gone)] == [[], [], []]
