"""Plans of a sync, and the sync."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import get_args

from cpreplicate.api.cancellation import Cancellation
from cpreplicate.api.places import Checkpoint, Place, remaps
from cpreplicate.core.notify import Notify, silent
from cpreplicate.core.packs import PackMode, PackOptions
from cpreplicate.core.plan import Cap
from cpreplicate.core.restore import PathsMode
from cpreplicate.core.retention import Retention
from cpreplicate.errors import UsageError
from cpreplicate.operations.sync import sync as _sync
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest, SyncSettings
from cpreplicate.protocol.job_record import recorded_name
from cpreplicate.protocol.lease import NoLeaseLeft
from cpreplicate.runners import WarmRunners
from cpreplicate.runners.progress import ShowProgress, Snapshot
from cpreplicate.storage import Sides
from cpreplicate.storage.wrappers.limits import new_limits

OnProgress = Callable[[Snapshot], None]


@dataclass(frozen=True, kw_only=True)
class SyncOptions(SyncSettings):
    """The options of `plan` and `sync`, which are those of `cpreplicate sync`.

    `remap` has what recorded paths begin with, and from where they are read. `max_delete` is in
    files, `bandwidth` in bytes a second, `max_rps` in metadata operations a second.
    """

    remap: Mapping[str, str] = field(default_factory=dict)
    pack: PackMode = "off"
    max_delete: int | None = None
    unsafe_lease: bool = False
    bandwidth: float | None = None
    max_rps: float | None = None

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value that the command line would refuse."""
        for name, is_right, expected in _expectations(self):
            if not is_right:
                given = getattr(self, name)
                raise UsageError(f"the option {name} of the API is {given!r}: expected {expected}")


def _expectations(options: SyncOptions) -> Iterator[tuple[str, bool, str]]:
    """Yield the name of each option that can be wrong, whether it is right, and what is."""
    modes, packs = get_args(PathsMode), get_args(PackMode)
    keep, name, cap = options.keep, options.name, options.max_delete
    is_count = keep is None or (isinstance(keep, int) and keep >= 1)
    yield "paths", options.paths in modes, f"one of {', '.join(modes)}"
    yield "pack", options.pack in packs, f"one of {', '.join(packs)}"
    yield "keep", is_count or isinstance(keep, Retention), "1 or more, a Retention, or None"
    yield "source_roots", not isinstance(options.source_roots, str), "a sequence of places"
    yield "lock_wait", 0 <= options.lock_wait < math.inf, "seconds"
    yield "max_delete", cap is None or (isinstance(cap, int) and cap >= 0), "a number of files"
    yield "bandwidth", _is_rate(options.bandwidth, 1), "1 byte a second or more"
    yield "max_rps", _is_rate(options.max_rps, 0.001), "0.001 operations a second or more"
    is_name = name is None or (name != "" and recorded_name(name) == name)
    yield "name", is_name, "1 to 300 characters that can be printed, without blanks around them"


def _is_rate(value: float | None, least: float) -> bool:
    return value is None or least <= value < math.inf


def plan(
    source: Checkpoint,
    target: Place,
    options: SyncOptions | None = None,
    *,
    on_message: Notify = silent,
    cancellation: Cancellation | None = None,
) -> Report:
    """Return what `sync` would do, and change nothing, as `cpreplicate diff`."""
    cancellation = cancellation or Cancellation()
    with cancellation.ending():
        report = diff(_request(source, target, options or SyncOptions()), on_message)
        cancellation.raise_if_cancelled()
        return report


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

    `on_progress` is called every second, from another thread. If it raises, `on_message` gets that,
    and it is not called again. Raises one of `cpreplicate.errors`; then nothing was deleted.
    """
    show = None if on_progress is None else _Progress(on_progress, on_message)
    request = _request(source, target, options or SyncOptions(), show)
    if cancellation is None:
        with NoLeaseLeft():
            return _sync.sync(request, on_message)
    with (
        NoLeaseLeft(),
        WarmRunners(request.sides, request.execution, 0.0, is_for_one=True) as runners,
        cancellation.ending(runners.cancel),
    ):
        return _sync.sync(request, on_message, runners.share())


def _request(
    source: Checkpoint, target: Place, options: SyncOptions, show: ShowProgress | None = None
) -> SyncRequest:
    limits = new_limits(options.max_rps, options.bandwidth)
    target_side = replace(target.side(limits), unsafe_lease=options.unsafe_lease)
    settings = {each.name: getattr(options, each.name) for each in fields(SyncSettings)}
    settings["source_roots"] = tuple(Place(each).uri for each in options.source_roots)
    if show is not None:
        settings["execution"] = replace(options.execution, show=show)
    return SyncRequest(
        source=source.uri,
        target_root=target.uri,
        remaps=remaps(options.remap),
        sides=Sides(source.side(limits), target_side),
        max_delete=None if options.max_delete is None else Cap(options.max_delete),
        packing=PackOptions(options.pack),
        **settings,
    )


class _Progress:
    """Calls a function of the caller with each progress, until it raises."""

    def __init__(self, on_progress: OnProgress, on_message: Notify) -> None:
        self._call: OnProgress | None = on_progress
        self._notify = on_message

    def __call__(self, snapshot: Snapshot, _is_last: bool) -> None:
        if self._call is None:
            return
        try:
            self._call(snapshot)
        except Exception as error:  # noqa: BLE001  # of the caller: it says nothing of the sync
            self._call = None
            self._notify(
                f"on_progress raised {type(error).__name__}: {error}. It is not called again"
            )
