"""The result of `inspect --with-files`, and of `promote --with-files` where it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cpreplicate.operations.kafka.part_files import NeededFile, NeededFiles
from cpreplicate.output.json import document
from cpreplicate.output.positions import unread_line
from cpreplicate.output.results import Forms
from cpreplicate.output.text import lines

_COMMENT = "# "  # before a line that is no file: scripts leave it out


def _text(needed: NeededFiles) -> str:
    """Return a line for each file: where it is, how many bytes of it count, what was found."""
    return lines([*map(_line, needed.files), *_comments(needed)])


def _line(of: NeededFile) -> str:
    return f"{of.place} {of.file.length} {of.presence.replace(' ', '-')}"


def _comments(needed: NeededFiles) -> Iterator[str]:
    if not needed.files:
        yield f"{_COMMENT}the state of {needed.checkpoint} names no part file"
    for reason in dict.fromkeys(each.reason for each in needed.files if each.reason):
        yield f"{_COMMENT}not looked for: {reason}"
    for each in needed.unread:
        yield f"{_COMMENT}{unread_line(each, needed.names)}"


def _json(needed: NeededFiles) -> str:
    """Return the result of `inspect --with-files --output json`."""
    return document(
        {
            "checkpoint": needed.checkpoint,
            "bytes": sum(each.file.length for each in needed.files),
            "files": [_fields(each) for each in needed.files],
            "unread": [each._asdict() for each in needed.unread],
            "rebase": needed.command,
        }
    )


def _fields(of: NeededFile) -> dict[str, Any]:
    return {
        **of.file._asdict(),
        "place": of.place,
        "presence": of.presence,
        "found": of.found,
        "reason": of.reason,
    }


FORMS = Forms(_text, _json, ndjson=_json)
