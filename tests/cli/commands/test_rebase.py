"""`rebase` as an operator types it: what it prints, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cpreplicate.cli.commands.replication import cli
from cpreplicate.errors import NotThere, UsageError
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.runners import ExecutionOptions
from tests.support import documents
from tests.support.commandline import run as shown
from tests.support.jobs import JOB
from tests.support.kafka_jobs import put_kafka_checkpoint, replicated_with_derived
from tests.support.kafka_states import Split, Transaction

SPLITS = [Split("orders", partition, 100 * partition + 7) for partition in range(3)]


@pytest.fixture
def replica(tmp_path: Path) -> Path:
    put_kafka_checkpoint(tmp_path / "dcA", 1, SPLITS, [Transaction("tx-0-3", 70)])
    request = SyncRequest(
        f"file:{tmp_path}/dcA/{JOB}",
        f"file:{tmp_path}/dcB",
        execution=ExecutionOptions(runner="inline"),
    )
    sync.sync(request, lambda _line: None)
    return tmp_path / "dcB" / JOB


def run(*arguments: object) -> Result:
    words = ["rebase", *map(str, arguments)]
    result = CliRunner().invoke(cli, words)
    documents.check(words, result.stdout)
    return result


def test_it_prints_what_changes_and_the_next_command(replica, tmp_path):
    file = tmp_path / "offsets.csv"
    file.write_text("topic,partition,offset\norders,2,9\n")
    result = run(replica, "--positions", file, "--drop-pending")
    assert result.exit_code == 0, result.output
    assert "positions   1 of 3 change" in result.stdout
    assert "Source: orders  orders  2          207   9" in result.stdout
    assert "1 pending transaction is left out." in result.stdout
    assert "tx-0-3 (producer 70, epoch 0) of out: Committer" in result.stdout
    command = f"cpreplicate promote file:{replica} --checkpoint rebased/chk-1-1"
    assert command in result.stdout
    promoted = CliRunner().invoke(cli, command.split()[1:])
    assert promoted.exit_code == 0, promoted.output
    assert f"flink run -s file:{replica}/rebased/chk-1-1" in promoted.stdout


def test_in_a_sealed_replica_it_prints_how_the_job_is_started(replica):
    assert CliRunner().invoke(cli, ["promote", str(replica)]).exit_code == 0
    result = run(replica, "--drop-pending")
    assert result.exit_code == 0, result.output
    assert f"flink run -s file:{replica}/rebased/chk-1-1 " in result.stdout


def test_json_has_every_position_and_how_a_job_is_started(replica):
    result = run(replica, "--rename-topic", "orders=A.orders", "--output", "json")
    document = json.loads(result.stdout)
    assert (document["derived"], document["written"]) == ("rebased/chk-1-1", True)
    assert [
        (each["topic"], each["new_topic"], each["offset"], each["new_offset"])
        for each in document["positions"]
    ] == [("orders", "A.orders", split.start, None) for split in SPLITS]
    assert document["restore"]["arguments"][:3] == [
        "flink",
        "run",
        "-s",
    ]


def test_a_dry_run_and_a_forgotten_checkpoint_say_so(replica):
    dry = run(replica, "--drop-pending", "--dry-run")
    assert "rebased/chk-1-1; nothing was written" in dry.stdout
    assert run(replica, "--drop-pending").exit_code == 0
    assert "would remove" in run(replica, "--forget", "chk-1-1", "--dry-run").stdout
    forgotten = run(replica, "--forget", "chk-1-1", "--output", "json")
    assert json.loads(forgotten.stdout)["removed"] is True
    assert isinstance(run(replica, "--forget", "chk-1-1").exception, NotThere)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to change"),
        (["--forget", "chk-1-1", "--drop-pending"], "takes no change, --checkpoint, --name or"),
        (["--forget", "chk-1-1", "--kafka", "b:9092"], "takes no change, --checkpoint, --name or"),
        (["--drop-pending", "--kafka-conf", "x"], "--kafka-conf needs --kafka HOST:PORT"),
        (["--positions", "clamp"], "needs --kafka"),
        (["--positions", "group:orders"], "needs --kafka"),
        (["--positions", "group:"], "needs the name of a consumer group"),
        (["--positions", "mm2:A"], "needs --kafka"),
        (["--positions", "mm2:"], "needs the alias of the source"),
        (["--positions", "/nowhere.csv"], "cannot be read"),
        (["--rename-topic", "orders"], "expected OLD=NEW"),
        (["--rename-topic", "a=b", "--rename-topic", "a=c"], "each OLD once"),
    ],
)
def test_a_mistake_is_refused_before_anything_is_read(replica, arguments, message):
    result = CliRunner().invoke(cli, ["rebase", str(replica), *arguments])
    text = result.output + str(result.exception)
    assert message in text
    assert not (replica / "rebased").exists()


@pytest.mark.parametrize(
    ("text", "exit_code"),
    [
        ("\ufefftopic,partition,offset\norders,0,5\n", 0),  # as Excel writes it
        ("orders,0,5,Source: orders\n", 0),
        ("orders,0," + "9" * 6000, UsageError.exit_code),
        ("x" * 200_000 + ",0,5", UsageError.exit_code),
        ("order,0,5", UsageError.exit_code),
    ],
)
def test_a_file_of_offsets_is_read_or_is_the_mistake_of_who_wrote_it(
    replica, tmp_path, text, exit_code
):
    file = tmp_path / "offsets.csv"
    file.write_text(text)
    result = shown("rebase", replica, "--positions", file, "--dry-run")
    assert result.code == exit_code, result.message
    assert len(result.message) < 2000


def test_no_value_of_the_properties_of_kafka_is_in_a_message(replica, tmp_path):
    conf = tmp_path / "client.properties"
    conf.write_text("# of B\nsasl.password=sesame-open\nno.such.property=sesame-open\n")
    result = run(replica, "--positions", "clamp", "--kafka", "127.0.0.1:1", "--kafka-conf", conf)
    text = result.output + str(result.exception)
    assert "no.such.property" in text
    assert "sesame-open" not in text
    conf.write_text("sesame-open\n")
    result = run(replica, "--positions", "clamp", "--kafka", "127.0.0.1:1", "--kafka-conf", conf)
    text = result.output + str(result.exception)
    assert "line 1: expected key=value" in text
    assert "sesame-open" not in text


@pytest.fixture
def derived(tmp_path: Path) -> Path:
    return replicated_with_derived(tmp_path)[0]


def test_list_and_status_show_it_as_such(derived):
    text = shown("list", derived).out
    assert f"{JOB}: 1 checkpoint and 1 derived" in text
    assert "rebased/chk-1-1" in text
    (row,) = json.loads(shown("list", derived, "--output", "json").out)["replicas"]
    assert [each["checkpoint"] for each in row["points"]] == ["chk-1"]
    assert [each["checkpoint"] for each in row["derived"]] == ["rebased/chk-1-1"]
    assert "1 derived" in shown("status", derived.parent).out
    (row,) = json.loads(shown("status", derived.parent, "--output", "json").out)["replicas"]
    assert (row["checkpoint"], row["derived"]) == ("chk-1", ["rebased/chk-1-1"])


def test_verify_verifies_it_with_all_and_finds_what_it_lacks(derived):
    assert "rebased/chk-1-1 (derived)" in shown("verify", "--all", derived).out
    found = json.loads(shown("verify", "--all", derived, "--output", "json").out)
    assert [(each["checkpoint"], each["derived"]) for each in found] == [
        ("chk-1", False),
        ("rebased/chk-1-1", True),
    ]
    for file in (derived / "chk-1").glob("state-1"):  # both need it
        file.unlink()
    result = shown("verify", "--all", derived)
    assert result.code == 4
    assert result.out.count("missing: chk-1/state-1") == 2
    assert "No sync repairs" not in result.out


def test_verify_names_what_removes_a_derived_checkpoint_that_no_sync_repairs(derived):
    for file in (derived / "rebased" / "chk-1-1").glob("state-*"):
        file.unlink()
    text = shown("verify", "--all", derived).out
    assert "No sync repairs rebased/chk-1-1, which is derived" in text
    advice = text.partition("remove it: cpreplicate ")[2].split()
    assert shown(*advice).code == 0
    assert shown("verify", "--all", derived).code == 0


def test_the_page_of_list_shows_it(derived, tmp_path):
    page = tmp_path / "list.html"
    result = CliRunner().invoke(cli, ["list", str(derived), "--report", str(page)])
    assert result.exit_code == 0, result.output
    assert "1 checkpoint and 1 derived" in page.read_text()
