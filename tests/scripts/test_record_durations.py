"""The table of seconds by which the tests are ordered."""

from scripts import record_durations

OTHER, MEASURED = "tests/conftest.py", "tests/test_package.py"


def test_a_report_of_some_files_keeps_what_was_measured_of_others_that_are_still_there():
    before = {OTHER: 2.0, MEASURED: 9.0, "tests/test_gone.py": 5.0}
    table = record_durations.merged(before, {MEASURED: 3.0})
    assert list(table.items()) == [(MEASURED, 3.0), (OTHER, 2.0)]


def test_the_seconds_of_a_file_are_the_mean_of_its_tests(tmp_path):
    report = tmp_path / "report.xml"
    cases = "".join(
        f'<testcase classname="tests.test_package{name}" time="{seconds}"/>'
        for name, seconds in (("", 1), (".TestClass", 2))
    )
    report.write_text(f"<testsuite>{cases}<testcase time='7'/></testsuite>")
    assert record_durations.durations(report) == {MEASURED: 1.5}
