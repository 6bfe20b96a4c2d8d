"""Write the checkpoints of `tests/data/sinks` again: `python -m tests.sinks.record`.

Each is of a real Flink job that wrote part files below DIRECTORY, which is removed at the end.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.support.sink_flink import RELEASES, SinkJob

DATA = Path(__file__).resolve().parent.parent / "data" / "sinks"
DIRECTORY = Path("/srv/flink/datacenter/sinks")  # is in the states
HALT_AT = 3
KINDS = {
    "1.13": ("row", "streaming"),
    "1.17": ("row", "streaming"),
    "1": ("row", "streaming", "compacting"),
    "2": ("row", "compacting"),
}


def record(version: str, sink: str) -> None:
    """Keep the `_metadata` at which a job with this sink halted."""
    name = f"{RELEASES[version]}-{sink}"
    place = DIRECTORY / name
    halted = SinkJob(version).run(
        out=f"file:{place}/out",
        checkpoints=f"file:{place}/ckpt",
        until=4000,
        perCheckpoint=300,
        haltAt=HALT_AT,
        sink=sink,
    )
    assert halted == {"event": "halted", "checkpoint": HALT_AT}, halted
    (metadata,) = place.glob(f"ckpt/*/chk-{HALT_AT}/_metadata")
    kept = DATA / name / f"chk-{HALT_AT}"
    kept.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(metadata, kept / "_metadata")
    listing = sorted(str(each.relative_to(place)) for each in place.glob("out/*/*"))
    (DATA / name / "files").write_text("\n".join(listing) + "\n")


if __name__ == "__main__":
    if DIRECTORY.exists():
        sys.exit(f"{DIRECTORY} exists")
    try:
        for each, sinks in KINDS.items():
            for kind in sinks:
                record(each, kind)
    finally:
        shutil.rmtree(DIRECTORY)
