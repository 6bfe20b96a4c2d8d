"""What a sync is asked to replicate, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from cpreplicate.core import uri
from cpreplicate.core.packs import PackOptions
from cpreplicate.core.plan import Cap
from cpreplicate.core.restore import PathsMode
from cpreplicate.core.retention import Retention, Stated, StatedBy
from cpreplicate.protocol.retention_record import stated_by
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Sides

LOOK_EVERY = 5.0  # seconds: a look lists the directory of the job once
SUBSUMPTION_WAIT = 2.0  # seconds: Flink deletes a checkpoint's files after its `_metadata`


@dataclass(frozen=True, kw_only=True)
class SyncSettings:
    """How to replicate: what the Python API and the command line ask for in the same words.

    `keep` is which checkpoints the replica holds: a number is that of the last ones. None states
    no policy: that of the replica holds. `keep_less` allows that it keeps less than another place
    stated before. `name` is that of the job, None if it is not known.
    """

    paths: PathsMode = "auto"
    keep: Retention | int | None = None
    keep_less: bool = False
    adopt: bool = False
    allow_older: bool = False
    check_content: bool = False
    name: str | None = None
    kafka_source: str | None = None
    execution: ExecutionOptions = field(default=ExecutionOptions())


@dataclass(frozen=True)
class SyncRequest(SyncSettings):
    """What to replicate and how: what `diff` and `sync` are asked for.

    `lock_wait` is in seconds. `stated_by` is what states the policy of `keep`. `repair`: the
    replica keeps the checkpoint already, and gets what it lacks of it again; none is published or
    withdrawn.
    `subsumption_wait`: if the source lacks files, its `_metadata` is looked for again after so many
    seconds, to distinguish a subsumed checkpoint from an incomplete one. While files are copied
    from a job's directory, newer checkpoints are looked for every `look_every` seconds. `follows`:
    so they are though the source is a checkpoint, the newest one that a service knows.
    `has_namesake`: another source whose directory has the same name is replicated into the same
    TARGET_ROOT by this process, so that a new replica gets a name of its own. `savepoint_of`: the
    source is a savepoint of the job whose replica has this URI. `reported_by` is the URL of the
    JobManager that reports the job, None of one that has ended. `kafka_source_conf` is a file of
    librdkafka's properties.
    """

    source: str
    target_root: str
    source_roots: Sequence[str] = ()
    lock_wait: float = 0.0
    stated_by: StatedBy = field(default_factory=partial(stated_by, "the Python API"))
    remaps: tuple[uri.Remap, ...] = ()
    sides: Sides = field(default=Sides())
    max_delete: Cap | None = None
    async_deletes: bool = False
    same_source: bool = False
    repair: bool = False
    packing: PackOptions = field(default=PackOptions())
    subsumption_wait: float = field(default_factory=lambda: SUBSUMPTION_WAIT)
    follows: bool = False
    look_every: float = field(default_factory=lambda: LOOK_EVERY)
    has_namesake: bool = False
    savepoint_of: str | None = None
    reported_by: str | None = None
    kafka_source_conf: str | None = None

    @property
    def stated(self) -> Stated | None:
        """The policy that is stated, None if none is."""
        return None if self.keep is None else Stated(Retention.of(self.keep), self.stated_by)


def is_outside_roots(path: str, request: SyncRequest) -> bool:
    """Return whether a checkpoint that a program reports is outside the roots, if any are given.

    Unlike SOURCE, which the operator names, the directory of such a job is not trusted.
    """
    roots = [*request.source_roots, *(remap.actual for remap in request.remaps)]
    return bool(request.source_roots) and not any(uri.within(path, root) for root in roots)
