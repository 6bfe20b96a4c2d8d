"""What other programs use: `from cpreplicate import Checkpoint, Place, plan, sync, verify, status`.

These functions run the operations of the command line. They raise the errors of
`cpreplicate.errors`, print nothing, and handle no signal: the caller's `Cancellation` ends them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from cpreplicate.core import uri
from cpreplicate.core.packs import PackMode, PackOptions
from cpreplicate.core.plan import Cap
from cpreplicate.core.restore import PathsMode
from cpreplicate.core.retention import Retention
from cpreplicate.errors import Cancelled
from cpreplicate.operations import inspect as _inspect
from cpreplicate.operations import status as _status
from cpreplicate.operations import verify as _verify
from cpreplicate.operations.inspect import Inspection
from cpreplicate.operations.replica_status import FleetStatus
from cpreplicate.operations.replicas import replicas_below
from cpreplicate.operations.sync import diff as _diff
from cpreplicate.operations.sync import sync as _sync
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.verify import Sample, Verification
from cpreplicate.protocol.users import user_name
from cpreplicate.runners import ExecutionOptions, RunnerStopped, WarmRunners
from cpreplicate.runners.progress import Snapshot
from cpreplicate.storage import Side, Sides
from cpreplicate.storage.backends.hadoop_conf import read
from cpreplicate.storage.cancellation import cancellable
from cpreplicate.storage.locations import absolute
from cpreplicate.storage.wrappers.limits import Limits, new_limits

T = TypeVar("T")
OnMessage = Callable[[str], None]
OnProgress = Callable[[Snapshot], None]


def _silent(_line: str) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Place:
    """A directory by its URI or local path, and how its storage is reached.

    `options` are those of `--target-conf KEY=VALUE`, and `conf_dir` is a directory with
    `core-site.xml` and `hdfs-site.xml`. No environment variable and no file of options is read.
    `retry_for` is in seconds. `principal` and `keytab` are the user of secure HDFS: both or none.
    """

    url: str
    options: Mapping[str, str] = field(default_factory=dict)
    conf_dir: str | os.PathLike[str] | None = None
    hdfs_client: str = "native"
    retry_for: float = 60.0
    principal: str | None = None
    keytab: str | os.PathLike[str] | None = None

    @property
    def uri(self) -> str:
        """The URI. Raises `UsageError` for one that names no directory, or has a password."""
        return absolute(self.url)

    def side(self, limits: Limits | None = None) -> Side:
        """Return how its storage is reached. Raises `UsageError` for a `conf_dir` without files."""
        found = read(Path(self.conf_dir)) if self.conf_dir is not None else {}
        options = {"hadoop.user.name": user_name(), **found, **self.options}
        return Side(
            options=(("", tuple(options.items())),),
            hdfs_client=self.hdfs_client,
            retry_for=self.retry_for,
            limits=limits or Limits(),
            principal=self.principal,
            keytab=None if self.keytab is None else str(Path.cwd() / self.keytab),
        )


@dataclass(frozen=True)
class Checkpoint(Place):
    """A checkpoint (`…/chk-42`), a job's directory (its newest one) or a savepoint."""

    def inspect(self, remap: Mapping[str, str] | None = None) -> Inspection:
        """Return what the checkpoint holds, as `cpreplicate inspect`."""
        return _inspect.inspect(self.uri, self.side(), _remaps(remap or {}))


@dataclass(frozen=True, kw_only=True)
class SyncOptions:
    """The options of `plan` and `sync`, which are those of `cpreplicate sync`.

    `remap` has what recorded paths begin with, and from where they are read. `lock_wait` is in
    seconds, `bandwidth` in bytes a second, `max_rps` in metadata operations a second.
    """

    keep: int | Retention = 1
    paths: PathsMode = "auto"
    remap: Mapping[str, str] = field(default_factory=dict)
    source_roots: Sequence[str] = ()
    pack: PackMode = "off"
    lock_wait: float = 0.0
    max_delete: int | None = None
    adopt: bool = False
    allow_older: bool = False
    check_content: bool = False
    unsafe_lease: bool = False
    bandwidth: float | None = None
    max_rps: float | None = None
    name: str | None = None
    execution: ExecutionOptions = field(default_factory=ExecutionOptions)


