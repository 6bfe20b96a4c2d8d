"""A value of each kind of option, which is none of the defaults."""

from __future__ import annotations

from typing import Any

import click

from cpreplicate.cli.options import kinds
from cpreplicate.cli.options.option import Option

_VALUES = {
    kinds.FLAG: "true",
    kinds.REMAP: "/a=/b",
    kinds.STORAGE_CONF: "key=value",
    kinds.SPARK_PROPERTY: "spark.executor.cores=4",
    kinds.SHARD: "2/3",
    kinds.JOB_DIRECTORY: "/a",
    kinds.MASTER: "yarn",
    kinds.HDFS_CLIENT: "hadoop",
    kinds.PROM_FILE: "/a.prom",
    kinds.HTML_FILE: "/a.html",
    kinds.TABLE_FILE: "/a.parquet",
    kinds.AGE: "7d",
    kinds.PERIOD: "7h",
    kinds.SHARE: "5%",
    kinds.CAP: "5%",
    kinds.BYTE_RATE: "5MB/s",
    kinds.INSTANT: "2026-11-24T03:00Z",
    kinds.RENAMES: "orders=A.orders",
}


def text_of(option: Option) -> str:
    """Return a value as the environment and the command line have it."""
    if isinstance(option.kind.click_type, click.Choice):
        return str(option.kind.click_type.choices[-1])
    return _VALUES.get(option.kind, "7")


def toml_of(option: Option) -> Any:
    """Return the same value as a TOML file may hold it."""
    if option.kind is kinds.JOB_IDS:
        return ["7f0c"]
    if option.kind is kinds.FLAG:
        return True
    text = text_of(option)
    is_number = option.kind.toml_types == (int,) or float in option.kind.toml_types
    return int(text) if is_number and text.isdecimal() else text
