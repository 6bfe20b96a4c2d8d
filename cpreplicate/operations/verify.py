"""`verify`: prove that a replica's checkpoint can be restored, or say what it wants."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.placement import CHECKPOINT_NAME, METADATA
from cpreplicate.errors import NotThere, UsageError
from cpreplicate.protocol.checkpoint_record import newest_first, read_record
from cpreplicate.protocol.manifest import Entry, Manifest
from cpreplicate.protocol.replica import CommittedCheckpoint, Replica
from cpreplicate.storage import Side, checksum

_STREAMS = 8
Notify = Callable[[str], None]


@dataclass(frozen=True)
class Verification:
    """What was found.

    Of `compared` files the content was; `uncompared` ones were to be, but no CRC32C is known of
    them.
    """

    replica: str
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

    @property
    def restorable(self) -> bool:
        """Whether every file of the closure is there, whole, and in the replica.

        And, with content, compared equal.
        """
        return not (self.missing or self.short or self.corrupt or self.outside or self.uncompared)


class Sample(NamedTuple):
    """Which files' content is compared: a `share` of them, the same ones for the same `seed`."""

    share: float = 1.0
    seed: int = 0

    def takes(self, path: str) -> bool:
        """Whether a file belongs to it."""
        digest = hashlib.blake2b(f"{self.seed} {path}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") < self.share * 2**64


NOTHING = Sample(0.0)
ALL = Sample()


def verify(
    replica_root: str, checkpoint: str | None, content: Sample, notify: Notify, side: Side
) -> Verification:
    """Check the closure of the newest committed checkpoint, or of `checkpoint`. Raises `NotThere`,
    `MetadataError`.

    `content` is what to read and compare with the CRC32C of when it was copied.
    """
    replica = Replica(replica_root, side)
    committed = newest_first(replica)
    name = _asked(replica, committed, checkpoint)
    found, is_torn = _committed_checkpoint(replica, name)
    manifests = _manifests(replica, committed)
    recorded = manifests[name].entries if name in manifests else {}
    present = replica.present(uri.directories(found.files))
    short = tuple(
        path
        for path, extent in found.files.items()
        if path in present and _is_short(path, extent, present, recorded)
    )
    lengths = {
        path: present[path] for path in found.files if path in present and content.takes(path)
    }
    compared, uncompared = (
        _compare(replica, lengths, _crcs(manifests.values()), notify) if content.share else ({}, ())
    )
    return Verification(
        replica=replica.root,
        checkpoint_id=found.checkpoint_id,
        files=len(found.files),
        bytes=sum(present.get(path, 0) for path in found.files),
        missing=tuple(path for path in found.files if path not in present),
        short=short,
        corrupt=(
            *((f"{name}/{METADATA}",) if is_torn else ()),
            *_extended(found, present, recorded, manifests.values()),
            *(path for path, equal in compared.items() if not equal and path not in short),
        ),
        outside=found.outside,
        content=content.share > 0,
        compared=len(compared),
        uncompared=uncompared,
    )


def committed(replica_root: str, side: Side) -> tuple[str, ...]:
    """The committed checkpoints of a replica, newest first. Raises `NotThere` if there is none."""
    replica = Replica(replica_root, side)
    names = newest_first(replica)
    _asked(replica, names, None)
    return tuple(names)


def _committed_checkpoint(replica: Replica, name: str) -> tuple[CommittedCheckpoint, bool]:
    """What a checkpoint references.

    And whether its `_metadata` is another than cpreplicate recorded, though no job's own.
    """
    data = replica.metadata_bytes(name)
    if data is None:
        raise NotThere(f"{replica.uri_of(name)} was withdrawn meanwhile; run again")
    record = read_record(replica, name)
    return replica.committed_checkpoint(
        name, data
    ), record is not None and data.digest not in record.digests


def _asked(replica: Replica, committed: Sequence[str], checkpoint: str | None) -> str:
    if not committed:
        raise NotThere(
            f"{replica.root} holds no committed checkpoint; REPLICA is <target root>/<job-id>"
        )
    if checkpoint is None:
        return committed[0]
    if not CHECKPOINT_NAME.fullmatch(checkpoint):
        raise UsageError(
            f"--checkpoint {checkpoint}: expected the name of a checkpoint's directory, such as"
            " chk-42"
        )
    if checkpoint not in committed:
        raise NotThere(f"{replica.root} holds no committed {checkpoint}")
    return checkpoint


def _manifests(replica: Replica, committed: Sequence[str]) -> dict[str, Manifest]:
    """All of them: a merged file that grew is described by a later checkpoint's."""
    read = {name: replica.manifest(name) for name in committed}
    return {name: found for name, found in read.items() if found is not None}


def _crcs(manifests: Iterable[Manifest]) -> dict[tuple[str, int], int]:
    """(path, length) to CRC32C, of all files whose CRC32C is known."""
    entries = (item for found in manifests for item in found.entries.items())
    return {
        (path, entry.length): entry.crc32c for path, entry in entries if entry.crc32c is not None
    }


def _is_short(
    path: str, extent: int, present: Mapping[str, int], recorded: Mapping[str, Entry]
) -> bool:
    """Shorter than its extent, or than it was when copied, which is all that can be said of a
    changelog's file.

    A file that grew since belongs to a merged file that a later checkpoint copied again.
    """
    entry = recorded.get(path)
    return present[path] < max(extent, entry.length if entry else 0)


def _extended(
    committed: CommittedCheckpoint,
    present: Mapping[str, int],
    recorded: Mapping[str, Entry],
    manifests: Iterable[Manifest],
) -> Iterator[str]:
    """Yield files that are longer than cpreplicate ever wrote them.

    A merged file may have grown since.
    """
    longest: dict[str, int] = {}
    for found in manifests:
        for path, entry in found.entries.items():
            longest[path] = max(entry.length, longest.get(path, 0))
    yield from (
        path
        for path in recorded
        if path not in committed.growing and present.get(path, 0) > longest[path]
    )


def _compare(
    replica: Replica,
    lengths: Mapping[str, int],
    crcs: Mapping[tuple[str, int], int],
    notify: Notify,
) -> tuple[dict[str, bool], tuple[str, ...]]:
    """(whether each file has the CRC32C of when it was copied, the files of which none is known)."""
    known = {path: crcs[path, length] for path, length in lengths.items() if (path, length) in crcs}
    notify(f"comparing {len(known)} files, {sum(lengths[path] for path in known)} bytes")
    with ThreadPoolExecutor(_STREAMS) as pool:
        found = pool.map(
            lambda path: checksum(replica.uri_of(path), replica.side).crc32c == known[path], known
        )
        return dict(zip(known, found, strict=True)), tuple(
            path for path in lengths if path not in known
        )
