"""Installs the wheel as its users do: by pip, pipx and uv, each in an empty environment.

Each installation replicates and verifies a checkpoint that Flink wrote. The bill of materials is
checked against the schema of CycloneDX. Needs the network: the packages come from the index that
pip uses. `make try-install` runs it; `--python` names an interpreter for pip, repeatable.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_JOB = "55d11b0e36f1bfdaa08cb74d9bea9f76"
_WRITTEN_TO = "file:/srv/flink/datacenter/2.3.0-rocks-incr/ckpt"
_TOOLS = ("pipx", "uv", "cyclonedx-python-lib[json-validation]")
_EXTRA = "s3"
_VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
print(JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read()) or "valid")
"""
Installation = Callable[[Path, Path], tuple[Path, Path]]


def main() -> None:
    """Try each installation, and exit with a message at the first that fails."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--python", action="append", help="an interpreter, instead of this one")
    arguments.add_argument("--wheel", type=Path, help="the wheel, instead of building one")
    given = arguments.parse_args()
    pythons = given.python or [sys.executable]
    with tempfile.TemporaryDirectory(prefix="cpreplicate-install-") as name:
        directory = Path(name)
        wheel = given.wheel.resolve() if given.wheel else _wheel(directory / "wheel")
        tools = directory / "tools"
        _run(sys.executable, "-m", "venv", tools)
        _run(tools / "bin" / "pip", "install", "--quiet", *_TOOLS)
        installations: list[tuple[str, Installation]] = [
            *((f"pip of {python}", _pip(python)) for python in pythons),
            ("pipx", _pipx(tools / "bin" / "pipx")),
            ("uv tool install", _uv(tools / "bin" / "uv")),
        ]
        for title, install in installations:
            _try(title, install, wheel, directory)
        _validate(wheel, tools / "bin" / "python")


def _wheel(directory: Path) -> Path:
    """Build the wheel from the sdist, which is what an index has."""
    directory.mkdir()
    build: list[str | Path] = [sys.executable, "-m", "hatchling", "build", "-d", directory]
    _run(*build, "--target", "sdist", cwd=ROOT)
    [sdist] = directory.iterdir()
    _run("tar", "-xzf", sdist, "-C", directory)
    source = directory / sdist.name.removesuffix(".tar.gz")
    _run(*build, "--target", "wheel", cwd=source)
    [wheel] = directory.glob("*.whl")
    return wheel


def _pip(python: str) -> Installation:
    def install(wheel: Path, home: Path) -> tuple[Path, Path]:
        _run(python, "-m", "venv", home)
        _run(home / "bin" / "pip", "install", "--quiet", f"{wheel}[{_EXTRA}]")
        return home / "bin", home / "share" / "man"

    return install


def _pipx(pipx: Path) -> Installation:
    def install(wheel: Path, home: Path) -> tuple[Path, Path]:
        places = {each: str(home / each) for each in ("PIPX_HOME", "PIPX_BIN_DIR", "PIPX_MAN_DIR")}
        _run(pipx, "install", f"{wheel}[{_EXTRA}]", env=places)
        return home / "PIPX_BIN_DIR", home / "PIPX_MAN_DIR"

    return install


def _uv(uv: Path) -> Installation:
    def install(wheel: Path, home: Path) -> tuple[Path, Path]:
        places = {each: str(home / each) for each in ("UV_TOOL_DIR", "UV_TOOL_BIN_DIR")}
        words = ("tool", "install", "--python", sys.executable)
        _run(uv, *words, f"cpreplicate[{_EXTRA}] @ {wheel.as_uri()}", env=places)
        # uv puts no pages where man looks for them
        return home / "UV_TOOL_BIN_DIR", home / "UV_TOOL_DIR" / "cpreplicate" / "share" / "man"

    return install


def _try(title: str, install: Installation, wheel: Path, directory: Path) -> None:
    home = directory / "home"
    programs, manual = install(wheel, home)
    if not (page := manual / "man1" / "cpreplicate-sync.1").exists():
        sys.exit(f"{title}: no {page}")
    program = programs / "cpreplicate"
    version = _run(program, "version").splitlines()[0]
    if "cpreplicate_completion" not in _run(program, "completion", "bash"):
        sys.exit(f"{title}: no completion")
    _replicate(program, directory / "data")
    shutil.rmtree(home)
    print(f"{title}: {version} replicated and verified a checkpoint", flush=True)


def _replicate(program: Path, data: Path) -> None:
    """Replicate a checkpoint that Flink wrote, lose the source, and verify the replica."""
    shutil.copytree(ROOT / "tests" / "data" / "corpus" / "2.3.0-rocks-incr", data / "flink")
    source, target = data / "flink" / "ckpt", data / "replicas"
    remap = f"--remap={_WRITTEN_TO}={source}"
    _run(program, "sync", source / _JOB, target, remap, "--runner", "inline")
    shutil.rmtree(data / "flink")
    _run(program, "verify", target / _JOB, "--content")
    shutil.rmtree(data)


def _validate(wheel: Path, python: Path) -> None:
    text = _run("unzip", "-p", wheel, "*/sboms/cpreplicate.cdx.json")
    found = subprocess.run([python, "-c", _VALIDATE], input=text, capture_output=True, text=True)
    if found.stdout.strip() != "valid":
        sys.exit(f"bill of materials: {found.stdout}{found.stderr}")
    print(f"bill of materials: valid, {len(json.loads(text)['components'])} components", flush=True)


def _run(*words: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Run a command and return its stdout. Exit with its output if it fails."""
    given: Sequence[str] = [str(word) for word in words]
    done = subprocess.run(
        given, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(given)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
