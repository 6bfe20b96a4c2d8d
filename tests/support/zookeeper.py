"""A real ZooKeeper, the one that Flink ships for high availability."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.flink import Flink
from tests.support.ports import free_port

_PEER = "org.apache.flink.runtime.zookeeper.FlinkZooKeeperQuorumPeer"


@contextlib.contextmanager
def zookeeper(flink: Flink) -> Iterator[str]:
    """Run a ZooKeeper while the block lasts, and yield its address. Clients wait until it is up."""
    with tempfile.TemporaryDirectory() as place:
        address = f"127.0.0.1:{free_port()}"
        lines = [
            "tickTime=2000",
            f"dataDir={place}",
            "clientPortAddress=127.0.0.1",
            f"clientPort={address.partition(':')[2]}",
            "minSessionTimeout=20000",  # a busy machine is no reason for another election
            "admin.enableServer=false",
            f"server.1=127.0.0.1:{free_port()}:{free_port()}",
        ]
        conf = Path(place) / "zoo.cfg"
        conf.write_text("\n".join(lines) + "\n")
        process = flink.process(
            "cpreplicate.Supervised", _PEER, "--zkConfigFile", str(conf), "--peerId", "1"
        )
        try:
            yield address
        finally:
            process.kill()
