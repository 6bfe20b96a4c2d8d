"""A row is printed as soon as it is known, also if many are still read or one is late."""

import json
import re
import shutil
import subprocess
import sys

import pytest

from cpreplicate.operations.replicas import status as operation
from cpreplicate.operations.replicas.replicas import replicas_below
from cpreplicate.output.results import status as result
from cpreplicate.output.text import GrowingTable
from cpreplicate.storage import Sides
from tests.support.commandline import run
from tests.support.jobs import JOB
from tests.support.replicas import FILES, synced
from tests.support.roots import FIRST, HOUR, NOON, SECOND, THIRD, Roots
from tests.support.silent import silent_server
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def target_root(tmp_path_factory):
    """Three replicas; the first one by its name is of a source at a server that never answers."""
    root = tmp_path_factory.mktemp("late")
    replica = synced(root, {1: FILES})
    for job in (FIRST, SECOND):
        shutil.copytree(replica, replica.with_name(job))
    return replica.parent


def record_source(replica, source):
    marker = replica / ".cpreplicate" / "replica.json"
    fields = json.loads(marker.read_text())
    fields["sources"] = [{"given": source, "resolved": source}]
    marker.write_text(json.dumps(fields))


def test_a_replica_whose_source_does_not_answer_holds_up_no_row_of_another(target_root, tmp_path):
    words = ["status", target_root, "--source-conf", "deadline=1h", "--retry-for", "1h"]
    late = min((JOB, FIRST, SECOND))
    printed = tmp_path / "printed"
    with silent_server() as server, printed.open("w") as stdout:
        record_source(target_root / late, f"hdfs://{server.address}/flink/{late}")
        process = subprocess.Popen(
            [sys.executable, "-m", "cpreplicate", *map(str, words)], stdout=stdout
        )
        try:
            others = {JOB, FIRST, SECOND} - {late}
            wait_until(lambda: all(job in printed.read_text() for job in others))
            assert late not in printed.read_text()
            assert process.poll() is None
        finally:
            process.kill()
            process.wait()


def growing(monkeypatch, root, **options):
    """What `status` prints of replicas if no row is waited for but the first."""
    monkeypatch.setattr(result, "PATIENCE", 0.0)
    sides = Sides()
    reading = operation.read_status(replicas_below(f"file:{root}", (), sides), sides, **options)
    return list(result.FORMS.text(reading))


@pytest.fixture
def roots(tmp_path):
    """Two lives of one job, and another job that is damaged."""
    roots = Roots(tmp_path)
    roots.add(FIRST, "orders", completed=NOON)
    roots.add(SECOND, "orders", since=NOON + HOUR, completed=NOON + 2 * HOUR)
    (roots.add(THIRD, "clicks") / ".cpreplicate" / "replica.json").write_text("{}")
    return roots


def test_what_is_printed_row_by_row_ends_with_what_all_rows_are_needed_for(roots, monkeypatch):
    begin, *rows, end = growing(monkeypatch, roots.targets)
    assert f"orders ({FIRST})" in begin
    assert [FIRST in row or SECOND in row or THIRD in row for row in rows if row] == [True, True]
    assert "is damaged" in end
    assert f"orders ({FIRST})" in end, "which is of an earlier life"
    assert "3 replicas, 2 ready" in end


def test_replicas_that_fail_for_one_cause_are_named_together(roots):
    for job in (FIRST, SECOND):
        (roots.targets / job / ".cpreplicate" / "replica.json").write_text("{}")
    text = run("status", roots.targets).out
    assert re.search(r"3 replicas, one cause: .+; .+; .+", text)
    assert text.count("is damaged") == 1


def test_rows_are_in_the_order_of_their_names(roots):
    found = run("status", roots.targets, "--output", "json").json()
    assert [row["job"] for row in found["replicas"]] == sorted([FIRST, SECOND, THIRD])


def columns(**cells):
    return {head: list(texts) for head, texts in cells.items()}


def test_a_table_that_grows_keeps_its_columns(monkeypatch):
    monkeypatch.setattr("cpreplicate.output.text.is_terminal", lambda _stream: True)
    monkeypatch.setenv("COLUMNS", "30")
    first = columns(job=["orders"], size=["7 B"], verified=[""], state=[""])
    table = GrowingTable(first, ["size", "verified"])
    head, row = re.sub(r"\x1b\[\dm", "", table.begin()).splitlines()
    assert (head, row) == ("job     size  state", "orders  7 B")
    later = columns(job=["a longer name"], size=["1 B"], verified=["5 s ago"], state=["sealed"])
    assert table.rows(later) == "a longer name  1 B   sealed"
    assert table.end() == "not shown at this width:\nverified"
