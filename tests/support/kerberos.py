"""Runs MIT's KDC on loopback, and secure HDFS clusters whose users it knows.

All of a realm is in one directory: nothing of the machine is read or changed. The servers' host is
`localhost`, and that of a second realm a name that only Kerberos knows.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.hdfs import PROJECT, HdfsCluster, site_xml
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE, wait_until

FIRST, SECOND = "A.TEST", "B.TEST"
_HOSTS = {FIRST: "localhost", SECOND: "b.test"}
# so that no KDC outlives the tests, however they end
_UNTIL_STDIN_ENDS = 'krb5kdc -n -r "$1" </dev/null & read -r _; kill "$!"; wait'
_TOOLS = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"  # Debian's path of users lacks these


class KerberosError(Exception):
    """A program of Kerberos failed."""


class Realm:
    """A realm with a KDC of its own; `krb5.conf` is that of all realms of a test."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.host = _HOSTS[name]
        self.port = free_port()
        self._directory = directory / name
        self._directory.mkdir()
        self._conf = directory / "krb5.conf"
        self._kdc: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Make the database and start the KDC; it answers."""
        (self._directory / "kdc.conf").write_text(
            f"[realms]\n{self.name} = {{\n"
            f" database_name = {self._directory}/principal\n"
            f" key_stash_file = {self._directory}/stash\n"
            f" acl_file = {self._directory}/acl\n"
            f" kdc_listen = 127.0.0.1:{self.port}\n kdc_tcp_listen = 127.0.0.1:{self.port}\n"
            " max_life = 10h\n max_renewable_life = 7d\n}\n"
        )
        self._run("kdb5_util", "-r", self.name, "create", "-s", "-P", secrets.token_hex(8))
        host = self.host
        self.add(f"hdfs/{host}", f"HTTP/{host}")
        with (self._directory / "kdc.log").open("wb") as log:
            self._kdc = subprocess.Popen(
                ["sh", "-c", _UNTIL_STDIN_ENDS, "kdc", self.name],
                env=self._environment(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        wait_until(self._answers, f"the KDC of {self.name} answers")

    def stop(self) -> None:
        """End the KDC, if it runs."""
        kdc, self._kdc = self._kdc, None
        if kdc is not None:
            assert kdc.stdin is not None
            kdc.stdin.close()
            kdc.wait(timeout=PATIENCE)

    def add(self, *names: str, life: str | None = None) -> None:
        """Add principals with random keys; `life` is the longest life of their tickets."""
        for name in names:
            longest = ["-maxlife", f'"{life}"'] if life else []
            self._admin(" ".join(["addprinc", "-randkey", *longest, f"{name}@{self.name}"]))
            self._admin(f"ktadd -k {self.keytab(name)} {name}@{self.name}")

    def trust(self, other: Realm, password: str) -> None:
        """Let the users of another realm in."""
        self._admin(f"addprinc -pw {password} krbtgt/{self.name}@{other.name}")
        self._admin(f"addprinc -pw {password} krbtgt/{other.name}@{self.name}")

    def principal(self, name: str) -> str:
        """Return the whole name of a principal."""
        return f"{name}@{self.name}"

    def keytab(self, name: str) -> Path:
        """Return the path of the keytab of a principal that was added."""
        return self._directory / f"{name.replace('/', '-')}.keytab"

    def kinit(self, name: str, cache: Path, life: str = "1h") -> None:
        """Get a ticket for a user that was added, into a cache."""
        words = ["kinit", "-l", life, "-c", f"FILE:{cache}", "-k", "-t", str(self.keytab(name))]
        self._run(*words, self.principal(name))

    def _admin(self, query: str) -> None:
        self._run("kadmin.local", "-r", self.name, "-q", query)

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            words,
            env=self._environment(),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode:
            raise KerberosError(f"{' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def _environment(self) -> dict[str, str]:
        conf = {"KRB5_CONFIG": str(self._conf), "KRB5_KDC_PROFILE": f"{self._directory}/kdc.conf"}
        return {**os.environ, **conf, "PATH": _TOOLS}

    def _answers(self) -> bool:
        assert self._kdc is not None
        if self._kdc.poll() is not None:
            raise KerberosError((self._directory / "kdc.log").read_text(errors="replace"))
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


class Realms(NamedTuple):
    """Two realms that trust each other, and the `krb5.conf` that knows both."""

    a: Realm
    b: Realm
    conf: Path

    @property
    def environment(self) -> dict[str, str]:
        """What a client of these realms needs in its environment, beside its ticket."""
        return {
            "KRB5_CONFIG": str(self.conf),
            # Java reads no KRB5_CONFIG
            "JDK_JAVA_OPTIONS": f"-Djava.security.krb5.conf={self.conf}",
        }


@contextlib.contextmanager
def running_realms() -> Iterator[Realms]:
    """Start two KDCs, and stop them at the end of the block."""
    directory = Path(tempfile.mkdtemp(prefix="cpreplicate-krb5-"))
    a, b = Realm(FIRST, directory), Realm(SECOND, directory)
    conf = directory / "krb5.conf"
    conf.write_text(_krb5_conf((a, b)))
    try:
        for realm in (a, b):
            realm.start()
        password = secrets.token_hex(8)
        for realm, other in ((a, b), (b, a)):
            realm.trust(other, password)
        yield Realms(a, b, conf)
    finally:
        for realm in (a, b):
            realm.stop()
        shutil.rmtree(directory, ignore_errors=True)


def secured(realms: Realms, realm: Realm, **settings: str) -> dict[str, str]:
    """Return the configuration of the servers of a secure cluster in a realm."""
    host = "_HOST" if realm.host == "localhost" else realm.host
    hdfs, http = f"hdfs/{realm.host}@{realm.name}", f"HTTP/{realm.host}@{realm.name}"
    keytab = str(realm.keytab(f"hdfs/{realm.host}"))
    return {
        "hadoop.security.authentication": "kerberos",
        "hadoop.security.authorization": "true",
        "hadoop.security.auth_to_local": (
            f"RULE:[1:$1@$0](.*@{realms.a.name})s/@.*// RULE:[2:$1@$0](.*@{realms.a.name})s/@.*//"
            f" RULE:[1:$1@$0](.*@{realms.b.name})s/@.*// RULE:[2:$1@$0](.*@{realms.b.name})s/@.*//"
            " DEFAULT"
        ),
        "dfs.namenode.kerberos.principal": f"hdfs/{host}@{realm.name}",
        "dfs.datanode.kerberos.principal": hdfs,
        "dfs.web.authentication.kerberos.principal": http,
        "dfs.namenode.keytab.file": keytab,
        "dfs.datanode.keytab.file": keytab,
        "dfs.web.authentication.kerberos.keytab": str(realm.keytab(f"HTTP/{realm.host}")),
        "dfs.block.access.token.enable": "true",
        "ignore.secure.ports.for.testing": "true",
        **settings,
    }


def secure_cluster(
    realms: Realms, realm: Realm, settings: Mapping[str, str] | None = None, **options: object
) -> HdfsCluster:
    """Return a secure cluster that is not started; `options` are those of `HdfsCluster`."""
    conf = secured(realms, realm, **(settings or {}))
    java = [
        f"-Djava.security.krb5.conf={realms.conf}",
        "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    ]
    return HdfsCluster(conf=conf, java_options=java, **options)  # type: ignore[arg-type]


class Secure(NamedTuple):
    """Two realms, and a secure cluster in each. alice and bob are users of both clusters.

    `directory` has the configuration of each cluster's clients.
    """

    realms: Realms
    a: HdfsCluster
    b: HdfsCluster
    directory: Path

    @property
    def conf(self) -> list[str]:
        """The options that name the configuration of both."""
        return [
            "--source-conf",
            str(self.directory / "conf-a"),
            "--target-conf",
            str(self.directory / "conf-b"),
        ]

    def ticket(self, user: str) -> dict[str, str]:
        """Return the environment of a user of the first realm who has a ticket."""
        cache = self.directory / f"ticket-{user}"
        if not cache.exists():
            self.realms.a.kinit(user, cache)
        return {"KRB5CCNAME": f"FILE:{cache}"}

    @property
    def without_ticket(self) -> dict[str, str]:
        """The environment of a user who has none."""
        return {"KRB5CCNAME": f"FILE:{self.directory}/none"}

    def run(self, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command of cpreplicate in a process of its own."""
        return self.run_in(Path.cwd(), *words, **environment)

    def get_token(self, cluster: HdfsCluster, path: Path) -> Path:
        """Add a delegation token of alice's for a cluster to a file, and return its path."""
        name, ticket = "org.apache.hadoop.security.token.DtUtilShell", self.ticket("alice")
        self.java(name, "get", cluster.uri, "-renewer", "alice", path, **ticket)
        return path

    def java(self, name: str, *words: object, **environment: str) -> None:
        """Run a class of Hadoop with the configuration of both clusters, those of the first one's
        where they differ.
        """
        spec = importlib.util.find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        servers = PROJECT / "target" / "minicluster.jar"  # which has the tools, too
        jars = f"{self._joined()}:{servers}:{Path(spec.origin).parent}/jars/*"
        options = [
            f"-Djava.security.krb5.conf={self.realms.conf}",
            "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
            "-XX:TieredStopAtLevel=1",
        ]
        done = subprocess.run(
            ["java", *options, "-cp", jars, name, *map(str, words)],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode:
            raise KerberosError(f"{name}: {done.stdout}{done.stderr}")

    def _joined(self) -> Path:
        """Return a directory with the configuration of a client of both clusters."""
        directory = self.directory / "conf-both"
        if not directory.exists():
            both = {**self.b.conf, **self.a.conf}
            # what a client does that can do each of them
            both["hadoop.rpc.protection"] = "authentication,integrity,privacy"
            directory.mkdir()
            (directory / "core-site.xml").write_text(site_xml(both))
        return directory

    def run_in(
        self, cwd: Path, /, *words: object, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command with a working directory of its own."""
        return subprocess.run(
            [sys.executable, "-m", "cpreplicate", *map(str, words)],
            cwd=cwd,
            env={**os.environ, **self.realms.environment, **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )


@pytest.fixture(scope="session")
def realms() -> Iterator[Realms]:
    """Two realms with the users alice and bob."""
    with running_realms() as started:
        for realm in (started.a, started.b):
            realm.add("alice", "bob")
        started.a.add("short", life="10 seconds")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KRB5_CONFIG", str(started.conf))
            yield started


@pytest.fixture(scope="session")
def secure(realms: Realms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    """Two secure clusters of one DataNode each. The second is an HA pair that encrypts all that it
    sends, by AES; the first one's web servers authenticate by Kerberos.

    alice may write below `/alice`, bob below `/bob`, short below `/short`, whose tickets last ten
    seconds. bob may act for alice.
    """
    private = {
        "dfs.data.transfer.protection": "privacy",
        "dfs.encrypt.data.transfer.cipher.suites": "AES/CTR/NoPadding",
        "hadoop.rpc.protection": "privacy",
    }
    plain = {"dfs.data.transfer.protection": "authentication", **web_authentication(realms)}
    proxy = {"hadoop.proxyuser.bob.hosts": "*", "hadoop.proxyuser.bob.users": "alice"}
    a = secure_cluster(realms, realms.a, {**plain, **proxy}, datanodes=1)
    b = secure_cluster(realms, realms.b, {**private, **proxy}, datanodes=1, nameservice="dcb")
    clusters = HdfsCluster.start_many([a, b])
    try:
        for cluster in clusters:
            homes_on(cluster)
        directory = tmp_path_factory.mktemp("kerberos")
        for cluster, name in zip(clusters, ("conf-a", "conf-b"), strict=True):
            cluster.write_conf_dir(directory / name)
        yield Secure(realms, a, b, directory)
    finally:
        for cluster in clusters:
            cluster.close()


def web_authentication(realms: Realms) -> dict[str, str]:
    """Return the configuration of web servers of the first realm that want Kerberos."""
    secret = realms.conf.with_name("http-secret")
    secret.write_text(secrets.token_hex(32))
    prefix = "hadoop.http.authentication"
    return {
        "hadoop.http.filter.initializers": (
            "org.apache.hadoop.security.AuthenticationFilterInitializer"
        ),
        f"{prefix}.type": "kerberos",
        f"{prefix}.kerberos.principal": realms.a.principal("HTTP/localhost"),
        f"{prefix}.kerberos.keytab": str(realms.a.keytab("HTTP/localhost")),
        f"{prefix}.signature.secret.file": str(secret),
    }


def homes_on(cluster: HdfsCluster) -> None:
    """Make a directory that only its user sees, for each user."""
    cluster.chmod("/", 0o755)
    for user in ("alice", "bob", "short"):
        cluster.mkdirs(f"/{user}")
        cluster.chown(f"/{user}", user)
        cluster.chmod(f"/{user}", 0o750)


def _krb5_conf(realms: Iterable[Realm]) -> str:
    addresses = "".join(
        f" {realm.name} = {{\n  kdc = 127.0.0.1:{realm.port}\n }}\n" for realm in realms
    )
    hosts = "".join(f" {realm.host} = {realm.name}\n" for realm in realms)
    return (
        f"[libdefaults]\n default_realm = {FIRST}\n"
        " rdns = false\n dns_canonicalize_hostname = false\n"
        " dns_lookup_kdc = false\n dns_lookup_realm = false\n udp_preference_limit = 1\n"
        f"[realms]\n{addresses}[domain_realm]\n{hosts}"
    )
