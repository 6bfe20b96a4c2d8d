"""Pages of 300,000 state handles and of as many copies in Chromium: size, first paint, and how long
a sort and a search take. Ends with 1 if a limit is exceeded.

    make bench-report
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cpreplicate.operations.inspect import Inspection, OperatorSummary
from cpreplicate.operations.inspect.handle_columns import HandleColumns
from cpreplicate.operations.sync.report import Report
from cpreplicate.output.report import page_of
from cpreplicate.output.report.page import html_of
from tests.support.browser import Browser, running
from tests.support.reports import plan_of, report_of

MOST_BYTES = 15_000_000
_UNKNOWN = float("nan")
MOST_SECONDS = {"first paint": 2.0, "sort": 1.0}
_OPERATORS, _SUBTASKS = 40, 128
_COLUMNS_OF_INSPECT = {"path": 7, "size": 5, "operator": 1}
_COLUMNS_OF_PLAN = {"path": 3, "size": 2, "action": 1}
_FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
_SORT = """(() => {{
    const button = document.querySelector('[data-table="1"] thead th:nth-child({column}) button');
    const began = performance.now();
    button.click();
    document.body.offsetHeight;  // the layout belongs to it
    return performance.now() - began;
}})()"""
_SEARCH = """(() => {
    const input = document.querySelector('[data-table="1"] input');
    input.value = 'ab12';
    const began = performance.now();
    input.dispatchEvent(new Event('input'));
    document.body.offsetHeight;
    return performance.now() - began;
})()"""


def handles_of(count: int) -> HandleColumns:
    """Return a checkpoint with this number of handles, whose names are random as those of Flink."""
    random = Random(0)
    numbers = np.arange(count, dtype=np.int64)
    root = "hdfs://dcA/flink/checkpoints/55d11b0e36f1bfdaa08cb74d9bea9f76/shared"
    names = (uuid.UUID(int=random.getrandbits(128), version=4) for _ in range(count))
    operators = tuple(
        OperatorSummary(
            f"{n:032x}", f"Window {n}", f"window-{n}", 128, 1024, _SUBTASKS, 1, 1, {}, {}
        )
        for n in range(_OPERATORS)
    )
    inspection = Inspection(
        f"{root[:-7]}/chk-42", 42, 6, operators, count, count, count, 0, {}, {}, {}
    )
    sizes = np.array([random.randrange(1, 1 << 26) for _ in range(count)], np.int64)
    return HandleColumns(
        inspection,
        operator=numbers * _OPERATORS // count,
        subtask=numbers * _OPERATORS * _SUBTASKS // count % _SUBTASKS,
        state_kind=np.zeros(count, np.int64),
        held_as=["file"] * count,
        sizes=sizes,
        operator_sizes=sizes,
        subtask_sizes=sizes,
        positions=np.full(count, -1, np.int64),
        paths=[f"{root}/{name}" for name in names],
    )


def plan_of_copies(handles: HandleColumns) -> Report:
    """Return the plan of the first sync of a checkpoint."""
    sizes = handles.sizes.tolist()
    named = {
        f"shared/{str(path)[-36:]}": size for path, size in zip(handles.paths, sizes, strict=True)
    }
    return report_of(plan_of(copies=named))


class Took(NamedTuple):
    """Seconds on the clock, and of the CPU of the page: on a quiet machine they are the same."""

    seconds: float
    cpu: float


def measured(browser: Browser, page: Path, columns: Mapping[str, int]) -> dict[str, Took]:
    """Return how long the first paint, the loaded table, sorts and a search take."""
    browser.call("Performance.enable", timeDomain="threadTicks")
    browser.open(page)
    loaded = browser.evaluate("performance.now()") / 1000
    found = {  # the CPU of a process that is new with each page
        "first paint": Took(browser.evaluate(_FIRST_PAINT) / 1000, _UNKNOWN),
        "rows loaded": Took(loaded, _UNKNOWN),
    }
    steps = {f"sort by {name}": _SORT.format(column=column) for name, column in columns.items()}
    steps["sort by path again"] = _SORT.format(column=columns["path"])
    steps["search"] = _SEARCH
    for name, step in steps.items():
        began = _cpu(browser)
        found[name] = Took(browser.evaluate(step) / 1000, _cpu(browser) - began)
    assert not browser.complaints, browser.complaints
    return found


def _cpu(browser: Browser) -> float:
    metrics = browser.call("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "ThreadTime"))


def main() -> int:
    """Make pages, open each several times, and print the median of each measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--times", type=int, default=5)
    words = parser.parse_args()
    handles = handles_of(words.rows)
    exceeded = [
        *_bench("state handles", handles, _COLUMNS_OF_INSPECT, words.times),
        *_bench("copies", plan_of_copies(handles), _COLUMNS_OF_PLAN, words.times),
    ]
    if exceeded:
        print(f"over the limit: {', '.join(exceeded)}")
    return bool(exceeded)


def _bench(what: str, result: object, columns: Mapping[str, int], times: int) -> list[str]:
    """Print the measures of one page, and return those over a limit."""
    began = time.process_time()
    text = html_of(page_of(result))
    cpu = time.process_time() - began
    print(f"{what}: {len(text) / 1e6:.1f} MB in a page, made in {cpu:.1f} s of CPU")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        page = Path(place) / "page.html"
        page.write_text(text)
        with running(Path(place) / "profile") as browser:
            runs = [measured(browser, page, columns) for _ in range(times)]
    medians = {
        name: Took(*np.median([run[name] for run in runs], axis=0).tolist()) for name in runs[0]
    }
    for name, took in medians.items():
        by_page = "" if np.isnan(took.cpu) else f"{took.cpu:6.2f} s of CPU"
        print(f"  {name:<20} {took.seconds:6.2f} s {by_page}")
    exceeded = [
        f"{what}: {name}"
        for name, took in medians.items()
        for limit, most in MOST_SECONDS.items()
        if name.startswith(limit) and took.seconds > most
    ]
    return exceeded + ([f"{what}: size"] if len(text) > MOST_BYTES else [])


if __name__ == "__main__":
    sys.exit(main())
