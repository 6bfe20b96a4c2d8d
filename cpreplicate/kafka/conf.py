"""The file of a Kafka's properties: those of librdkafka, one `key=value` a line."""

from __future__ import annotations

from pathlib import Path

from cpreplicate.errors import UsageError


def properties(file: str, option: str = "--kafka-conf") -> dict[str, str]:
    """Return the properties of a file that an option names. No value is in a message.

    Raises `UsageError`.
    """
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"{option} {file} cannot be read: {reason}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith(("#", "!")):
            continue
        key, separator, value = text.partition("=")
        if not separator:
            raise UsageError(f"{option} {file}, line {number}: expected key=value")
        found[key.strip()] = value.strip()
    return found
