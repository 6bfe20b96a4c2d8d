"""Count the lines of the package: `make lines`.

Counts lines of code, which are neither blank nor a comment nor of a docstring, and lines of
docstrings, by folder. Without a revision it counts the working tree. A second one is compared.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parent.parent
_NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


class Lines(NamedTuple):
    """How many lines are code, and how many are of docstrings."""

    code: int
    docstrings: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision", nargs="?", help="default: the working tree")
    parser.add_argument("--against", metavar="REVISION", help="show what changed since this one")
    parser.add_argument("--folder", default="cpreplicate")
    arguments = parser.parse_args()
    now = by_folder(texts(arguments.folder, arguments.revision))
    before = by_folder(texts(arguments.folder, arguments.against)) if arguments.against else None
    print("\n".join(table(now, before)))


def count(text: str) -> Lines:
    """Return the lines of a module."""
    documented = _lines_of_docstrings(ast.parse(text))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NOT_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    return Lines(len(code - documented), len(documented))


def _lines_of_docstrings(module: ast.Module) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(module):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            lines.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return lines


def texts(folder: str, revision: str | None) -> Iterator[tuple[Path, str]]:
    """Yield the path and the text of each module below a folder, in a revision or as it is now."""
    if revision is None:
        for path in sorted((PROJECT / folder).rglob("*.py")):
            yield path.relative_to(PROJECT), path.read_text()
        return
    for name in _git("ls-tree", "-r", "--name-only", revision, "--", folder).splitlines():
        if name.endswith(".py"):
            yield Path(name), _git("show", f"{revision}:{name}")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=PROJECT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr.strip())
    return done.stdout


def by_folder(modules: Iterable[tuple[Path, str]]) -> dict[str, Lines]:
    """Return the lines of each folder, not counting the folders in it, and of all together."""
    sums: dict[str, Lines] = defaultdict(lambda: Lines(0, 0))
    for path, text in modules:
        lines = count(text)
        for key in (path.parent.as_posix(), "total"):
            sums[key] = Lines(sums[key].code + lines.code, sums[key].docstrings + lines.docstrings)
    return dict(sorted(sums.items(), key=lambda entry: (entry[0] == "total", entry[0])))


def table(now: Mapping[str, Lines], before: Mapping[str, Lines] | None) -> Iterator[str]:
    """Yield the rows of a table, with the differences if there is something to compare with."""
    folders = [name for name in {**(before or {}), **now} if name != "total"]
    yield f"{'folder':40} {'code':>7} {'':>8} {'docstrings':>10}"
    for name in (*sorted(folders), "total"):
        lines = now.get(name, Lines(0, 0))
        changes = _changes(lines, before.get(name, Lines(0, 0))) if before is not None else ("", "")
        code, docstrings = f"{lines.code:7} {changes[0]:>8}", f"{lines.docstrings:10} {changes[1]}"
        yield f"{name:40} {code} {docstrings}".rstrip()
    if before is not None and before.get("total", Lines(0, 0)).code:
        share = 100 * (now["total"].code / before["total"].code - 1)
        yield f"code: {share:+.1f} %"


def _changes(now: Lines, before: Lines) -> tuple[str, str]:
    return f"{now.code - before.code:+}", f"{now.docstrings - before.docstrings:+}"


if __name__ == "__main__":
    main()
