"""The messages of the errors that the package raises, found in its source.

What is inserted into a message becomes `{}`. A message that another function returns is looked up
there. `PASSED_ON` names the functions whose messages reach an error through a variable.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cpreplicate import errors, runners, storage

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "cpreplicate"
PASSED_ON = {
    ("protocol/ownership.py", "foreign"): "Refused",
    ("protocol/ownership.py", "other_source"): "Refused",
    ("protocol/ownership.py", "same_replica"): "Refused",
    ("protocol/seal.py", "reason_against"): "Refused",
    ("protocol/lease.py", "_refusal"): "LeaseHeld",
    ("operations/jobs/flink_jobs.py", "_refusal"): "Refused",
    ("runners/spark/engine.py", "_reason"): "EngineLost",
    ("runners/spark/engine.py", "_no_master"): "EngineLost",
    ("storage/wrappers/retry.py", "_unreachable"): "Unreachable",
    ("storage/waiting/deadlines.py", "no_answer"): "Unreachable",
}
_CLASSES = {
    name: each.exit_code
    for module in (errors, storage, runners)
    for name, each in vars(module).items()
    if isinstance(each, type) and issubclass(each, Exception) and hasattr(each, "exit_code")
}
_USAGE = errors.UsageError.exit_code
_LEAST = 15  # the least letters of a message that says something by itself


class Raised(NamedTuple):
    """A message, the exit code of its error, and where it is raised."""

    text: str
    exit_code: int
    place: str


@cache
def raised() -> tuple[Raised, ...]:
    """Return the messages of each error with an exit code, those of options left out."""
    found = {each: None for path in sorted(PACKAGE.rglob("*.py")) for each in _of_module(path)}
    return tuple(found)


def all_texts() -> Iterator[str]:
    """Yield each string of the package that is no docstring."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield from texts_of(path)


def texts_of(path: Path) -> Iterator[str]:
    """Yield each string of a module that is no docstring."""
    nested: set[ast.AST] = set()
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            nested.add(node.value)  # a docstring
        if isinstance(node, ast.JoinedStr):
            nested.update(node.values)
            yield _joined(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in nested:
            yield node.value


def _joined(node: ast.JoinedStr) -> str:
    return "".join(
        str(each.value) if isinstance(each, ast.Constant) else _inserted(each)
        for each in node.values
    )


def _inserted(node: ast.expr) -> str:
    """Return what is inserted: of a count what follows each count but 1, else `{}`."""
    call = node.value if isinstance(node, ast.FormattedValue) else node
    if not isinstance(call, ast.Call):
        return "{}"
    name, words = ast.unparse(call.func).rpartition(".")[2], call.args[1:]
    if name not in ("counted", "plural") or not all(
        isinstance(each, ast.Constant) for each in words
    ):
        return "{}"
    one, *many = (str(each.value) for each in words if isinstance(each, ast.Constant))
    return f"{'{} ' if name == 'counted' else ''}{many[0] if many else f'{one}s'}"


def _of_module(path: Path) -> Iterator[Raised]:
    name = str(path.relative_to(PACKAGE))
    tree = _parsed(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            code = _CLASSES.get(ast.unparse(node.func).rpartition(".")[2])
            texts = _texts(node.args[0], path) if code is not None else []
            is_of_option = name.startswith("cli/") and code == _USAGE
        elif isinstance(node, ast.FunctionDef) and (name, node.name) in PASSED_ON:
            code, texts = _CLASSES[PASSED_ON[name, node.name]], _strings(node, path)
            is_of_option = False
        else:
            continue
        for text in texts:
            if code is not None and not is_of_option and _is_message(text):
                yield Raised(text, code, f"{name}:{node.lineno}")


def _is_message(text: str) -> bool:
    return len(text.replace("{}", "").strip()) >= _LEAST


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _texts(node: ast.expr, path: Path) -> list[str]:
    """Return the texts that an expression can be."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        return [_joined(node)]
    if isinstance(node, ast.BinOp):
        return [a + b for a in _texts(node.left, path) for b in _texts(node.right, path)]
    if isinstance(node, ast.IfExp):
        return [*_texts(node.body, path), *_texts(node.orelse, path)]
    if isinstance(node, ast.Name):
        return _assigned(node.id, path) or ["{}"]
    if isinstance(node, ast.Call) and _inserted(node) != "{}":
        return [_inserted(node)]
    if isinstance(node, ast.Call):
        return _returned(ast.unparse(node.func).rpartition(".")[2], path) or ["{}"]
    return ["{}"]


def _assigned(name: str, path: Path) -> list[str]:
    """Return the texts that a module assigns to a name."""
    return [
        text
        for node in ast.walk(_parsed(path))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
        if isinstance(node.value, (ast.Constant, ast.JoinedStr))
        for text in _texts(node.value, path)
    ]


def _returned(name: str, path: Path) -> list[str]:
    """Return the texts that a function of a name returns: of the module, else of another one."""
    places = _functions().get(name, [])
    for place, function in sorted(places, key=lambda each: each[0] != path):
        return _strings(function, place)
    return []


@cache
def _functions() -> dict[str, list[tuple[Path, ast.FunctionDef]]]:
    """Return the functions of the package by name, with their modules."""
    found: dict[str, list[tuple[Path, ast.FunctionDef]]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(_parsed(path)):
            if isinstance(node, ast.FunctionDef):
                found.setdefault(node.name, []).append((path, node))
    return found


def _strings(function: ast.FunctionDef, path: Path) -> list[str]:
    """Return the texts that a function returns or yields, or passes to an error of the system."""
    found: list[str] = []
    for node in ast.walk(function):
        if isinstance(node, (ast.Return, ast.Yield)) and node.value is not None:
            found += filter(_is_message, _texts(node.value, path))
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("reason", "text"):
            found += _texts(node.value, path)
    return found
