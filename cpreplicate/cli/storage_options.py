"""Options for how storages are reached and written, and the parsers of sizes, times and shares."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import click

from cpreplicate.cli import groups
from cpreplicate.cli.groups import Decorator
from cpreplicate.errors import UsageError
from cpreplicate.storage import HDFS_CLIENTS

_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?(?:/s)?", re.IGNORECASE)
_TIME = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_PROPERTY_NAME = re.compile(r"[^\s:=]+")
_SHORTEST_PAUSE = 0.01  # seconds
_SECONDS = {"ms": 0.001, None: 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_HDFS3 = (
    "--hdfs-client hdfs3: hdfs3 cannot be imported on Python 3.10 or later (it imports"
    " collections.MutableMapping) and needs libhdfs3, which no package registry carries. Use"
    " --hdfs-client native (hdfs-native, the default), see docs/storage.md"
)


def size(text: str) -> int:
    """Return the bytes of a size such as `500MB`, `64Mi` or `500MB/s`.

    Raises `click.BadParameter`.
    """
    match = _SIZE.fullmatch(text.strip())
    if not match or float(match[1]) <= 0:
        raise click.BadParameter(f"{text}: expected a size such as 500MB or 128MiB")
    return int(float(match[1]) * _UNITS[(match[2] or "").lower()])


def seconds(text: str) -> float:
    """Return the seconds of a time such as `90`, `90s`, `5m`. Raises `click.BadParameter`."""
    match = _TIME.fullmatch(text.strip())
    if not match:
        raise click.BadParameter(f"{text}: expected a time such as 30s or 5m")
    return float(match[1]) * _SECONDS[match[2]]


def pause(text: str) -> float:
    """Return the seconds of a time for which a loop waits. Raises `click.BadParameter`.

    Without a pause it would ask the storages as fast as they answer.
    """
    if (waited := seconds(text)) < _SHORTEST_PAUSE:
        raise click.BadParameter(f"{text}: must be longer than 0 s, and at least 10ms")
    return waited


def share(text: str) -> float:
    """Return the fraction that `5%` or `0.05` stands for. Raises `click.BadParameter`."""
    try:
        fraction = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        fraction = 0.0
    if not 0 < fraction <= 1:
        raise click.BadParameter(f"{text}: expected a share such as 5%")
    return fraction


def parsed(
    parse: Callable[[str], Any],
) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """Return the callback of an option that is parsed from text; None stays None."""
    return lambda _context, _parameter, value: None if value is None else parse(value)


def _client(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if value == "hdfs3":
        raise UsageError(_HDFS3)
    if value not in HDFS_CLIENTS:
        choices = ", ".join(map(repr, HDFS_CLIENTS))
        raise click.BadParameter(f"{value!r} is not one of {choices}.")
    return value


def is_property_name(text: str) -> bool:
    """Return whether a text may name a property.

    A secret may stand before an `=`, too, as Base64 ends in it: `secret.key:c2VjcmV0==`.
    """
    return _PROPERTY_NAME.fullmatch(text) is not None


def is_directory(text: str) -> bool:
    """Return whether a directory of that name is there."""
    return os.path.isdir(text)  # noqa: PTH112  # `Path` raises, with the text, if it is too long


def _conf_values(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the values of a `--…-conf` option.

    Raises `click.BadParameter` for one that is neither a directory nor a property. Its message does
    not show the value, which may be a secret.
    """
    for number, word in enumerate(values, 1):
        name, equals, _ = word.partition("=")
        if not is_directory(word) and not (equals and is_property_name(name)):
            raise click.BadParameter(
                f"value {number} of {len(values)} is neither a directory that exists nor a property"
                " such as KEY=VALUE. It is not shown here, because it may be a secret"
            )
    return values


def _conf(side: str, storage: str) -> Decorator:
    return groups.storage(
        f"--{side}-conf",
        multiple=True,
        metavar="DIR|KEY=VALUE",
        callback=_conf_values,
        help=f"How to reach {storage}: a directory with core-site.xml and hdfs-site.xml, or one"
        " property. deadline=20s limits each call. Repeatable.",
    )


source_conf = _conf("source", "the storage of SOURCE")
target_conf = _conf("target", "the storage of the replica")

client_and_limits = groups.all_of(
    groups.storage(
        "--hdfs-client",
        # not a click.Choice: hdfs3 is answered with the reason why it cannot work
        metavar=f"[{'|'.join(HDFS_CLIENTS)}]",
        default="native",
        show_default=True,
        callback=_client,
        help="native: hdfs-native, without a JVM. hadoop: Hadoop's own client, in a JVM beside each"
        " worker.",
    ),
    groups.limit(
        "--max-rps",
        type=click.FloatRange(min=0, min_open=True),
        metavar="N",
        help="Metadata operations per second on each cluster, over all executors.",
    ),
    groups.limit(
        "--bandwidth",
        metavar="SIZE/s",
        callback=parsed(size),
        help="Bytes per second of the whole run, such as 500MB/s.",
    ),
)


def retry_for(default: str) -> Decorator:
    """Return the option that limits the time of retries."""
    return groups.limit(
        "--retry-for",
        metavar="TIME",
        default=default,
        show_default=True,
        callback=parsed(seconds),
        help="How long to retry a call while a storage cannot be reached, does not answer or is not"
        " ready.",
    )


access = groups.all_of(client_and_limits, retry_for("60s"))

writing = groups.all_of(
    groups.storage(
        "--replication",
        type=click.IntRange(1),
        metavar="N",
        help="HDFS replication factor of each file. Default: that of the target cluster.",
    ),
    groups.storage(
        "--block-size",
        metavar="SIZE",
        callback=parsed(size),
        help="HDFS block size of each file. Default: that of the target cluster.",
    ),
    groups.storage(
        "--preserve",
        is_flag=True,
        help="Copy permission bits and modification times, where both storages have them.",
    ),
)
