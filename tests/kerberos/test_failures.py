"""What is wrong with credentials or a configuration ends a run at once, and says what to change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import parts
from tests.support.kerberos import Secure

pytestmark = pytest.mark.xdist_group("kerberos")

LONG = "60s"  # what is retried at all says so
PASSES = "set dfs.data.transfer.protection as on the cluster"
Configure = Callable[..., Path]


class Wrong(NamedTuple):
    """What is wrong, and what the message has: a text or one of several, for each."""

    words: tuple[object, ...]
    environment: dict[str, str]
    parts: tuple[str | tuple[str, ...], ...]
    retry_for: str = LONG


@pytest.fixture
def wrong(
    secure: Secure, cancelled: Path, expired: dict[str, str], configured: Configure
) -> list[Wrong]:
    """What fails with both clients."""
    none = secure.without_ticket
    simple = ("--source-conf", configured({"hadoop.security.authentication": "simple"}))
    open_data = ("--source-conf", configured({"dfs.data.transfer.protection": None}))
    there_is_none = "no valid Kerberos ticket"
    return [
        Wrong((), none, (f"{there_is_none} in {none['KRB5CCNAME']}. Run kinit", "--source-keytab")),
        Wrong(
            (),
            expired,
            (("ticket has expired", there_is_none), "Run kinit"),
        ),
        Wrong(simple, {}, ("Set hadoop.security.authentication=kerberos",)),
        Wrong(open_data, {}, (PASSES,), "1s"),
        Wrong(
            (),
            {"HADOOP_PROXY_USER": "bob"},
            ("not let this principal act for HADOOP_PROXY_USER", "hadoop.proxyuser."),
            "1s",
        ),
        Wrong(
            (),
            {"HADOOP_TOKEN_FILE_LOCATION": str(cancelled)},
            ("the delegation token is not valid", "unset that to use the ticket"),
        ),
    ]


@pytest.fixture
def of_native(secure: Secure, tmp_path: Path) -> list[Wrong]:
    """What fails with the native client, or with WebHDFS."""
    krb5 = elsewhere(secure, tmp_path)
    (tmp_path / "libgssapi_krb5.so.2").write_bytes(b"")
    (tmp_path / "requests_kerberos.py").write_text("raise ImportError('not installed')")
    web = f"webhdfs://{secure.a.http[0]}/alice/x"
    return [
        Wrong(
            (),
            krb5,
            (
                "the KDC does not know the server's principal (krbtgt/C.TEST@A.TEST)",
                "[domain_realm]",
            ),
        ),
        Wrong(
            (),
            {"LD_LIBRARY_PATH": str(tmp_path)},
            ("Install libgssapi-krb5-2 (Debian, Ubuntu) or krb5-libs (RHEL)",),
        ),
        Wrong(
            (web,),
            {"PYTHONPATH": str(tmp_path)},
            ("pip install requests-kerberos", "name the cluster by hdfs:"),
        ),
        Wrong(
            (web, "--source-conf", "dfs.replication=1"),
            {},
            ("Set hadoop.security.authentication=kerberos",),
        ),
    ]


@pytest.fixture
def of_hadoop(secure: Secure, configured: Configure, tmp_path: Path) -> list[Wrong]:
    """What fails with Hadoop's client."""
    principal = configured({"dfs.namenode.kerberos.principal": "nn/localhost@A.TEST"})
    return [
        Wrong(
            ("--source-conf", principal),
            {},
            (
                "is hdfs/localhost@A.TEST, and the configuration expects nn/localhost@A.TEST",
                "Correct dfs.namenode.kerberos.principal",
            ),
        ),
        Wrong((), elsewhere(secure, tmp_path), ("[domain_realm]",)),
    ]


def elsewhere(secure: Secure, directory: Path) -> dict[str, str]:
    """Return the environment of a host whose krb5.conf has another realm for the cluster."""
    conf = directory / "other-krb5.conf"
    conf.write_text(secure.realms.conf.read_text().replace("localhost = A.", "localhost = C."))
    secure.realms.a.kinit("alice", directory / "ticket")
    return {
        "KRB5_CONFIG": str(conf),
        "JDK_JAVA_OPTIONS": f"-Djava.security.krb5.conf={conf}",
        "KRB5CCNAME": f"FILE:{directory}/ticket",
    }


@pytest.mark.parametrize("client", parts.cases(["native", "hadoop"], ["native"]))
def test_what_is_wrong_is_named_at_once(
    secure: Secure,
    checkpoint: str,
    wrong: list[Wrong],
    request: pytest.FixtureRequest,
    client: str,
) -> None:
    all_of_it = [*wrong, *request.getfixturevalue(f"of_{client}")]
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda each: list(complaints(secure, checkpoint, client, each)), all_of_it)
        assert [each for complained in found for each in complained] == []


def complaints(secure: Secure, checkpoint: str, client: str, wrong: Wrong) -> Iterator[object]:
    """Run `inspect`, and yield what is not as it should be."""
    words = wrong.words if "--source-conf" in wrong.words else (*wrong.words, *secure.conf[:2])
    source = () if str(words[0]).startswith("webhdfs:") else (checkpoint,)
    chosen = ["--hdfs-client", client, "--retry-for", wrong.retry_for, "-q"]
    environment = {**secure.ticket("alice"), **wrong.environment}
    done = secure.run("inspect", *source, *words, *chosen, **environment)
    if done.returncode != 7 or len(done.stderr.splitlines()) != 1:
        yield wrong, done
    for part in wrong.parts:
        alternatives = (part,) if isinstance(part, str) else part
        if not any(each in done.stderr for each in alternatives):
            yield part, done.stderr
    if wrong.retry_for == LONG and "lasted longer than --retry-for" in done.stderr:
        yield "retried", done.stderr
