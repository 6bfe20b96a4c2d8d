"""On real HDFS, `sync` refuses a directory that is not its own: the source under another name, or
another program's.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from cpreplicate.storage import Side
from tests.support import parts
from tests.support.commandline import Ended, run
from tests.support.hdfs import HdfsCluster
from tests.support.jobs import JOB, metadata, put_checkpoint

pytestmark = pytest.mark.xdist_group("hdfs")

REFUSED = 6
FILES = {"shared/a": 1000, "shared/b": 2000, "chk-1/own": 30}
NEXT = {"shared/b": 2000, "shared/c": 500, "chk-2/own": 40}


@dataclass(frozen=True)
class Name:
    """A name of an HDFS: what precedes a path, and the configuration with which it is reached."""

    prefix: str
    conf: dict[str, str]

    def words(self, side: str) -> list[str]:
        """The options of the command line for one side."""
        return [
            word
            for key, value in self.conf.items()
            for word in (f"--{side}-conf", f"{key}={value}")
        ]


def by_address(cluster: HdfsCluster, host: str = "") -> Name:
    address, _, port = cluster.namenodes[cluster.active or 0].rpartition(":")
    return Name(f"hdfs://{host or address}:{port}", {})


def by_nameservice(cluster: HdfsCluster) -> Name:
    return Name(cluster.uri, cluster.conf)


def by_web(cluster: HdfsCluster) -> Name:
    return Name(cluster.webhdfs_uri, {})


def by_view(cluster: HdfsCluster) -> Name:
    """Its links lead to another name than the pairs have, which only the lease shows."""
    table, there = "fs.viewfs.mounttable.view", f"{by_ip(cluster).prefix}/"
    return Name(
        "viewfs://view/mounted", {f"{table}.link./mounted": there, f"{table}.linkFallback": there}
    )


def by_host(cluster: HdfsCluster) -> Name:
    return by_address(cluster, "localhost")


def by_ip(cluster: HdfsCluster) -> Name:
    return by_address(cluster, "127.0.0.1")


Naming = Callable[[HdfsCluster], Name]
PAIRS: dict[str, tuple[Naming, Naming, str]] = {
    "a nameservice beside an address": (by_nameservice, by_address, "native"),
    "an address beside a nameservice": (by_address, by_nameservice, "native"),
    "a host beside an IP address": (by_host, by_ip, "native"),
    "WebHDFS beside hdfs": (by_web, by_host, "native"),
    "hdfs beside WebHDFS": (by_host, by_web, "native"),
    "viewfs beside hdfs": (by_view, by_host, "native"),
    "hdfs beside viewfs": (by_host, by_view, "native"),
    "a nameservice beside an address, with Hadoop's client": (by_nameservice, by_address, "hadoop"),
    "hdfs beside viewfs, with Hadoop's client": (by_host, by_view, "hadoop"),
}

# For `make test`, which refuses each two names in one situation, and each situation with one pair.
MAIN = ["viewfs beside hdfs"]
EACH_WAY = [
    *MAIN,
    "WebHDFS beside hdfs",
    "hdfs beside viewfs, with Hadoop's client",
]


@dataclass(frozen=True)
class TwoNames:
    """One directory of a cluster under two names, for the source and for the target."""

    cluster: HdfsCluster
    here: str
    source: Name
    target: Name
    client: str

    @property
    def side(self) -> Side:
        """For the tests' own writes."""
        options = {
            **self.cluster.conf,
            **self.source.conf,
            "hadoop.user.name": self.cluster.superuser,
        }
        return Side((("", tuple(options.items())),))

    def at_source(self, path: str) -> str:
        return f"{self.source.prefix}{self.here}/{path}"

    def at_target(self, path: str) -> str:
        return f"{self.target.prefix}{self.here}/{path}"

    def job(self, root: str, number: int = 1, files: dict[str, int] = FILES) -> str:
        """Complete a checkpoint of a Flink job below `root`.

        Returns the job's directory as the source names it.
        """
        put_checkpoint(self.side, f"{self.source.prefix}{self.here}/{root}", number, files)
        return self.at_source(f"{root}/{JOB}")

    def savepoint(self, name: str) -> str:
        """Complete a savepoint below `savepoints`. Returns its directory as the source names it."""
        root = f"{self.source.prefix}{self.here}"
        self.cluster.put(f"{self.here}/savepoints/{name}/_metadata", metadata(root, 1, {}))
        self.cluster.put(f"{self.here}/savepoints/{name}/file", b"state")
        return self.at_source(f"savepoints/{name}")

    def sync(self, source: str, target_root: str, *words: str) -> Ended:
        both = (*self.source.words("source"), *self.target.words("target"))
        return run(
            "sync",
            source,
            target_root,
            *both,
            "--hdfs-client",
            self.client,
            "--runner",
            "inline",
            *words,
        )

    def tree(self) -> dict[str, bytes | None]:
        return self.cluster.tree(self.here)


