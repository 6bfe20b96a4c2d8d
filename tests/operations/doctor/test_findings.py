"""How checks that depend on each other are run, and what a clock's difference means."""

import pytest

from cpreplicate.errors import NotThere, Refused
from cpreplicate.operations.change.probe import ahead
from cpreplicate.operations.doctor.findings import (
    Check,
    Diagnosis,
    Result,
    in_two,
    run_checks,
    skipped,
    warning,
)
from cpreplicate.operations.doctor.source import compared_clocks


def raising(error):
    def run(_subject):
        raise error

    return run


def ok(_subject):
    return Result("fine")


def test_checks_that_need_a_failed_one_are_skipped_with_the_reason_and_the_others_run():
    checks = (
        Check("a", raising(NotThere("gone. Bring it back"))),
        Check("b", ok, ("a",)),
        Check("c", ok, ("b",)),
        Check("d", ok),
    )
    findings = run_checks(checks, None)
    assert [finding.status for finding in findings] == ["failed", "skipped", "skipped", "ok"]
    assert findings[0].message == "gone"
    assert findings[0].remedy == "Bring it back"
    assert findings[1].message == "needs the check 'a', which failed"
    assert findings[2].message == "needs the check 'b', which was skipped"


def test_a_warning_blocks_nothing_and_does_not_change_the_exit_code():
    checks: tuple[Check[None], ...] = (
        Check("a", lambda _subject: warning("slow", "Wait")),
        Check("b", ok, ("a",)),
        Check("c", lambda _subject: skipped("not needed")),
    )
    findings = run_checks(checks, None)
    assert [finding.status for finding in findings] == ["warning", "ok", "skipped"]
    assert Diagnosis("s", "t", findings).exit_code == 0


def test_the_exit_code_is_that_of_the_first_failed_check():
    checks = (
        Check("a", ok),
        Check("b", raising(Refused("no"))),
        Check("c", raising(NotThere("no"))),
    )
    assert Diagnosis("s", "t", run_checks(checks, None)).exit_code == 6


def test_an_unexpected_exception_is_a_failure_of_its_check_only():
    findings = run_checks((Check("a", raising(KeyError("x"))), Check("b", ok)), None)
    assert [(finding.status, finding.exit_code) for finding in findings] == [
        ("failed", 1),
        ("ok", 0),
    ]
    assert findings[0].remedy


def test_a_missing_permission_has_its_remedy():
    findings = run_checks((Check("a", raising(PermissionError(13, "denied", "/x"))),), None)
    assert findings[0].message == "/x: denied"
    assert "Grant" in findings[0].remedy


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("it broke", ("it broke", None)),
        ("it broke. Nothing was done. Mend it. Or not.", ("it broke", "Mend it. Or not")),
        (
            "it broke. Nothing was copied, committed or deleted. Mend it",
            ("it broke", "Mend it"),
        ),
        (
            "version 1.2.3 at host.example:80. Change it",
            ("version 1.2.3 at host.example:80", "Change it"),
        ),
    ],
)
def test_the_first_sentence_is_the_message_and_the_others_the_remedy(text, parts):
    assert in_two(text) == parts


@pytest.mark.parametrize(
    ("shown", "offset"),
    [
        (100.0, 0.0),  # between the two
        (99.3, 0.0),  # a service that cuts its time to whole seconds
        (90.0, -9.0),  # behind
        (112.0, 10.0),  # ahead
    ],
)
def test_the_difference_of_a_clock_is_that_which_is_certain(shown, offset):
    assert ahead(shown, 100.0, 102.0) == offset


def test_a_clock_that_differs_by_seconds_is_a_warning():
    assert compared_clocks(4.9).status == "ok"
    assert compared_clocks(-40).status == "warning"
    assert "40 s behind" in compared_clocks(-40).message
    assert "NTP" in (compared_clocks(40).remedy or "")
