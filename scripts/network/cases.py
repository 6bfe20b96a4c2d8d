"""The cases: what is broken, what is expected of a sync, and what it did.

Each begins with both workers and an empty target, and ends with a replica that is whole: at once if
the sync is expected to complete, else after it was run again.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from scripts.network.machines import Machine
from scripts.network.servers import CLOCK, write_python
from scripts.network.sites import Ended, Site

SLOWLY = ("--bandwidth", "200KB/s")  # a minute and a half
PORTS = {"spark.driver.port": 7078, "spark.driver.blockManager.port": 7079}
RPC_PORT = 7080
_TIMEOUT = 60.0  # of --engine-timeout
_EXPIRES = "150s"  # after that, a lease that nobody renews is another run's
_DISK_MIB = 64
_OFF = 90.0  # seconds for which a machine is cut off


class Expected(NamedTuple):
    """The exit code of a sync, what its messages contain, and the seconds until it ends.

    These count from the break, if there is one in the middle. `lease_may_stay`: the storage is not
    reached either, so the lease expires by itself.
    """

    code: int
    message: str = ""
    within: float = float("inf")
    lease_may_stay: bool = False

    def __str__(self) -> str:
        within = "" if self.within == float("inf") else f" within {self.within:.0f} s"
        message = f', "{self.message}"' if self.message else ""
        return f"exit {self.code}{message}{within}"


def vanished(site: Site, root: str) -> Ended:
    """The master and both workers are cut off in the middle."""
    with site.sync(root, *SLOWLY) as run, contextlib.ExitStack() as cables:
        run.wait_for_copies(10)
        began = time.monotonic()
        for worker in site.workers:
            cables.enter_context(worker.cut_off())
        return site.result(run, root, began)


def killed(site: Site, root: str) -> Ended:
    """The master and both workers are killed in the middle."""
    with site.sync(root, *SLOWLY) as run:
        run.wait_for_copies(10)
        began = time.monotonic()
        for name in ("master", "worker-1", "worker-2"):
            site.spark.kill(name)
        return site.result(run, root, began)


def never_there(site: Site, root: str) -> Ended:
    """No master runs."""
    site.spark.close()
    with site.sync(root) as run:
        return site.result(run, root, run.began)


def cut_off(site: Site, root: str) -> Ended:
    """A worker is cut off for 90 s in the middle."""
    with site.sync(root, *SLOWLY) as run:
        run.wait_for_copies(10)
        with site.workers[1].cut_off():
            time.sleep(_OFF)
        return site.result(run, root, run.began)


def driver_cut_off(site: Site, root: str) -> Ended:
    """The driver is cut off from everything for 90 s in the middle."""
    with site.sync(root, *SLOWLY) as run:
        run.wait_for_copies(10)
        began = time.monotonic()
        with site.driver.cut_off():
            time.sleep(_OFF)
        return site.result(run, root, began)


def _conf(**ports: int) -> list[str]:
    return [word for name, port in ports.items() for word in ("--conf", f"{name}={port}")]


def _no_new_connections(ports: str = "") -> str:
    return f"-p tcp --syn -i eth0 {ports} -j DROP"


def firewall_everything(site: Site, root: str) -> Ended:
    """The driver takes no connection."""
    timeout = ("--engine-timeout", f"{_TIMEOUT:.0f}s")
    with site.driver.firewall(_no_new_connections()), site.sync(root, *timeout) as run:
        return site.result(run, root, run.began)


def firewall_open(site: Site, root: str) -> Ended:
    """The driver takes connections at the three ports that are given."""
    ports = {**PORTS, "spark.cpreplicate.port": RPC_PORT}
    rule = f"-m multiport ! --dports {','.join(map(str, ports.values()))}"
    with (
        site.driver.firewall(_no_new_connections(rule)),
        site.sync(root, *SLOWLY, *_conf(**ports)) as run,
    ):
        return site.result(run, root, run.began)


def _firewall_rpc(site: Site, root: str, *words: str) -> Ended:
    conf = _conf(**PORTS, **{"spark.cpreplicate.port": RPC_PORT})
    rule = _no_new_connections(f"--dport {RPC_PORT}")
    with site.driver.firewall(rule), site.sync(root, *conf, *words) as run:
        return site.result(run, root, run.began)


def firewall_rpc(site: Site, root: str) -> Ended:
    """The driver takes no connection at spark.cpreplicate.port."""
    return _firewall_rpc(site, root)


def firewall_rpc_limited(site: Site, root: str) -> Ended:
    """The same, with a limit."""
    return _firewall_rpc(site, root, "--bandwidth", "2MB/s")


@contextlib.contextmanager
def _unknown(site: Site, machine: Machine, name: str) -> Iterator[None]:
    everyone = list(site.network.machines.values())
    machine.know([each for each in everyone if each.name != name])
    try:
        yield
    finally:
        machine.know(everyone)


def name_unknown_to_a_worker(site: Site, root: str) -> Ended:
    """One worker does not resolve the name of the target."""
    with _unknown(site, site.workers[1], "hdfs-b"), site.sync(root, *SLOWLY) as run:
        return site.result(run, root, run.began)


def name_unknown_to_workers(site: Site, root: str) -> Ended:
    """No worker resolves the name of the target."""
    first, second = (_unknown(site, worker, "hdfs-b") for worker in site.workers)
    with first, second, site.sync(root, "--retry-for", "10s") as run:
        return site.result(run, root, run.began)


def name_unknown_to_driver(site: Site, root: str) -> Ended:
    """The driver does not resolve the name of the source."""
    with _unknown(site, site.driver, "hdfs-a"), site.sync(root, "--retry-for", "10s") as run:
        ended = run.ended()
        seconds = time.monotonic() - run.began
    return Ended(ended, seconds, run.messages(), tuple(site.helper("lease", root)))


def driver_unknown(site: Site, root: str) -> Ended:
    """The driver has a name that no worker resolves."""
    first, second = (_unknown(site, worker, "driver") for worker in site.workers)
    words = ("--conf", "spark.driver.host=driver", "--engine-timeout", f"{_TIMEOUT:.0f}s")
    with first, second, site.sync(root, *words) as run:
        return site.result(run, root, run.began)


def full_disk(site: Site, root: str) -> Ended:
    """The disk of one worker is full."""
    worker = site.workers[1]
    with _small_disk(site) as disk:
        site.spark.kill(worker.name)
        site.spark.start_worker(worker, disk / "work", {"SPARK_LOCAL_DIRS": str(disk / "local")})
        _fill(disk)
        with site.sync(root, *SLOWLY) as run:
            ended = site.result(run, root, run.began)
        site.spark.kill(worker.name)
    return ended


def disk_fills(site: Site, root: str) -> Ended:
    """The disk of one worker becomes full in the middle."""
    worker = site.workers[1]
    with _small_disk(site) as disk:
        site.spark.kill(worker.name)
        site.spark.start_worker(worker, disk / "work", {"SPARK_LOCAL_DIRS": str(disk / "local")})
        with site.sync(root, *SLOWLY) as run:
            run.wait_for_copies(10)
            _fill(disk)
            ended = site.result(run, root, run.began)
        site.spark.kill(worker.name)
    return ended


@contextlib.contextmanager
def _small_disk(site: Site) -> Iterator[Path]:
    disk = site.directory / "small-disk"
    disk.mkdir(exist_ok=True)
    options = f"size={_DISK_MIB}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        # lazily: what was killed just now may hold it for a moment
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def _fill(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(1 << 16))


def _clock(site: Site, root: str, shift: str) -> Ended:
    """Shift the clock of the Python workers on one machine, which are what deletes."""
    worker = site.workers[1]
    python = write_python(site.directory)
    site.spark.kill(worker.name)
    site.spark.start_worker(worker, added={CLOCK: shift})
    try:
        with site.sync(root, *SLOWLY, "--conf", f"spark.pyspark.python={python}") as run:
            return site.result(run, root, run.began)
    finally:
        site.spark.kill(worker.name)


def clock_ahead(site: Site, root: str) -> Ended:
    """The clock of one worker is 45 s ahead."""
    return _clock(site, root, "45")


def clock_behind(site: Site, root: str) -> Ended:
    """The clock of one worker is 45 s behind."""
    return _clock(site, root, "-45")


class Case(NamedTuple):
    """A case by its name."""

    name: str
    run: Callable[[Site, str], Ended]
    expected: Expected

    @property
    def what(self) -> str:
        """What is broken."""
        return str(self.run.__doc__).rstrip(".")


_SILENT = "no executor of Spark has answered for as long"
_NONE_CAME = "no executor of Spark has come within 60 s"
CASES = [
    Case("vanished", vanished, Expected(7, _SILENT, _TIMEOUT)),
    Case("killed", killed, Expected(7, _SILENT, _TIMEOUT)),
    Case("no-master", never_there, Expected(7, "no Spark master has answered", 1.5 * _TIMEOUT)),
    Case("cut-off", cut_off, Expected(0)),
    Case("firewall", firewall_everything, Expected(7, _NONE_CAME)),
    Case("firewall-open", firewall_open, Expected(0)),
    Case("firewall-rpc", firewall_rpc, Expected(0)),
    Case("firewall-limit", firewall_rpc_limited, Expected(3, "does not reach the driver")),
    Case("name-worker", name_unknown_to_a_worker, Expected(0)),
    Case("name-workers", name_unknown_to_workers, Expected(3, "hdfs-b")),
    Case("name-driver", name_unknown_to_driver, Expected(7, "hdfs-a")),
    Case("driver-name", driver_unknown, Expected(7, _NONE_CAME)),
    Case("disk", full_disk, Expected(0)),
    Case("disk-fills", disk_fills, Expected(0)),
    Case("clock-ahead", clock_ahead, Expected(0, "s ahead of the driver's")),
    Case("clock-behind", clock_behind, Expected(0, "s behind the driver's")),
    Case("driver-cut-off", driver_cut_off, Expected(7, lease_may_stay=True)),
]


class Row(NamedTuple):
    """What a case did, and what is wrong with that."""

    case: Case
    ended: Ended
    again: int | None
    faults: list[str]

    @property
    def complaints(self) -> list[str]:
        """Return what differs from what was expected, nothing if all is well."""
        expected, ended = self.case.expected, self.ended
        found = [f"after that, {fault}" for fault in self.faults]
        if ended.code != expected.code:
            found.append(f"exit {ended.code}")
        if expected.message not in ended.messages:
            found.append(f"no {expected.message!r} in: {ended.messages[-500:]}")
        if ended.seconds > expected.within:
            found.append("too late")
        if "lease" in ended.left and not expected.lease_may_stay:
            found.append("the lease stayed")
        if ended.code and "committed" in ended.left:
            found.append("it was committed")
        if self.again not in (None, 0):
            found.append(f"run again: exit {self.again}")
        return found

    def cells(self) -> list[str]:
        """Return its line of the table."""
        then = "whole" if self.again is None else "run again: exit 0, whole"
        lease = "the lease left to expire" if "lease" in self.ended.left else "no lease left"
        happened = "; ".join(self.complaints) or f"exit {self.ended.code}, {lease}, {then}"
        return [
            self.case.what,
            str(self.case.expected),
            happened,
            f"{self.ended.seconds:.0f}",
        ]


def run_case(site: Site, case: Case) -> Row:
    """Run a case on servers that are whole, and then look at the replica."""
    site.spark.start()
    root = f"{site.target.uri}/{case.name}"
    ended = case.run(site, root)
    again = None
    if ended.code:
        with site.sync(root, "--lock-wait", _EXPIRES, runner="inline") as run:
            again = run.ended()
    return Row(case, ended, again, site.helper("check", root))
