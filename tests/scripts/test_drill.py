"""`make drill` runs each command of docs/lost.md; that it does is seen there, on real Flink."""

import pytest

from scripts.drills import lost
from scripts.drills.page import PAGE, Page, commands
from scripts.drills.sites import DrillFailed

STATUS, AS_OF = "status hdfs://dcB/flink/replicas", "promote hdfs://dcB/flink/replicas --as-of TIME"
TEXT = f"""
1. Look:

    cpreplicate {STATUS}

2. Go back:

    cpreplicate {AS_OF}      # one job
"""


def test_the_drill_knows_each_command_of_the_page():
    """One that is new on the page, or written otherwise, fails here instead of after minutes."""
    constants = [text for name, text in vars(lost).items() if name.isupper() and name[0] != "_"]
    known = [text for text in constants if isinstance(text, str)]
    assert sorted(known) == sorted(commands(PAGE.read_text()))


def test_a_command_runs_with_the_places_and_times_of_the_drill():
    ran = []

    def run(words):
        ran.append(words)
        return {}

    page = Page(TEXT, {"hdfs://dcB/flink": "hdfs://localhost:1/f"}, run)
    page.run(AS_OF, "2026-01-01T00:00Z")
    assert ran == [["promote", "hdfs://localhost:1/f/replicas", "--as-of", "2026-01-01T00:00Z"]]


def test_a_command_that_the_page_does_not_have_is_refused():
    with pytest.raises(DrillFailed, match="no command"):
        Page(TEXT, {}).run("status hdfs://dcB/flink")


def test_the_commands_that_were_not_run_are_known():
    def failing(_words):
        raise DrillFailed("as if it had ended with 3")

    page = Page(TEXT, {}, lambda _words: {})
    page.run(AS_OF, "2026-01-01T00:00Z")
    assert page.left() == [STATUS]
    page = Page(TEXT, {}, failing)
    with pytest.raises(DrillFailed, match="ended with 3"):
        page.run(STATUS)
    assert STATUS in page.left()
