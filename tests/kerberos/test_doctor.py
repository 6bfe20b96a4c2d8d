"""`doctor` on secure clusters: it names what the configuration of a side lacks."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kerberos.test_failures import elsewhere
from tests.support import parts
from tests.support.doctor import Examined, parsed
from tests.support.kerberos import Secure

pytestmark = [pytest.mark.xdist_group("kerberos"), pytest.mark.rest]

Configure = Callable[[dict[str, str | None]], Path]


class Lacking(NamedTuple):
    """What is wrong, the check that finds it with its status, and a part of what it says."""

    words: tuple[object, ...]
    environment: dict[str, str]
    check: str
    part: str
    status: str = "failed"


def examined(
    secure: Secure, checkpoint: str, target: str, lacking: Lacking, *words: object
) -> Examined:
    """Run `doctor` as alice."""
    is_web = bool(lacking.words) and str(lacking.words[0]).startswith("webhdfs:")
    conf = secure.conf[2:] if "--source-conf" in lacking.words else secure.conf
    source = () if is_web else (checkpoint,)
    options = [*conf, *words, "--output", "json", "--retry-for", "1s", "-q"]
    at = 1 if is_web else 0
    command = ["doctor", *source, *lacking.words[:at], target, *lacking.words[at:], *options]
    done = secure.run(*command, **{**secure.ticket("alice"), **lacking.environment})
    assert not done.stderr, done
    return parsed(done.returncode, done.stdout)


@pytest.mark.parametrize("client", ["native", parts.nightly("hadoop")])
def test_what_is_lacking_is_found_and_nothing_where_a_sync_could_run(
    secure: Secure,
    checkpoint: str,
    target: str,
    configured: Configure,
    cancelled: Path,
    expired: dict[str, str],
    tmp_path: Path,
    client: str,
) -> None:
    (tmp_path / "libgssapi_krb5.so.2").write_bytes(b"")
    (tmp_path / "requests_kerberos.py").write_text("raise ImportError('not installed')")
    web = f"webhdfs://{secure.a.http[0]}{checkpoint.removeprefix(secure.a.uri)}"
    simple = configured({"hadoop.security.authentication": "simple"})
    principal = configured({"dfs.namenode.kerberos.principal": "nn/localhost@A.TEST"})
    open_data = configured({"dfs.data.transfer.protection": None})
    reach, conf = "source reach", "source conf"
    principals = "is hdfs/localhost, and the configuration expects nn/localhost"
    all_of_it = [
        Lacking((), secure.without_ticket, reach, "no valid Kerberos ticket"),
        Lacking(
            ("--source-conf", simple), {}, conf, "Set hadoop.security.authentication=kerberos in"
        ),
        Lacking(
            ("--source-conf", principal),
            {},
            conf,
            principals,
            "warning" if client == "native" else "failed",
        ),
        Lacking(
            ("--source-conf", open_data),
            {},
            "source checkpoint",
            "set dfs.data.transfer.protection",
        ),
        Lacking((), elsewhere(secure, tmp_path), reach, "[domain_realm]"),
        Lacking((), {"HADOOP_PROXY_USER": "bob"}, reach, "HADOOP_PROXY_USER"),
        Lacking((), expired, reach, "Run kinit"),
        Lacking(
            (),
            {"HADOOP_TOKEN_FILE_LOCATION": str(cancelled)},
            reach,
            "the delegation token is not valid",
        ),
    ]
    if client == "native":
        all_of_it += [
            Lacking((), {"LD_LIBRARY_PATH": str(tmp_path)}, reach, "Install libgssapi-krb5-2"),
            Lacking((web,), {"PYTHONPATH": str(tmp_path)}, conf, "pip install requests-kerberos"),
            Lacking(
                (web, "--source-conf", simple),
                {},
                reach,
                "Set hadoop.security.authentication=kerberos",
            ),
            Lacking(
                (web, *secure.conf[:2], "--source-conf", "token=abcdef"),
                {},
                reach,
                "Correct the option token, user or proxy_to",
            ),
        ]

    def complaint(lacking: Lacking) -> tuple[Lacking, object] | None:
        found = examined(secure, checkpoint, target, lacking, "--hdfs-client", client)
        is_found = found.status(lacking.check) == lacking.status
        is_named = is_found and lacking.part in found.text(lacking.check)
        is_fatal = lacking.status == "failed"
        return None if is_named and found.code == (7 if is_fatal else 0) else (lacking, found)

    complaints = []
    with ThreadPoolExecutor(2) as pool:
        for _ in range(5):  # a NameNode that is slow to offer its methods is asked no more
            complaints = [each for each in pool.map(complaint, all_of_it) if each]
            all_of_it = [lacking for lacking, _ in complaints]
    assert complaints == []
    nothing = Lacking((), {}, "", "")
    could_run = examined(secure, checkpoint, target, nothing, "--hdfs-client", client)
    assert could_run.code == 0
    assert could_run.names("failed") == could_run.names("warning") == []