class Cancellation:
    """Ends what runs with it: call `cancel` from any thread. It then raises `Cancelled`.

    A run that is cancelled leaves no partial file visible, releases its lease, and can be resumed.
    """

    def __init__(self) -> None:
        self._is_cancelled = threading.Event()
        self._lock = threading.Lock()
        self._runs: set[Callable[[], None]] = set()

    def cancel(self) -> None:
        """End what runs now, and what begins later."""
        self._is_cancelled.set()
        with self._lock:
            runs = list(self._runs)
        for stop in runs:
            stop()

    @contextmanager
    def ending(self, stop: Callable[[], None] = lambda: None) -> Iterator[None]:
        """While the block runs, a cancellation calls `stop` and ends what waits."""
        with self._lock:
            self._runs.add(stop)
        try:
            with cancellable(self.raise_if_cancelled):
                self.raise_if_cancelled()
                yield
        except RunnerStopped:
            raise Cancelled("cancelled by the caller. Run it again to resume") from None
        finally:
            with self._lock:
                self._runs.discard(stop)

    def raise_if_cancelled(self) -> None:
        """Raise `RunnerStopped` once `cancel` was called: inside of `ending`, it is `Cancelled`."""
        if self._is_cancelled.is_set():
            raise RunnerStopped


def plan(
    source: Checkpoint,
    target: Place,
    options: SyncOptions | None = None,
    *,
    on_message: OnMessage = _silent,
    cancellation: Cancellation | None = None,
) -> Report:
    """Return what `sync` would do, and change nothing, as `cpreplicate diff`."""
    with (cancellation or Cancellation()).ending():
        return _diff.diff(_request(source, target, options or SyncOptions()), on_message)


def sync(
    source: Checkpoint,
    target: Place,
    options: SyncOptions | None = None,
    *,
    on_message: OnMessage = _silent,
    on_progress: OnProgress | None = None,
    cancellation: Cancellation | None = None,
) -> Report:
    """Replicate a checkpoint into the replica of its job below `target`, as `cpreplicate sync`.

    `on_progress` is called every second, from another thread. Raises one of `cpreplicate.errors`;
    then nothing was deleted.
    """
    request = _request(source, target, options or SyncOptions(), on_progress)
    cancellation = cancellation or Cancellation()
    with (
        WarmRunners(request.sides, request.execution, 0.0, is_for_one=True) as runners,
        cancellation.ending(runners.cancel),
    ):
        return _sync.sync(request, on_message, runners.share())


def verify(
    replica: Place,
    checkpoint: str | None = None,
    *,
    content: float = 0.0,
    execution: ExecutionOptions | None = None,
    on_message: OnMessage = _silent,
    cancellation: Cancellation | None = None,
) -> Verification:
    """Return whether a checkpoint of a replica can be restored: the newest one, or `chk-N`.

    `content` is the share of its files whose content is read and compared, from 0 to 1.
    """
    with (cancellation or Cancellation()).ending():
        return _verify.verify(
            replica.uri,
            checkpoint,
            Sample(share=content),
            on_message,
            replica.side(),
            execution or ExecutionOptions(),
        )


def status(
    target: Place,
    sources: Sequence[Place] = (),
    *,
    max_lag: float | None = None,
    cancellation: Cancellation | None = None,
) -> FleetStatus:
    """Return the status of every replica below a target root, as `cpreplicate status`.

    `sources` are directories of jobs, or roots of such, whose storage is reached as the first one.
    What fails for one replica is in its row. Raises `NotThere` if there is none.
    """
    side = sources[0].side() if sources else target.side()
    sides = Sides(side, target.side())
    cancellation = cancellation or Cancellation()
    with cancellation.ending():
        found = replicas_below(target.uri, [each.uri for each in sources], sides)
        result = _status.status(found, sides, max_lag=max_lag)
        cancellation.raise_if_cancelled()  # else a row has it as its error
        return result


def _request(
    source: Checkpoint, target: Place, options: SyncOptions, on_progress: OnProgress | None = None
) -> SyncRequest:
    limits = new_limits(options.max_rps, options.bandwidth)
    target_side = replace(target.side(limits), unsafe_lease=options.unsafe_lease)
    return SyncRequest(
        source=source.uri,
        target_root=target.uri,
        paths=options.paths,
        keep=options.keep,
        remaps=_remaps(options.remap),
        source_roots=tuple(Place(each).uri for each in options.source_roots),
        sides=Sides(source.side(limits), target_side),
        lock_wait=options.lock_wait,
        max_delete=None if options.max_delete is None else Cap(options.max_delete),
        adopt=options.adopt,
        allow_older=options.allow_older,
        check_content=options.check_content,
        packing=PackOptions(options.pack),
        execution=_showing(options.execution, on_progress),
        name=options.name,
    )


def _showing(execution: ExecutionOptions, on_progress: OnProgress | None) -> ExecutionOptions:
    if on_progress is None:
        return execution
    return replace(execution, show=lambda snapshot, _is_last: on_progress(snapshot))


def _remaps(pairs: Mapping[str, str]) -> tuple[uri.Remap, ...]:
    return uri.parse_remaps((f"{old}={new}" for old, new in pairs.items()), str(Path.cwd()))
