"""What a run reports beside its result: to stderr, and to a log file.

Without `--log-format`, stderr is for people. The lines of a log have a time, the id of the run, and
the job and checkpoint where they are known. Layers below report details by `logging`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from logging.handlers import WatchedFileHandler
from pathlib import Path
from stat import S_ISFIFO
from typing import Any, Literal

from cpreplicate.core import uri
from cpreplicate.core.log_context import log_context
from cpreplicate.output import run
from cpreplicate.output.streams import printable, write_message, write_messages

LogFormat = Literal["text", "json"]
_PREFIXES = {logging.WARNING: "cpreplicate: warning: ", logging.ERROR: "cpreplicate: error: "}
_HIDDEN = "hidden"  # attribute of a record: only the log file gets it
_BARE = "bare"  # attribute of a record: stderr shows it without a prefix
_log = logging.getLogger("cpreplicate")


@dataclass(frozen=True)
class LogSettings:
    """Where lines go and how they look.

    `form` is None for lines without a time on stderr; the log file has text then. `are_events`:
    narration on stderr is JSON, as `--progress ndjson` asks for.
    """

    file: str | None = None
    form: LogFormat | None = None
    is_quiet: bool = False
    is_verbose: bool = False
    are_events: bool = False


_settings = LogSettings()


def configure(settings: LogSettings) -> None:
    """Begin to log as the settings ask for. Raise `OSError` if the file cannot be opened."""
    global _settings  # a process runs one command
    _settings = settings
    everything = logging.DEBUG if settings.is_verbose else logging.INFO
    stderr = _Stderr(logging.WARNING if settings.is_quiet else everything)
    stderr.setFormatter(_stderr_formatter(settings))
    stderr.addFilter(lambda record: not hasattr(record, _HIDDEN))
    handlers: list[logging.Handler] = [stderr]
    if settings.file is not None:
        _refuse_unread(settings.file)
        file = _File(settings.file, encoding="utf-8", errors="backslashreplace")
        file.setLevel(everything)
        file.setFormatter(_FORMATTERS[settings.form or "text"]())
        handlers.append(file)
    _replace_handlers(handlers, everything)


def _refuse_unread(path: str) -> None:
    """Raise `OSError` for a pipe that nobody reads: to open it would wait for a reader."""
    with suppress(FileNotFoundError):
        if S_ISFIFO(Path(path).stat().st_mode):
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))


def is_quiet() -> bool:
    """Return whether only warnings and errors are asked for."""
    return _settings.is_quiet


def is_verbose() -> bool:
    """Return whether details are asked for."""
    return _settings.is_verbose


def _replace_handlers(handlers: list[logging.Handler], level: int) -> None:
    for handler in list(_log.handlers):
        _log.removeHandler(handler)
        handler.close()
    for handler in handlers:
        _log.addHandler(handler)
    _log.setLevel(level)
    _log.propagate = False


def _stderr_formatter(settings: LogSettings) -> logging.Formatter:
    if settings.form is not None:
        return _FORMATTERS[settings.form]()
    return _Events() if settings.are_events else _Plain()


def narrate(line: str) -> None:
    """Report what a command is doing."""
    _log.info("%s", line)


def narrate_in_file(line: str) -> None:
    """Report it in the log file only."""
    _log.info("%s", line, extra={_HIDDEN: True})


def narrate_failure(line: str) -> None:
    """Report what went wrong without ending the run: narration for people, a warning in a log."""
    _log.warning("%s", line, extra={_BARE: True})


def write_warning(line: str) -> None:
    """Report what went wrong without ending the run: `cpreplicate: warning: …`."""
    _log.warning("%s", line)


def write_error(line: str) -> None:
    """Report why the run ended, as one line: `cpreplicate: error: …`."""
    _log.error("%s", line)


def write_lines(lines: str) -> None:
    """Report a text of several lines, such as a traceback: one line of a log, escaped."""
    if _settings.form is None:
        write_messages(lines)
        if _settings.file is not None:
            _log.error("%s", lines.rstrip("\n"), extra={_HIDDEN: True})
    else:
        _log.error("%s", lines.rstrip("\n"))


def write_event(fields: dict[str, Any]) -> None:
    """Write an event of progress to stderr, as a JSON object."""
    head = _head("info", time.time()) if _settings.form == "json" else {}
    write_message(json.dumps({**head, **fields}))


def narration(text: str) -> str:
    """Return a message as a JSON object; see `docs/json.md`."""
    return json.dumps({"event": "narration", "text": text})


def _head(level: str, seconds: float) -> dict[str, Any]:
    at = run.timestamp(seconds)
    return {"time": at, "level": level, "run": run.current().id, **log_context()._asdict()}


def _message(record: logging.LogRecord) -> str:
    """Return the message, without the passwords of URIs, which may come from anywhere."""
    return uri.without_password(record.getMessage())


class _Plain(logging.Formatter):
    """Lines for people, as a terminal shows them."""

    def format(self, record: logging.LogRecord) -> str:
        prefix = "" if hasattr(record, _BARE) else _PREFIXES.get(record.levelno, "")
        return prefix + _message(record)


class _Events(_Plain):
    """Narration as events beside events of progress; warnings and errors as lines."""

    def format(self, record: logging.LogRecord) -> str:
        if record.levelno <= logging.INFO or hasattr(record, _BARE):
            return narration(_message(record))
        return super().format(record)


class _Text(logging.Formatter):
    """A line with its time in front."""

    def format(self, record: logging.LogRecord) -> str:
        head = _head(record.levelname, record.created)
        words = [head.pop("time"), head.pop("level")]
        words += [f"{name}={_word(value)}" for name, value in head.items() if value is not None]
        return printable(f"{' '.join(words)}: {_message(record)}")


def _word(value: str) -> str:
    return value if value.isprintable() and " " not in value else json.dumps(value)


class _Json(logging.Formatter):
    """A JSON object a line; see `docs/json.md`."""

    def format(self, record: logging.LogRecord) -> str:
        head = _head(record.levelname.lower(), record.created)
        return json.dumps({**head, "event": "narration", "text": _message(record)})


_FORMATTERS: dict[LogFormat, type[logging.Formatter]] = {"text": _Text, "json": _Json}


class _Stderr(logging.Handler):
    """Writes to the stderr of this moment, and ignores a failure."""

    def emit(self, record: logging.LogRecord) -> None:
        if sys.stderr is not None:
            write_message(self.format(record))


class _File(WatchedFileHandler):
    """Appends to a file, opens it again after logrotate moved it, and reports a failure once.

    A full disk of the logs must not end a replication.
    """

    _error: OSError | None = None  # of the last record

    def emit(self, record: logging.LogRecord) -> None:
        before = self._error
        self._error = None
        try:
            super().emit(record)
        except OSError as error:
            self._error = error
        if self._error is not None and before is None:
            reason = self._error.strerror or self._error
            write_warning(
                f"--log-file {self.baseFilename} could not be written: {reason}. The command goes"
                " on without it"
            )

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802  # logging's name
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self._error = error

    def close(self) -> None:
        """Close the file. What it did not take is lost."""
        with suppress(OSError):
            super().close()


configure(_settings)
