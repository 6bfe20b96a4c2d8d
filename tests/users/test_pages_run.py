"""The commands of pages run as they stand there, and print what the page shows."""

import os
import re
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.support import parts
from tests.support.commandline import run
from tests.support.jobs import JOB
from tests.support.pages import RUN, Block, Run, blocks, complete, missing
from tests.support.ports import free_port

ROOT = Path(__file__).parent.parent.parent
ID = r"55d1…|<job-id>|0{32}"
MINUTE = 60.0
MAIN = ["README.md", "docs/operations.md"]


def page_of(name):
    return (ROOT / name).read_text()


def places(directory):
    """The directories of the pages, and words that stand for arguments."""
    source = f"{directory}/dcA/flink/checkpoints/{JOB}"
    return {
        r"(?<![\w$])SOURCE(?![\w=])": source,
        r"(?<![\w$])TARGET_ROOT(?![\w=])": f"{directory}/dcB/flink/replicas",
        r"(?<![\w$/])REPLICA(?![\w=])": f"{directory}/dcB/flink/replicas/{JOB}",
        r"(?<![\w$/])JOB(?=[ ])": source,
        r"(?<=/replicas/)(?:ID\b|\$ID)": JOB,
        r"/var/log": str(directory),
        ID: JOB,
    }


def flink(directory, centre):
    return directory / centre / "flink"


def replicate(directory, centre, numbers, *options):
    """Complete checkpoints in A, some minutes apart, and replicate each."""
    job = flink(directory, "dcA") / "checkpoints" / JOB
    for number in numbers:
        complete(job, number)
        completed = time.time() - MINUTE * (1 + max(numbers) - number)
        os.utime(job / f"chk-{number}" / "_metadata", (completed, completed))
    for number in numbers:
        target = str(flink(directory, centre) / "replicas")
        assert run("sync", str(job / f"chk-{number}"), target, *options).code == 0


def prepare_nothing(directory):
    (directory / "tests").symlink_to(ROOT / "tests")
    return {}


def prepare_source(directory):
    complete(flink(directory, "dcA") / "checkpoints" / JOB, 42)
    return {}


def prepare_lost(directory):
    for centre in ("dcB", "dcC"):
        replicate(directory, centre, (41, 42), "--name", "orders", "--keep", "2")
    (directory / "dcA").rename(directory / "gone")
    now = time.time()
    earlier = datetime.fromtimestamp(now - 1.5 * MINUTE, timezone.utc)
    begin = datetime.fromtimestamp(now - MINUTE, timezone.utc)
    return {
        "2026-11-24T03:00Z": f"{earlier:%Y-%m-%dT%H:%M:%SZ}",
        r"(?<=--sealed-after )TIME": f"{begin:%Y-%m-%dT%H:%M:%SZ}",
    }


def prepare_failback(_directory):
    # the id of the run is no fixed one, so that its replica has no digits
    return {r"^": f"ID={JOB}\n", "-0cc3a3f8": ""}


def prepare_replica(directory):
    """A replica that lacks the newest checkpoint, and the files that pages name."""
    replicate(directory, "dcB", (41,), "--name", "orders")
    complete(flink(directory, "dcA") / "checkpoints" / JOB, 42)
    configurations = directory / "hadoop"
    for side in ("dcA", "dcB"):
        (configurations / side).mkdir(parents=True)
        for name in ("core-site.xml", "hdfs-site.xml"):
            (configurations / side / name).write_text("<configuration/>")
    (directory / "jobs.toml").write_text(
        f'[[job]]\nname = "orders"\nsource = "{directory}/dcA/flink/checkpoints/{JOB}"\n'
        f'target = "{directory}/dcB/flink/replicas"\n'
    )
    return {
        r"/etc/hadoop/": f"{configurations}/",
        r"/var/lib/node_exporter/": f"{directory}/",
        r"(?<=--metrics )9464": str(free_port()),
    }


def prepare_places(directory):
    replicate(directory, "dcB", (41,), "--name", "orders")
    complete(flink(directory, "dcA") / "checkpoints" / JOB, 42)
    options = directory / "places.toml"
    options.write_text(
        "".join(
            f'[places.{each}]\nurl = "file:{directory}/{each}/flink"\n' for each in ("dcA", "dcB")
        )
    )
    return {r"^": f"export CPREPLICATE_CONFIG={options}\n"}


def prepare_options(directory):
    options = directory / ".config" / "cpreplicate"
    options.mkdir(parents=True)
    (options / "config.toml").write_text("[sync]\nkeep = 2\n")
    return {**prepare_replica(directory), r"^": "unset CPREPLICATE_CONFIG\n"}


PREPARED = {
    **dict.fromkeys(RUN, prepare_replica),
    "README.md": prepare_source,
    "docs/configuration.md": prepare_places,
    "docs/failback.md": prepare_failback,
    "docs/lost.md": prepare_lost,
    "docs/tutorial.md": prepare_nothing,
    "docs/upgrades.md": prepare_options,
}


def test_each_page_with_commands_is_run_or_states_why_not():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    left = {
        f"{page.relative_to(ROOT)}, line {block.line}"
        for page in pages
        if str(page.relative_to(ROOT)) not in RUN
        for block in blocks(page.read_text())
        if block.has_commands and block.reason is None
    }
    assert left == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", parts.cases(RUN, MAIN))
def test_each_command_of_a_page_runs_and_prints_what_the_page_shows(name, tmp_path):
    replaced = {**places(tmp_path), **PREPARED[name](tmp_path)}
    text = re.sub(r"hdfs://(dc[ABC])/flink", rf"{tmp_path}/\1/flink", page_of(name))
    found = blocks(text)
    is_whole = name == "docs/tutorial.md"
    shown = [each for each in found if each.reason is None and (is_whole or each.has_commands)]
    outputs = Run(tmp_path, replaced).outputs(shown)
    differences = {
        f"line {block.line}": (missing(block.expected, output), output)
        for block, output in zip(shown, outputs, strict=True)
        if block.expected is not None and missing(block.expected, output)
    }
    assert differences == {}


def test_the_blocks_of_a_page_are_found():
    page = (
        "Text:\n\n    one \\\n        more\n\n    two\n\n1. In a list:\n\n       three\n\n"
        "<!-- not-run: no cluster -->\n\n    four\n\n```text\nit prints\n```\n\n```\nfive\n```"
    )
    assert blocks(page) == [
        Block(3, "one \\\n    more\n\ntwo"),
        Block(10, "three"),
        Block(14, "four", "no cluster", "it prints"),
        Block(20, "five"),
    ]


def test_expected_lines_follow_each_other_and_may_leave_words_out():
    output = "copy   3 files, 1 KiB\nresult  committed chk-6 (inline)\n"
    assert missing("copy 3 files…\n…committed chk-6…", output) == []
    assert missing("…committed chk-6…\ncopy 3 files…", output) == ["copy 3 files…"]
    assert missing("copy 4 files…", output) == ["copy 4 files…"]
