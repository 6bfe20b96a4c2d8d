"""The commands of pages, run on `file:` in a directory that has what the page is about.

`blocks` finds the code blocks of a page. `Run` runs them in one shell, in the order of the page.
The shell completes a checkpoint for a job where the page says that it runs: in front of `watch` and
of `unseal --job`. It stops a `watch` once that has committed.

    python -m tests.support.pages DIRECTORY    # complete the next checkpoint of a job
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support import documented
from tests.support.jobs import JOB, write_checkpoint
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).parent.parent.parent
RUN = (
    "README.md",
    "docs/before-a-switch.md",
    "docs/configuration.md",
    "docs/cron.md",
    "docs/doctor.md",
    "docs/drill.md",
    "docs/failback.md",
    "docs/kafka.md",
    "docs/lost.md",
    "docs/monitoring.md",
    "docs/operations.md",
    "docs/packs.md",
    "docs/part-files.md",
    "docs/storage.md",
    "docs/tutorial.md",
    "docs/upgrades.md",
)
"""The pages whose commands are run by `tests/users/test_pages_run.py`."""
_MARK = re.compile(r" *<!-- not-run: (.*?) -->")
_FENCE = re.compile(r" *```(\w*)")
_CRON = re.compile(r"^(?:[\d*/,-]+ +){5}")
_OF_CRON = re.compile(r"^PATH=[\w/.:-]+$")  # a line of a crontab: tests have a PATH of their own
_BEGIN = "#### block"
_NUMBER = "PAGES_NUMBER"  # of the last checkpoint, in a file that this variable names
_FUNCTIONS = f"""
exec 2>&1
set -eu -o pipefail
completes() {{ PYTHONPATH={shlex.quote(str(ROOT))} {shlex.quote(sys.executable)} \\
    -m tests.support.pages "$1"; }}
watched() {{
    local word
    for word in "$@"; do case $word in */checkpoints/*) completes "$word" ;; esac; done
    : > watched  # else what the one before printed may be read first
    command cpreplicate "$@" --interval 0.2s --runner inline > watched 2>&1 &
    local process=$! code=0
    until grep -q 'committed ' watched; do
        kill -0 $process || {{ cat watched; return 1; }}
        sleep 0.1
    done
    kill -TERM $process
    wait $process || code=$?
    test $code = 143
}}
cpreplicate() {{
    if [ "$1" = watch ]; then watched "$@"; return; fi
    if [ "$1 ${{3:-}}" = "unseal --job" ]; then completes "$4"; fi
    command cpreplicate "$@"
}}
"""


class Block(NamedTuple):
    """A code block, or its first line if nothing of it is shown: `reason` is that of a mark.

    `expected` is the text that the page shows below it.
    """

    line: int
    text: str
    reason: str | None = None
    expected: str | None = None

    @property
    def has_commands(self) -> bool:
        """Whether it has a command of cpreplicate."""
        return any(True for line in _lines(self.text) for _ in documented.commands_in_line(line))


def _lines(text: str) -> list[str]:
    return re.sub(r"\\\n\s*", " ", text).splitlines()


def blocks(page: str) -> list[Block]:
    """Return the code blocks of a page. A block of ```text is what the one above it prints."""
    found: list[Block] = []
    reason: str | None = None
    lines = page.split("\n")
    number = 0
    while number < len(lines):
        start, line = number, lines[number]
        number += 1
        if mark := _MARK.fullmatch(line):
            reason = mark[1]
        elif fence := _FENCE.fullmatch(line):
            number = next(i for i in range(number, len(lines)) if lines[i].strip() == "```") + 1
            text = _dedented(lines[start + 1 : number - 1])
            if fence[1] == "text":
                found[-1] = found[-1]._replace(expected=text)
            else:
                found.append(Block(start + 1, text, reason))
            reason = None
        elif line.startswith("    ") and not lines[start - 1].strip():
            while number < len(lines) and (
                lines[number][:4] == "    " or not lines[number].strip()
            ):
                number += 1
            found.append(Block(start + 1, _dedented(lines[start:number]), reason))
            reason = None
    return found


def _dedented(lines: Sequence[str]) -> str:
    indents = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
    return "\n".join(line[min(indents, default=0) :] for line in lines).strip("\n")


class Run:
    """A shell in `directory` that runs blocks of a page; `replaced` are patterns and texts."""

    def __init__(self, directory: Path, replaced: Mapping[str, str]) -> None:
        self._directory, self._replaced = directory, replaced
        programs = directory / "bin"
        programs.mkdir()
        program = programs / "cpreplicate"
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m cpreplicate "$@"\n')
        program.chmod(0o755)

    def outputs(self, page: Sequence[Block]) -> list[str]:
        """Run the blocks. Return what each printed, stderr included; fail if one fails."""
        script = _FUNCTIONS + "\n".join(
            f"echo '{_BEGIN}'\n{self._placed(block.text)}" for block in page
        )
        environment = {
            **os.environ,
            "HOME": str(self._directory),
            "PATH": f"{self._directory / 'bin'}:{os.environ['PATH']}",
            _NUMBER: str(self._directory / "number"),
        }
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=self._directory,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            printed, _ = shell.communicate(timeout=PATIENCE)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)  # a `watch` that a failure left
        outputs = printed.split(f"{_BEGIN}\n")[1:]
        if shell.returncode:
            block = page[len(outputs) - 1]
            raise AssertionError(f"line {block.line}:\n{block.text}\n{outputs[-1]}")
        return outputs

    def _placed(self, text: str) -> str:
        of_shell = (line for line in text.splitlines() if not _OF_CRON.match(line))
        lines = (_CRON.sub("", line) for line in of_shell)
        text = "\n".join(lines)
        for pattern, other in self._replaced.items():
            text = re.sub(pattern, lambda _match, other=other: other, text)  # type: ignore[misc]
        return text


def missing(expected: str, output: str) -> list[str]:
    """Return the expected lines that do not follow in an output; `…` stands for any text."""
    left = iter(output.splitlines())
    return [
        line
        for line in filter(str.strip, expected.splitlines())
        if not any(re.search(_pattern(line), each) for each in left)
    ]


def _pattern(line: str) -> str:
    parts = (r"\s+".join(map(re.escape, part.split(" "))) for part in line.strip().split("…"))
    return ".*".join(parts)


def complete(directory: Path, number: int) -> None:
    """Write a checkpoint of the job in `directory`, which references files of earlier ones."""
    assert directory.name == JOB
    place = zlib.crc32(bytes(directory))  # as with Flink, no two places have files of one name
    shared = {f"shared/{place}-{each}": 1000 + each for each in range(number - 2, number + 1)}
    write_checkpoint(directory.parent, number, {**shared, f"chk-{number}/own": 500})


def main() -> None:
    """Complete the next checkpoint of the job in the directory of the command line."""
    counter = Path(os.environ[_NUMBER])
    number = int(counter.read_text()) + 1 if counter.exists() else 43
    counter.write_text(str(number))
    complete(Path(sys.argv[1].removeprefix("file:")), number)


if __name__ == "__main__":
    main()
