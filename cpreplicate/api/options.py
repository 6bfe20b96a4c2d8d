"""The options of a sync: which points are kept, by which runner, and the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from cpreplicate import runners
from cpreplicate.api import values
from cpreplicate.api.places import AnyPath
from cpreplicate.api.values import Amount
from cpreplicate.core import retention
from cpreplicate.core.packs import PackMode
from cpreplicate.core.restore import PathsMode
from cpreplicate.errors import UsageError
from cpreplicate.operations.sync.request import SyncSettings
from cpreplicate.protocol.job_record import recorded_name
from cpreplicate.runners.progress import ShowProgress

_RUNNERS = ("auto", "spark", "inline")


class Retention(retention.Retention):
    """Which checkpoints are kept, as `--keep`, `--keep-within`, `--keep-hourly`, `--keep-daily`.

    `within` is in seconds, or a text such as `24h`. Raises `UsageError` for a wrong value.
    """

    def __init__(
        self, last: int = 1, within: Amount = 0.0, hourly: int = 0, daily: int = 0
    ) -> None:
        super().__init__(
            values.count("last", last, least=0),
            values.seconds("within", within),
            values.count("hourly", hourly, least=0),
            values.count("daily", daily, least=0),
        )


class ExecutionOptions(runners.ExecutionOptions):
    """The runner, as `--runner`, and the options beside it. See `cpreplicate.runners`.

    `batch_bytes` is in bytes, or a text such as `512MiB`; `engine_timeout` in seconds, or a text
    such as `5m`. Raises `UsageError` for a wrong value.
    """

    def __init__(
        self,
        *,
        runner: str = "auto",
        master: str | None = None,
        conf: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        parallelism: int | None = None,
        batch_bytes: Amount | None = None,
        batch_files: int | None = None,
        streams: int | None = None,
        engine_timeout: Amount | None = None,
        show: ShowProgress | None = None,
    ) -> None:
        if show is not None:
            values.function("show", show)
        super().__init__(
            runner=values.word("runner", runner, *_RUNNERS),
            master=values.optional(values.text, "master", master),
            conf=_properties(conf),
            parallelism=values.optional(values.count, "parallelism", parallelism),
            batch_bytes=values.optional(values.size, "batch_bytes", batch_bytes),
            batch_files=values.optional(values.count, "batch_files", batch_files),
            streams=values.optional(values.count, "streams", streams),
            engine_timeout=values.optional(values.seconds, "engine_timeout", engine_timeout),
            show=show,
        )


def _properties(conf: Any) -> tuple[tuple[str, str], ...]:
    """Return properties of Spark, in their order; a later one wins."""
    if isinstance(conf, Mapping):
        return tuple(values.texts("conf", conf).items())
    expected = "a mapping of texts, or a sequence of pairs of texts"
    pairs = values.sequence("conf", conf, expected)
    if not all(isinstance(pair, Sequence) and len(pair) == 2 for pair in pairs):
        raise values.wrong("conf", "…", expected)
    # one by one: a key may be given twice
    return tuple(next(iter(values.texts("conf", {key: value}).items())) for key, value in pairs)


@dataclass(frozen=True, kw_only=True)
class SyncOptions(SyncSettings):
    """The options of `plan` and `sync`, which are those of `cpreplicate sync`.

    `remap` has what recorded paths begin with, and from where they are read. `lock_wait` is in
    seconds, `max_delete` in files, `bandwidth` in bytes a second, `max_rps` in metadata operations
    a second. An amount may be a text as the command line takes it, such as `5m`, `20%`, `500MB/s`.
    `kafka_source_conf` is a file of librdkafka's properties.
    """

    source_roots: Sequence[AnyPath] = ()
    kafka_source_conf: AnyPath | None = None
    lock_wait: Amount = 0.0
    remap: Mapping[str, str] = field(default_factory=dict)
    pack: PackMode = "off"
    max_delete: int | str | None = None
    unsafe_lease: bool = False
    bandwidth: Amount | None = None
    max_rps: float | None = None

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value that the command line would refuse."""
        for name, is_right, expected in _expectations(self):
            if not is_right:
                raise values.wrong(name, getattr(self, name), expected)
        for name in ("keep_less", "adopt", "allow_older", "check_content", "unsafe_lease"):
            values.flag(name, getattr(self, name))
        for each in values.sequence("source_roots", self.source_roots, "a sequence of places"):
            values.path("source_roots", each)
        values.optional(values.text, "kafka_source", self.kafka_source)
        values.optional(values.path, "kafka_source_conf", self.kafka_source_conf)
        if self.kafka_source is None and self.kafka_source_conf is not None:
            raise UsageError("kafka_source_conf needs kafka_source, whose properties are in it")
        values.texts("remap", self.remap)
        values.word("paths", self.paths, *get_args(PathsMode))
        values.word("pack", self.pack, *get_args(PackMode))
        values.seconds("lock_wait", self.lock_wait)
        values.optional(values.cap, "max_delete", self.max_delete)
        values.optional(values.byte_rate, "bandwidth", self.bandwidth)
        values.optional(values.call_rate, "max_rps", self.max_rps)


def _expectations(options: SyncOptions) -> Iterator[tuple[str, bool, str]]:
    """Yield the name of an option, whether it is right, and what is."""
    keep, name = options.keep, options.name
    is_count = isinstance(keep, int) and not isinstance(keep, bool) and keep >= 1
    is_policy = keep is None or isinstance(keep, retention.Retention)
    yield "keep", is_count or is_policy, "1 or more, a Retention, or None"
    is_name = isinstance(name, str) and name != "" and recorded_name(name) == name
    expected = "1 to 300 characters that can be printed, without blanks around them"
    yield "name", name is None or is_name, expected
    is_execution = isinstance(options.execution, runners.ExecutionOptions)
    yield "execution", is_execution, "an ExecutionOptions"
