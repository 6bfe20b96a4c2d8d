"""Write the replicas of this version into tests/data/frozen/<version>, one archive for each state.

Later versions must read, continue, verify and promote them: tests/users/test_frozen.py. A
`_metadata` may hold absolute paths, so source and replicas are below one fixed directory. Archives
are never made anew for a version that was released: then they would not be its replicas any more.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

from cpreplicate import __version__, cli
from cpreplicate.storage.backends.local.local import LocalStorage
from cpreplicate.storage.base import Content
from cpreplicate.storage.sides import STORAGES

ROOT = Path("/tmp/cpreplicate-frozen")
CORPUS = Path(__file__).parent.parent / "tests" / "data"
FOLDER = "2.3.0-rocks-incr"
JOB = "55d11b0e36f1bfdaa08cb74d9bea9f76"
RECORDED = f"file:/srv/flink/datacenter/{FOLDER}"
_KILLED = 137
_FAILED = 3


class DyingStorage(LocalStorage):
    """Ends the process, as kill -9 does, before a file whose path matches appears or is deleted."""

    def __init__(self, deadly: str) -> None:
        self._deadly = re.compile(deadly)

    def _may_die(self, uri: str) -> None:
        if self._deadly.search(uri):
            os._exit(_KILLED)

    def rename(self, uri: str, new_uri: str, replace: bool) -> bool:
        self._may_die(new_uri)
        return super().rename(uri, new_uri, replace)

    def delete(self, uri: str, durable: bool = False) -> bool:
        self._may_die(f"delete {uri}")
        return super().delete(uri, durable)


class FailingStorage(LocalStorage):
    """Fails to write files whose path matches."""

    def __init__(self, failing: str) -> None:
        self._failing = re.compile(failing)

    def write_new(self, uri: str, content: Content) -> int:
        if self._failing.search(uri):
            raise PermissionError(13, "Permission denied", uri)
        return super().write_new(uri, content)

    def rename(self, uri: str, new_uri: str, replace: bool) -> bool:
        if self._failing.search(new_uri):
            raise PermissionError(13, "Permission denied", new_uri)
        return super().rename(uri, new_uri, replace)


def main() -> None:
    """Freeze every state, or run one command with a storage that dies or fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dying", metavar="PATTERN", help=argparse.SUPPRESS)
    parser.add_argument("--failing", metavar="PATTERN", help=argparse.SUPPRESS)
    options, words = parser.parse_known_args()
    if options.dying or options.failing:
        _run_disturbed(options.dying, options.failing, words)
    directory = CORPUS / "frozen" / __version__
    directory.mkdir(parents=True, exist_ok=False)
    for name, make in STATES.items():
        shutil.rmtree(ROOT, ignore_errors=True)
        (ROOT / "dcB").mkdir(parents=True)
        shutil.copytree(CORPUS / "corpus" / FOLDER, ROOT / "dcA")
        make()
        with tarfile.open(directory / f"{name}.tar.gz", "w:gz") as archive:
            archive.add(ROOT / "dcB", "dcB", filter=_as_at_the_source)
        print(f"{name}: {sum(1 for path in (ROOT / 'dcB').rglob('*') if path.is_file())} files")
    shutil.rmtree(ROOT)


def _run_disturbed(dying: str | None, failing: str | None, words: Sequence[str]) -> None:
    storage = DyingStorage(dying) if dying else FailingStorage(failing or "")
    STORAGES["file"] = lambda _filesystem, _side: storage
    sys.argv = ["cpreplicate", *words]
    cli.main()


