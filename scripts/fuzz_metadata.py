"""Fuzzing of decode, rewrite, closure and placement, guided by coverage: `make fuzz`.

What fails is kept in `.fuzz/crashes`.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

import atheris

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

with atheris.instrument_imports(include=["cpreplicate"]):
    from tests.support import fuzz

INPUTS, CRASHES = ROOT / ".fuzz" / "corpus", ROOT / ".fuzz" / "crashes"
LONGEST, SLOWEST, MEMORY = 16 << 10, 20, 1024  # bytes of a file, seconds and MiB that it may take


def holds(data: bytes) -> None:
    """Fails for bytes that show a bug: no reading of use and no `MetadataError`, or one reading so
    and the other otherwise.
    """
    fuzz.survives(data)
    assert fuzz.rows(data) == fuzz.rows(data, stream=True) == fuzz.rows_one_by_one(data)


def write_seeds() -> None:
    """Real files and generated ones of every version, beside what earlier runs found."""
    for directory in (INPUTS, CRASHES):
        directory.mkdir(parents=True, exist_ok=True)
    for seed in (
        *fuzz.corpus(),
        *(seed for version in fuzz.VERSIONS for seed in fuzz.generated(version)),
    ):
        # libFuzzer's own way to name them
        (INPUTS / hashlib.sha1(seed.data).hexdigest()).write_bytes(seed.data)


def main() -> None:
    """Run libFuzzer until the time is over or something fails.

    What failed before is tried first.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=3600, help="how long (default: an hour)")
    seconds = parser.parse_args().seconds
    write_seeds()
    limits = (
        f"-max_total_time={seconds}",
        f"-max_len={LONGEST}",
        f"-timeout={SLOWEST}",
        f"-rss_limit_mb={MEMORY}",
    )
    atheris.Setup(
        [sys.argv[0], str(INPUTS), str(CRASHES), f"-artifact_prefix={CRASHES}/", *limits], holds
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
