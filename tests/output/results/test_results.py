"""Each kind of result has all its forms, and each command has a result that has them."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from cpreplicate.cli.commands.replication import cli
from cpreplicate.core.plan import Plan
from cpreplicate.core.restore import Restore
from cpreplicate.core.start import Starting
from cpreplicate.operations.jobs.attempt import Replicated
from cpreplicate.operations.sync.report import Report
from cpreplicate.output import Form, log, results, show
from tests.support.commandline import run
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, aged, recorded, synced

FORMS = get_args(Form)
# the arguments of each command that shows a result; those of `watch` are shown by no other,
# `switch` needs clusters, and `unseal` a replica that was promoted
WORDS = {
    "diff": ("dcA/JOB", "dcB"),
    "doctor": ("dcA/JOB", "dcB"),
    "fleet": ("jobs.toml", "--dry-run"),
    "forget": ("dcB/JOB", "--dry-run", "--last-point"),
    "inspect": ("dcA/JOB",),
    "list": ("dcB",),
    "promote": ("dcB/JOB",),
    "rebase": None,
    "relocate": ("dcB/JOB",),
    "status": ("dcB",),
    "sweep": ("dcB/JOB", "--dry-run"),
    "switch": None,
    "sync": ("dcA/JOB", "dcB"),
    "unseal": None,
    "verify": ("dcB/JOB",),
    "watch": None,
}
REPLICATED = Replicated(
    "orders",
    "orders",
    Report(
        Plan(
            source="hdfs://a/job/chk-1",
            replica="hdfs://b/job",
            checkpoint="chk-1",
            checkpoint_id=1,
            base_checkpoint_id=None,
            publish=True,
            copies=(),
            keeps=(),
            deletes=(),
            withdrawals=(),
            paths="relative",
            paths_reported="relative",
            paths_reason="",
        ),
        Starting("", Restore(None, None, ""), {}, {}, 0),
    ),
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Three checkpoints at the source, of which the replica has two."""
    synced(tmp_path, {1: FILES, 2: FILES}, keep=2)
    write_checkpoint(tmp_path / "dcA", 3, {**FILES, "shared/new": 10})
    replica = tmp_path / "dcB" / JOB
    (replica / "shared" / "orphan").write_bytes(b"an orphan")
    recorded(replica, "shared/orphan")
    aged(replica)
    (tmp_path / "jobs.toml").write_text(
        f'[[job]]\nsource = "{tmp_path}/dcA/{JOB}"\ntarget = "{tmp_path}/dcB"\n'
    )
    return tmp_path


def shown(directory: Path, form: str, command: str, *options: str) -> str:
    """What a command prints on stdout."""
    words = WORDS[command]
    assert words is not None
    places = [
        f"{directory}/{word}".replace("JOB", JOB) if not word.startswith("-") else word
        for word in words
    ]
    runner = ["--runner", "inline"] if command in ("sweep", "sync") else []
    ended = run(command, *places, *options, *runner, "--output", form)
    assert ended.code == 0, ended.message
    return ended.out


def parsed(form: str, text: str) -> list[Any]:
    """The objects of a result that is printed in a form of JSON."""
    if form == "ndjson":
        return list(map(json.loads, text.splitlines()))
    objects = json.loads(text)
    return objects if isinstance(objects, list) else [objects]


@pytest.mark.parametrize(("class_name", "module"), results.MODULES.items())
def test_the_module_of_a_class_writes_results_of_that_class_in_every_form(class_name, module):
    forms = import_module(f"cpreplicate.output.results.{module}").FORMS
    for form in FORMS:
        taken, *_ = get_type_hints(getattr(forms, form)).values()
        assert class_name in {each.__name__ for each in get_args(taken) or [taken]}


def test_each_module_of_a_kind_of_result_has_its_entry():
    folder = Path(results.__file__).parent
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == set(
        results.MODULES.values()
    )


@pytest.mark.parametrize("command", sorted(name for name, words in WORDS.items() if words))
def test_each_command_shows_its_result_in_every_form(directory, command):
    assert shown(directory, "text", command)
    for form in ("json", "ndjson"):
        assert all(isinstance(each, dict) for each in parsed(form, shown(directory, form, command)))


def test_no_command_with_a_result_is_left_out():
    with_result = {
        name
        for name, command in cli.commands.items()
        if any(parameter.name == "output" for parameter in command.params)
    }
    assert with_result == set(WORDS)


@pytest.mark.parametrize(
    ("command", "options", "count"),
    [("inspect", ["--refs"], len(FILES) + 1), ("verify", ["--all"], 2), ("verify", [], 1)],
)
def test_several_objects_are_an_array_or_a_line_each(directory, command, options, count):
    array = parsed("json", shown(directory, "json", command, *options))
    rows = parsed("ndjson", shown(directory, "ndjson", command, *options))
    assert len(array) == len(rows) == count
    times = {"started", "finished"}
    for one, other in zip(array, rows, strict=True):
        assert {key for key in one if one[key] != other[key]} <= times


@pytest.mark.parametrize("command", ["diff", "sweep"])
def test_every_action_is_listed_when_asked_for(directory, command):
    (without,) = parsed("json", shown(directory, "json", command))
    (with_actions,) = parsed("json", shown(directory, "json", command, "--actions"))
    assert "actions" not in without
    rows = parsed("ndjson", shown(directory, "ndjson", command))
    assert with_actions["actions"] == rows
    text = shown(directory, "text", command, "--actions")
    assert all(row["target"] in text for row in rows)
    assert rows


def test_a_service_narrates_a_checkpoint_or_prints_its_object(capfd):
    log.configure(log.LogSettings())
    assert show(REPLICATED, "text") is None
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("orders: chk-1 replicated: 0 files, 0 B copied")
    for form in ("json", "ndjson"):
        assert show(REPLICATED, form) is None
        (found,) = parsed(form, capfd.readouterr().out)
        assert (found["job"], found["checkpoint"]) == ("orders", "chk-1")


def test_what_is_no_result_is_a_mistake_of_the_program():
    with pytest.raises(KeyError):
        show([], "json")
