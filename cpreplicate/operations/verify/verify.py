"""`verify`: prove that a replica's checkpoint can be restored, or list what it lacks."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from cpreplicate.core import uri
from cpreplicate.core.ledger import NO_PREFIXES, PrefixTable
from cpreplicate.core.log_context import begin_checkpoint
from cpreplicate.core.notify import Notify
from cpreplicate.core.path_columns import Numbers, chosen, directories, texts, without
from cpreplicate.core.placement import CHECKPOINT_NAME, METADATA, PACKED, is_checkpoint, is_derived
from cpreplicate.core.short_repr import short_repr
from cpreplicate.core.tables import Lengths
from cpreplicate.errors import MetadataError, NotThere, Refused, UsageError, described
from cpreplicate.operations.change.change import refuse_links
from cpreplicate.operations.change.target_root import refuse_no_replica, sync_of_savepoint
from cpreplicate.operations.verify.compare import Comparison, Reader, compare
from cpreplicate.protocol import census, json_files, ownership, replica_state, seal
from cpreplicate.protocol.census import Census
from cpreplicate.protocol.checkpoint_record import Record, matching_record, read_record
from cpreplicate.protocol.digest import Digest
from cpreplicate.protocol.ledger import Examined
from cpreplicate.protocol.manifest import Manifest, ManifestTable
from cpreplicate.protocol.readiness import Unready, held, no_checkpoint, unready, unready_sealed
from cpreplicate.protocol.replica import CommittedCheckpoint, Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.protocol.seal import Seal
from cpreplicate.protocol.verification_record import (
    Verified,
    lasting_failure,
    record_verification,
    recorded_verifications,
)
from cpreplicate.runners import ExecutionOptions, Runner
from cpreplicate.storage import Side, Transient

_NO_METADATA = Digest(0, 0)
_DEFAULT = ExecutionOptions()


@short_repr(
    "replica", "checkpoint", "restorable", "files", "missing", "short", "corrupt", "outside"
)
@dataclass(frozen=True)
class Verification:
    """The result of a verification.

    The content of `compared` files was compared. That of `uncompared` ones should have been, but
    their CRC32C is not known. `completed` is when the checkpoint was completed at its source, in
    seconds since the epoch, None if that is not recorded. `metadata` is the digest of its
    `_metadata`. `refused` is why `promote` would refuse the replica, even if the checkpoint can be
    restored. `repair` is the command that repairs a replica that is not restorable, if one does.
    """

    replica: str
    checkpoint: str
    checkpoint_id: int
    files: int
    bytes: int
    missing: tuple[str, ...]
    short: tuple[str, ...]
    corrupt: tuple[str, ...]
    outside: tuple[str, ...]
    content: bool = False
    compared: int = 0
    uncompared: tuple[str, ...] = ()
    completed: float | None = None
    # another spelling of its paths does not make it another result
    metadata: Digest = field(default=_NO_METADATA, compare=False)
    refused: str | None = None
    repair: str | None = None
    # the run that published the checkpoint died before it recorded the CRC32Cs of the `uncompared`
    died: bool = False

    @property
    def restorable(self) -> bool:
        """Whether every file of the closure is in the replica and complete.

        If content was compared, all of it must be equal. Of files that a run had copied and
        compared before it died right after its commit, no CRC32C may be recorded.
        """
        lacking = self.missing or self.short or self.corrupt or self.outside
        return not (lacking or (self.uncompared and not self.died))


@short_repr("restorable", "checkpoints")
@dataclass(frozen=True)
class Verifications:
    """The results of a verification of several checkpoints of a replica, in the order asked for."""

    checkpoints: tuple[Verification, ...]

    @property
    def restorable(self) -> bool:
        """Whether each of the checkpoints can be restored."""
        return all(checkpoint.restorable for checkpoint in self.checkpoints)


class Sample(NamedTuple):
    """The files whose content is compared: a `share` of all, the same ones for the same `seed`.

    Of a few files a small share may be none: see `among`.
    """

    share: float = 1.0
    seed: int = 0

    def takes(self, path: str) -> bool:
        """Return whether a file belongs to the sample."""
        return self._number_of(path) < self.share * 2**64

    def among(self, paths: Iterable[str]) -> Callable[[str], bool]:
        """Return what `takes` returns, and true for one of these files if it takes none."""
        if self.share >= 1:
            return self.takes
        first = min(paths, key=self._number_of, default=None)
        return lambda path: path == first or self.takes(path)

    def _number_of(self, path: str) -> int:
        digest = hashlib.blake2b(f"{self.seed} {path}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big")


NOTHING = Sample(0.0)
ALL = Sample()


def verify(
    replica_root: str,
    checkpoint: str | None,
    content: Sample,
    notify: Notify,
    side: Side,
    execution: ExecutionOptions = _DEFAULT,
    known: Examined | None = None,
) -> Verification:
    """Return whether the newest committed checkpoint, or `checkpoint`, can be restored.

    Of a sealed replica, the one that was promoted is taken for the newest. The files of the
    `content` sample are read by a runner and compared with the CRC32C recorded when they were
    copied. `known` is a replica that is not sealed, of which the caller holds the lease: only its
    files are looked at then. Raises `NotThere`, `MetadataError`, `Refused` for what is no replica,
    and where `promote` would be refused because a directory of the replica is a symbolic link, and
    `OSError` if a file cannot be read.
    """
    if known is not None:
        with Reader(side, execution, notify, None) as reader:
            return _verify(replica_root, checkpoint, content, side, reader, known)
    found = verify_each(replica_root, [checkpoint], content, notify, side, execution)
    return found.checkpoints[0]


def verify_each(
    replica_root: str,
    checkpoints: Sequence[str | None],
    content: Sample,
    notify: Notify,
    side: Side,
    execution: ExecutionOptions = _DEFAULT,
    shared: Runner | None = None,
) -> Verifications:
    """Verify several checkpoints as `verify` does, with one runner: the `shared` one, if given.

    Of several, one whose `_metadata` cannot be understood is damaged, and hides no other.
    """
    found = []
    with Reader(side, execution, notify, shared) as reader:
        for name in checkpoints:
            try:
                found.append(_verify(replica_root, name, content, side, reader))
            except MetadataError as error:
                if name is None or len(checkpoints) == 1:
                    raise
                found.append(_unread(replica_root, name, error))
    return Verifications(tuple(found))


def _unread(replica_root: str, name: str, error: MetadataError) -> Verification:
    """Return the result of a checkpoint whose `_metadata` cannot be understood."""
    number = CHECKPOINT_NAME.fullmatch(name)
    return Verification(
        replica=replica_root,
        checkpoint=name,
        checkpoint_id=0 if number is None else int(number[1]),
        files=0,
        bytes=0,
        missing=(),
        short=(),
        corrupt=(f"{name}/{METADATA}",),
        outside=(),
        refused=str(error),
    )


def _verify(
    replica_root: str,
    checkpoint: str | None,
    content: Sample,
    side: Side,
    reader: Reader,
    known: Examined | None = None,
) -> Verification:
    """Verify one checkpoint: that which `promote` takes if `checkpoint` is None.

    `known` is as of `verify`.
    """
    _refuse_misnamed(checkpoint)
    if known is None:
        refuse_no_replica(replica_root, side)
    replica = Replica(replica_root, side) if known is None else known.replica
    state = _state(replica) if known is None else known.state
    sealed = seal.read(replica) if known is None else None
    if checkpoint is None:
        _refuse_only_adopted(replica, state, sealed)
    found = _census(replica, state)
    if checkpoint is None and (reason := _unready_sealed(replica, sealed, found)) is not None:
        raise reason.error
    name = _asked(replica, found, checkpoint, sealed)
    begin_checkpoint(name)
    verification = _of_files(replica, name, found.names, content, reader, known)
    return _as_promote(verification, replica, state, checkpoint, sealed)


def _of_files(
    replica: Replica,
    name: str,
    names: Sequence[str],
    content: Sample,
    reader: Reader,
    known: Examined | None,
) -> Verification:
    """Return whether the files of a checkpoint are there, complete and, if asked, equal.

    `names` are those of all checkpoints of the replica, whose manifests record lengths too. `known`
    is as of `verify`.
    """
    state = None if known is None else known.state
    referenced, published = _committed_checkpoint(replica, name, content.share > 0, state)
    _refuse_links(replica, referenced, state)
    is_torn = published is not None and not _is_listed(replica, referenced, state)
    is_damaged = referenced.is_damaged or is_torn
    manifests = _manifests(replica, names) if known is None else known.ledger.manifests
    present = replica.present(directories(referenced.files.paths))
    lengths = _lengths(referenced, present, manifests)
    compared = Comparison()
    if content.share:
        among = content.among
        compared = compare(replica, referenced, present, among, manifests.values(), reader)
    of_length = {
        *lengths.short,
        *lengths.longer,
    }  # of another length: no CRC32C is recorded for them
    unequal = (path for path, equal in compared.is_equal.items() if not equal)
    return Verification(
        replica=replica.root,
        checkpoint=name,
        checkpoint_id=referenced.checkpoint_id,
        files=referenced.logical_files,
        bytes=lengths.bytes,
        missing=lengths.missing,
        short=lengths.short,
        corrupt=(
            *((f"{name}/{METADATA}",) if is_damaged else ()),
            *lengths.longer,
            *(path for path in unequal if path not in of_length),
        ),
        outside=referenced.outside,
        content=content.share > 0,
        compared=len(compared.is_equal),
        uncompared=tuple(path for path in compared.unknown if path not in of_length),
        completed=None if published is None else published.completed,
        metadata=referenced.metadata,
        died=published is not None and compared.died,
    )


class _FileLengths(NamedTuple):
    """What the lengths of the files of a checkpoint show, by the paths of those that are wrong."""

    bytes: int
    missing: tuple[str, ...]
    short: tuple[str, ...]
    longer: tuple[str, ...]


def _lengths(
    referenced: CommittedCheckpoint, present: Lengths, manifests: Mapping[str, Manifest]
) -> _FileLengths:
    own = manifests.get(referenced.name)
    recorded = ManifestTable.of({}) if own is None else own.entries
    proving = NO_PREFIXES if own is None else own.prefixes
    files = referenced.files
    lengths = present.at(files.paths)
    is_there = lengths >= 0
    is_short = is_there & (lengths < _least(files, recorded, proving))
    longer = _extended(referenced, present, recorded, manifests.values()) if recorded else []
    return _FileLengths(
        bytes=sum(lengths[is_there].tolist()),
        missing=tuple(chosen(files.paths, ~is_there).to_pylist()),
        short=tuple(chosen(files.paths, is_short).to_pylist()),
        longer=tuple(longer),
    )


def _state(replica: Replica) -> State | str:
    """Return the state of the directory, or why `promote` cannot read it as that of a replica."""
    try:
        return replica_state.examine(replica)
    except Transient:
        raise
    except (OSError, MetadataError, Refused) as error:
        return described(error)


def _census(replica: Replica, state: State | str) -> Census:
    """Return whose the checkpoints are: by their digests, or lengths if one cannot be read."""
    return census.take(replica) if isinstance(state, str) else state.census


def _promoted_first(found: Census, promoted: str | None) -> list[str]:
    """Return the names of all checkpoints in the order in which `promote` takes them.

    The one that the replica is sealed for, `promoted`, is first. A derived one is never taken by
    itself.
    """
    first = [promoted] if promoted is not None and promoted in found.names else []
    return list(dict.fromkeys([*first, *found.names]))


def _as_promote(
    verification: Verification,
    replica: Replica,
    state: State | str,
    asked: str | None,
    sealed: Seal | None,
) -> Verification:
    """Return the result with why `promote` would refuse the replica, or how it is repaired.

    A sealed replica is promoted already: what a job writes there is no obstacle, and no sync
    changes it. But it is not promoted for another checkpoint than it was.
    """
    if sealed is not None:
        reason = _unready_sealed(replica, sealed, _census(replica, state))
        text = seal.reason_against(replica, asked) if reason is None else str(reason)
        return replace(verification, refused=text)
    if isinstance(state, str):
        return replace(verification, refused=state)
    name = verification.checkpoint
    reason = unready(replica, held(replica, state), name)
    refused = None if reason is None else str(reason)
    is_repairable = refused is None and state.marker is not None and not verification.outside
    if verification.restorable or not is_repairable:
        return replace(verification, refused=refused)
    return replace(verification, repair=_repair(verification, replica, state))


def _repair(verification: Verification, replica: Replica, state: State) -> str | None:
    """Return the command that repairs a checkpoint, None if none does.

    The newest one is replaced by that of the source, which may have gone on. An older one, which
    the source may have no longer, is repaired as it is. A savepoint is repaired from itself: it is
    not in the directory of its job.
    """
    assert state.marker is not None
    source, name = state.marker.sources[-1].given, _repaired(verification, state)
    if name is None:
        return None
    options = ["--check-content"] if verification.corrupt or verification.uncompared else []
    if name != state.census.newest:
        options, source = [*options, "--repair"], uri.join(source, name)
    record = state.records.get(name)
    if record is not None and record.savepoint is not None:
        return sync_of_savepoint(replica.root, record.savepoint, state.marker, *options)
    return shlex.join(["cpreplicate", "sync", *options, source, uri.parent(replica.root)])


def _repaired(verification: Verification, state: State) -> str | None:
    """Return the checkpoint that is repaired: of a derived one, that which has the same files."""
    name = verification.checkpoint
    if not is_derived(name):
        return name
    faults = {*verification.missing, *verification.short, *verification.corrupt}
    faults.update(verification.uncompared)
    # what is in packs gets another place, of which the derived one knows nothing
    holders = (
        each.name
        for each in state.committed
        if not each.packs and faults <= {*each.files.paths.to_pylist()}
    )
    return next(holders, None)


def _unready_sealed(replica: Replica, sealed: Seal | None, found: Census) -> Unready | None:
    return None if sealed is None else unready_sealed(replica, sealed, found)


def _refuse_only_adopted(replica: Replica, state: State | str, sealed: Seal | None) -> None:
    """Raise `NotThere`, as `promote` does, if all that the replica holds was adopted."""
    if isinstance(state, str) or state.committed or not state.adopted or state.unrecorded:
        return
    if sealed is None:
        raise NotThere(
            f"{replica.root} holds no checkpoint that cpreplicate published, only adopted ones:"
            f" {', '.join(state.adopted)}. Sync one. Or verify one of these with --checkpoint, and"
            " start the job from it as it is"
        )


def _refuse_links(replica: Replica, checkpoint: CommittedCheckpoint, known: State | None) -> None:
    """Raise `Refused` if files of the replica are reached through a link: they are elsewhere."""
    for name in replica_state.links(replica) if known is None else known.links:
        raise Refused(ownership.of_link(replica.uri_of(name)))
    refuse_links(directories(checkpoint.files.paths), replica)


def record(verification: Verification, content: Sample, side: Side, notify: Notify) -> None:
    """Record in the replica that a checkpoint was verified, for `status`.

    The `content` sample was compared. Notifies if a recorded failure of the checkpoint stays, which
    compared more. Raises `Refused` if the directory is no replica of cpreplicate's.
    """
    replica, name = Replica(verification.replica, side), verification.checkpoint
    verified = Verified(
        name,
        verification.metadata,
        verification.restorable,
        content.share,
        json_files.now(),
        content.seed,
        verification.completed,
        bool(verification.corrupt or verification.uncompared),
    )
    record_verification(replica, verified, census.take(replica).names)
    stays = lasting_failure(recorded_verifications(replica), name, verification.completed)
    if stays is not None and verification.restorable:
        notify(
            f"the recorded damage of {name} stays recorded: the verification that found it, at"
            f" {json_files.clock(stays.time)}, compared more content. Verify with --content"
            " --record, or repair the checkpoint with `cpreplicate sync --check-content`"
        )


def committed(replica_root: str, side: Side) -> tuple[str, ...]:
    """Return the committed checkpoints of a replica, that which is promoted by default first.

    Then follow cpreplicate's own, the newest first, those of others, and the derived ones. Raises
    `NotThere` if there is none.
    """
    refuse_no_replica(replica_root, side)
    replica = Replica(replica_root, side)
    state, sealed = _state(replica), seal.read(replica)
    _refuse_only_adopted(replica, state, sealed)
    found = _census(replica, state)
    _asked(replica, found, None, sealed)
    return tuple(_promoted_first(found, _promoted(sealed)))


def _committed_checkpoint(
    replica: Replica, name: str, is_decoded: bool, known: State | None
) -> tuple[CommittedCheckpoint, Record | None]:
    """Return what a checkpoint references, and its record, which is read after the `_metadata`.

    `is_decoded`: it is to be known which files are merged ones, also of a large `_metadata`.
    """
    if known is not None:
        for each in known.ours:
            if each.name == name and (each.growing is not None or not is_decoded):
                return each, known.records[name]
    data = replica.metadata_bytes(name)
    if data is None:
        raise NotThere(f"{replica.uri_of(name)} was withdrawn meanwhile. Run again")
    record = read_record(replica, name)
    is_decoded = is_decoded and not data.is_damaged
    read = replica.decoded_checkpoint if is_decoded else replica.committed_checkpoint
    return read(name, data), record


def _is_listed(replica: Replica, checkpoint: CommittedCheckpoint, known: State | None) -> bool:
    """Return whether a record, or a manifest in its place, lists the `_metadata`."""
    metadata = checkpoint.metadata
    if known is not None and known.metadata_of(checkpoint.name) == metadata:
        return True
    return matching_record(replica, checkpoint.name, metadata.__eq__) is not None


def _refuse_misnamed(checkpoint: str | None) -> None:
    if checkpoint is not None and not is_checkpoint(checkpoint):
        raise UsageError(
            f"--checkpoint {checkpoint}: expected the name of a checkpoint's directory, such as"
            " chk-42, or of a derived one, such as rebased/chk-42-1"
        )


def _promoted(sealed: Seal | None) -> str | None:
    """Return the checkpoint that a seal is for, None if there is none, or it is damaged."""
    return sealed.checkpoint if sealed is not None and is_checkpoint(sealed.checkpoint) else None


def _asked(replica: Replica, found: Census, checkpoint: str | None, sealed: Seal | None) -> str:
    """Return the checkpoint that is asked for, or that `promote` takes. Raises `NotThere`."""
    promoted = _promoted(sealed)
    held = _promoted_first(found, promoted)
    if checkpoint is None:
        # a derived one is taken where it was promoted, never by itself
        held = [name for name in held if name == promoted or not is_derived(name)]
    if not held:
        raise no_checkpoint(replica)
    if checkpoint is None:
        return held[0]
    if checkpoint not in held:
        raise NotThere(
            f"{replica.root} holds no committed {checkpoint}. It holds {', '.join(held)}"
        )
    return checkpoint


def _manifests(replica: Replica, committed: Iterable[str]) -> dict[str, Manifest]:
    """Return all manifests: that of a later checkpoint describes a merged file that grew."""
    manifests = {name: replica.manifest(name) for name in committed}
    return {name: manifest for name, manifest in manifests.items() if manifest is not None}


def _least(files: Lengths, recorded: ManifestTable, proving: PrefixTable) -> Numbers:
    """Return how long each file must at least be: its extent, and what it had when copied.

    For a changelog file only the latter counts: its extent is 0. Of a merged file, the beginning
    that proves its extent is enough. A longer file is a merged file that grew and that a later
    checkpoint copied again.
    """
    copied = recorded.ledger.at(files.paths).bytes
    beginnings = Lengths(proving.paths, proving.bytes).at(files.paths)
    least: Numbers = np.maximum(files.bytes, np.where(beginnings >= 0, beginnings, copied))
    return least


def _extended(
    committed: CommittedCheckpoint,
    present: Lengths,
    recorded: ManifestTable,
    manifests: Iterable[Manifest],
) -> list[str]:
    """Return the files that are longer than cpreplicate ever wrote them.

    Merged files are left out: they may have grown since.
    """
    paths = recorded.paths
    if committed.growing is None:  # any may be a merged one, but packs
        paths = paths.filter(pc.starts_with(paths, f"{PACKED}/"))
    else:
        paths = without(paths, texts(committed.growing))
    longest = np.max([manifest.entries.ledger.at(paths).bytes for manifest in manifests], axis=0)
    longer: list[str] = chosen(paths, present.at(paths, absent=0) > longest).to_pylist()
    return longer
