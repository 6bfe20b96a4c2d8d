"""The standstill of a job that moves over a long-distance line: `make bench-switch`.

Real Flink 2.3 and HDFS at both ends of an emulated line of 200 Mbit/s with a round trip of 40 ms
(`scripts/bench/link.py`); `switch` and DistCp run at the end of A. The same job is moved in each
way, all of them in one run: by `switch` with a checkpoint; by `switch` with a savepoint; by sync,
cancel, sync, promote and a start, each a command; and by stop with a savepoint, DistCp, and a
start. The standstill is from the request for its end until all of its tasks run. Prints what it is
at on stderr, and a table with the ratios to DistCp's. Needs root, as namespaces and TUN devices do.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cpreplicate.flink.control import Run
from cpreplicate.operations.handover.switch.ending import wait_for_end
from cpreplicate.operations.handover.switch.request import JobSwitch
from cpreplicate.operations.handover.switch.switch import switch
from cpreplicate.protocol.switch_record import new_id
from cpreplicate.storage import Side, Sides
from scripts.bench import distcp
from scripts.bench.clusters import NAMED, BenchCluster, FarCluster
from scripts.bench.link import ADDRESSES, Link
from scripts.bench.measured import end_tidily
from tests.support import hdfs
from tests.support.flink import Flink
from tests.support.sessions import session
from tests.support.switching import Pair

_MIB, _MBIT = 1 << 20, 1e6
_RATE, _ROUND_TRIP = 200 * _MBIT, 0.04
_PADDING = 2500  # bytes of each of the two values of a key, of which one changes at each visit
_FULL = 0.9  # of the state that it comes to
_LOOKED_AT = 3  # checkpoints in which it is measured how much is new
_INTERVAL = 10_000  # milliseconds from one checkpoint to the next
_RETAINED = 3
_MANAGED = "512mb"  # what Flink gives RocksDB by default; the tests' 32 MiB stall its writes
_MAPS = 8
_SECONDS = 3600
_BIN = Path(sys.executable).parent
_BEGAN = time.perf_counter()


class Row(NamedTuple):
    """A way to move the job, what was copied after its end, and how long it stood still.

    `phases` are the seconds after the request for its end at which a step was done. `written` is
    how many bytes of new files its checkpoints had in a second before, compactions included.
    """

    name: str
    copied: int | None
    phases: Mapping[str, float]
    written: float = 0.0

    @property
    def standstill(self) -> float:
        return self.phases["running"]


class Sites(NamedTuple):
    """An HDFS at each end of the line, and Flink configured for one replica a block."""

    link: Link
    near: BenchCluster
    far: FarCluster
    flink: Flink
    scratch: Path


def main() -> None:
    """Measure each way once, and print a table."""
    end_tidily()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--state", type=int, default=2048, help="MiB of state (2048)")
    parser.add_argument("--ways", nargs="+", choices=_WAYS, default=list(_WAYS), metavar="WAY")
    given = parser.parse_args()
    ways = {name: _WAYS[name] for name in given.ways}
    load = [os.getloadavg()[0]]
    with _sites() as sites:
        rows = [_measured(name, way, sites, given.state) for name, way in ways.items()]
    load.append(os.getloadavg()[0])
    _print_table(rows, given.state, load)


def _print_table(rows: Sequence[Row], state: int, load: Sequence[float]) -> None:
    others = [row.standstill for row in rows if row.name == _BASE]
    print(
        f"{state} MiB of state, {_RATE / _MBIT:.0f} Mbit/s, {_ROUND_TRIP * 1000:.0f} ms;"
        f" {os.cpu_count()} cores, load {load[0]:.0f} before and {load[1]:.0f} after\n"
    )
    print("| way | new files | copied while it stood still | standstill | of DistCp's |")
    print("| --- | --- | --- | --- | --- |")
    for row in rows:
        copied = "" if row.copied is None else f"{row.copied / _MIB:.0f} MiB"
        share = f"{row.standstill / others[0]:.0%}" if others else ""
        print(
            f"| {row.name} | {row.written / 1e6:.1f} MB/s | {copied} | {row.standstill:.1f} s"
            f" | {share} |"
        )
    print()
    for row in rows:
        print(f"{row.name}: {_phases(row)}")


def _phases(row: Row) -> str:
    return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in row.phases.items())


def _progress(text: str) -> None:
    """Print what it is at, and the time since this process started."""
    print(f"{time.perf_counter() - _BEGAN:6.0f} s  {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _sites() -> Iterator[Sites]:
    hdfs.build()
    distcp.build()
    with Flink("2"):
        _progress("built: Maven has no network behind the link")
    near, far = BenchCluster(), FarCluster(ADDRESSES[1])
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        link = stack.enter_context(Link(_ROUND_TRIP))
        stack.callback(near.close)
        stack.callback(far.close)
        _progress("starting an HDFS at each end")
        with link.inside(1):
            far.start()
        stack.enter_context(link.inside(0))
        near.start()
        link.set_rate(_RATE)
        conf = near.write_conf_dir(scratch / "conf")
        yield Sites(link, near, far, stack.enter_context(Flink("2", conf)), scratch)


def _measured(name: str, way: Callable[[Pair, Sites], Row], sites: Sites, state: int) -> Row:
    _progress(f"{name}: starting Flink at each end")
    with _pair(name, sites) as pair:
        keys = state * _MIB // (2 * _PADDING)
        # one source visits 2,000 keys a second. Flink takes no savepoint of union state in parallel
        words = ("--padding", _PADDING, "--parallelism", 1, "--interval-ms", _INTERVAL)
        job_id = pair.start("--keys", keys, *words)
        written = _filled(pair, job_id, state * _MIB)
        row = way(pair, sites)._replace(name=name, written=written)
        _progress(f"{name}, {written / 1e6:.1f} MB/s of new files: {_phases(row)}")
        return row


def _filled(pair: Pair, job_id: str, wanted: int) -> float:
    """Return once a job has its state, with how many bytes of new files it writes in a second."""
    _progress("filling its state")
    while (size := _sizes(pair, job_id)[0]) < _FULL * wanted:
        _progress(f"{size / _MIB:.0f} of {wanted / _MIB:.0f} MiB")
        time.sleep(10)
    pair.a.wait_for_checkpoints(job_id, _LOOKED_AT)
    return _sizes(pair, job_id)[1]


def _sizes(pair: Pair, job_id: str) -> tuple[int, float]:
    """Return the bytes of the newest checkpoint of a job, and those that are new in a second."""
    found = pair.a.get(f"jobs/{job_id}/checkpoints")["history"]
    done = [each for each in found if each["status"] == "COMPLETED"][: _LOOKED_AT + 1]
    if len(done) < 2:
        return 0, 0.0
    seconds = (done[0]["trigger_timestamp"] - done[-1]["trigger_timestamp"]) / 1000
    new = sum(each["checkpointed_size"] for each in done[:-1])
    return int(done[0]["state_size"]), new / seconds


@contextlib.contextmanager
def _pair(name: str, sites: Sites) -> Iterator[Pair]:
    place = name.replace(" ", "-").replace(",", "")
    near = Side((("", tuple(sites.near.conf.items())),))
    option, _, value = NAMED.partition("=")
    far = Side((("", (*sites.far.conf.items(), (option, value))),))
    with contextlib.ExitStack() as stack:
        kept = ("--retained", _RETAINED, "--managed", _MANAGED)
        a = stack.enter_context(session(sites.flink, *kept))
        with sites.link.inside(1):
            b = stack.enter_context(session(sites.flink, *kept, "--address", ADDRESSES[1]))
        uris = (f"{sites.near.uri}/{place}", f"{sites.far.uri}/{place}")
        pair = Pair(a, b, *uris, Sides(near, far))
        stack.callback(pair.close)
        yield pair


def _by_checkpoint(pair: Pair, _sites: Sites) -> Row:
    return _row(switch(pair.request(), pair.clusters(), _progress))


def _by_savepoint(pair: Pair, _sites: Sites) -> Row:
    asked = pair.request(stop="savepoint", savepoints=f"{pair.dc_a}/savepoints")
    return _row(switch(asked, pair.clusters(), _progress))


def _row(done: JobSwitch) -> Row:
    assert done.standstill is not None, done
    return Row("", done.rounds[-1].bytes, done.phases)


def _by_hand(pair: Pair, _sites: Sites) -> Row:
    """Move it as docs/before-a-switch.md has it, without a look at the contents."""
    (a, b), (job_id,) = pair.clusters(), pair.a.running()
    directory, target = f"{pair.dc_a}/checkpoints/{job_id}", f"{pair.dc_b}/replicas"
    assert b is not None
    jar = b.upload(str(pair.b.jar))
    _command("sync", directory, target)
    _command("sync", directory, target)
    began, phases = time.monotonic(), dict[str, float]()
    a.cancel(job_id)
    wait_for_end(job_id, a, pair.request())
    phases["ended"] = time.monotonic() - began
    _command("sync", directory, target)
    phases["copied"] = time.monotonic() - began
    _command("promote", f"{target}/{job_id}")
    phases["promoted"] = time.monotonic() - began
    newest = max(
        int(each.name[4:])
        for each in pair.sides.target.storage(target).list(f"{target}/{job_id}")
        if each.name.startswith("chk-")
    )
    return _started(pair, jar, f"{target}/{job_id}/chk-{newest}", began, phases)


def _command(*words: str) -> None:
    conf = ["--target-conf", NAMED, *(["--runner", "inline"] if words[0] == "sync" else [])]
    command = [str(_BIN / "cpreplicate"), *words, *conf]
    subprocess.run(command, check=True, timeout=_SECONDS, stdout=sys.stderr)


def _by_distcp(pair: Pair, sites: Sites) -> Row:
    """Stop it with a savepoint, copy that, and start it."""
    (a, b), (job_id,) = pair.clusters(), pair.a.running()
    assert b is not None
    jar, trigger_id = b.upload(str(pair.b.jar)), new_id()
    began, phases = time.monotonic(), dict[str, float]()
    a.stop_with_savepoint(job_id, trigger_id, (2, 3), f"{pair.dc_a}/savepoints")
    wait_for_end(job_id, a, pair.request())
    while not (done := a.savepoint_result(job_id, trigger_id)).is_done:
        time.sleep(0.2)
    assert done.path is not None, done
    phases["ended"] = time.monotonic() - began
    point = f"{pair.dc_b}/savepoints/{done.path.rpartition('/')[2]}"
    settings = (distcp.QUICK_CLOSE, NAMED)
    words = distcp.command(done.path, point, sites.scratch / "distcp", _MAPS, settings)
    subprocess.run(words, check=True, timeout=_SECONDS)
    phases["copied"] = time.monotonic() - began
    return _started(pair, jar, point, began, phases)


def _started(pair: Pair, jar: str, point: str, began: float, phases: Mapping[str, float]) -> Row:
    """Start the job in B, and return how long it stood still."""
    b, job_id = pair.clusters().target, new_id()
    assert b is not None
    program = pair.request().program
    b.run(jar, Run(job_id, point, None, None, program.arguments), (2, 3))
    accepted = time.monotonic() - began
    while not b.has_all_tasks(job_id):
        time.sleep(0.05)
    return Row("", None, {**phases, "accepted": accepted, "running": time.monotonic() - began})


_BASE = "DistCp"
_WAYS: dict[str, Callable[[Pair, Sites], Row]] = {
    "switch, checkpoint": _by_checkpoint,
    _BASE: _by_distcp,
    "switch, savepoint": _by_savepoint,
    "by hand": _by_hand,
}


if __name__ == "__main__":
    main()
