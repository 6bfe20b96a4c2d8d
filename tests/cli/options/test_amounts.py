"""Sizes and rates as an operator writes them."""

import click
import pytest

from cpreplicate.cli.options.amounts import byte_rate, call_rate, seconds, size
from cpreplicate.core.timetable import DAY, constant
from tests.support.commandline import printed
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES

HOUR = 3600
NINES = "9" * 400


@pytest.mark.parametrize(
    ("text", "rate"), [("500MB/s", 5e8), ("1KiB", 1024.0), ("500B/s", 500.0), ("off", None)]
)
def test_a_rate_holds_at_any_time(text, rate):
    given = byte_rate(text)
    assert given.timetable == constant(rate)
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
        "0.5B/s",
        "08:00,0.1",
        f"{NINES}B/s",
        f"08:00,{NINES}",
        "nan",
        "inf",
    ],
)
def test_what_is_neither_a_rate_nor_a_timetable_is_a_mistake(text):
    with pytest.raises(click.BadParameter, match="expected a rate such as"):
        byte_rate(text)


@pytest.mark.parametrize(
    ("option", "text", "expected"),
    [
        ("pack-below", "0.5", "expected a size"),
        ("pack-below", NINES, "expected a size"),
        ("block-size", "9223372036854775808", "expected a size"),
        ("batch-bytes", "0.9B", "expected a size"),
        ("max-rps", "nan", "expected a number of operations a second"),
        ("max-rps", "inf", "expected a number of operations a second"),
        ("max-rps", "0", "expected a number of operations a second"),
        ("max-rps", "1e-300", "expected a number of operations a second"),
        ("max-rps", NINES, "expected a number of operations a second"),
        ("lock-wait", NINES, "expected a time"),
        ("retry-for", "40000d", "expected a time"),
        ("keep-within", f"{NINES}h", "expected a time"),
        ("keep-within", "24", "has no unit"),
        ("keep", NINES, "expected a whole number"),
        ("parallelism", "2147483648", "expected a whole number"),
        ("max-delete", "9" * 5000, "expected a number of files"),
        ("bandwidth", "0.5", "expected a rate"),
    ],
)
def test_an_amount_that_no_run_could_have_is_a_mistake(tmp_path, option, text, expected):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    ended = printed("sync", f"dcA/{JOB}", "dcB", f"--{option}", text, cwd=tmp_path)
    assert (ended.returncode, expected in ended.stderr) == (2, True), ended.stderr
    assert f"'--{option}'" in ended.stderr
    assert not (tmp_path / "dcB").exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [("bandwidth", 0.5), ("max-rps", "nan"), ("max-rps", "inf"), ("pack-below", 0.5)],
)
def test_config_check_finds_such_an_amount(tmp_path, key, value):
    (tmp_path / "c.toml").write_text(f"[sync]\n{key} = {value}\n")
    ended = printed("config", "check", "c.toml", cwd=tmp_path)
    assert ended.returncode == 2
    assert f"c.toml:2: {key!r} in [sync]: " in ended.stderr
    assert "expected a" in ended.stderr


def test_the_smallest_and_the_largest_amounts_are_taken():
    assert byte_rate("1B/s").timetable.at(0) == size("1") == 1
    assert byte_rate("9000000TB/s").timetable.at(0) == 9e18
    assert (call_rate(0.001), call_rate(1e9)) == (0.001, 1e9)
    assert (seconds("0"), seconds("36500d")) == (0, 36_500 * DAY)


@pytest.mark.parametrize(
    ("text", "warns"),
    [
        ("5000000", True),
        ("5000000/s", True),
        ("5MB/s", False),
        ("5000000B/s", False),
        ("08:00,5000000 20:00,off", True),
        ("08:00,5000000/s 20:00,off", True),
        ("off", False),
    ],
)
def test_a_number_without_a_unit_is_warned_of(tmp_path, text, warns):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    words = ("sync", f"dcA/{JOB}", "dcB", "--runner", "inline", "--bandwidth", text)
    ended = printed(*words, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ("without a unit" in ended.stderr) is warns


@pytest.mark.parametrize(
    "words", [("sweep", "dcB", "--min-age", "24"), ("forget", "dcB", "--older-than", "30.5")]
)
def test_a_time_by_which_files_are_removed_has_a_unit(tmp_path, words):
    ended = printed(*words, cwd=tmp_path)
    assert (ended.returncode, "has no unit" in ended.stderr) == (2, True), ended.stderr
