"""Progress displays on stderr: a bar for a terminal, lines for a log, events for a program."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal

from cpreplicate.core.sizes import counted, size
from cpreplicate.output.log import narrate, narrate_in_file, write_event
from cpreplicate.output.streams import clear_before_writing, is_terminal
from cpreplicate.output.text import duration
from cpreplicate.runners import ShowProgress, Snapshot

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Form = Literal["auto", "bar", "lines", "ndjson", "none"]
_INTERVAL = 10.0  # seconds between two lines


def progress(form: Form, in_file: bool = False) -> ShowProgress | None:
    """Return the display of a form; `auto` is a bar on a terminal, else lines.

    `in_file`: the log file gets lines whatever the form. Returns None if nothing is shown.
    """
    if form == "auto":
        form = "bar" if is_terminal(sys.stderr) else "lines"
    displays: list[ShowProgress] = []
    if form != "none":
        displays.append(_DISPLAYS[form]())
    if in_file and form != "lines":
        displays.append(_Lines(narrate_in_file))
    return _All(displays) if displays else None


def line(now: Snapshot) -> str:
    """Return a snapshot as one line for people."""
    parts = [
        f"{now.files} of {counted(now.files_total, 'file')}",
        f"{size(now.bytes)} of {size(now.bytes_total)}",
        f"{size(int(now.rate))}/s",
    ]
    if now.left is not None:
        parts.append(f"{duration(now.left)} left")
    if now.failed:
        parts.append(f"{now.failed} failed")
    if now.retried:
        parts.append(f"{now.retried} retried")
    return ", ".join(parts)


def event(now: Snapshot, last: bool) -> dict[str, Any]:
    """Return a snapshot as a JSON object; see `docs/json.md`."""
    return {
        "event": "end" if last else "progress",
        "files": now.files,
        "files_total": now.files_total,
        "bytes": now.bytes,
        "bytes_total": now.bytes_total,
        "bytes_per_second": round(now.rate),
        "seconds_left": None if now.left is None else round(now.left, 1),
        "failed": now.failed,
        "retried": now.retried,
        "seconds": round(now.seconds, 1),
    }


class _All:
    """Several displays at the same time."""

    def __init__(self, displays: list[ShowProgress]) -> None:
        self._displays = displays

    def __call__(self, now: Snapshot, last: bool) -> None:
        for show in self._displays:
            show(now, last)


class _Lines:
    """Write a line every ten seconds while files are to be copied, and none for a shorter run."""

    def __init__(self, write: Callable[[str], None] = narrate) -> None:
        self._due, self._write = _INTERVAL, write

    def __call__(self, now: Snapshot, last: bool) -> None:
        if last:
            self._due = _INTERVAL  # of the next run, if there is one
        elif now.seconds >= self._due:
            self._due = now.seconds + _INTERVAL
            self._write(line(now))


class _Events:
    """Print an object every second, and one at the end."""

    def __call__(self, now: Snapshot, last: bool) -> None:
        write_event(event(now, last))


class _Bar:
    """Draw a bar again every second, and erase it at the end and before each message."""

    def __init__(self) -> None:
        self._bar: tuple[Progress, TaskID] | None = None
        self._lock = RLock()  # jobs of a fleet write messages from many threads

    def __call__(self, now: Snapshot, last: bool) -> None:
        if last:
            self._erase()
            clear_before_writing(None)
            return
        with self._lock, suppress(OSError):  # the terminal is gone, but the run continues
            self._draw(now)
        clear_before_writing(self._erase)

    def _erase(self) -> None:
        with self._lock, suppress(OSError):
            bar, self._bar = self._bar, None
            if bar is not None:
                bar[0].stop()

    def _draw(self, now: Snapshot) -> None:
        self._bar = self._bar or _new_bar()
        bar, task = self._bar
        if now.bytes_total:
            total, done = now.bytes_total, now.bytes
        else:
            total, done = now.files_total, now.files
        bar.update(task, total=total, completed=done, description=line(now), refresh=True)


def _new_bar() -> tuple[Progress, TaskID]:
    """Begin to show a bar on stderr, and return it with its task."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    bar = Progress(
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
    )
    bar.start()
    return bar, bar.add_task("")


_DISPLAYS: dict[str, Callable[[], ShowProgress]] = {"bar": _Bar, "lines": _Lines, "ndjson": _Events}
