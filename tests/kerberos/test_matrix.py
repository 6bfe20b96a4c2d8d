"""Every protection of RPC and of data transfer, on an HA pair that fails over: `make nightly`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kerberos.conftest import FILES, replica_of
from tests.support.jobs import write_checkpoint
from tests.support.kerberos import Realms, Secure, homes_on, secure_cluster

pytestmark = [pytest.mark.xdist_group("kerberos"), pytest.mark.nightly]

_TRANSFER, _RPC = "dfs.data.transfer.protection", "hadoop.rpc.protection"
_AES = {"dfs.encrypt.data.transfer.cipher.suites": "AES/CTR/NoPadding"}
PROTECTIONS = {
    "authentication": {_TRANSFER: "authentication"},
    "integrity": {_TRANSFER: "integrity", _RPC: "integrity"},
    "privacy": {_TRANSFER: "privacy", _RPC: "privacy"},
    "aes": {_TRANSFER: "privacy", **_AES},
    "encrypted": {
        _TRANSFER: "authentication",
        "dfs.encrypt.data.transfer": "true",
        **_AES,
    },
}


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_both_clients_write_and_read_before_and_after_a_failover(
    realms: Realms, protection: str, tmp_path: Path
) -> None:
    source = write_checkpoint(tmp_path / "source", 1, FILES)
    settings = PROTECTIONS[protection]
    with secure_cluster(realms, realms.a, settings, datanodes=1, nameservice="ns") as cluster:
        homes_on(cluster)
        cluster.write_conf_dir(tmp_path / "conf-a")
        cluster.write_conf_dir(tmp_path / "conf-b")
        secure = Secure(realms, cluster, cluster, tmp_path)
        ticket, conf = secure.ticket("alice"), secure.conf[2:]
        for client in ("native", "hadoop"):
            chosen = [*conf, "--hdfs-client", client]
            target = f"{cluster.uri}/alice/{client}"
            synced = secure.run("sync", source, target, *chosen, **ticket)
            assert synced.returncode == 0, synced
            cluster.failover()
            verified = secure.run("verify", replica_of(target), *chosen, "--content", **ticket)
            assert verified.returncode == 0, verified
        secure.java(
            "org.apache.hadoop.hdfs.tools.DelegationTokenFetcher",
            *("--renewer", "alice", tmp_path / "token"),
            **ticket,
        )
        by_token = {**secure.without_ticket, "HADOOP_TOKEN_FILE_LOCATION": f"{tmp_path}/token"}
        for client in ("native", "hadoop"):
            replica = replica_of(f"{cluster.uri}/alice/{client}")
            verified = secure.run(
                "verify", replica, *conf, "--hdfs-client", client, "--content", **by_token
            )
            assert verified.returncode == 0, verified
