"""What a plan costs the driver, from `_metadata` to batches for executors, in CPU seconds: part of
`make bench`.
"""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.jobs import JOB

REFERENCES = (125_000, 250_000, 500_000, 1_000_000)
SUBTASKS = 1_000
SLOTS = 800
SECONDS = 6.0  # at most, for the last of them
PEAK = 1_100 << 20  # bytes; 1 GiB is missed by 5 %: a file is two texts and a row of numbers


def measure(root: str) -> None:
    """In a process of its own: the seconds of a plan into an empty replica and of its batches, and
    the memory at most.
    """
    from cpreplicate.operations.sync.plan.plan import make_plan
    from cpreplicate.operations.sync.request import SyncRequest
    from cpreplicate.operations.sync.source.state import read_source, target_replica
    from cpreplicate.operations.sync.tasks import copies
    from cpreplicate.protocol.lease import LeaseToken
    from cpreplicate.protocol.ledger import Ledger
    from cpreplicate.protocol.replica_state import examine
    from cpreplicate.runners.batching import batches
    from cpreplicate.runners.spark.transport import encode

    gc.set_threshold(5_000_000, 20, 20)  # as the command line does
    request = SyncRequest(f"file:{root}/{JOB}/chk-1", f"file:{root}/dcB")
    began = time.process_time()
    wanted = read_source(request)
    replica = target_replica(wanted)
    state = examine(replica)
    made = make_plan(wanted, replica, state, Ledger(replica, state))
    planned = time.process_time()
    # the file's sizes are not real
    packed = batches(
        copies(made, wanted, replica, LeaseToken("", ""), "packed/run"), SLOTS, batch_bytes=1 << 60
    )
    sent = sum(len(encode(batch)) for batch in packed)
    ended = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert len(made.copies) == len(wanted.needed), "the replica is empty"
    print(
        json.dumps(
            {"plan": planned - began, "batches": ended - planned, "sent": sent, "peak": peak}
        )
    )


def main() -> None:
    """One size after the other."""
    print(
        "| references | plan, s | batches, s | together, s | sent, MB | peak memory, MiB |\n"
        + "| --- " * 6
        + "|"
    )
    for references in REFERENCES:
        found = measured(references)
        seconds = found["plan"] + found["batches"]
        cells = (
            f"{references:,}",
            f"{found['plan']:.1f}",
            f"{found['batches']:.1f}",
            f"{seconds:.1f}",
            f"{found['sent'] / 1e6:.0f}",
            f"{found['peak'] / 2**20:.0f}",
        )
        print(f"| {' | '.join(cells)} |", flush=True)
    met = seconds <= SECONDS and found["peak"] <= PEAK
    print(
        f"\nAt most {SECONDS:.0f} s and {PEAK >> 20} MiB for {references:,} references:"
        f" {'met' if met else '**not met**'}"
    )


def measured(references: int) -> dict[str, float]:
    """`measure` of a checkpoint with so many references to as many files."""
    from tests.support.generate import synthetic  # what that imports takes memory of its own

    with tempfile.TemporaryDirectory(prefix="cpreplicate-bench-") as root:
        checkpoint = Path(root, JOB, "chk-1")
        checkpoint.mkdir(parents=True)
        with open(checkpoint / "_metadata", "wb") as file:
            file.writelines(synthetic(references, SUBTASKS, directory=f"file:{root}/{JOB}"))
        command = [sys.executable, __file__, root]
        return dict(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        measure(sys.argv[1])
    else:
        main()
