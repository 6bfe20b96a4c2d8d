"""The real checkpoints under `tests/data/corpus`, written by Flink, and writable copies of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from cpreplicate.core.uri import Remap
from tests.support import checker

ROOT = Path(__file__).parent.parent / "data" / "corpus"
RECORDED = "file:/srv/flink/datacenter"


class Checkpoint(NamedTuple):
    """A checkpoint of the corpus, by the name of its folder there, its job and its number."""

    folder: str
    job: str
    number: int


def checkpoints() -> list[Checkpoint]:
    """Every checkpoint of the corpus; savepoints are not among them."""
    found = sorted(ROOT.glob("*/ckpt/*/chk-*/_metadata"))
    return [
        Checkpoint(p.parts[-5], p.parts[-3], int(p.parts[-2].removeprefix("chk-"))) for p in found
    ]


class DataCentre:
    """A writable copy of one folder of the corpus: the source's storage."""

    def __init__(self, folder: str, directory: Path) -> None:
        self.folder = folder
        self.path = directory / "dcA"
        shutil.copytree(ROOT / folder, self.path)

    @property
    def remap(self) -> Remap:
        """What reads recorded paths from this copy."""
        return Remap(f"{RECORDED}/{self.folder}", f"file:{self.path}")

    def job_root(self, job: str) -> Path:
        """The directory of a job."""
        return self.path / "ckpt" / job

    def jobs(self) -> list[str]:
        """The jobs of this folder."""
        return sorted(each.name for each in (self.path / "ckpt").iterdir())

    def numbers(self, job: str) -> list[int]:
        """The checkpoints of a job, oldest first."""
        return sorted(
            int(p.parent.name.removeprefix("chk-"))
            for p in self.job_root(job).glob("chk-*/_metadata")
        )

    def is_whole(self, job: str, number: int) -> bool:
        """Whether a checkpoint has all its files: after a CLAIM restore Flink leaves older ones
        without.
        """
        recorded = f"{RECORDED}/{self.folder}".removeprefix("file:")
        needs = checker.needs(
            self.job_root(job) / f"chk-{number}" / "_metadata", check_directories=False
        )
        return all(Path(need.path.replace(recorded, str(self.path))).exists() for need in needs)


def tree(root: Path) -> dict[str, bytes]:
    """Every file below a directory, with its bytes; cpreplicate's own record is left out."""
    files = (path for path in root.rglob("*") if path.is_file())
    return {
        str(p.relative_to(root)): p.read_bytes() for p in files if ".cpreplicate" not in p.parts
    }
