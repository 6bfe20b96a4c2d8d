"""Count the rooms of each folder and the arrows between them: `make house`.

A room is a folder's child: a module, or a folder in it. An arrow leads from one room to another if
a module of the first imports one of the second. The table `[tool.house]` of pyproject.toml holds
the limits of each folder; `--check` fails beyond them, for a folder of more than eight rooms that
has no contract of import-linter, and for one that has no limits. An `opened` folder is counted with
the rooms of these folders in place of them.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = Path(__file__).resolve().parent.parent
PACKAGE = "cpreplicate"
LARGEST_WITHOUT_CONTRACT = 8  # rooms
LARGEST_WITHOUT_LIMITS = 8


class Folder(NamedTuple):
    """The rooms of a folder, and the arrows between them."""

    rooms: frozenset[str]
    arrows: frozenset[tuple[str, str]]


class House:
    """The modules of a package and what each imports of it."""

    def __init__(self, project: Path, package: str = PACKAGE) -> None:
        files = sorted((project / package).rglob("*.py"))
        self._package = package
        self._modules = {_module(path, project): path for path in files}
        self._imports = {name: self._imported(path) for name, path in self._modules.items()}

    def folders(self) -> list[str]:
        """Return the folders of the package by their paths, `""` for the package itself."""
        found = {
            ".".join(name.split(".")[1:])
            for name, path in self._modules.items()
            if path.name == "__init__.py"
        }
        return sorted(path.replace(".", "/") for path in found)

    def folder(self, path: str, opened: frozenset[str] = frozenset()) -> Folder:
        """Return the rooms of a folder, and the arrows between them."""
        rooms = {name: self._room(name, path, opened) for name in self._modules}
        arrows = {
            (room, rooms[target])
            for name, room in rooms.items()
            for target in self._imports[name]
            if room is not None and rooms[target] not in (None, room)
        }
        return Folder(
            frozenset(room for room in rooms.values() if room is not None),
            frozenset((start, end) for start, end in arrows if end is not None),
        )

    def _room(self, name: str, path: str, opened: frozenset[str]) -> str | None:
        inside = [self._package, *filter(None, path.split("/"))]
        parts = name.split(".")
        if parts[: len(inside)] != inside or len(parts) == len(inside):
            return None
        room, *further = parts[len(inside) :]
        if room not in opened:
            return room
        return f"{room}/{further[0]}" if further else None

    def _imported(self, path: Path) -> frozenset[str]:
        nodes = ast.walk(ast.parse(path.read_text()))
        names = {name for node in nodes for name in _names(node)}
        return frozenset(filter(None, map(self._resolved, names)))

    def _resolved(self, name: str) -> str | None:
        """Return the module of a dotted name: itself, or the one that defines it."""
        if name in self._modules:
            return name
        parent = name.rpartition(".")[0]
        return parent if parent in self._modules else None


def _module(path: Path, project: Path) -> str:
    parts = path.relative_to(project).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def table(house: House, limits: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the rows of the table that `make house` prints."""
    yield f"{'folder':24} {'rooms':>5} {'limit':>5} {'arrows':>6} {'limit':>5}"
    for path in house.folders():
        limit = limits.get(path, {})
        found = house.folder(path, frozenset(limit.get("opened", ())))
        rooms, arrows = limit.get("rooms", ""), limit.get("arrows", "")
        counts = f"{len(found.rooms):5} {rooms:>5} {len(found.arrows):6} {arrows:>5}"
        yield f"{path or PACKAGE:24} {counts}"


def problems(
    house: House, limits: Mapping[str, Mapping[str, Any]], contracts: frozenset[str]
) -> Iterator[str]:
    """Yield what exceeds a limit, and which folders lack limits or a contract."""
    unknown = sorted(limits.keys() - house.folders())
    yield from (f"[tool.house] names {path}, which is no folder" for path in unknown)
    for path in house.folders():
        limit = limits.get(path)
        found = house.folder(path, frozenset(limit.get("opened", ()) if limit else ()))
        if limit is None:
            if len(found.rooms) > LARGEST_WITHOUT_LIMITS:
                yield f"{path} has {len(found.rooms)} rooms, and no limits in [tool.house]"
        else:
            yield from _beyond(path, found, limit)
        plain = house.folder(path)
        if len(plain.rooms) > LARGEST_WITHOUT_CONTRACT and path not in contracts:
            yield f"{path} has {len(plain.rooms)} rooms, and no contract of import-linter"


def _beyond(path: str, found: Folder, limit: Mapping[str, Any]) -> Iterator[str]:
    for what, count in (("rooms", len(found.rooms)), ("arrows", len(found.arrows))):
        if count > limit[what]:
            yield (
                f"{path or PACKAGE} has {count} {what}, {limit[what]} are allowed: find the room in"
                " which the noun lives, or raise the limit and give the reason on its line"
            )


def with_contracts(pyproject: Mapping[str, Any]) -> frozenset[str]:
    """Return the folders whose children are ordered by a contract."""
    contracts = pyproject["tool"]["importlinter"]["contracts"]
    containers = {name for contract in contracts for name in contract.get("containers", ())}
    return frozenset("/".join(name.split(".")[1:]) for name in containers)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="print what exceeds a limit only")
    arguments = parser.parse_args()
    pyproject = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    limits = pyproject["tool"]["house"]
    house = House(PROJECT)
    if not arguments.check:
        print("\n".join(table(house, limits)))
    found = list(problems(house, limits, with_contracts(pyproject)))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
