"""The page of `diff` and `sync`: its sentence, its charts, its tables."""

from dataclasses import replace

from cpreplicate.errors import TooManyDeletes
from cpreplicate.operations.inspect.overview import Overview
from cpreplicate.operations.replicas.points import Point, Points, ReplicaPoints
from cpreplicate.output.report import page_of
from tests.support.reports import (
    COMMAND,
    GIB,
    handles_of,
    plan_of,
    report_of,
)

PLAN = plan_of(
    copies={"shared/a": 2 * GIB, "chk-7/b": GIB},
    keeps={"shared/c": 37 * GIB},
    deletes={"shared/d": 5, "shared/e": 6},
)
HISTORY = Points(
    (
        ReplicaPoints(
            "job",
            "hdfs://b/job",
            (Point("chk-7", 7, 70.0, 3, 40, 3), Point("chk-6", 6, 60.0, 3, 39, 2)),
            42,
        ),
    )
)


def table(page, title):
    """The columns of a table by their names."""
    (found,) = [each for each in page.tables if each.title == title]
    return {column.name: list(column.values) for column in found.columns}


def chart(page, title):
    """A chart: the values of each series by its name, for each label."""
    (found,) = [each for each in page.charts if each.title == title]
    return {
        label: {series.name: series.values[row] for series in found.series}
        for row, label in enumerate(found.labels)
    }


def test_the_page_of_a_plan_begins_with_what_a_sync_does():
    page = page_of(report_of(PLAN))
    assert page.answer == (
        "2 of 3 files, 3.0 of 40.0 GiB, are copied; 2 deleted; once synced, restore with"
    )
    assert (page.restore, page.tone) == (COMMAND, "good")


def test_the_page_of_a_sync_has_what_it_did():
    done = report_of(PLAN, committed=True, runner="spark", seconds=60.0, undeleted=("shared/e",))
    assert page_of(done).answer == (
        "2 of 3 files, 3.0 of 40.0 GiB, were copied; 1 deleted; 1 left to sweep, or to watch;"
        " it took 1 min 00 s at 51.2 MiB/s; restore with"
    )


def test_a_sync_with_nothing_to_do_says_so():
    page = page_of(report_of(plan_of(keeps={"shared/c": 37 * GIB}, publish=False)))
    assert page.answer == (
        "Nothing to do: the replica holds chk-7 already (1 file, 37.0 GiB); restore with"
    )


def test_a_refused_plan_begins_with_the_reason_and_has_no_restore_command():
    report = report_of(PLAN)
    refused = report_of(PLAN, refusal=TooManyDeletes("2 of the 3 files would go", report))
    page = page_of(refused)
    assert page.answer == (
        "Nothing was done, because a sync is refused: 2 of the 3 files would go."
    )
    assert (page.restore, page.tone) == (None, "bad")


def test_warnings_are_notes_and_change_the_tone():
    page = page_of(report_of(PLAN, warnings=("a file of another program",)))
    assert (page.notes, page.tone) == (("a file of another program",), "notice")


def test_copy_keep_and_delete_stand_by_directory():
    found = chart(page_of(report_of(PLAN)), "Copy, keep and delete by directory")
    assert found == {
        "shared": {"copy": 2 * GIB, "keep": 37 * GIB, "delete": 11},
        "chk-7": {"copy": GIB, "keep": 0, "delete": 0},
    }


def test_directories_that_do_not_fit_into_the_chart_are_summed():
    plan = plan_of(copies={f"shared/{number:02}/file": 100 - number for number in range(20)})
    found = chart(page_of(report_of(plan)), "Copy, keep and delete by directory")
    assert len(found) == 13
    assert found["8 other directories"] == {"copy": sum(100 - n for n in range(12, 20))}


def test_every_file_is_in_a_table_and_every_reason_in_another_one():
    page = page_of(report_of(PLAN))
    files = table(page, "Files")
    assert files["action"] == ["copy", "copy", "keep", "delete", "delete"]
    assert files["read from"] == ["hdfs://a/job/shared/", "hdfs://a/job/chk-7/", *[None] * 3]
    reasons = table(page, "Reasons")
    assert reasons["files"] == [2, 1, 2]
    assert reasons["bytes"] == [3 * GIB, 37 * GIB, 11]


def test_a_copy_with_another_name_at_its_source_has_the_whole_place():
    action = plan_of(copies={"shared/a": 1}).copies[0]._replace(source="s3://b/job/x/y")
    plan = replace(plan_of(), copies=(action,))
    assert table(page_of(report_of(plan)), "Files")["read from"] == ["s3://b/job/x/y"]


def test_operators_and_kept_checkpoints_are_shown_beside_the_plan():
    overview = Overview(handles_of({"Window": [5, 5]}), HISTORY)
    page = page_of(report_of(PLAN), overview)
    assert chart(page, "Bytes by operator and kind of state") == {"Window": {"keyed": 10}}
    assert chart(page, "Kept checkpoints") == {
        "chk-6 1970-01-01T00:01Z": {"size": 39, "adds": 2},
        "chk-7 1970-01-01T00:01Z": {"size": 40, "adds": 3},
    }
    assert table(page, "Kept checkpoints")["adds"] == [3, 2]


def test_what_could_not_be_read_is_a_note():
    page = page_of(report_of(PLAN), Overview(problems=("the operators are not shown: gone",)))
    assert page.notes == ("the operators are not shown: gone",)
