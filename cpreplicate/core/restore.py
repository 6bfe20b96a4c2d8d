"""Restoring from a replica: how its `_metadata` spells its references, and the command to use.

The rules follow from what stock Flink was observed to do. See `docs/restore.md`.
"""

from __future__ import annotations

import shlex
from typing import Literal, NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.closure import Closure
from cpreplicate.core.ledger import NO_MEMBERS, MemberTable
from cpreplicate.core.metadata import Absolute, Handle, Metadata, Relative
from cpreplicate.core.metadata.handle import RELATIVE
from cpreplicate.core.metadata.rewrite import Moves, Segment, Spelling
from cpreplicate.core.path_columns import Numbers, Texts, parts_of, rows_of, texts
from cpreplicate.core.placement import Layout, has_special_name

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
    found = list(warnings_of_packs(metadata)) if has_packs else []
    if chosen.mode == "relative" and metadata.changelog:
        found.append(
            "relative paths with changelog state: only CLAIM restores it, and its next checkpoints"
            " will not be restorable. Use --paths absolute"
        )
    if chosen.mode == "relative" and metadata.version < _FIRST_WITH_NO_CLAIM:
        found.append(
            f"relative paths with metadata v{metadata.version}: restore with NO_CLAIM only (Flink"
            " 1.15 or later). On an older Flink the next checkpoints will not be restorable. Use"
            " --paths absolute"
        )
    if chosen.reported == "mixed":
        found.append(
            f"{'packed files' if has_packs else 'merged segments'} have no relative form: their"
            " paths are absolute in the replica. If you move or copy the replica, run `cpreplicate"
            " relocate` on it before a job is restored from it"
        )
    return tuple(found)


def warnings_of_packs(metadata: Metadata) -> tuple[str, ...]:
    """Return what the operator should know about the packs of a checkpoint that has some."""
    if metadata.version >= _FIRST_OF_FLINK_2:
        return ()
    return (
        f"packs with metadata v{metadata.version}: only Flink 1.20 and later can restore the"
        " replica. For an older Flink, sync with --pack off, or run `cpreplicate relocate"
        " --unpack` on the replica",
    )


class PathSpeller:
    """Spells the path of each handle of a checkpoint as its replica needs it.

    Each file has one spelling throughout. A segment or directory has no relative form, and neither
    has any other reference of a file that a segment names. `members` are the packed files by their
    logical path: such a file becomes a segment that spans the whole file, since the size that a
    handle records may be less (that of a changelog's file is the size of its payload).
    """

    def __init__(
        self,
        closure: Closure,
        layout: Layout,
        replica: str,
        mode: str,
        members: MemberTable = NO_MEMBERS,
    ) -> None:
        self._closure, self._layout, self._replica = closure, layout, replica
        self._mode, self._members = mode, members

    def __call__(self, handle: Handle) -> Spelling | None:
        """Return the spelling of one handle, None if it stays as it is."""
        if handle.path is None:
            return None
        source = self._closure.uri_of(handle)
        if handle.kind == "directory":
            return Absolute(uri.join(self._replica, self._layout.place_directory(source)))
        target = self._layout.place(source)
        if (member := self._members.get(target)) is not None:
            pack = uri.join(self._replica, member.pack)
            return Segment(pack, member.offset, member.length, target)
        if self._closure.files[source].segment:
            return self._absolute(target)
        spelling = self._spelled(target)
        is_same = handle.kind == "relative" and spelling == Relative(handle.path)
        return None if is_same else spelling

    def moves(self) -> Moves:
        """Return how most handles are spelled at once: those of plain names in plain directories.

        Each file of such a directory keeps its name in the replica.
        """
        files, plain = self._closure.files, self._closure.plain
        segmented = files.take(files.is_segment).sources.texts().to_pylist()
        merged = texts(map(self._layout.place, segmented))

        def place(recorded: str) -> str | None:
            prefix = self._closure.uris.prefix(recorded)
            return self._layout.place(f"{prefix}x")[:-1] if prefix[:-1] in plain else None

        def spell(prefix: str) -> Absolute | Relative:
            spelling = self._spelled(f"{prefix}x")
            return spelling._replace(path=spelling.path[:-1])

        def are_single(places: Texts) -> Numbers:
            single: Numbers = has_special_name(parts_of(places).names)
            return single | (rows_of(places, merged) >= 0)

        return Moves(place, spell, are_single, self._members, uri.join(self._replica, ""))

    def _spelled(self, target: str) -> Absolute | Relative:
        """Return the spelling of a whole file at this place of the replica."""
        if self._mode == "absolute":
            return self._absolute(target)
        return Relative(relative_to(self._layout.name, target))

    def _absolute(self, target: str) -> Absolute:
        return Absolute(uri.join(self._replica, target))


def relative_to(checkpoint: str, target: str) -> str:
    """Return a path in the replica relative to the checkpoint's own directory.

    It is a bare name in that directory, and `../…` elsewhere.
    """
    own = uri.below(target, checkpoint)
    return own if own is not None else f"../{target}"


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
