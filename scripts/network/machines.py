"""Network namespaces that stand in for machines, on a switch that is another one.

Each has an address, a file of host names, firewall rules and a cable of its own. They share disks,
users, process numbers and the name of this host. Whatever runs in one is killed when the network
ends; setpriv(1) has the kernel kill what was started here if this process dies.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

_ETC = Path("/etc/netns")  # ip-netns(8): what is below a name there covers /etc in the namespace
_SUBNET = "10.78.0"
NEEDED = ("ip", "iptables", "setpriv", "cc")


class NetworkError(Exception):
    """This host cannot do what a namespace needs."""


class Machine:
    """One namespace; `name` is what the others call it."""

    def __init__(self, prefix: str, name: str, number: int) -> None:
        self.name, self.address = name, f"{_SUBNET}.{number}"
        self.namespace, self._port, self._switch = f"{prefix}-{name}", f"port{number}", prefix

    def connect(self) -> None:
        """Create the namespace, and plug it into the switch."""
        _ip("netns", "add", self.namespace)
        peer = ("type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        _ip("-n", self._switch, "link", "add", self._port, *peer)
        _ip("-n", self._switch, "link", "set", self._port, "master", "switch", "up")
        _ip("-n", self.namespace, "addr", "add", f"{self.address}/24", "dev", "eth0")
        _ip("-n", self.namespace, "link", "set", "eth0", "up")
        _ip("-n", self.namespace, "link", "set", "lo", "up")

    def know(self, machines: Sequence[Machine]) -> None:
        """Let it resolve these machines, and none else. For commands that are started later too."""
        directory = _ETC / self.namespace
        directory.mkdir(parents=True, exist_ok=True)
        names = [f"{each.address} {each.name}" for each in machines]
        # there is no server of names: so a name that is not in the file is unknown at once
        (directory / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        # in place: the file is mounted where commands run
        (directory / "hosts").write_text(
            "\n".join([f"127.0.0.1 localhost {socket.gethostname()}", *names, ""])
        )

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        """While the block runs, its cable is unplugged."""
        self.unplug()
        try:
            yield
        finally:
            self.plug()

    def unplug(self) -> None:
        """Cut it off: nobody is notified."""
        _ip("-n", self._switch, "link", "set", self._port, "down")

    def plug(self) -> None:
        """Connect it again."""
        _ip("-n", self._switch, "link", "set", self._port, "up")

    @contextlib.contextmanager
    def firewall(self, *rules: str) -> Iterator[None]:
        """While the block runs, these rules of iptables hold for what comes in."""
        try:
            for rule in rules:
                self.run("iptables", "-A", "INPUT", *rule.split())
            yield
        finally:
            self.run("iptables", "-F", "INPUT")

    def run(self, *words: str) -> str:
        """Run a command to its end, and return what it prints."""
        done = subprocess.run(
            self.words(words), capture_output=True, text=True, check=False, timeout=600
        )
        if done.returncode:
            raise NetworkError(f"{' '.join(words)} on {self.name}: {done.stderr[-2000:]}")
        return done.stdout

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], output: IO[bytes], cwd: Path
    ) -> subprocess.Popen[bytes]:
        """Start a command as a session of its own."""
        return subprocess.Popen(
            self.words(words),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=cwd,
            env=dict(environment),
            start_new_session=True,
        )

    def words(self, words: Sequence[str]) -> list[str]:
        """Return a command line that runs a command there."""
        bound = ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", self.namespace]
        return [*bound, *words]

    def processes(self) -> list[int]:
        """Return the numbers of the processes that run there."""
        return [int(word) for word in _ip("netns", "pids", self.namespace).split()]

    def remove(self) -> None:
        """Kill what runs there, and remove the namespace and its file of names."""
        if Path(f"/run/netns/{self.namespace}").exists():
            end = time.monotonic() + 60
            while (processes := self.processes()) and time.monotonic() < end:
                for process in processes:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
                time.sleep(0.1)
            _ip("netns", "delete", self.namespace)
        shutil.rmtree(_ETC / self.namespace, ignore_errors=True)


class Network:
    """Machines of these names, each of which reaches and resolves all of them."""

    def __init__(self, *names: str) -> None:
        # other networks may be there, of other runs
        self._switch = f"cpr{os.getpid()}"
        self.machines = {
            name: Machine(self._switch, name, number) for number, name in enumerate(names, 1)
        }

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    def __enter__(self) -> Network:
        _refuse_if_missing()
        try:
            _ip("netns", "add", self._switch)
            _ip("-n", self._switch, "link", "add", "switch", "type", "bridge")
            _ip("-n", self._switch, "link", "set", "switch", "up")
            for machine in self.machines.values():
                machine.connect()
                machine.know(list(self.machines.values()))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for machine in self.machines.values():
            machine.remove()
        with contextlib.suppress(NetworkError):  # it was not made
            _ip("netns", "delete", self._switch)


def _refuse_if_missing() -> None:
    if os.geteuid() != 0:
        raise NetworkError("network namespaces need root")
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        raise NetworkError(f"not installed: {', '.join(missing)}. See scripts/need.sh")


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise NetworkError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
