"""Write `tests/durations.json` from the JUnit report of a test run: `make durations`.

The table has the mean seconds of a test of each file. By them `tests/conftest.py` starts the
longest groups of tests first, whichever part of the tests is run. Files of which the report has no
test keep what was measured before.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

PROJECT = Path(__file__).resolve().parent.parent
TABLE = PROJECT / "tests" / "durations.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, help="the file that pytest --junitxml wrote")
    arguments = parser.parse_args()
    table = merged(json.loads(TABLE.read_text()), durations(arguments.report))
    TABLE.write_text(json.dumps(table, indent=2) + "\n")


def merged(before: Mapping[str, float], measured: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of every file that is there, longest first."""
    means = {**before, **measured}
    there = {path: mean for path, mean in means.items() if (PROJECT / path).is_file()}
    return dict(sorted(there.items(), key=lambda entry: -entry[1]))


def durations(report: Path) -> dict[str, float]:
    """Return the mean seconds of a test of each file in a report."""
    files: dict[str, list[float]] = defaultdict(list)
    for case in ElementTree.parse(report).iter("testcase"):
        if case.get("classname"):  # else the run was interrupted in this test
            files[_path(case.get("classname", ""))].append(float(case.get("time", "0")))
    return {path: round(sum(seconds) / len(seconds), 2) for path, seconds in files.items()}


def _path(classname: str) -> str:
    """Return the file of a test, given the dotted name of its module or class."""
    path = Path(*classname.split("."))
    while not (PROJECT / path.with_suffix(".py")).is_file():
        path = path.parent
        if path == Path():
            raise ValueError(f"{classname} is no test of this project")
    return path.with_suffix(".py").as_posix()


if __name__ == "__main__":
    main()