def _as_at_the_source(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Archive a file that is equal at the source as a link to it: `unpacked` copies it back."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    original, copy = ROOT / member.name.replace("dcB/", "dcA/ckpt/", 1), ROOT / member.name
    if member.isfile() and original.is_file() and original.read_bytes() == copy.read_bytes():
        member.type, member.size = tarfile.SYMTYPE, 0
        member.linkname = str(original.relative_to(ROOT))
    return member


def _cli(*words: str, code: int = 0, disturbed: Sequence[str] = ()) -> None:
    program = [sys.executable, __file__, *disturbed] if disturbed else _program()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    done = subprocess.run([*program, *words], check=False, env=environment)
    if done.returncode != code:
        sys.exit(f"{words} ended with {done.returncode}, not {code}")


def _program() -> list[str]:
    return [sys.executable, "-m", "cpreplicate"]


def _sync(number: int, *options: str, code: int = 0, disturbed: Sequence[str] = ()) -> None:
    source = f"file:{ROOT}/dcA/ckpt/{JOB}/chk-{number}"
    remap = ("--remap", f"{RECORDED}=file:{ROOT}/dcA", "--runner", "inline")
    words = ("sync", source, f"file:{ROOT}/dcB", *remap, *options)
    _cli(*words, code=code, disturbed=disturbed)


def _plain() -> None:
    _sync(6)


def _two_kept() -> None:
    _sync(6)
    _sync(7, "--keep", "2")


def _absolute() -> None:
    _sync(6, "--paths", "absolute")


def _packed() -> None:
    _sync(6, "--pack", "on")
    _sync(7, "--pack", "on", "--keep", "2")


def _adopted() -> None:
    """A checkpoint that somebody copied by hand, accepted by --adopt beside the next one."""
    replica = ROOT / "dcB" / JOB
    source = ROOT / "dcA" / "ckpt" / JOB
    replica.mkdir()
    for name in ("chk-6", "shared", "taskowned"):
        if (source / name).exists():
            shutil.copytree(source / name, replica / name)
    _sync(7, "--adopt")


def _adopted_sharing() -> None:
    """A checkpoint of a job that started from the replica, and shares files with it."""
    replica, job = ROOT / "dcB" / JOB, ROOT / "job"
    _sync(6, "--paths", "absolute")
    _sync(7, "--paths", "absolute", "--keep", "2")
    replica.rename(job)
    replica.mkdir()
    (replica / "README").write_text("of another program\n")
    _sync(6, "--paths", "absolute", "--adopt")
    for path in (*job.glob("chk-7/*"), *job.glob("shared/*")):
        copy = replica / path.relative_to(job)
        if not copy.exists():
            copy.parent.mkdir(exist_ok=True)
            shutil.copy(path, copy)
    shutil.rmtree(job)
    _sync(8, "--paths", "absolute", "--keep", "3", "--adopt")


def _promoted() -> None:
    _sync(6)
    _cli("promote", f"file:{ROOT}/dcB/{JOB}")


def _promoted_packed() -> None:
    _sync(6, "--pack", "on")
    _cli("promote", f"file:{ROOT}/dcB/{JOB}")


def _put_off() -> None:
    _sync(6)
    _sync(7, "--async-deletes")


def _disturbed(kind: str, pattern: str, code: int, *options: str) -> Callable[[], None]:
    def make() -> None:
        _sync(6, *options)
        _sync(7, *options, code=code, disturbed=(kind, pattern))

    return make


STATES: dict[str, Callable[[], None]] = {
    "plain": _plain,
    "two-kept": _two_kept,
    "absolute": _absolute,
    "packed": _packed,
    "adopted": _adopted,
    "adopted-sharing": _adopted_sharing,
    "promoted": _promoted,
    "promoted-packed": _promoted_packed,
    "put-off-deletes": _put_off,
    "some-copies-failed": _disturbed("--failing", r"/shared/[0-7][^/]*$", _FAILED),
    "died-before-commit": _disturbed("--dying", r"chk-7/_metadata$", _KILLED),
    "died-after-commit": _disturbed("--dying", r"chk-7\.parquet$", _KILLED),
    "died-at-deletes": _disturbed("--dying", r"^delete .*/(shared|chk-6)/[^_]", _KILLED),
    "packed-died-before-commit": _disturbed(
        "--dying", r"chk-7/_metadata$", _KILLED, "--pack", "on"
    ),
    "packed-died-after-commit": _disturbed("--dying", r"chk-7\.parquet$", _KILLED, "--pack", "on"),
}

if __name__ == "__main__":
    main()
