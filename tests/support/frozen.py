"""Replicas of earlier versions, as `scripts/freeze_replicas.py` wrote them."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

from cpreplicate.core.uri import Remap
from tests.support.corpus import RECORDED
from tests.support.corpus import ROOT as CORPUS

FROZEN = Path(__file__).parent.parent / "data" / "frozen"
# The archives hold absolute paths below this directory.
PLACE = Path("/tmp/cpreplicate-frozen")
JOB = "55d11b0e36f1bfdaa08cb74d9bea9f76"
_FOLDER = "2.3.0-rocks-incr"
SOURCE = PLACE / "dcA" / "ckpt" / JOB
TARGET_ROOT = PLACE / "dcB"
REPLICA = TARGET_ROOT / JOB
REMAP = Remap(f"{RECORDED}/{_FOLDER}", f"file:{PLACE}/dcA")


def archives() -> list[str]:
    """Return each frozen state as `<version>/<state>`."""
    found = sorted(FROZEN.glob("*/*.tar.gz"))
    return [f"{path.parent.name}/{path.name.removesuffix('.tar.gz')}" for path in found]


@contextlib.contextmanager
def unpacked(state: str) -> Iterator[Path]:
    """Lay a frozen replica and its source where they were made, and provide the replica.

    Only one process of this machine does so at a time.
    """
    with open(f"{PLACE}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(PLACE, ignore_errors=True)
        try:
            shutil.copytree(CORPUS / _FOLDER, PLACE / "dcA")
            _extract(FROZEN / f"{state}.tar.gz")
            yield REPLICA
        finally:
            shutil.rmtree(PLACE)


def _extract(archive: Path) -> None:
    """Extract an archive, and replace each link to a file of the source by a copy of that file."""
    with tarfile.open(archive) as members:
        members.extractall(PLACE, filter="fully_trusted")
    for link in [path for path in TARGET_ROOT.rglob("*") if path.is_symlink()]:
        original = PLACE / link.readlink()
        link.unlink()
        shutil.copy2(original, link)
