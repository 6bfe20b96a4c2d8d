"""What the values of options are: how a text becomes a value, and what a TOML file may hold."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from cpreplicate.cli.options.amounts import (
    byte_rate,
    call_rate,
    count,
    instant,
    seconds,
    share,
    size,
)
from cpreplicate.cli.options.named_places import placed
from cpreplicate.core import uri
from cpreplicate.core.amounts import OFF
from cpreplicate.core.shard import Shard
from cpreplicate.errors import UsageError
from cpreplicate.storage import HDFS_CLIENTS, locations

if TYPE_CHECKING:
    from cpreplicate.core.plan import Cap


@dataclass(frozen=True)
class Kind:
    """What the values of an option are.

    `convert` returns the value of a text, or of what `click_type` makes of it. `convert_all` takes
    all the texts of an option that may be given several times; by default each is converted.
    `toml_types` are what a TOML file may hold, and `expected` names them in messages. `metavar`
    stands for a value in the help. A shell completes a value to one of `words`, or to a file if
    `is_path`.
    """

    name: str
    metavar: str | None = None
    convert: Callable[[Any], Any] | None = None
    convert_all: Callable[[Sequence[str]], Any] | None = None
    click_type: click.ParamType[Any] | None = None
    toml_types: Collection[type] = (str,)
    expected: str = "a string"
    is_valid: Callable[[Any], bool] = lambda _value: True
    words: Sequence[str] = ()
    is_path: bool = False

    def accepts(self, value: object) -> bool:
        """Return whether a TOML file may hold this value."""
        return type(value) in self.toml_types and self.is_valid(value)

    def value(self, texts: Any) -> Any:
        """Return the value of what click parsed: a text, several, or None, which stays None.

        Raises `click.BadParameter` for a text that is no value, as `refuse_no_value`.
        """
        if isinstance(texts, tuple):
            return self._values(texts)
        refuse_no_value(texts, self)
        return texts if texts is None or self.convert is None else self.convert(texts)

    def _values(self, texts: tuple[str, ...]) -> Any:
        for text in texts:
            refuse_no_value(text, self)
        if self.convert_all is not None:
            return self.convert_all(texts)
        return texts if self.convert is None else tuple(map(self.convert, texts))


_PROPERTY_NAME = re.compile(r"[^\s:=]+")
_DIGITS = 18  # of a number of files
_SHORTEST_PAUSE = 0.01  # seconds
_SHORTEST_AGE = 3600.0  # seconds
_MASTER = re.compile(r"yarn|local(-cluster)?(\[|$)|spark://|k8s://")
_SHARD = re.compile("([0-9]{1,4})/([0-9]{1,4})")
_HDFS3 = (
    "--hdfs-client hdfs3: hdfs3 cannot be imported on Python 3.10 or later (it imports"
    " collections.MutableMapping) and needs libhdfs3, which no package registry carries. Use"
    " --hdfs-client native (hdfs-native, the default), see docs/storage.md"
)


def refuse_no_value(text: object, kind: Kind | None = None) -> None:
    """Raise `click.BadParameter` for what a shell leaves of `--as-of $TIME` if TIME is not set.

    That is an empty text in quotes, else the option that follows. A text that begins with a dash is
    never a value, also where it is given on purpose: a number was converted before. The message
    does not show it, because it may be a secret.
    """
    if not isinstance(text, str):
        return
    if not text.strip():
        raise click.BadParameter("the value is empty, as that of a variable that is not set")
    if text.startswith("-"):
        advice = ""
        if kind is None or kind.is_path:
            advice = ". Write ./-NAME for a path that does"
        elif kind is TEXT:
            advice = ". Write [-]NAME for a pattern that does"
        raise click.BadParameter(f"the value is missing, or begins with a dash{advice}")


def pause(text: str) -> float:
    """Return the seconds of a time for which a loop waits. Raises `click.BadParameter`.

    Without a pause it would ask the storages as fast as they answer.
    """
    if (waited := seconds(text)) < _SHORTEST_PAUSE:
        raise click.BadParameter(f"{text}: must be longer than 0 s, and at least 10ms")
    return waited


def period(text: str) -> float:
    """Return the seconds of a time that decides what is removed: all but 0 need a unit.

    Raises `click.BadParameter`.
    """
    if (asked := seconds(text)) and text.strip()[-1].isdecimal():
        raise click.BadParameter(f"{text}: has no unit. Write {text}h of hours, {text}d of days")
    return asked


def age(text: str) -> float:
    """Return the seconds of an age after which something is removed.

    Raises `click.BadParameter`, also for less than an hour: a unit may have been left out.
    """
    if (asked := seconds(text)) < _SHORTEST_AGE:
        raise click.BadParameter(f"{text}: must be at least 1h. Of days, write 30d")
    return asked


def is_property_name(text: str) -> bool:
    """Return whether a text may name a property.

    A secret may stand before an `=`, too, as Base64 ends in it: `secret.key:c2VjcmV0==`.
    """
    return _PROPERTY_NAME.fullmatch(text) is not None


def is_directory(text: str) -> bool:
    """Return whether a directory of that name is there."""
    return os.path.isdir(text)  # noqa: PTH112  # `Path` raises, with the text, if it is too long


def absolute(value: str) -> str:
    """Return the URI that an argument or an option means: a URI, a local path or `PLACE:path`.

    Raises `click.BadParameter` for one with a password, and for one like `hdfs//dcB/replicas`, or
    `file://data/replicas`, whose first directory is the name of a host: a replica would be written
    to another place, unnoticed.
    """
    value = placed(value)
    try:
        return locations.absolute(value)
    except UsageError as error:
        raise click.BadParameter(str(error)) from None  # a password would be in the former


def _job_directory(text: str) -> str:
    """Return the URI of a job's checkpoint directory. Raises `click.BadParameter` for a bare name.

    `--job NAME` selects a replica in other commands; here `--replica-of NAME` does.
    """
    if "/" not in text and ":" not in text and not is_directory(text):
        raise click.BadParameter(
            f"{text}: expected the checkpoint directory of the job that was started from the"
            f" replica. To select the replica of a job, give --replica-of {shlex.quote(text)}"
        )
    return absolute(text)


def _cap(text: str) -> Cap:
    from cpreplicate.core.plan import Cap

    if text.isdecimal() and len(text) <= _DIGITS:
        return Cap(int(text))
    if not text.endswith("%"):
        raise click.BadParameter(f"{text}: expected a number of files or a share such as 20%")
    return Cap(share(text), is_share=True)


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    """Return what each name is replaced by. Raises `click.BadParameter`."""
    pairs: dict[str, str] = {}
    for text in texts:
        old, separator, new = text.partition("=")
        if not separator or not old or not new or old in pairs:
            raise click.BadParameter(f"{text}: expected OLD=NEW, each OLD once")
        pairs[old] = new
    return pairs


def _remaps(texts: Sequence[str]) -> tuple[uri.Remap, ...]:
    pairs = map(uri.remap_pair, texts)
    # the url of a place may have an `=`
    return locations.remaps((placed(old), placed(new)) for old, new in pairs)


def _conf_values(words: Sequence[str]) -> Sequence[str]:
    """Return the values of a `--…-conf` option.

    Raises `click.BadParameter` for one that is neither a directory nor a property. Its message does
    not show the value, which may be a secret.
    """
    for number, word in enumerate(words, 1):
        name, equals, _ = word.partition("=")
        if not is_directory(word) and not (equals and is_property_name(name)):
            raise click.BadParameter(
                f"value {number} of {len(words)} is neither a directory that exists nor a property"
                " such as KEY=VALUE. It is not shown here, because it may be a secret"
            )
    return words


def _client(text: str) -> str:
    if text == "hdfs3":
        raise UsageError(_HDFS3)
    if text not in HDFS_CLIENTS:
        choices = ", ".join(map(repr, HDFS_CLIENTS))
        raise click.BadParameter(f"{text!r} is not one of {choices}.")
    return text


def _spark_property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (equals and is_property_name(name.strip())):
        raise click.BadParameter(
            "expected a property of Spark such as spark.executor.cores=4. The value is not shown"
            " here, because it may be a secret"
        )
    return name.strip(), value.strip()


def _master(text: str) -> str:
    if not _MASTER.match(text):
        raise click.BadParameter(
            f"{text}: expected a master of Spark: yarn, spark://HOST:PORT, k8s://URL or local[N]"
        )
    return text


def _shard(text: str) -> Shard:
    match = _SHARD.fullmatch(text.strip())
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise click.BadParameter(f"{text}: expected NUMBER/COUNT, such as 1/3, 2/3 and 3/3")
    return Shard(int(match[1]), int(match[2]))


def _job_name(text: str) -> str:
    from cpreplicate.protocol.job_record import recorded_name

    if not text or recorded_name(text) != text:
        raise click.BadParameter(
            "expected the name of a job: 1 to 300 characters that can be printed, without blanks"
            " around them"
        )
    return text


def _prom_file(text: str) -> str:
    if not text.endswith(".prom"):
        raise click.BadParameter(
            f"{text}: the textfile collector of node_exporter reads only files whose name ends in"
            " .prom"
        )
    return text


def _html_file(text: str) -> str:
    if not text.endswith((".html", ".htm")):
        raise click.BadParameter(f"{text}: expected a file whose name ends in .html")
    return text


def _table_file(text: str) -> str:
    if not text.endswith((".parquet", ".arrow")):
        raise click.BadParameter(f"{text}: the name of the file ends with .parquet or .arrow")
    return text


class _Line(click.types.StringParamType):
    """A text that may have blanks, also in an environment variable: there is one in each line."""

    envvar_list_splitter = "\n"

    def split_envvar_value(self, rv: str) -> list[str]:
        """Return the lines that are not blank: a block of YAML ends with the end of its last."""
        return [line for line in super().split_envvar_value(rv) if line.strip()]


class _WholeNumber(click.IntRange):
    """A whole number. What is none is named as in the other messages."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number. Raises `click.BadParameter`."""
        try:
            number = int(value)
        except ValueError:
            refuse_no_value(value, INTEGER)
            number = None
        least = self.min
        if number is None or (least is not None and number < least):
            range_of = "" if least is None else f", {least} or more"
            raise click.BadParameter(f"{value}: expected a whole number{range_of}", ctx, param)
        return number


