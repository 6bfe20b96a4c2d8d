"""The fields that every JSON document has."""

import json
import os
from datetime import datetime

import pytest

from tests.support.commandline import run
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES

COMPLETED = "2023-11-14T22:13:20.250Z"


@pytest.fixture
def directory(tmp_path):
    checkpoint = write_checkpoint(tmp_path / "dcA", 1, FILES)
    os.utime(checkpoint / "_metadata", (1_700_000_000.25,) * 2)
    (tmp_path / "jobs.toml").write_text(
        f'[[job]]\nsource = "{tmp_path}/dcA/{JOB}"\ntarget = "{tmp_path}/fleet"\n'
    )
    return tmp_path


def documents(directory):
    """The document of each command that prints one, in an order in which all succeed."""
    source, replica = f"{directory}/dcA/{JOB}", f"{directory}/dcB/{JOB}"
    return {
        " ".join(words[:2]): json.loads(run(*words, "--output", "json").out)
        for words in (
            ["fleet", f"{directory}/jobs.toml", "--runner", "inline"],
            ["diff", source, f"{directory}/dcB"],
            ["sync", source, f"{directory}/dcB", "--runner", "inline"],
            ["sync", f"{source}/chk-1", f"{directory}/dcB"],
            ["inspect", source],
            ["inspect", f"{replica}/chk-1"],
            ["verify", replica],
            ["sweep", replica, "--runner", "inline"],
            ["relocate", replica, "--paths", "absolute"],
            ["promote", replica],
        )
    }


def instant(text):
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")


def test_every_document_has_its_version_and_when_it_was_started_and_finished(directory):
    for command, document in documents(directory).items():
        assert document["schema"] == 1, command
        assert instant(document["started"]) <= instant(document["finished"]), command


def test_every_document_of_a_checkpoint_has_when_it_was_completed_at_the_source(directory):
    for command, document in documents(directory).items():
        if command.startswith("fleet"):
            document = document["jobs"][0]["report"]
        elif command.startswith("relocate"):
            document = document["checkpoints"][0]
        elif command.startswith("sweep"):
            continue
        assert document["checkpoint_completed"] == COMPLETED, command


def test_rows_of_references_and_actions_are_bare(directory):
    source = f"{directory}/dcA/{JOB}"
    references = run("inspect", source, "--refs", "--output", "ndjson").out.splitlines()
    actions = run("diff", source, f"{directory}/dcB", "--output", "ndjson").out.splitlines()
    assert not any("schema" in json.loads(row) for row in references + actions)
