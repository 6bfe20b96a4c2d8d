"""Sizes and rates as an operator writes them."""

import click
import pytest

from cpreplicate.cli.amounts import byte_rate
from cpreplicate.core.timetable import DAY
from tests.support.commandline import printed
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES

HOUR = 3600


@pytest.mark.parametrize(
    ("text", "rate"), [("500MB/s", 5e8), ("1KiB", 1024.0), ("500B/s", 500.0), ("off", None)]
)
def test_a_rate_holds_at_any_time(text, rate):
    given = byte_rate(text)
    assert (given.timetable.at(0), given.timetable.is_constant) == (rate, True)
    assert not given.lacks_unit


def test_a_timetable_is_by_the_hour_and_the_day():
    table = byte_rate("08:00,1MB/s 20:00,off sat-00:00,2MB/s Sun-8:00,3MB/s").timetable
    monday, saturday, sunday = 0, 5 * DAY, 6 * DAY
    assert table.at(monday) is None
    assert table.at(monday + 9 * HOUR) == 1e6
    assert table.at(monday + 21 * HOUR) is None
    assert table.at(saturday) == 2e6
    assert table.at(saturday + 8 * HOUR) == 1e6
    assert table.at(sunday + 8 * HOUR) == 3e6  # given later than the one of each day


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fast",
        "0",
        "-5",
        "25:00,1MB/s",
        "8:00 1MB/s",
        "08:00,",
        "08:00,1MB/s 20:00",
        "Mo-08:00,1M",
    ],
)
def test_what_is_neither_a_rate_nor_a_timetable_is_a_mistake(text):
    with pytest.raises(click.BadParameter, match="expected a rate such as"):
        byte_rate(text)


@pytest.mark.parametrize(
    ("text", "warns"),
    [("5000000", True), ("5MB/s", False), ("08:00,5000000 20:00,off", True), ("off", False)],
)
def test_a_number_without_a_unit_is_warned_of(tmp_path, text, warns):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    words = ("sync", f"dcA/{JOB}", "dcB", "--runner", "inline", "--bandwidth", text)
    ended = printed(*words, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ("without a unit" in ended.stderr) is warns
