"""Relative or absolute: how the references of a replica's `_metadata` are spelled, and how to
restore from it.

The rules follow from what stock Flink was seen to do; see `docs/restore.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.closure import Closure
from cpreplicate.core.metadata import Absolute, Handle, Metadata, Relative
from cpreplicate.core.placement import Layout

PathsMode = Literal["auto", "relative", "absolute"]
_FIRST_WITH_NO_CLAIM = 4  # v2 and v3 may be of a Flink before 1.15, which knows no NO_CLAIM
_FIRST_WITH_CLAIM_MODE_OPTION = (
    5  # `-claimMode` came with 1.20; what wrote v4 may know `-restoreMode` only (CliFrontendParser)
)


class Paths(NamedTuple):
    """The spelling that was chosen, and why.

    `reported` is what people and scripts read: `mixed` if `mode` is relative and some paths have to
    be absolute all the same.
    """

    mode: Literal["relative", "absolute"]
    reported: Literal["relative", "absolute", "mixed"]
    reason: str


def choose(metadata: Metadata, closure: Closure, asked: PathsMode) -> Paths:
    """Return the spelling for a replica of this checkpoint.

    `auto` takes relative where Flink's default restore is safe.
    """
    mode, reason = _choose(metadata, asked)
    if mode == "relative" and _has_segments(metadata, closure):
        return Paths(
            mode,
            "mixed",
            f"{reason}; merged segments and their directories have no relative form and are"
            " absolute",
        )
    return Paths(mode, mode, reason)


def _choose(metadata: Metadata, asked: PathsMode) -> tuple[Literal["relative", "absolute"], str]:
    if asked != "auto":
        return asked, "asked for with --paths"
    if metadata.changelog:
        return (
            "absolute",
            "changelog state cannot be restored with NO_CLAIM, and CLAIM needs absolute paths",
        )
    if metadata.version < _FIRST_WITH_NO_CLAIM:
        return (
            "absolute",
            f"metadata v{metadata.version} may be of a Flink before 1.15, which has no NO_CLAIM",
        )
    return (
        "relative",
        f"metadata v{metadata.version}: Flink's default claim mode, NO_CLAIM, is safe with them",
    )


def _has_segments(metadata: Metadata, closure: Closure) -> bool:
    """Return whether it references merged segments or their directories, and not only empty
    segments.
    """
    if not metadata.file_merging:
        return False
    return bool(closure.directories) or any(file.segment for file in closure.files.values())


def warnings(metadata: Metadata, chosen: Paths) -> tuple[str, ...]:
    """Return what the operator should know about the spelling that was chosen."""
    found = []
    if chosen.mode == "relative" and metadata.changelog:
        found.append("relative paths with changelog state: only CLAIM restores it, and its next checkpoints will not be"
                     " restorable; use --paths absolute")  # fmt: skip
    if chosen.mode == "relative" and metadata.version < _FIRST_WITH_NO_CLAIM:
        found.append(f"relative paths with metadata v{metadata.version}: restore with NO_CLAIM only (Flink 1.15 or later);"
                     " on an older Flink the next checkpoints will not be restorable; use --paths absolute")  # fmt: skip
    if chosen.reported == "mixed":
        found.append("merged segments have no relative form: their paths are absolute in the replica. If you move or copy the"
                     " replica, run `cpreplicate relocate` on it before a job is restored from it")  # fmt: skip
    return tuple(found)


def path_rewriter(
    closure: Closure, placement: Layout, replica: str, mode: str
) -> Callable[[Handle], Absolute | Relative | None]:
    """How each handle is to be spelled in the replica: one spelling for each file throughout.

    A segment or directory has no relative form, and neither has any other reference of a file that
    a segment names.
    """

    def spell(handle: Handle) -> Absolute | Relative | None:
        if handle.path is None:
            return None
        place = closure.place(handle)
        if handle.kind == "directory":
            return Absolute(uri.join(replica, placement.place_directory(place)))
        target = placement.place(place)
        if mode == "absolute" or closure.files[place].segment:
            return Absolute(uri.join(replica, target))
        return _unless_same(handle, relative_to(placement.name, target))

    return spell


def relative_to(checkpoint: str, target: str) -> str:
    """A path in the replica, told from the checkpoint's own directory: a bare name there, `../…`
    elsewhere.
    """
    own = uri.below(target, checkpoint)
    return own if own is not None else f"../{target}"


def _unless_same(handle: Handle, spelling: str) -> Relative | None:
    return None if handle.kind == "relative" and handle.path == spelling else Relative(spelling)


class Restore(NamedTuple):
    """How to start a job from a replica: the claim mode that is safe, the command, and why.

    None where no mode is safe.
    """

    claim_mode: str | None
    command: str | None
    reason: str


def restore(metadata: Metadata, mode: str, checkpoint: str) -> Restore:
    """The way to restore the checkpoint at `checkpoint`, spelled in `mode`, that loses nothing."""
    if metadata.changelog and mode == "relative":
        return Restore(
            None,
            None,
            "no claim mode is safe for changelog state with relative paths: sync with --paths"
            " absolute",
        )
    claim_mode, reason = _claim_mode(metadata, mode)
    if metadata.version < _FIRST_WITH_NO_CLAIM and mode == "absolute":
        return Restore(claim_mode, f"flink run -s {uri.quoted(checkpoint)} …", reason)
    option = "-claimMode" if metadata.version >= _FIRST_WITH_CLAIM_MODE_OPTION else "-restoreMode"
    return Restore(
        claim_mode, f"flink run -s {uri.quoted(checkpoint)} {option} {claim_mode} …", reason
    )


def knows_claim_modes(metadata: Metadata) -> bool:
    """Whether what wrote it surely knows claim modes (Flink 1.15 and later)."""
    return metadata.version >= _FIRST_WITH_NO_CLAIM


def claim_mode_names(metadata: Metadata) -> tuple[str, str]:
    """What the claim mode is called in the REST API and in the configuration of the Flink that
    wrote the metadata.
    """
    if metadata.version >= _FIRST_WITH_CLAIM_MODE_OPTION:
        return "claimMode", "execution.state-recovery.claim-mode"
    return "restoreMode", "execution.savepoint-restore-mode"


def _claim_mode(metadata: Metadata, mode: str) -> tuple[str, str]:
    if metadata.changelog:
        return (
            "CLAIM",
            (
                "changelog state cannot be restored with NO_CLAIM; after CLAIM the job owns the"
                " replica, sync it no more"
            ),
        )
    if mode == "relative":
        return (
            "NO_CLAIM",
            "with CLAIM or LEGACY the relative paths would break the next checkpoints",
        )
    if metadata.version < _FIRST_WITH_NO_CLAIM:
        return (
            "NO_CLAIM",
            "absolute paths are safe in every mode; before Flink 1.15 there is none to choose",
        )
    return (
        "NO_CLAIM",
        (
            "absolute paths are safe with CLAIM too; after CLAIM the job owns the replica, sync it"
            " no more"
        ),
    )
