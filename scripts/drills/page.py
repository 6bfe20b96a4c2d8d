"""The commands of docs/lost.md, run with the data centres and times of a drill."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scripts.drills.sites import DrillFailed, Result, cpreplicate
from tests.support import documented

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "lost.md"
_TIMES = ("2026-11-24T03:00Z", "TIME")


def commands(text: str) -> list[str]:
    """Return the commands in the blocks of a page, without the name of the program."""
    return [" ".join(words) for words in documented.commands_in_blocks(text)]


class Page:
    """The commands of a page. `places` are the directories of the drill by those of the page."""

    def __init__(
        self,
        text: str,
        places: Mapping[str, str],
        run: Callable[[Sequence[str]], Result] = cpreplicate,
    ) -> None:
        self._commands, self._places, self._run = commands(text), dict(places), run
        self._done: set[str] = set()

    def run(self, command: str, time: str = "") -> Result:
        """Run a command of the page, with `time` for the time that it names.

        Raises `DrillFailed` if the page does not have it, or it ends with another exit code than 0.
        """
        if command not in self._commands:
            raise DrillFailed(f"the page has no command {command!r}")
        words = [time if word in _TIMES else self._placed(word) for word in command.split()]
        print(f"    $ cpreplicate {' '.join(words)}", flush=True)
        result = self._run(words)
        self._done.add(command)
        return result

    def _placed(self, word: str) -> str:
        for place, ours in self._places.items():
            word = word.replace(place, ours)
        return word

    def left(self) -> list[str]:
        """Return the commands that were not run."""
        return [command for command in self._commands if command not in self._done]
