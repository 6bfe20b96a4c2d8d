"""HDFS clusters for measuring: the tests' own, with a JVM that compiles well and a heap of a real
server's kind.
"""

from __future__ import annotations

from pathlib import Path

from tests.support import hdfs
from tests.support.hdfs import HdfsCluster

# DataNodes by the names that they were given, not as the NameNode sees them
NAMED = "dfs.client.use.datanode.hostname=true"

# Later options win over those of the tests, which are for a quick start.
_JVM = ["-Xmx1g", "-XX:TieredStopAtLevel=4", "-XX:-UseSerialGC", "-XX:+UseParallelGC"]


class BenchCluster(HdfsCluster):
    """One NameNode, two DataNodes, one replica a block."""

    def _launch(self, options: list[str]) -> None:
        super()._launch([*_JVM, *options])

    def rpcs(self) -> int:
        """All calls of clients since it started."""
        return sum(self.rpc_counts().values())


class FarCluster(BenchCluster):
    """One that is reached at an address other than loopback, by clients configured with `NAMED`."""

    def __init__(self, address: str) -> None:
        super().__init__(conf={"far.address": address})

    def _launch(self, options: list[str]) -> None:
        classpath = f"{hdfs._JAR}:{hdfs._pyspark_jars()}/*"
        shared = [option for option in options if not option.startswith("-XX:SharedArchiveFile")]
        # the main class comes first and so takes the place of the tests' own, which becomes a word
        # for it
        super()._launch(
            [*shared, "-cp", classpath, str(Path(__file__).with_name("FarCluster.java"))]
        )
