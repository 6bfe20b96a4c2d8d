"""A service reports the same line once a minute."""

from cpreplicate.operations.jobs.repeated_lines import RepeatedLines
from tests.support.stepping import ManualClock


def test_an_unchanged_message_is_reported_once_a_minute():
    lines: list[str] = []
    clock = ManualClock()
    notify = RepeatedLines(lines.append, clock)
    for second in range(0, 150, 10):
        clock.passed = second
        notify("it failed")
        notify(f"at {second}")
    assert [line for line in lines if line == "it failed"] == ["it failed"] * 3
    assert len([line for line in lines if line.startswith("at ")]) == 15
    notify.forget()
    notify("it failed")
    assert lines[-1] == "it failed"
