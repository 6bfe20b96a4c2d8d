"""How far a run is, while it runs: a bar on a terminal, a line now and then in a log, events for
machines. On stderr.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from cpreplicate.output.streams import is_terminal, write_message
from cpreplicate.output.text import size
from cpreplicate.runners import ShowProgress, Snapshot

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Form = Literal["auto", "bar", "lines", "ndjson", "none"]
_EVERY = 10.0  # seconds between two lines


def progress(form: Form) -> ShowProgress | None:
    """What shows it; `auto` is a bar on a terminal and lines otherwise."""
    if form == "none":
        return None
    if form == "ndjson":
        return _Events()
    return _Bar() if form == "bar" or (form == "auto" and is_terminal(sys.stderr)) else _Lines()


def line(now: Snapshot) -> str:
    """One line for people."""
    parts = [
        f"{now.files} of {now.files_total} files",
        f"{size(now.bytes)} of {size(now.bytes_total)}",
    ]
    parts.append(f"{size(int(now.rate))}/s")
    if now.left is not None:
        parts.append(f"{_clock(now.left)} left")
    return ", ".join([*parts, *_troubles(now)])


def event(now: Snapshot, last: bool) -> str:
    """One object for machines; see `docs/json.md`."""
    left = None if now.left is None else round(now.left, 1)
    return json.dumps({
        "event": "end" if last else "progress", "files": now.files, "files_total": now.files_total, "bytes": now.bytes,
        "bytes_total": now.bytes_total, "bytes_per_second": round(now.rate), "seconds_left": left, "failed": now.failed,
        "retried": now.retried, "seconds": round(now.seconds, 1),
    })  # fmt: skip


def narration(text: str) -> str:
    """A message as an object for machines."""
    return json.dumps({"event": "narration", "text": text})


class _Lines:
    """A line every ten seconds; none for a run that is shorter."""

    def __init__(self) -> None:
        self._due = _EVERY

    def __call__(self, now: Snapshot, last: bool) -> None:
        if now.seconds >= self._due and not last:
            self._due = now.seconds + _EVERY
            write_message(line(now))


class _Events:
    """An object every second, and one at the end."""

    def __call__(self, now: Snapshot, last: bool) -> None:
        write_message(event(now, last))


class _Bar:
    """Drawn anew every second, and wiped out at the end."""

    def __init__(self) -> None:
        self._drawn: tuple[Progress, TaskID] | None = None

    def __call__(self, now: Snapshot, last: bool) -> None:
        with suppress(OSError):  # the terminal is gone; the run goes on
            self._draw(now, last)

    def _draw(self, now: Snapshot, last: bool) -> None:
        if last:
            if self._drawn is not None:
                self._drawn[0].stop()
            self._drawn = None
            return
        bar, task = self._drawn = self._drawn or _drawn()
        total, done = (
            (now.bytes_total, now.bytes) if now.bytes_total else (now.files_total, now.files)
        )
        bar.update(task, total=total, completed=done, description=line(now), refresh=True)


def _drawn() -> tuple[Progress, TaskID]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    bar = Progress(BarColumn(), TaskProgressColumn(), TextColumn("{task.description}", markup=False),
                   console=Console(stderr=True), auto_refresh=False, transient=True)  # fmt: skip
    bar.start()
    return bar, bar.add_task("")


def _troubles(now: Snapshot) -> list[str]:
    return [
        f"{count} {what}"
        for count, what in ((now.failed, "failed"), (now.retried, "tried again"))
        if count
    ]


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours} h {minutes:02} min"
        if hours
        else f"{minutes} min {rest:02} s"
        if minutes
        else f"{rest} s"
    )
