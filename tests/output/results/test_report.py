"""The text of a plan: its estimate, and its actions by operator and reason."""

from dataclasses import replace

import pytest

from cpreplicate.core.plan import Plan
from cpreplicate.core.restore import Restore
from cpreplicate.core.start import Starting
from cpreplicate.operations.sync.estimate import Estimate, Estimates
from cpreplicate.operations.sync.groups import Group
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
    dropped=(),
    paths="relative",
    paths_reported="relative",
    paths_reason="",
)
UNPACKED = Estimate(12.2, 8.1, 18.3, 2011, 9595, is_learned=True)
PACKED = Estimate(4.0, 2.7, 6.0, 2011, 63, is_learned=True)
BOTH = Estimates("inline", 3, False, UNPACKED, PACKED)
DEFAULT = UNPACKED._replace(low=4.1, high=36.6, is_learned=False)


def shown(estimates):
    """The lines between the facts of the plan and the result."""
    report = Report(PLAN, Starting("", Restore(None, None, ""), {}, {}, 0), estimates=estimates)
    lines = FORMS.text(report).partition("\n\n")[0].splitlines()
    return lines[7:-1]


def test_the_plan_is_followed_by_its_estimate_and_that_of_the_other_way():
    assert shown(BOTH) == [
        "estimate    about 12 s (inline), from 3 earlier runs between these sites",
        "NameNodes   2,011 calls at the source, 9,595 calls at the target",
        "--pack on   about 4 s, 2,011 calls at the source, 63 calls at the target",
    ]
    assert shown(replace(BOTH, is_packed=True))[2].startswith("--pack off  about 12 s, 2,011 ")
    assert shown(None) == []


def test_a_way_that_makes_little_difference_is_left_out():
    other = UNPACKED._replace(seconds=13.0, target_calls=9000)
    assert len(shown(replace(BOTH, packed=other))) == 2


@pytest.mark.parametrize(
    ("runs", "origin"),
    [
        (0, "default rates: no earlier run between these sites"),
        (1, "default rates where 1 earlier run between these sites showed none"),
        (2, "default rates where 2 earlier runs between these sites showed none"),
    ],
)
def test_default_rates_give_a_range_and_are_named(runs, origin):
    first = shown(replace(BOTH, runs=runs, unpacked=DEFAULT, packed=None))[0]
    assert first == f"estimate    4 s to 37 s (inline), by {origin}"


def test_calls_are_shown_only_of_a_side_that_has_a_namenode():
    to_s3 = UNPACKED._replace(target_calls=None)
    assert shown(replace(BOTH, unpacked=to_s3, packed=None))[1:] == [
        "NameNodes   2,011 calls at the source"
    ]
    locally = UNPACKED._replace(source_calls=None, target_calls=None)
    assert len(shown(replace(BOTH, unpacked=locally, packed=None))) == 1


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
