"""WebHDFS with SPNEGO: `make nightly` installs what it needs, which pip compiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kerberos.conftest import FILES, replica_of
from tests.support.jobs import write_checkpoint
from tests.support.kerberos import Secure

pytestmark = [pytest.mark.xdist_group("kerberos"), pytest.mark.nightly]


@pytest.mark.parametrize("runner", ["inline", "spark"])
def test_a_ticket_serves_webhdfs(secure: Secure, tmp_path: Path, runner: str) -> None:
    files = {**FILES, **{f"shared/many-{number}": 100 for number in range(50)}}
    source = write_checkpoint(tmp_path / "source", 1, files)
    target = f"webhdfs://{secure.a.http[0]}/alice/web-{runner}"
    conf, ticket = ["--target-conf", secure.directory / "conf-a"], secure.ticket("alice")
    chosen = ["--runner", runner, *(["--master", "local[2]"] if runner == "spark" else [])]
    synced = secure.run("sync", source, target, *conf, *chosen, **ticket)
    assert synced.returncode == 0, synced
    verified = secure.run("verify", replica_of(target), *conf, "--content", **ticket)
    assert verified.returncode == 0, verified
    by_rpc = replica_of(f"{secure.a.uri}/alice/web-{runner}")
    assert secure.run("verify", by_rpc, *conf, "--content", **ticket).returncode == 0


def test_bob_acts_for_alice_by_the_option_proxy_to(secure: Secure, checkpoint: str) -> None:
    web = f"webhdfs://{secure.a.http[0]}{checkpoint.removeprefix(secure.a.uri)}"
    words, ticket = ["inspect", web, *secure.conf[:2]], secure.ticket("bob")
    assert secure.run(*words, **ticket).returncode == 1  # alice's directory
    done = secure.run(*words, "--source-conf", "proxy_to=alice", **ticket)
    assert done.returncode == 0, done


def test_a_client_keytab_needs_no_ticket(secure: Secure, checkpoint: str, tmp_path: Path) -> None:
    web = f"webhdfs://{secure.a.http[0]}{checkpoint.removeprefix(secure.a.uri)}"
    keytab = {"KRB5_CLIENT_KTNAME": str(secure.realms.a.keytab("alice"))}
    cache = {"KRB5CCNAME": f"FILE:{tmp_path}/cache"}
    done = secure.run("inspect", web, *secure.conf[:2], **keytab, **cache)
    assert done.returncode == 0, done


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ((), "no valid Kerberos ticket"),
        (("--source-conf", "token=abcdef"), "Correct the option token, user or proxy_to"),
    ],
)
def test_what_is_wrong_is_named_at_once(secure: Secure, words: tuple[str, ...], part: str) -> None:
    web = f"webhdfs://{secure.a.http[0]}/alice/x"
    command = ["inspect", web, *secure.conf[:2], *words, "--retry-for", "60s", "-q"]
    done = secure.run(*command, **secure.without_ticket)
    assert done.returncode == 7, done
    assert part in done.stderr
    assert "lasted longer than --retry-for" not in done.stderr
