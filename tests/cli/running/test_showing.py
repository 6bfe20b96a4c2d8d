"""What services print of each checkpoint that they replicated."""

import json
from dataclasses import replace

import pytest

from cpreplicate.cli.running.services import showing_jobs, showing_one
from cpreplicate.operations.jobs.attempt import Replicated
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.runners import ExecutionOptions
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, NEXT


@pytest.fixture
def replicate(tmp_path):
    request = SyncRequest(
        f"file:{tmp_path}/dcA/{JOB}",
        f"file:{tmp_path}/dcB",
        execution=ExecutionOptions(runner="inline"),
    )

    def replicate(number, files):
        write_checkpoint(tmp_path / "dcA", number, files)
        return Replicated(JOB, JOB, sync(request, lambda _line: None))

    return replicate


def test_with_ndjson_each_commit_of_a_watch_has_an_object_behind_its_rows(replicate, capsys):
    show = showing_one("ndjson", "totals")
    show(replicate(1, FILES))
    show(replicate(2, NEXT))
    show(replicate(2, NEXT))  # nothing to do
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    commits = [row for row in rows if "committed" in row]
    assert [(row["checkpoint"], row["committed"]) for row in commits] == [
        ("chk-1", True),
        ("chk-2", True),
    ]
    assert rows[-1] == commits[-1]
    assert all("action" in row for row in rows if row not in commits)


@pytest.mark.parametrize("form", ["json", "ndjson"])
@pytest.mark.parametrize("show_of", [showing_jobs, lambda form: showing_one(form, "totals")])
def test_a_password_in_a_uri_is_not_printed(replicate, capsys, show_of, form):
    done = replicate(1, FILES)
    plan = replace(done.report.plan, source=f"hdfs://flink:secret@a/{JOB}/chk-1")
    show_of(form)(done._replace(report=replace(done.report, plan=plan)))
    printed = capsys.readouterr().out
    assert f"hdfs://a/{JOB}/chk-1" in printed
    assert "secret" not in printed
