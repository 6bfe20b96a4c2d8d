"""Plans of a sync, and the sync."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

from cpreplicate.api import values
from cpreplicate.api.cancellation import Cancellation
from cpreplicate.api.options import SyncOptions
from cpreplicate.api.places import AnyPlace, Place, place_of, remaps
from cpreplicate.api.running import running
from cpreplicate.core.notify import Notify, silent
from cpreplicate.core.packs import PackOptions
from cpreplicate.operations.sync import sync as _sync
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.fingerprints import kafka_source
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest, SyncSettings
from cpreplicate.runners import WarmRunners
from cpreplicate.runners.progress import Snapshot
from cpreplicate.storage import Sides
from cpreplicate.storage.wrappers.limits import new_limits

OnProgress = Callable[[Snapshot], None]


def plan(
    source: AnyPlace,
    target: AnyPlace,
    options: SyncOptions | None = None,
    *,
    on_message: Notify = silent,
    cancellation: Cancellation | None = None,
) -> Report:
    """Return what `sync` would do, and change nothing, as `cpreplicate diff`."""
    request = request_of(source, target, options_of(options))
    with running(on_message, cancellation) as cancelled:
        report = diff(request, on_message)
        cancelled.raise_if_cancelled()
        return report


def sync(
    source: AnyPlace,
    target: AnyPlace,
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
    request = request_of(source, target, options_of(options))
    if on_progress is not None:
        show = Progress(on_progress, on_message)
        request = replace(request, execution=replace(request.execution, show=show))
    if cancellation is None:
        with running(on_message, None):
            return _sync.sync(request, on_message)
    with (
        WarmRunners(request.sides, request.execution, 0.0, is_for_one=True) as runners,
        running(on_message, cancellation, runners.cancel),
    ):
        return _sync.sync(request, on_message, runners.share())


def request_of(
    source: AnyPlace, target: AnyPlace, options: SyncOptions, sides: Sides | None = None
) -> SyncRequest:
    """Return what a sync is asked for. `sides` are those of several jobs together.

    Raises `UsageError` for what the command line would refuse.
    """
    source, target = place_of("source", source), place_of("target", target)
    settings = {each.name: getattr(options, each.name) for each in fields(SyncSettings)}
    conf = values.optional(values.path, "kafka_source_conf", options.kafka_source_conf)
    if options.kafka_source is not None:
        kafka_source(options.kafka_source, conf)  # a mistake in it would be one of each checkpoint
    return SyncRequest(
        source=source.uri,
        target_root=target.uri,
        source_roots=tuple(Place(each).uri for each in options.source_roots),
        lock_wait=values.seconds("lock_wait", options.lock_wait),
        remaps=remaps(options.remap),
        sides=sides or sides_of(source, target, options),
        max_delete=values.optional(values.cap, "max_delete", options.max_delete),
        packing=PackOptions(options.pack),
        kafka_source_conf=conf,
        **settings,
    )


def sides_of(source: Place, target: Place, options: SyncOptions) -> Sides:
    """Return how the storages of a sync are reached. They share its limits."""
    bandwidth = values.optional(values.byte_rate, "bandwidth", options.bandwidth)
    limits = new_limits(options.max_rps, bandwidth)
    target_side = replace(target.side(limits), unsafe_lease=options.unsafe_lease)
    return Sides(source.side(limits), target_side)


def options_of(options: SyncOptions | None) -> SyncOptions:
    """Return the options of a sync, by default those without a choice. Raises `UsageError`."""
    if options is None:
        return SyncOptions()
    return values.of_type("options", options, SyncOptions, "a SyncOptions")


class Progress:
    """Calls a function of the caller with each progress, until it raises."""

    def __init__(self, on_progress: OnProgress, on_message: Notify) -> None:
        values.function("on_progress", on_progress)
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
