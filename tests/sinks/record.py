"""Write checkpoints of `tests/data/sinks` again: `python -m tests.sinks.record [NAME…]`.

Each is of a real Flink job that wrote part files: below DIRECTORY, which is removed at the end, to
HDFS, or to S3. `files` beside it has those that were there when the job halted.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from cpreplicate.storage import Side
from tests.support.hdfs import HdfsCluster
from tests.support.s3 import REGION, S3Server, side_options
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


def record(name: str, job: SinkJob, out: str, sink: str, conf: Mapping[str, str]) -> None:
    """Keep the `_metadata` at which a job with this sink halted."""
    with tempfile.TemporaryDirectory() as checkpoints:
        arguments = {"until": 4000, "perCheckpoint": 300, "haltAt": HALT_AT, "sink": sink, **conf}
        halted = job.run(out=out, checkpoints=f"file:{checkpoints}", **arguments)
        assert halted == {"event": "halted", "checkpoint": HALT_AT}, halted
        (metadata,) = Path(checkpoints).glob(f"*/chk-{HALT_AT}/_metadata")
        kept = DATA / name / f"chk-{HALT_AT}"
        kept.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(metadata, kept / "_metadata")


def keep_files(name: str, out: str, side: Side) -> None:
    """Keep the URIs of the files in both buckets."""
    places = [f"{out}/{bucket}" for bucket in ("even", "odd")]
    listed = ((place, side.storage(place).list(place)) for place in places)
    files = sorted(f"{place}/{status.name}" for place, found in listed for status in found)
    (DATA / name / "files").write_text("\n".join(files) + "\n")


def record_disk(version: str, sink: str) -> None:
    name = f"{RELEASES[version]}-{sink}"
    out = f"file:{DIRECTORY}/{name}/out"
    record(name, SinkJob(version), out, sink, {})
    keep_files(name, out, Side())


def record_hdfs() -> None:
    with HdfsCluster(datanodes=1) as cluster:
        out = f"{cluster.uri}/out"
        record("2.3.0-hdfs", SinkJob("2"), out, "row", {})
        keep_files("2.3.0-hdfs", out, Side())


def record_s3() -> None:
    with S3Server() as server:
        out = f"{server.make_bucket('sinks')}/out"
        conf = {
            "s3.endpoint": server.endpoint,
            "s3.endpoint.region": REGION,
            "s3.access-key": "test",
            "s3.secret-key": "test",
            "s3.path.style.access": "true",
            "s3.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        }
        record("2.3.0-s3", SinkJob("2", has_s3=True), out, "row", conf)
        options = tuple(side_options(server.endpoint).items())
        keep_files("2.3.0-s3", out, Side((("", options),)))


def main(names: Iterable[str]) -> None:
    others = {"2.3.0-hdfs": record_hdfs, "2.3.0-s3": record_s3}
    kinds = {
        f"{RELEASES[version]}-{sink}": (version, sink)
        for version, sinks in KINDS.items()
        for sink in sinks
    }
    for name in names or [*kinds, *others]:
        if name in others:
            others[name]()
        else:
            record_disk(*kinds[name])


if __name__ == "__main__":
    if DIRECTORY.exists():
        sys.exit(f"{DIRECTORY} exists")
    try:
        main(sys.argv[1:])
    finally:
        shutil.rmtree(DIRECTORY, ignore_errors=True)
