"""Restoring from a replica: how its `_metadata` spells its references, and the command to use.

The rules follow from what stock Flink was observed to do. See `docs/restore.md`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Literal, NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.closure import Closure
from cpreplicate.core.ledger import Member, MemberTable
from cpreplicate.core.metadata import Absolute, Handle, Metadata, PathRewriter, Relative
from cpreplicate.core.metadata.handle import RELATIVE
from cpreplicate.core.metadata.rewrite import Moves, Segment, Spelling
from cpreplicate.core.path_columns import Numbers, Texts, parts_of, rows_of
from cpreplicate.core.placement import Layout, Placement, has_special_name

PathsMode = Literal["auto", "relative", "absolute"]
JAR = "JAR"  # stands for the user's job in a command
_FIRST_WITH_NO_CLAIM = 4  # v2 and v3 may be of a Flink before 1.15, which has no NO_CLAIM
# `-claimMode` came with 1.20; what wrote v4 may know `-restoreMode` only (CliFrontendParser)
_FIRST_WITH_CLAIM_MODE_OPTION = 5
_FIRST_OF_FLINK_2 = 5  # v5 and v6 are written by Flink 2 only


class ChosenPaths(NamedTuple):
    """The spelling that was chosen, and why.

    `reported` is the name in results: `mixed` if `mode` is relative and some paths have no relative
    form.
    """

    mode: Literal["relative", "absolute"]
    reported: Literal["relative", "absolute", "mixed"]
    reason: str


def choose(
    metadata: Metadata, closure: Closure, asked: PathsMode, has_packs: bool = False
) -> ChosenPaths:
    """Return the spelling for a replica of this checkpoint.

    `auto` takes relative where Flink's default restore is safe.
    """
    mode, reason = _choose(metadata, asked)
    if mode == "relative" and has_packs:
        text = f"{reason}. Packed files have no relative form and are absolute"
        return ChosenPaths(mode, "mixed", text)
    if mode == "relative" and _has_segments(metadata, closure):
        return ChosenPaths(
            mode,
            "mixed",
            f"{reason}. Merged segments and their directories have no relative form and are"
            " absolute",
        )
    return ChosenPaths(mode, mode, reason)


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
    """Return whether a checkpoint references merged segments or their directories."""
    if not metadata.file_merging:
        return False
    return bool(closure.directories) or bool(closure.files.is_segment.any())


def warnings(metadata: Metadata, chosen: ChosenPaths, has_packs: bool = False) -> tuple[str, ...]:
    """Return what the operator should know about the spelling that was chosen."""
    texts = list(warnings_of_packs(metadata)) if has_packs else []
    if chosen.mode == "relative" and metadata.changelog:
        texts.append(
            "relative paths with changelog state: only CLAIM restores it, and its next checkpoints"
            " will not be restorable. Use --paths absolute"
        )
    if chosen.mode == "relative" and metadata.version < _FIRST_WITH_NO_CLAIM:
        texts.append(
            f"relative paths with metadata v{metadata.version}: restore with NO_CLAIM only (Flink"
            " 1.15 or later). On an older Flink the next checkpoints will not be restorable. Use"
            " --paths absolute"
        )
    if chosen.reported == "mixed":
        texts.append(
            f"{'packed files' if has_packs else 'merged segments'} have no relative form: their"
            " paths are absolute in the replica. If you move or copy the replica, run `cpreplicate"
            " relocate` on it before a job is restored from it"
        )
    return tuple(texts)


def warnings_of_packs(metadata: Metadata) -> tuple[str, ...]:
    """Return what the operator should know about the packs of a checkpoint that has some."""
    if metadata.version >= _FIRST_OF_FLINK_2:
        return ()
    return (
        f"packs with metadata v{metadata.version}: only Flink 1.20 and later can restore the"
        " replica. For an older Flink, sync with --pack off, or run `cpreplicate relocate"
        " --unpack` on the replica",
    )


def path_rewriter(
    closure: Closure,
    placement: Layout,
    replica: str,
    mode: str,
    members: Mapping[str, Member] | None = None,
) -> PathRewriter:
    """Return the path rewriter that spells each handle of a checkpoint as its replica needs it.

    Each file has one spelling throughout. A segment or directory has no relative form, and neither
    has any other reference of a file that a segment names. `members` maps the logical path of a
    packed file to its place: it becomes a segment that spans the whole file, since the size that a
    handle records may be less (that of a changelog's file is the size of its payload).
    """
    packed = members or {}

    def rewrite_path(handle: Handle) -> Spelling | None:
        if handle.path is None:
            return None
        source = closure.uri_of(handle)
        if handle.kind == "directory":
            return Absolute(uri.join(replica, placement.place_directory(source)))
        target = placement.place(source)
        if (member := packed.get(target)) is not None:
            pack = uri.join(replica, member.pack)
            return Segment(pack, member.offset, member.length, target)
        if mode == "absolute" or closure.files[source].segment:
            return Absolute(uri.join(replica, target))
        return _unless_same(handle, relative_to(placement.name, target))

    return rewrite_path


def moves(
    closure: Closure, placement: Placement, replica: str, mode: str, members: MemberTable
) -> Moves:
    """Return how `path_rewriter` spells most handles: those of plain names in plain directories.

    Each file of such a directory keeps its name in the replica.
    """
    files = closure.files
    merged = placement.place_all(files.take(files.is_segment)).paths

    def place(recorded: str) -> str | None:
        prefix = closure.uris.prefix(recorded)
        return placement.place(f"{prefix}x")[:-1] if prefix[:-1] in closure.plain else None

    def spell(prefix: str) -> Absolute | Relative:
        if mode == "absolute":
            return Absolute(uri.join(replica, prefix))
        return Relative(relative_to(placement.name, f"{prefix}x")[:-1])

    def are_single(places: Texts) -> Numbers:
        single: Numbers = has_special_name(parts_of(places).names)
        return single | (rows_of(places, merged) >= 0)

    return Moves(place, spell, are_single, members, uri.join(replica, ""))


def relative_to(checkpoint: str, target: str) -> str:
    """Return a path in the replica relative to the checkpoint's own directory.

    It is a bare name in that directory, and `../…` elsewhere.
    """
    own = uri.below(target, checkpoint)
    return own if own is not None else f"../{target}"


def _unless_same(handle: Handle, spelling: str) -> Relative | None:
    return None if handle.kind == "relative" and handle.path == spelling else Relative(spelling)


class Restore(NamedTuple):
    """How to start a job from a replica: the safe claim mode, the command, and the reason.

    Mode and command are None where no mode is safe. The command is a list of arguments, of which
    the last one, `JAR`, stands for the user's job.
    """

    claim_mode: str | None
    arguments: tuple[str, ...] | None
    reason: str

    @property
    def command(self) -> str | None:
        """The command for a shell."""
        return None if self.arguments is None else shlex.join(self.arguments)


def mode_of(metadata: Metadata) -> Literal["relative", "absolute"]:
    """Return how a `_metadata` in a replica is spelled: relative if any of its paths is."""
    return "relative" if bool((metadata.handles.kind == RELATIVE).any()) else "absolute"


def restore(metadata: Metadata, mode: str, checkpoint: str) -> Restore:
    """Return how to restore a checkpoint whose paths are spelled in `mode`, without losing data."""
    if metadata.changelog and mode == "relative":
        reason = "no claim mode is safe for changelog state with relative paths"
        return Restore(None, None, f"{reason}: sync with --paths absolute")
    claim_mode, reason = _claim_mode(metadata, mode)
    options = ["-s", checkpoint]
    if metadata.version >= _FIRST_WITH_NO_CLAIM or mode != "absolute":
        has_claim_mode = metadata.version >= _FIRST_WITH_CLAIM_MODE_OPTION
        options += ["-claimMode" if has_claim_mode else "-restoreMode", claim_mode]
    return Restore(claim_mode, ("flink", "run", *options, JAR), reason)


def knows_claim_modes(metadata: Metadata) -> bool:
    """Return whether the Flink that wrote the metadata has claim modes for sure (1.15 or later)."""
    return metadata.version >= _FIRST_WITH_NO_CLAIM


def claim_mode_names(metadata: Metadata) -> tuple[str, str]:
    """Return the names of the claim mode in the REST API and in the configuration.

    They are those of the Flink that wrote the metadata.
    """
    if metadata.version >= _FIRST_WITH_CLAIM_MODE_OPTION:
        return "claimMode", "execution.state-recovery.claim-mode"
    return "restoreMode", "execution.savepoint-restore-mode"


def _claim_mode(metadata: Metadata, mode: str) -> tuple[str, str]:
    if metadata.changelog:
        return (
            "CLAIM",
            "changelog state cannot be restored with NO_CLAIM. After a CLAIM restore the job owns"
            " these files: do not sync into this replica again",
        )
    if mode == "relative":
        return (
            "NO_CLAIM",
            "with CLAIM or LEGACY the relative paths would break the next checkpoints",
        )
    if metadata.version < _FIRST_WITH_NO_CLAIM:
        return (
            "NO_CLAIM",
            "absolute paths are safe in every mode. Before Flink 1.15 there is no mode to choose",
        )
    return (
        "NO_CLAIM",
        "absolute paths are safe with CLAIM too. After a CLAIM restore the job owns these files: do"
        " not sync into this replica again",
    )
