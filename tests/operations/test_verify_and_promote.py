"""`verify` ends as `promote` would, gives one reason for each file, and names the next command."""

from __future__ import annotations

import json
import shlex

import pytest

from cpreplicate.core.packs import PackOptions
from tests.support.commandline import run
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, planned, synced

DAMAGED, REFUSED, NOT_THERE = 4, 6, 10


@pytest.fixture
def replica(tmp_path):
    return synced(tmp_path, {1: FILES})


def verified(replica, *words):
    done = run("verify", *words, "--output", "json", replica)
    return done.code, json.loads(done.out)


def repaired(tmp_path, command):
    """Run the command that was printed, and verify what it made."""
    _, *words = shlex.split(command)
    assert run(*words, "--runner", "inline").code == 0
    return verified(tmp_path / "dcB" / JOB, "--content")


def test_a_truncated_file_has_one_reason_and_the_command_that_repairs_it(replica, tmp_path):
    (replica / "shared" / "c").write_bytes(b"short")
    code, found = verified(replica, "--content")
    assert (code, found["restorable"]) == (DAMAGED, False)
    assert (found["short"], found["uncompared"], found["corrupt"]) == (["shared/c"], [], [])
    command = f"cpreplicate sync file:{tmp_path}/dcA/{JOB} file:{tmp_path}/dcB"
    assert found["repair"] == command
    printed = run("verify", "--content", replica).out
    assert printed.count("shared/c") == 1
    assert command in printed
    assert repaired(tmp_path, found["repair"])[0] == 0


def test_a_file_that_is_too_long_has_one_reason(replica, tmp_path):
    with (replica / "shared" / "c").open("ab") as file:
        file.write(b"more")
    code, found = verified(replica, "--content")
    assert (code, found["corrupt"], found["uncompared"]) == (DAMAGED, ["shared/c"], [])
    assert repaired(tmp_path, found["repair"])[0] == 0


def test_damage_of_equal_length_is_repaired_by_a_sync_that_compares_content(replica, tmp_path):
    file = replica / "shared" / "c"
    file.write_bytes(b"x" * file.stat().st_size)
    code, found = verified(replica, "--content")
    assert (code, found["corrupt"]) == (DAMAGED, ["shared/c"])
    assert found["repair"].startswith("cpreplicate sync --check-content ")
    assert repaired(tmp_path, found["repair"])[0] == 0


@pytest.mark.parametrize("packing", ["off", "on"])
def test_damage_is_not_excused_by_the_loss_of_the_manifest(tmp_path, packing):
    synced(tmp_path, {1: FILES}, packing=PackOptions(packing, 1 << 20))
    replica = tmp_path / "dcB" / JOB
    place = next((replica / "packed").iterdir()) if packing == "on" else replica / "shared/c"
    place.write_bytes(bytes(place.stat().st_size))
    (replica / ".cpreplicate/chk-1.parquet").unlink()
    code, found = verified(replica, "--content")
    assert (code, found["restorable"], found["compared"]) == (DAMAGED, False, 0)
    assert set(found["uncompared"]) == set(FILES)
    assert run("promote", "--content", replica).code == DAMAGED
    assert not (replica / ".cpreplicate/sealed").exists()
    assert repaired(tmp_path, found["repair"])[0] == 0


def test_nor_is_it_by_a_journal_that_names_other_files(tmp_path):
    replica = synced(tmp_path, {1: FILES})
    planned(replica, "shared/a")
    (replica / ".cpreplicate/chk-1.parquet").unlink()
    assert verified(replica, "--content")[0] == DAMAGED
    planned(replica, *FILES)  # as of a run of version 0.2.0 that died right after its commit
    assert verified(replica, "--content")[0] == 0


def test_a_missing_file_is_repaired_by_a_sync(replica, tmp_path):
    (replica / "shared" / "c").unlink()
    code, found = verified(replica)
    assert (code, found["missing"]) == (DAMAGED, ["shared/c"])
    assert repaired(tmp_path, found["repair"])[0] == 0