def two_names(pair: str, cluster: HdfsCluster) -> TwoNames:
    source, target, client = PAIRS[pair]
    return TwoNames(cluster, f"/test/{uuid.uuid4().hex}", source(cluster), target(cluster), client)


@pytest.fixture(params=parts.cases(PAIRS, MAIN))
def names(request: pytest.FixtureRequest, ha_cluster: HdfsCluster) -> TwoNames:
    return two_names(request.param, ha_cluster)


@pytest.fixture(params=parts.cases(PAIRS, EACH_WAY))
def each_pair(request: pytest.FixtureRequest, ha_cluster: HdfsCluster) -> TwoNames:
    """Also in `make test`: each two names are found to be one directory."""
    return two_names(request.param, ha_cluster)


def assert_refused(done: Ended, *named: str) -> None:
    """The message names what was found, and what to do."""
    assert done.code == REFUSED, done
    for text in (*named, "TARGET_ROOT"):
        assert text in done.message, done.message


class TestASourceUnderTwoNames:
    """Each run ends with exit 6, and leaves every path and every byte as it was."""

    def test_is_not_its_own_replica(self, each_pair: TwoNames) -> None:
        source = each_pair.job("src")
        whole = each_pair.tree()
        done = each_pair.sync(source, each_pair.at_target("src"))
        assert_refused(done, each_pair.at_target(f"src/{JOB}"), "chk-1")
        assert each_pair.tree() == whole

    def test_is_not_its_own_replica_although_the_directory_is_to_be_adopted(
        self, names: TwoNames
    ) -> None:
        source = names.job("src")
        whole = names.tree()
        assert_refused(
            names.sync(source, names.at_target("src"), "--adopt", "--same-source"), "chk-1"
        )
        assert names.tree() == whole

    def test_that_is_a_savepoint_is_not_its_own_replica(self, names: TwoNames) -> None:
        """It holds no `chk-N`, so that it is adopted would be refused only because its lease can be
        seen at the source.
        """
        savepoint = names.savepoint("savepoint-012345-6789abcdef")
        whole = names.tree()
        assert_refused(
            names.sync(savepoint, names.at_target("savepoints")),
            names.at_target("savepoints/savepoint-"),
        )
        assert_refused(
            names.sync(savepoint, names.at_target("savepoints"), "--adopt"),
            savepoint,
            "under another name",
        )
        assert names.tree() == whole

    @pytest.mark.parametrize("inner", [f"src/{JOB}/new", f"src/{JOB}/new/deeper"])
    def test_takes_no_replica_inside_of_it(self, names: TwoNames, inner: str) -> None:
        source = names.job("src")
        whole = names.tree()
        assert_refused(
            names.sync(source, names.at_target(inner)), names.at_target(f"{inner}/{JOB}"), source
        )
        assert names.tree() == whole

    @pytest.mark.parametrize("client", ["native", parts.rest("hadoop")])
    def test_takes_no_replica_inside_of_it_by_a_view_that_begins_there(
        self, ha_cluster: HdfsCluster, client: str
    ) -> None:
        """No end of the path in the view is a path below the source."""
        host, here = by_host(ha_cluster), f"/test/{uuid.uuid4().hex}"
        links = {
            "linkFallback": f"{host.prefix}/",
            "link./standby": f"{host.prefix}{here}/src/{JOB}/inner",
        }
        view = Name(
            "viewfs://view",
            {f"fs.viewfs.mounttable.view.{name}": target for name, target in links.items()},
        )
        names = TwoNames(ha_cluster, here, host, view, client)
        source = names.job("src")
        ha_cluster.mkdirs(f"{here}/src/{JOB}/inner")
        whole = names.tree()
        assert_refused(
            names.sync(source, "viewfs://view/standby"), f"viewfs://view/standby/{JOB}", source
        )
        assert names.tree() == whole

    def test_keeps_an_empty_target_root_inside_of_it(self, names: TwoNames) -> None:
        source = names.job("src")
        names.cluster.mkdirs(f"{names.here}/src/{JOB}/new")
        whole = names.tree()
        assert_refused(names.sync(source, names.at_target(f"src/{JOB}/new")))
        assert names.tree() == whole

    @pytest.mark.rest
    def test_that_is_a_replica_is_not_its_own_replica(self, names: TwoNames) -> None:
        job = names.job("src")
        words = (
            *names.source.words("source"),
            *names.source.words("target"),
            "--hdfs-client",
            names.client,
        )
        assert run("sync", job, names.at_source("dst"), *words, "--runner", "inline").code == 0
        whole = names.tree()
        done = names.sync(names.at_source(f"dst/{JOB}"), names.at_target("dst"))
        assert_refused(done, names.at_target(f"dst/{JOB}"), "replica id")
        assert "--same-source" not in done.message
        assert_refused(
            names.sync(names.at_source(f"dst/{JOB}"), names.at_target("dst"), "--same-source"),
            "replica id",
        )
        assert names.tree() == whole
