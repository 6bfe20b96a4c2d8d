"""The text of a plan: its actions by operator and reason."""

import json
from dataclasses import replace

from cpreplicate.core.plan import Plan
from cpreplicate.core.restore import Restore
from cpreplicate.core.start import Starting
from cpreplicate.operations.sync.plan.groups import Group
from cpreplicate.operations.sync.report import Report
from cpreplicate.output import log
from cpreplicate.output.results.report import FORMS

PLAN = Plan(
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
)


def plain(**fields):
    return Report(PLAN, Starting("", Restore(None, None, ""), {}, {}, 0), **fields)


def listed(report, listing="totals"):
    """The rows of the table of actions, without its heading."""
    forms = FORMS.others.get(listing, FORMS)
    table = next(part for part in forms.text(report).split("\n\n") if part.startswith("action"))
    return [line.split(maxsplit=3) for line in table.splitlines()[1:]]


def test_the_largest_groups_of_each_action_are_listed_and_all_if_asked_for():
    groups = tuple(
        Group(verb, f"{number:032x}", f"op{number}", "new", 1, 1024 * (10 - number))
        for verb in ("copy", "keep")
        for number in range(10)
    )
    rows = listed(plain(is_plan=True, groups=groups))
    assert [row[:2] for row in rows[:8]] == [["copy", f"op{number}"] for number in range(8)]
    assert " ".join(rows[8]).startswith("copy … 2 more  2      3.0 KiB   diff --all lists them")
    assert len(rows) == 18
    assert len(listed(plain(is_plan=True, groups=groups), "all")) == 20


def test_a_sync_with_nothing_to_do_is_one_line_and_more_if_details_are_asked_for():
    nothing = Report(
        replace(PLAN, publish=False), Starting("", Restore(None, None, ""), {}, {}, 0), seconds=0.2
    )
    line = "nothing to do: hdfs://b/job holds chk-1 (0.2 s)"
    assert FORMS.text(nothing) == line
    assert FORMS.text(replace(nothing, warnings=("one",))) == f"{line}\nwarning: one"
    log.configure(log.LogSettings(is_verbose=True))
    try:
        assert len(FORMS.text(nothing).splitlines()) > 5
    finally:
        log.configure(log.LogSettings())


def test_why_the_paths_are_what_they_are_is_a_detail():
    report = plain(is_plan=True)
    report = replace(report, plan=replace(PLAN, paths_reason="metadata v6: safe"))
    assert "metadata v6" not in FORMS.text(report)
    log.configure(log.LogSettings(is_verbose=True))
    try:
        assert "paths       relative: metadata v6: safe" in FORMS.text(report)
    finally:
        log.configure(log.LogSettings())


def test_a_run_that_turned_names_the_checkpoints_that_it_left():
    left = ("chk-7", "chk-8", "chk-9", "chk-10")
    done = plain(committed=True, runner="inline", turned_from=left)
    assert "committed chk-1; turned to it from chk-8, chk-9, chk-10 (inline" in FORMS.text(done)
    assert json.loads(FORMS.json(done))["turned_from"] == list(left)
