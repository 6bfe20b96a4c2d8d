"""Find the files that a source checkpoint lacks, and a `--remap` that would find them.

Recorded paths are absolute, so a checkpoint that is read from a mounted copy, or under another name
of its cluster, seems to lack its files until `--remap` maps the recorded prefix to the actual one.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from cpreplicate.core import uri
from cpreplicate.core.closure import FileTable, job_directory
from cpreplicate.core.path_columns import (
    Numbers,
    Parts,
    Texts,
    chosen,
    parts_of,
    texts,
    texts_among,
    without,
)
from cpreplicate.core.sizes import counted
from cpreplicate.core.tables import Lengths
from cpreplicate.errors import Misplaced, SourceBroken
from cpreplicate.operations.change.change import some
from cpreplicate.protocol.source import Source
from cpreplicate.storage import FileStatus, Side, length_of

# Entropy-injected paths give every file a directory of its own, and each check costs a call.
_MOST_DIRECTORIES = 64
_ANY_LENGTH = np.iinfo(np.int64).max


class Looked(NamedTuple):
    """What a look at the files of a source found.

    `missing` are the URIs of files, `short` descriptions of those that are too short. `files` of
    `all_files` were looked for, in `directories` of `all_directories`.
    """

    missing: tuple[str, ...]
    short: tuple[str, ...]
    files: int
    all_files: int
    directories: int
    all_directories: int

    @property
    def warning(self) -> str | None:
        """Why files that were not looked for may be missing; None if all were looked for."""
        if self.files == self.all_files:
            return None
        return (
            f"only {self.files} of the {self.all_files} files to be copied were looked for at the"
            f" source, in {self.directories} of"
            f" {counted(self.all_directories, 'directory', 'directories')}. If others are"
            " missing or too short, only sync finds that, and ends with exit code 10"
        )


class Search(NamedTuple):
    """A search for the files of a source checkpoint, only below the `allowed` roots."""

    source: Source
    remaps: Sequence[uri.Remap]
    allowed: Sequence[str]
    side: Side

    def missing(self, files: Texts) -> list[str]:
        """Return those of the files that are missing.

        One file of each directory is checked. Only directories in which it is missing are listed.
        """
        parts = parts_of(files)
        some_rows = _one_of_each_directory(parts)
        incomplete = [row for row in some_rows if not self._exists(parts.text(row))]
        present = {
            child.uri
            for directory in {uri.parent(parts.text(row)) for row in incomplete}
            for child in self.side.storage(directory).list(directory)
        }
        if not incomplete:
            return []
        asked = chosen(files, np.isin(parts.codes, parts.codes[incomplete])).to_pylist()
        return [file for file in asked if file not in present]

    def ask(self, files: Texts) -> None:
        """Begin what `missing` asks soon, if all files are there."""
        parts = parts_of(files)
        for file in map(parts.text, _one_of_each_directory(parts)):
            self.side.storage(file).ask("stat", file)

    def look(self, files: FileTable, closure: FileTable) -> Looked:
        """Look for all of the files, and compare their lengths with their extents.

        Costs one listing for each directory, or a stat for each file where that costs less: the
        `closure` has about the files of the directories. Of more than 64 directories, 64 are
        listed, which depend on their names only. One that may not be listed is passed over.
        """
        parts, beside = parts_of(files.sources.texts()), _counts(closure.sources)
        listed = looked_for = 0
        missing: list[str] = []
        short: list[str] = []
        for code in _sample(parts.prefixes):
            rows = np.flatnonzero(parts.codes == code)
            prefix, names = parts.prefixes[code], chosen(parts.names, rows)
            lengths = self._lengths(prefix, names, beside.get(prefix, 0))
            if lengths is None:
                continue
            lengths = self._with_flushed(prefix, names, lengths, files.extents[rows])
            listed, looked_for = listed + 1, looked_for + len(rows)
            missing += [prefix + name for name in chosen(names, lengths < 0).to_pylist()]
            short += _too_short(prefix, names, lengths, files.extents[rows])
        sums = (looked_for, len(files), listed, len(parts.prefixes))
        return Looked(tuple(missing), tuple(short), *sums)

    def lengths(self, files: Texts) -> Iterator[tuple[str, int]]:
        """Yield the lengths of those of the files that are there. Costs as much as `look`."""
        parts = parts_of(files)
        for code in _sample(parts.prefixes):
            prefix, names = parts.prefixes[code], chosen(parts.names, parts.codes == code)
            lengths = self._lengths(prefix, names)
            if lengths is not None:
                found = zip(names.to_pylist(), lengths.tolist(), strict=True)
                yield from ((prefix + name, n) for name, n in found if 0 <= n < _ANY_LENGTH)

    def _lengths(self, prefix: str, names: Texts, beside: int = 0) -> Numbers | None:
        """Return the length of each file in a directory, -1 if it is missing.

        About so many files are `beside` them. Returns None if the directory may not be listed: its
        files may be read all the same.
        """
        try:
            if len(names) * self.side.storage(prefix).listed_a_call <= beside:
                files = map(prefix.__add__, names.to_pylist())
                return np.array([*map(self._length_at, files)], np.int64)
            listed = self.side.storage(prefix).listing(prefix[:-1])
        except PermissionError:
            return None
        present, is_text = texts_among(listed.names)
        plain = Lengths(present, np.array(listed.lengths, np.int64)[is_text]).at(names)
        others = {child.name: child for child in listed.others}
        asked = others.keys() & set(names.to_pylist()) if others else ()
        lengths = Lengths.of({name: self._length(others[name]) for name in asked})
        return np.maximum(plain, lengths.at(names))

    def _with_flushed(
        self, prefix: str, names: Texts, lengths: Numbers, extents: Numbers
    ) -> Numbers:
        """Return the lengths, those of files that seem to be too short as who opens them sees them.

        On HDFS, a writer that still has a file open may have flushed more than is listed.
        """
        if not self.side.storage(prefix).lists_less:
            return lengths
        lengths = lengths.copy()
        for row in np.flatnonzero((lengths >= 0) & (lengths < extents)).tolist():
            lengths[row] = length_of(f"{prefix}{names[row].as_py()}", int(extents[row]), self.side)
        return lengths

    def _length_at(self, file: str) -> int:
        status = self.side.storage(file).stat(file)
        if status is None:
            return -1
        return _ANY_LENGTH if status.is_directory else status.length

    def _length(self, other: FileStatus) -> int:
        """Return the length of what a link leads to, -1 if that is nothing.

        What is a directory, only a copy can judge.
        """
        if other.is_link:
            status = self.side.storage(other.uri).stat(other.uri)
            return -1 if status is None else status.length
        return _ANY_LENGTH

    def suggest(self, missing: Sequence[str], closure: Texts) -> list[uri.Remap]:
        """Return the remaps under which missing files exist, and those that are there stay.

        `closure` are all files of the checkpoint. One file of each directory is checked.
        """
        remaps: list[uri.Remap] = []
        lacking = texts(missing)
        parts = parts_of(lacking)
        kept: list[str] | None = None
        for file in map(parts.text, _one_of_each_directory(parts)):
            recorded = self.recorded(file)
            if any(self._finds(remap, recorded) for remap in remaps):
                continue
            found = [each for each in self._candidates(recorded) if self._finds(each, recorded)]
            if found and kept is None:
                kept = self._present(without(closure, lacking))
            right = (each for each in found if not self._breaks(each, kept or ()))
            remaps += [self._shortest(each, kept or ()) for each in islice(right, 1)]
        return remaps

    def _present(self, files: Texts) -> list[str]:
        """Return one file of each directory, if it is there."""
        parts = parts_of(files)
        return [*filter(self._exists, map(parts.text, _one_of_each_directory(parts)))]

    def recorded(self, file: str) -> str:
        """Return the path that the `_metadata` records for a file that is read from this URI."""
        for prefix, actual in self.remaps:
            path = prefix + file[len(actual) :]
            if file.startswith(actual) and uri.remap(path, self.remaps) == file:
                return path
        return file

    def _candidates(self, recorded: str) -> Iterator[uri.Remap]:
        """Yield the remaps that may be missing.

        The file may be of this job, of a job beside it, or on a filesystem with another name.
        """
        actual = self.source.job_root or self.source.checkpoint
        head, is_own, _ = recorded.rpartition(f"/{uri.name(actual)}/")
        root = f"{head}/{uri.name(actual)}" if is_own else job_directory(recorded)
        yield uri.Remap(root, actual)
        yield uri.Remap(root, f"{_parent(actual)}/{uri.name(root)}")
        yield uri.Remap(_parent(root), _parent(actual))
        yield uri.Remap(uri.filesystem(recorded), uri.filesystem(actual))

    def _shortest(self, remap: uri.Remap, kept: Sequence[str]) -> uri.Remap:
        """Return a remap without the components in which both sides end.

        As many remain as are needed to break nothing.
        """
        while (
            uri.local_path(remap.recorded)
            and uri.name(remap.recorded) == uri.name(remap.actual)
            and uri.local_path(remap.actual)
        ):
            shorter = uri.Remap(_parent(remap.recorded), _parent(remap.actual))
            if self._breaks(shorter, kept):
                break
            remap = shorter
        return remap

    def _breaks(self, remap: uri.Remap, kept: Sequence[str]) -> bool:
        """Return whether a remap changes what is read from the source's directory, or does nothing,
        or looks for one of the files that are `kept` where it is not.
        """
        actual = f"{self.source.job_root or self.source.checkpoint}/x"
        if remap.recorded == remap.actual or uri.remap(actual, [remap]) != actual:
            return True
        return any(self._loses(remap, file) for file in kept)

    def _loses(self, remap: uri.Remap, file: str) -> bool:
        """Return whether a file that is there is looked for elsewhere, and is not there."""
        remaps = sorted([*self.remaps, remap], key=lambda each: -len(each.recorded))
        other = uri.remap(self.recorded(file), remaps)
        return other != file and not self._has(other)

    def _finds(self, remap: uri.Remap, recorded: str) -> bool:
        file = uri.remap(recorded, [remap])
        return file != recorded and self._has(file)

    def _has(self, file: str) -> bool:
        """Return whether a file is there, and may be read."""
        return any(uri.within(file, root) for root in self.allowed) and self._exists(file)

    def _exists(self, file: str) -> bool:
        return self.side.storage(file).stat(file) is not None


def error(
    search: Search, missing: Sequence[str], short: Sequence[str], closure: Texts
) -> SourceBroken:
    """Return the error for an incomplete source.

    `missing` are the files that are missing, `short` are descriptions of those that are too short.
    `closure` are all files of the checkpoint.
    """
    checkpoint = search.source.checkpoint
    if remaps := search.suggest(missing, closure):
        actual = " and ".join(_spelled(remap.actual) for remap in remaps)
        return Misplaced(
            f"{checkpoint}: {_count(len(missing))} missing where its _metadata records them, but"
            f" found below {actual}. Run again with {options(remaps)}{_instead(search, missing)}."
            f" Nothing was committed or deleted. Missing: {some(missing)}"
        )
    lacks = [f"{_count(len(missing))} missing"] if missing else []
    lacks += [f"{_count(len(short))} shorter than the checkpoint needs"] if short else []
    hint = (
        " If the missing files are elsewhere, name the place with --remap FROM=TO."
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
    return " ".join(f"--remap {shlex.quote(_pair(remap))}" for remap in remaps)


def _pair(remap: uri.Remap) -> str:
    if remap.recorded.endswith(":") and remap.actual.endswith(":"):  # of two schemes
        return f"{remap.recorded[:-1]}={remap.actual[:-1]}"
    return f"{_spelled(remap.recorded)}={_spelled(remap.actual)}"


def _instead(search: Search, missing: Sequence[str]) -> str:
    wrong = [
        remap
        for remap in search.remaps
        if any(uri.remap(search.recorded(file), [remap]) == file for file in missing[:1])
    ]
    return f" instead of {options(wrong)}" if wrong else ""


def _count(files: int) -> str:
    return counted(files, "referenced file is", "referenced files are")


def _spelled(prefix: str) -> str:
    return f"{prefix}/" if prefix.endswith(":") else prefix


def _sample(prefixes: Sequence[str]) -> list[int]:
    """Return the indexes of the directories to be listed: of many, evenly chosen ones by name."""
    in_order = sorted(range(len(prefixes)), key=prefixes.__getitem__)
    count = min(len(in_order), _MOST_DIRECTORIES)
    return [in_order[number * len(in_order) // count] for number in range(count)]


def _too_short(prefix: str, names: Texts, lengths: Numbers, extents: Numbers) -> list[str]:
    """Return descriptions of the files that are present and shorter than their extents."""
    is_short = (lengths >= 0) & (lengths < extents)
    rows = zip(
        chosen(names, is_short).to_pylist(),
        lengths[is_short].tolist(),
        extents[is_short].tolist(),
        strict=True,
    )
    return [
        f"{prefix}{name} has {counted(length, 'byte')}, the checkpoint needs {extent}"
        for name, length, extent in rows
    ]


def _counts(files: Parts) -> dict[str, int]:
    """Return how many files begin with each prefix."""
    counts = np.bincount(files.codes, minlength=len(files.prefixes)).tolist()
    return dict(zip(files.prefixes, counts, strict=True))


def _one_of_each_directory(files: Parts) -> list[int]:
    """Return the row of one file of each directory, or of some evenly chosen ones if there are
    many.
    """
    rows: list[int] = np.unique(files.codes, return_index=True)[1].tolist()
    step = math.ceil(len(rows) / _MOST_DIRECTORIES) or 1
    return sorted(rows, key=lambda row: files.prefixes[int(files.codes[row])])[::step]


def _parent(directory: str) -> str:
    """Return the parent directory, or the filesystem itself if there is none."""
    return uri.parent(directory) if uri.local_path(directory) else directory
