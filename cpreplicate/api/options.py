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
        super().__init__(
            runner=values.word("runner", runner, *_RUNNERS),
            master=values.optional(_text, "master", master),
            conf=_properties(conf),
            parallelism=values.optional(values.count, "parallelism", parallelism),
            batch_bytes=values.optional(values.size, "batch_bytes", batch_bytes),
            batch_files=values.optional(values.count, "batch_files", batch_files),
            streams=values.optional(values.count, "streams", streams),
            engine_timeout=values.optional(values.seconds, "engine_timeout", engine_timeout),
            show=show,
        )


def _text(name: str, value: object) -> str:
    return values.of_type(name, value, str, "a text")


def _properties(conf: Any) -> tuple[tuple[str, str], ...]:
    """Return properties of Spark, in their order; a later one wins."""
    if isinstance(conf, Mapping):
        conf = values.texts("conf", conf).items()
    pairs = tuple(conf) if not isinstance(conf, str) else (conf,)
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise values.wrong("conf", "…", "a mapping, or pairs of texts")
    return pairs


@dataclass(frozen=True, kw_only=True)
class SyncOptions(SyncSettings):
    """The options of `plan` and `sync`, which are those of `cpreplicate sync`.

    `remap` has what recorded paths begin with, and from where they are read. `lock_wait` is in
    seconds, `max_delete` in files, `bandwidth` in bytes a second, `max_rps` in metadata operations
    a second. An amount may be a text as the command line takes it, such as `5m`, `20%`, `500MB/s`.
    """

    source_roots: Sequence[AnyPath] = ()
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
        for each in self.source_roots:
            values.path("source_roots", each)
        values.texts("remap", self.remap)
        values.word("paths", self.paths, *get_args(PathsMode))
        values.word("pack", self.pack, *get_args(PackMode))
        values.seconds("lock_wait", self.lock_wait)
        values.optional(values.cap, "max_delete", self.max_delete)
        values.optional(values.byte_rate, "bandwidth", self.bandwidth)
        values.optional(values.call_rate, "max_rps", self.max_rps)


def _expectations(options: SyncOptions) -> Iterator[tuple[str, bool, str]]:
    """Yield the name of an option, whether it is right, and what is."""
    keep, name, roots = options.keep, options.name, options.source_roots
    is_count = isinstance(keep, int) and not isinstance(keep, bool) and keep >= 1
    is_policy = keep is None or isinstance(keep, retention.Retention)
    yield "keep", is_count or is_policy, "1 or more, a Retention, or None"
    is_sequence = isinstance(roots, Sequence) and not isinstance(roots, str)
    yield "source_roots", is_sequence, "a sequence of places"
    is_name = isinstance(name, str) and name != "" and recorded_name(name) == name
    expected = "1 to 300 characters that can be printed, without blanks around them"
    yield "name", name is None or is_name, expected
    is_execution = isinstance(options.execution, runners.ExecutionOptions)
    yield "execution", is_execution, "an ExecutionOptions"