class _Number(click.types.FloatParamType):
    """A number. What is none is named as in the other messages."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number. Raises `click.BadParameter`."""
        try:
            return float(value)
        except ValueError:
            refuse_no_value(value, INTEGER)
            raise click.BadParameter(f"{value}: expected a number", ctx, param) from None


def choice(*words: str) -> Kind:
    """Return the kind of an option that takes one of some words."""
    return Kind("choice", click_type=click.Choice(words))


def _number(name: str, metavar: str, parse: Callable[[str], Any]) -> Kind:
    """Return a kind that is written with a unit, or as a number."""
    types = (str, int, float)
    return Kind(name, metavar, parse, toml_types=types, expected="a string or a number")


def _whole_number(
    click_type: click.ParamType[Any],
    metavar: str | None = None,
    convert: Callable[[Any], int] | None = None,
) -> Kind:
    types, expected = (int,), "a whole number"
    return Kind("integer", metavar, convert, None, click_type, types, expected)


FLAG = Kind("flag", toml_types=(bool,), expected="true or false")
TEXT = Kind("text", click_type=click.STRING)
# a unit of systemd passes a variable, whose default is `off`
ADDRESS = Kind("text", "[HOST:]PORT", lambda text: None if text.lower() == OFF else text)
LINE = Kind("text", click_type=_Line())
NAME = Kind("text", is_valid=bool, expected="a string that is not empty")
PLACE = replace(NAME, name="location", convert=absolute, is_path=True)
JOB_IDS = Kind(
    "job ids",
    click_type=click.UNPROCESSED,
    toml_types=(list,),
    expected='an array of job ids, such as ["7f0c…"]',
    is_valid=lambda ids: all(isinstance(each, str) for each in ids),
)
FILE = Kind("file", "FILE", is_path=True)
LOCAL_PATH = Kind("file", "FILE", os.path.abspath, is_path=True)
PROM_FILE = Kind("file", "PATH", _prom_file, is_path=True)
HTML_FILE = Kind("file", "FILE.html", _html_file, is_path=True)
TABLE_FILE = Kind("file", "FILE", _table_file, is_path=True)
LOCATION = Kind("location", "URI", absolute, is_path=True)
JOB_DIRECTORY = Kind("location", "DIR", _job_directory, is_path=True)
INTEGER = _whole_number(_WholeNumber())
COUNT = _whole_number(_WholeNumber(1), "N", count)
COUNT_OR_NONE = _whole_number(_WholeNumber(0), "N", count)
RATE = Kind(
    "number", "N", call_rate, click_type=_Number(), toml_types=(int, float), expected="a number"
)
TIME = _number("time", "TIME", seconds)
PAUSE = _number("time", "TIME", pause)
PERIOD = _number("time", "TIME", period)
AGE = _number("time", "TIME", age)
JOB_NAME = Kind("name", "NAME", _job_name)
INSTANT = Kind("time", "TIME", instant)
SIZE = _number("size", "SIZE", size)
BYTE_RATE = _number("rate", "RATE|TIMETABLE", byte_rate)
SHARE = _number("share", "SHARE", share)
CAP = _number("cap", "N|P%", _cap)
RENAMES = Kind("renames", "OLD=NEW", convert_all=_pairs)
REMAP = Kind("remap", "FROM=TO", convert_all=_remaps)
STORAGE_CONF = Kind("configuration", "DIR|KEY=VALUE", convert_all=_conf_values, is_path=True)
# not a choice: hdfs3 is answered with the reason why it cannot work
HDFS_CLIENT = Kind("choice", f"[{'|'.join(HDFS_CLIENTS)}]", _client, words=HDFS_CLIENTS)
SPARK_PROPERTY = Kind("property", "K=V", _spark_property)
MASTER = Kind("master", "URL", _master)
SHARD = Kind("shard", "NUMBER/COUNT", _shard)
