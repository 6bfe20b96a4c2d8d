"""`verify`: prove that a replica's checkpoint can be restored, or say what it wants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cpreplicate import manifest
from cpreplicate.errors import NotThere, UsageError
from cpreplicate.placement import CHECKPOINT_NAME
from cpreplicate.replica import Held, Replica
from cpreplicate.storage import checksum

_STREAMS = 8
Say = Callable[[str], None]


@dataclass(frozen=True)
class Verification:
    """What was found. `uncompared` are files whose content was to be compared and could not: no CRC32C is known."""

    replica: str
    checkpoint_id: int
    files: int
    bytes: int
    missing: tuple[str, ...]
    short: tuple[str, ...]
    corrupt: tuple[str, ...]
    outside: tuple[str, ...]
    content: bool = False
    uncompared: tuple[str, ...] = ()

    @property
    def restorable(self) -> bool:
        """Whether every file of the closure is there, whole, and in the replica; and, with content, compared equal."""
        return not (self.missing or self.short or self.corrupt or self.outside or self.uncompared)


def verify(replica_root: str, checkpoint: str | None, content: bool, say: Say) -> Verification:
    """Check the closure of the newest committed checkpoint, or of `checkpoint`. Raises `NotThere`, `MetadataError`."""
    replica = Replica(replica_root)
    committed = replica.committed_names()
    name = _asked(replica, committed, checkpoint)
    held = replica.read(name)
    manifests = _manifests(replica, committed)
    recorded = manifests[name].entries if name in manifests else {}
    present = replica.present(held.files)
    short = tuple(path for path, extent in held.files.items() if path in present and _is_short(path, extent, present, recorded))
    corrupt, uncompared = _compared(replica, held, present, manifest.crcs(manifests.values()), say) if content else ((), ())
    return Verification(
        replica=replica.root,
        checkpoint_id=held.checkpoint_id,
        files=len(held.files),
        bytes=sum(present.get(path, 0) for path in held.files),
        missing=tuple(path for path in held.files if path not in present),
        short=short,
        corrupt=tuple(path for path in corrupt if path not in short),
        outside=held.outside,
        content=content,
        uncompared=uncompared,
    )


def _asked(replica: Replica, committed: Mapping[str, int], checkpoint: str | None) -> str:
    if not committed:
        raise NotThere(f"{replica.root} holds no committed checkpoint; REPLICA is <target root>/<job-id>")
    if checkpoint is None:
        return next(iter(committed))
    if not CHECKPOINT_NAME.fullmatch(checkpoint):
        raise UsageError(f"--checkpoint {checkpoint}: expected the name of a checkpoint's directory, such as chk-42")
    if checkpoint not in committed:
        raise NotThere(f"{replica.root} holds no committed {checkpoint}")
    return checkpoint


def _manifests(replica: Replica, committed: Mapping[str, int]) -> dict[str, manifest.Manifest]:
    """All of them: a merged file that grew is described by a later checkpoint's."""
    read = {name: manifest.read(replica.root, name, length) for name, length in committed.items()}
    return {name: found for name, found in read.items() if found is not None}


def _is_short(path: str, extent: int, present: Mapping[str, int], recorded: Mapping[str, manifest.Entry]) -> bool:
    """Shorter than its extent, or than it was when copied, which is all that can be said of a changelog's file.

    A file that grew since belongs to a merged file that a later checkpoint copied again.
    """
    entry = recorded.get(path)
    return present[path] < max(extent, entry.length if entry else 0)


def _compared(
    replica: Replica, held: Held, present: Mapping[str, int], crcs: Mapping[tuple[str, int], int], say: Say
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(corrupt, uncompared): every present file is read and its CRC32C compared with the one of when it was copied."""
    lengths = {path: present[path] for path in held.files if path in present}
    known = {path: crcs[path, length] for path, length in lengths.items() if (path, length) in crcs}
    say(f"reading {len(known)} files, {sum(present[path] for path in known)} bytes")
    with ThreadPoolExecutor(_STREAMS) as pool:
        found = dict(zip(known, pool.map(lambda path: checksum(replica.at(path))[1], known), strict=True))
    corrupt = tuple(path for path, crc32c in found.items() if crc32c != known[path])
    return corrupt, tuple(path for path in lengths if path not in known)
