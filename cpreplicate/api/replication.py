"""Plans of a sync, and the sync."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cpreplicate.api.cancellation import Cancellation
from cpreplicate.api.places import Checkpoint, Place, remaps
from cpreplicate.core.notify import Notify, silent
from cpreplicate.core.packs import PackMode, PackOptions
from cpreplicate.core.plan import Cap
from cpreplicate.core.restore import PathsMode
from cpreplicate.core.retention import Retention
from cpreplicate.operations.sync import diff as _diff
from cpreplicate.operations.sync import sync as _sync
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.runners import ExecutionOptions, WarmRunners
from cpreplicate.runners.progress import Snapshot
from cpreplicate.storage import Sides
from cpreplicate.storage.wrappers.limits import new_limits

OnProgress = Callable[[Snapshot], None]


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


def plan(
    source: Checkpoint,
    target: Place,
    options: SyncOptions | None = None,
    *,
    on_message: Notify = silent,
    cancellation: Cancellation | None = None,
) -> Report:
    """Return what `sync` would do, and change nothing, as `cpreplicate diff`."""
    with (cancellation or Cancellation()).ending():
        return planned(_request(source, target, options or SyncOptions()), on_message)


def sync(
    source: Checkpoint,
    target: Place,
    options: SyncOptions | None = None,
    *,
    on_message: Notify = silent,
    on_progress: OnProgress | None = None,
    cancellation: Cancellation | None = None,
) -> Report:
    """Replicate a checkpoint into the replica of its job below `target`, as `cpreplicate sync`.

    `on_progress` is called every second, from another thread. Raises one of `cpreplicate.errors`;
    then nothing was deleted.
    """
    request = _request(source, target, options or SyncOptions(), on_progress)
    return synced(request, on_message, cancellation)


def planned(
    request: SyncRequest, on_message: Notify = silent, *, with_positions: bool = False
) -> Report:
    """Return what `synced` would do for a request, and change nothing."""
    return _diff.diff(request, on_message, with_positions=with_positions)


def synced(
    request: SyncRequest, on_message: Notify, cancellation: Cancellation | None = None
) -> Report:
    """Carry out a request. Without a `cancellation`, only an exception ends it."""
    if cancellation is None:
        return _sync.sync(request, on_message)
    with (
        WarmRunners(request.sides, request.execution, 0.0, is_for_one=True) as runners,
        cancellation.ending(runners.cancel),
    ):
        return _sync.sync(request, on_message, runners.share())


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
        remaps=remaps(options.remap),
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
