"""What a sync is asked to replicate, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from cpreplicate.core import uri
from cpreplicate.core.packs import PackOptions
from cpreplicate.core.placement import job_root
from cpreplicate.core.plan import Cap
from cpreplicate.core.restore import PathsMode
from cpreplicate.core.retention import Retention, Stated, StatedBy
from cpreplicate.protocol.retention_record import stated_by
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Sides

SUBSUMPTION_WAIT = 2.0  # seconds: Flink deletes a checkpoint's files after its `_metadata`


@dataclass(frozen=True)
class SyncRequest:
    """What to replicate and how: the options of `diff` and `sync`.

    `keep` is which checkpoints the replica holds: a number is that of the last ones. None states
    no policy: that of the replica holds. `stated_by` is what states it, and `keep_less` allows that
    it keeps less than another place stated before.
    `subsumption_wait`: if the source lacks files, its `_metadata` is looked for again after so many
    seconds, to distinguish a subsumed checkpoint from an incomplete one. `name` is that of the job,
    None if it is not known. `repair`: the replica keeps the checkpoint already, and gets what it
    lacks of it again; none is published or withdrawn.
    """

    source: str
    target_root: str
    paths: PathsMode = "auto"
    keep: Retention | int | None = None
    keep_less: bool = False
    stated_by: StatedBy = field(default_factory=partial(stated_by, "the Python API"))
    remaps: tuple[uri.Remap, ...] = ()
    source_roots: tuple[str, ...] = ()
    sides: Sides = field(default=Sides())
    lock_wait: float = 0.0
    max_delete: Cap | None = None
    async_deletes: bool = False
    adopt: bool = False
    same_source: bool = False
    allow_older: bool = False
    check_content: bool = False
    repair: bool = False
    packing: PackOptions = field(default=PackOptions())
    execution: ExecutionOptions = field(default=ExecutionOptions())
    subsumption_wait: float = field(default_factory=lambda: SUBSUMPTION_WAIT)
    name: str | None = None

    @property
    def stated(self) -> Stated | None:
        """The policy that is stated, None if none is."""
        return None if self.keep is None else Stated(Retention.of(self.keep), self.stated_by)


def replica_root(source: str, target_root: str) -> str:
    """Return the URI of the replica of a SOURCE argument, from the arguments alone."""
    return uri.join(target_root, uri.name(job_root(source)))


def is_outside_roots(path: str, request: SyncRequest) -> bool:
    """Return whether a checkpoint that a program reports is outside the roots, if any are given.

    Unlike SOURCE, which the operator names, the directory of such a job is not trusted.
    """
    roots = [*request.source_roots, *(remap.actual for remap in request.remaps)]
    return bool(request.source_roots) and not any(uri.within(path, root) for root in roots)
