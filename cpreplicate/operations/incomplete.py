"""Find the files that a source checkpoint lacks, and a `--remap` that would find them.

Recorded paths are absolute, so a checkpoint that is read from a mounted copy, or under another name
of its cluster, seems to lack its files until `--remap` maps the recorded prefix to the actual one.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.closure import job_directory
from cpreplicate.errors import Misplaced, SourceBroken
from cpreplicate.operations.deletion import some
from cpreplicate.protocol.source import Source
from cpreplicate.storage import Side

# Entropy-injected paths give every file a directory of its own, and each check costs a call.
_MOST_DIRECTORIES = 64


class Search(NamedTuple):
    """A search for the files of a source checkpoint, only below the `allowed` roots."""

    source: Source
    remaps: Sequence[uri.Remap]
    allowed: Sequence[str]
    side: Side

    def missing(self, places: Sequence[str]) -> list[str]:
        """Return those of the files that are missing.

        One file of each directory is checked. Only directories in which it is missing are listed.
        """
        lost = {
            uri.parent(each) for each in _one_of_each_directory(places) if not self._exists(each)
        }
        if not lost:
            return []
        present = {
            child.uri
            for directory in lost
            for child in self.side.storage(directory).list(directory)
        }
        return [each for each in places if uri.parent(each) in lost and each not in present]

    def suggest(self, missing: Iterable[str]) -> list[uri.Remap]:
        """Return the remaps under which missing files exist.

        One file of each directory is checked.
        """
        found: list[uri.Remap] = []
        for place in _one_of_each_directory(missing):
            recorded = self.recorded(place)
            if not any(self._finds(each, recorded) for each in found):
                found += next(
                    ([each] for each in self._candidates(recorded) if self._finds(each, recorded)),
                    [],
                )
        return found

    def recorded(self, place: str) -> str:
        """Return the path that the `_metadata` records for a file that is read from `place`."""
        for recorded, actual in self.remaps:
            if (
                place.startswith(actual)
                and uri.remap(before := recorded + place[len(actual) :], self.remaps) == place
            ):
                return before
        return place

    def _candidates(self, recorded: str) -> Iterator[uri.Remap]:
        """Yield the remaps that may be missing.

        The file may be of this job, of a job beside it, or on a filesystem with another name.
        """
        actual = self.source.job_root or self.source.checkpoint
        head, is_own, _ = recorded.rpartition(f"/{uri.name(actual)}/")
        root = f"{head}/{uri.name(actual)}" if is_own else job_directory(recorded)
        pairs = [
            (root, actual),
            (_parent(root), _parent(actual)),
            (uri.filesystem(recorded), uri.filesystem(actual)),
        ]
        for pair in pairs:
            if not _maps(shortest := _shortest(uri.Remap(*pair), actual), actual):
                yield shortest

    def _finds(self, remap: uri.Remap, recorded: str) -> bool:
        place = uri.remap(recorded, [remap])
        return (
            place != recorded
            and any(uri.within(place, root) for root in self.allowed)
            and self._exists(place)
        )

    def _exists(self, place: str) -> bool:
        return self.side.storage(place).stat(place) is not None


def error(search: Search, missing: Sequence[str], short: Sequence[str]) -> SourceBroken:
    """Return the error for files that are missing at the source, and descriptions of those that are
    too short.
    """
    checkpoint = search.source.checkpoint
    if remaps := search.suggest(missing):
        return Misplaced(
            f"{checkpoint}: {_count(len(missing))} missing where its _metadata records them, but"
            f" found below {' and '.join(_spelled(each.actual) for each in remaps)}. Run again with"
            f" {options(remaps)}{_instead(search, missing)}. Nothing was committed or deleted."
            f" Missing: {some(missing)}"
        )
    lacks = [f"{_count(len(missing))} missing"] if missing else []
    lacks += [f"{_count(len(short))} shorter than the checkpoint needs"] if short else []
    hint = (
        " If the missing files lie elsewhere, name the place with --remap FROM=TO."
        if missing
        else ""
    )
    named = ". ".join(
        f"{what}: {some(texts)}"
        for what, texts in (("Missing", missing), ("Too short", short))
        if texts
    )
    return SourceBroken(
        f"{checkpoint} is incomplete at the source: {' and '.join(lacks)}. It cannot be restored"
        f" from there. Nothing was committed or deleted. Sync another checkpoint of the job.{hint}"
        f" {named}"
    )


def options(remaps: Iterable[uri.Remap]) -> str:
    """Return remaps as options of the command line."""
    return " ".join(
        f"--remap {shlex.quote(f'{_spelled(each.recorded)}={_spelled(each.actual)}')}"
        for each in remaps
    )


def _instead(search: Search, missing: Sequence[str]) -> str:
    wrong = [
        each
        for each in search.remaps
        if any(uri.remap(search.recorded(place), [each]) == place for place in missing[:1])
    ]
    return f" instead of {options(wrong)}" if wrong else ""


def _count(files: int) -> str:
    return "1 referenced file is" if files == 1 else f"{files} referenced files are"


def _spelled(prefix: str) -> str:
    return f"{prefix}/" if prefix.endswith(":") else prefix


def _one_of_each_directory(places: Iterable[str]) -> list[str]:
    found: dict[str, str] = {}
    for place in places:
        found.setdefault(uri.parent(place), place)
    every = math.ceil(len(found) / _MOST_DIRECTORIES) or 1
    return [found[directory] for directory in sorted(found)][::every]


def _shortest(remap: uri.Remap, root: str) -> uri.Remap:
    """Return a remap without the components in which both sides end.

    As many are kept as it takes not to map what is read from `root`, too.
    """
    while (
        uri.local_path(remap.recorded)
        and uri.name(remap.recorded) == uri.name(remap.actual)
        and uri.local_path(remap.actual)
    ):
        shorter = uri.Remap(_parent(remap.recorded), _parent(remap.actual))
        if _maps(shorter, root):
            break
        remap = shorter
    return remap


def _maps(remap: uri.Remap, root: str) -> bool:
    """Return whether a remap changes what is read from `root`, or nothing at all."""
    return remap.recorded == remap.actual or uri.remap(f"{root}/x", [remap]) != f"{root}/x"


def _parent(place: str) -> str:
    """Return the parent directory, or the filesystem itself if there is none."""
    return uri.parent(place) if uri.local_path(place) else place
