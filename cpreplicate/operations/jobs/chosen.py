"""Which of the jobs that a JobManager reports are followed."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Collection
from dataclasses import dataclass

_SHOWN = 5  # names of jobs in a message


@dataclass(frozen=True)
class Chosen:
    """Which jobs of a JobManager are followed: those of these names, or `every` one.

    Names match `include` if there are any, and no `exclude`; both are patterns as of a shell.
    """

    names: frozenset[str] = frozenset()
    every: bool = False
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @property
    def words(self) -> frozenset[str]:
        """The names and the patterns as a user reads them, each of which should have a job."""
        return self.names | {pattern_word(pattern) for pattern in self.include}

    def matched(self, names: Collection[str]) -> set[str]:
        """Return those of `words` that the names of followed jobs fulfil."""
        patterns = {each for each in self.include if fnmatch.filter(names, each)}
        return set(self.names & set(names)) | {pattern_word(pattern) for pattern in patterns}

    def has(self, name: str) -> bool:
        """Return whether a job of this name is followed."""
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in self.exclude):
            return False
        if self.include and any(fnmatch.fnmatchcase(name, pattern) for pattern in self.include):
            return True
        return name in self.names or (self.every and not self.include)


def pattern_word(pattern: str) -> str:
    """Return a pattern as a user reads it."""
    return f"--include {pattern}"


def why_waiting(chosen: str, is_there: bool, running: Collection[str]) -> str:
    """Return why nothing is followed for a name or an option, and the most similar names of jobs.

    `is_there`: there is a job of this name, or it is not known which jobs there are.
    """
    if chosen == "--all-jobs":
        return "the JobManagers report no job yet. Waiting"
    if is_there:
        return "no job of this name has completed a checkpoint yet. Waiting"
    name = chosen.removeprefix("--include ")
    similar = difflib.get_close_matches(name, running, _SHOWN, cutoff=0.0)
    more = f" and {len(running) - len(similar)} more" if len(running) > len(similar) else ""
    listed = ", ".join(map(repr, similar))
    return f"no job has such a name. Waiting. The JobManagers have the jobs {listed}{more}"
