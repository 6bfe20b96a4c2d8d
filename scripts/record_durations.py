"""Write `tests/durations.json` from the JUnit report of a test run: `make durations`.

The table has the seconds of each `xdist_group`, and the mean seconds of a test in each other file.
`tests/conftest.py` starts the longest first.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

PROJECT = Path(__file__).resolve().parent.parent
TABLE = PROJECT / "tests" / "durations.json"
_GROUP = re.compile(r"@(\w+)$")  # what `--dist loadgroup` appends to the name of a test
_LEAST_SECONDS = 0.1  # a quicker file is left out: its place in the order makes no difference


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, help="the file that pytest --junitxml wrote")
    arguments = parser.parse_args()
    TABLE.write_text(json.dumps(durations(arguments.report), indent=2) + "\n")


def durations(report: Path) -> dict[str, dict[str, float]]:
    """Return the seconds of each group, and of a test of each other file, longest first."""
    groups: dict[str, list[float]] = defaultdict(list)
    files: dict[str, list[float]] = defaultdict(list)
    for case in ElementTree.parse(report).iter("testcase"):
        if not case.get("classname"):  # the run was interrupted in this test
            continue
        seconds = float(case.get("time", "0"))
        if group := _GROUP.search(case.get("name", "")):
            groups[group[1]].append(seconds)
        else:
            files[_path(case.get("classname", ""))].append(seconds)
    totals = {name: sum(seconds) for name, seconds in groups.items()}
    means = {path: sum(seconds) / len(seconds) for path, seconds in files.items()}
    slow = {path: mean for path, mean in means.items() if mean >= _LEAST_SECONDS}
    return {"groups": _longest_first(totals, 0), "files": _longest_first(slow, 1)}


def _path(classname: str) -> str:
    """Return the file of a test, given the dotted name of its module or class."""
    path = Path(*classname.split("."))
    while not (PROJECT / path.with_suffix(".py")).is_file():
        path = path.parent
        if path == Path():
            raise ValueError(f"{classname} is no test of this project")
    return path.with_suffix(".py").as_posix()


def _longest_first(seconds: dict[str, float], digits: int) -> dict[str, float]:
    ordered = sorted(seconds.items(), key=lambda entry: -entry[1])
    return {name: round(value, digits) for name, value in ordered}


if __name__ == "__main__":
    main()