def test_a_sealed_replica_names_no_sync_that_would_refuse_it(replica):
    assert run("promote", replica).code == 0
    (replica / "shared" / "c").unlink()
    code, found = verified(replica)
    assert (code, found["repair"]) == (DAMAGED, None)


def test_a_checkpoint_of_others_is_named_before_promote_refuses_it(replica, tmp_path):
    write_checkpoint(tmp_path / "dcB", 12, {"shared/of-b": 5})
    code, found = verified(replica)
    assert (code, found["restorable"], found["checkpoint_id"]) == (REFUSED, True, 1)
    assert "chk-12/_metadata was not written by cpreplicate" in found["refused"]
    printed = run("verify", replica).out
    assert "warning: promote would refuse the replica: " in printed
    assert run("promote", replica).code == REFUSED


def test_a_checkpoint_of_others_is_still_verified_by_its_name(replica, tmp_path):
    write_checkpoint(tmp_path / "dcB", 12, {"shared/of-b": 5})
    code, found = verified(replica, "--checkpoint", "chk-12")
    assert (code, found["restorable"], found["checkpoint_id"]) == (REFUSED, True, 12)


class TestAdopted:
    @pytest.fixture
    def adopted(self, tmp_path):
        write_checkpoint(tmp_path / "dcA", 1, FILES)
        write_checkpoint(tmp_path / "dcB", 12, {"shared/of-b": 5})
        source, target = tmp_path / "dcA" / JOB, tmp_path / "dcB"
        assert run("sync", "--adopt", source, target, "--runner", "inline").code == 0
        return target / JOB

    def test_one_that_is_named_is_refused_as_by_promote(self, adopted):
        code, found = verified(adopted, "--checkpoint", "chk-12")
        assert (code, found["restorable"]) == (REFUSED, True)
        assert "was here before the directory was adopted" in found["refused"]
        done = run("promote", adopted, "--checkpoint", "chk-12")
        assert (done.code, found["refused"] in done.message) == (REFUSED, True)

    def test_one_beside_our_own_is_no_obstacle(self, adopted):
        assert run("verify", adopted).code == run("verify", "--all", adopted).code == 0
        assert run("promote", adopted).code == 0

    def test_if_there_is_nothing_else_none_is_there_to_promote(self, adopted):
        (adopted / "chk-1" / "_metadata").unlink()
        codes = [run(*words, adopted).code for words in (["verify"], ["verify", "--all"])]
        assert [*codes, run("promote", adopted).code] == [NOT_THERE] * 3
        for command in ("verify", "promote"):
            assert run(command, adopted, "--checkpoint", "chk-12").code == REFUSED


def test_of_all_checkpoints_the_newest_of_our_own_is_recorded(replica, tmp_path):
    write_checkpoint(tmp_path / "dcB", 12, {"shared/of-b": 5})
    done = run("verify", "--all", "--record", "--output", "json", replica)
    assert [found["checkpoint_id"] for found in json.loads(done.out)] == [1, 12]
    recorded = json.loads((replica / ".cpreplicate" / "verified.json").read_text())
    assert (done.code, recorded["checkpoint"]) == (REFUSED, "chk-1")


def test_flinks_own_directory_is_not_called_a_replica_that_can_be_promoted(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    own = tmp_path / "dcA" / JOB
    assert run("verify", own).code == run("promote", own).code == REFUSED


def test_a_sealed_replica_that_a_job_writes_into_is_promoted_again_and_verified(replica, tmp_path):
    assert run("promote", replica).code == 0
    write_checkpoint(tmp_path / "dcB", 12, {"shared/of-b": 5})
    assert verified(replica, "--checkpoint", "chk-1")[0] == run("promote", replica).code == 0


def test_the_metrics_of_a_verification_count_a_promotion_that_would_be_refused(replica, tmp_path):
    write_checkpoint(tmp_path / "dcB", 12, {"shared/of-b": 5})
    metrics = tmp_path / "verify.prom"
    assert run("verify", replica, "--metrics-file", metrics).code == REFUSED
    failed = [line for line in metrics.read_text().splitlines() if 'code="6"' in line]
    assert [line.rpartition(" ")[2] for line in failed] == ["1.0"]
