"""The options that tell how each side's storage is reached, as `storage.Side`s."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from cpreplicate.errors import UsageError
from cpreplicate.protocol.users import user_name
from cpreplicate.storage import HDFS_CLIENTS, Limits, Side, WriteSettings
from cpreplicate.storage.backends.hadoop_conf import read
from cpreplicate.storage.sides import Options
from cpreplicate.storage.wrappers.limits import new_limits

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
_TIME = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_SECONDS = {"ms": 0.001, None: 1, "s": 1, "m": 60, "h": 3600}
_AWS = {  # botocore would look for them on each executor, where they may be other ones
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_SESSION_TOKEN": "token",
    "AWS_ENDPOINT_URL": "endpoint_url",
    "AWS_REGION": "region",
}
_HDFS3 = (
    "--hdfs-client hdfs3: hdfs3 cannot be imported on Python 3.10 or later (it wants"
    " collections.MutableMapping) and needs a libhdfs3 that no package registry carries; use"
    " --hdfs-client native (hdfs-native, the default), see docs/storage.md"
)


def size(text: str) -> int:
    """Bytes from `500MB`, `64Mi` or `500MB/s`. Raises `click.BadParameter`."""
    found = _SIZE.fullmatch(text.strip())
    if not found or float(found[1]) <= 0:
        raise click.BadParameter(f"{text}: expected a size such as 500MB or 128MiB")
    return int(float(found[1]) * _UNITS[(found[2] or "").lower()])


def seconds(text: str) -> float:
    """Seconds from `90`, `90s`, `5m`. Raises `click.BadParameter`."""
    found = _TIME.fullmatch(text.strip())
    if not found:
        raise click.BadParameter(f"{text}: expected a time such as 30s or 5m")
    return float(found[1]) * _SECONDS[found[2]]


def share(text: str) -> float:
    """A part of all, from `5%` or `0.05`. Raises `click.BadParameter`."""
    try:
        found = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        found = 0.0
    if not 0 < found <= 1:
        raise click.BadParameter(f"{text}: expected a share such as 5%")
    return found


def parsed(
    parse: Callable[[str], Any],
) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    return lambda _context, _parameter, value: None if value is None else parse(value)


def _client(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if value == "hdfs3":
        raise UsageError(_HDFS3)
    return value


def _conf(side: str, what: str) -> Callable[..., Any]:
    return click.option(
        f"--{side}-conf", multiple=True, metavar="DIR|KEY=VALUE",
        help=f"How {what} is reached: a directory with core-site.xml and hdfs-site.xml, or one option. Repeatable.",
    )  # fmt: skip


source_conf = _conf("source", "SOURCE's storage")
target_conf = _conf("target", "the replica's storage")


def access(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of every command that reads or writes a storage."""
    for decorate in reversed([
        click.option("--hdfs-client", type=click.Choice([*HDFS_CLIENTS, "hdfs3"]), default="native", show_default=True,
                     callback=_client, help="native: hdfs-native, no JVM. hadoop: Hadoop's own, in a JVM beside each worker."),
        click.option("--max-rps", type=click.FloatRange(min=0, min_open=True), metavar="N",
                     help="Metadata operations a second against each cluster, over all executors."),
        click.option("--bandwidth", metavar="SIZE/s", callback=parsed(size), help="Bytes a second in all, as in 500MB/s."),
        click.option("--retry-for", metavar="TIME", default="60s", show_default=True, callback=parsed(seconds),
                     help="How long a call is repeated while a storage cannot be reached or is not ready."),
    ]):  # fmt: skip
        command = decorate(command)
    return command


def writing(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of how files are written at the target."""
    for decorate in reversed([
        click.option("--replication", type=click.IntRange(1), metavar="N", help="HDFS: replicas of each file. Default: the"
                     " target cluster's."),
        click.option("--block-size", metavar="SIZE", callback=parsed(size), help="HDFS: block size of each file. Default: the"
                     " target cluster's."),
        click.option("--preserve", is_flag=True, help="Carry permission bits and times of files over, where both storages"
                     " have them."),
    ]):  # fmt: skip
        command = decorate(command)
    return command


def side(
    words: Sequence[str], tables: Mapping[str, Options], options: Mapping[str, Any], limits: Limits
) -> Side:
    """One side, from its `--…-conf` words, the `[storage."…"]` tables and the environment of this
    process.

    Later ones win: the environment, the tables, the words. HADOOP_CONF_DIR is read only where the
    words name no directory.
    """
    given = _given(words)
    named = any("=" not in word or Path(word).is_dir() for word in words)
    found = [
        *_environment(os.environ, with_hadoop=not named),
        *tables.items(),
        ("", tuple(given.items())),
    ]
    write = WriteSettings(options.get("replication"), options.get("block_size"))
    return Side(tuple(found), options["hdfs_client"], write, options["retry_for"], limits)


def limits_of(options: Mapping[str, Any]) -> Limits:
    """The limits of a new run."""
    return new_limits(options["max_rps"], options["bandwidth"])


def _given(words: Sequence[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if Path(word).is_dir() or not equals:
            given.update(read(Path(word)))
        else:
            given[name] = value
    return given


def _environment(environ: Mapping[str, str], with_hadoop: bool) -> list[tuple[str, Options]]:
    found: list[tuple[str, Options]] = []
    directory = environ.get("HADOOP_CONF_DIR")
    if with_hadoop and directory and Path(directory).is_dir():
        found += [(scheme, tuple(read(Path(directory)).items())) for scheme in ("hdfs:", "viewfs:")]
    aws = tuple(
        (name, environ[variable]) for variable, name in _AWS.items() if environ.get(variable)
    )
    user = environ.get("HADOOP_USER_NAME") or user_name()
    return [
        *found,
        *((scheme, aws) for scheme in ("s3:", "s3a:", "s3n:", "s3p:") if aws),
        ("", (("hadoop.user.name", user),)),
    ]
