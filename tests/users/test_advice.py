"""What a message advises works."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cpreplicate.core.packs import PackOptions
from tests.support.commandline import printed, run
from tests.support.jobs import JOB, write_checkpoint
from tests.support.kafka_jobs import replicated_with_derived
from tests.support.replicas import FILES, NEXT, paths, synced

THIRD = {"shared/h": 800, "shared/z": 5, "chk-3/x": 50}
ROOT = Path(__file__).parent.parent.parent
PROJECT = (ROOT / "pyproject.toml").read_text()

WITHOUT = """
import sys
sys.modules[sys.argv.pop(1)] = None
from cpreplicate.cli import main
main()
"""


@pytest.mark.parametrize(
    ("module", "package", "words"),
    [
        ("hdfs_native", "hdfs-native", ()),
        ("py4j.java_gateway", "pyspark", ("--hdfs-client", "hadoop")),
    ],
)
def test_without_a_client_of_hdfs_the_message_names_a_package_that_brings_it(
    module, package, words
):
    command = [sys.executable, "-c", WITHOUT, module, "inspect", "hdfs://dcA/ckpt/chk-1", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"`pip install {package}`" in done.stderr
    assert f'"{package}>=' in PROJECT


def test_every_extra_that_is_advised_exists():
    places = [
        *(ROOT / "cpreplicate").rglob("*.py"),
        *(ROOT / "docs").glob("*.md"),
        ROOT / "README.md",
    ]
    advised = {
        name
        for place in places
        for name in re.findall(r"(?:cpreplicate|'\.)\[(\w+)\]", place.read_text())
    }
    extras = set(
        re.findall(
            r"^(\w+) = \[",
            PROJECT.partition("[project.optional-dependencies]")[2].partition("\n[")[0],
            re.M,
        )
    )
    assert advised <= extras
    assert "s3" in advised


class TestTheRepairOfAnOlderPoint:
    """`verify --all` prints a command for each damaged point: they are followed literally."""

    @pytest.fixture(params=["off", "on"])
    def replica(self, tmp_path, request):
        packing = PackOptions(request.param, 1 << 20)
        return synced(tmp_path, {1: FILES, 2: NEXT, 3: THIRD}, keep=3, packing=packing)

    @staticmethod
    def followed(replica):
        """Run the commands that are printed, and return how they ended."""
        printed = run("verify", "--all", "--content", replica).out
        commands = re.findall(r"^Repair the replica.*?: cpreplicate (.*)$", printed, re.M)
        return [run(*shlex.split(words), "--runner", "inline") for words in commands]

    @staticmethod
    def points(replica):
        (row,) = run("list", replica, "--output", "json").json()["replicas"]
        return [(each["checkpoint"], each["completed"]) for each in row["points"]]

    @staticmethod
    def damage(replica, *names):
        """Flip the bytes of files, or of the packs that have their contents."""
        for name in names:
            if (replica / name).exists():
                flip(replica / name)
        for pack in (replica / "packed").glob("*"):
            flip(pack)

    def test_repairs_each_point_and_neither_publishes_nor_withdraws_one(self, replica):
        before = self.points(replica)
        self.damage(replica, "chk-1/x", "shared/a", "chk-2/x")
        ended = self.followed(replica)
        assert [each.code for each in ended] == [0] * (3 if (replica / "packed").exists() else 2)
        assert run("verify", "--all", "--content", replica).code == 0
        assert self.points(replica) == before
        source = replica.parents[1] / "dcA" / JOB
        assert "nothing to do" in run("sync", "--keep", "3", source, replica.parent).out

    def test_copies_what_is_missing_without_reading_the_rest(self, replica):
        before = self.points(replica)
        for place in [replica / "chk-1" / "x", *(replica / "packed").glob("*")][:2]:
            place.unlink(missing_ok=True)
        (one, *others) = self.followed(replica)
        assert one.code == 0, one
        assert {each.code for each in others} <= {0}
        assert run("verify", "--all", "--content", replica).code == 0
        assert self.points(replica) == before

    @pytest.mark.usefixtures("still_source")
    def test_of_which_the_source_lacks_a_file_says_so_and_changes_nothing(self, replica, tmp_path):
        before = paths(replica)
        self.damage(replica, "shared/a")
        (tmp_path / "dcA" / JOB / "shared" / "a").unlink()
        last = self.followed(replica)[-1]
        assert last.code in (10, 12)
        assert "shared/a" in last.message
        assert {name for name in paths(replica) if "packed" not in name} >= {
            name for name in before if "packed" not in name
        }

    def test_that_the_source_has_no_longer_says_so_and_the_others_are_repaired(
        self, replica, tmp_path
    ):
        before = self.points(replica)
        self.damage(replica, "chk-1/x", "chk-2/x")
        shutil.rmtree(tmp_path / "dcA" / JOB / "chk-1")
        ended = self.followed(replica)
        assert [each.code for each in ended] == [*[0] * (len(ended) - 1), 10]
        assert "cannot be repaired" in ended[-1].message
        assert run("verify", "--checkpoint", "chk-2", "--content", replica).code == 0
        assert run("verify", "--content", replica).code == 0
        assert self.points(replica) == before


def flip(file):
    file.write_bytes(bytes(byte ^ 1 for byte in file.read_bytes()))


class TestARepair:
    @pytest.fixture
    def replica(self, tmp_path):
        return synced(tmp_path, {1: FILES, 2: NEXT}, keep=2)

    def test_of_a_point_that_is_whole_has_nothing_to_do(self, replica, tmp_path):
        ended = run("sync", "--repair", tmp_path / "dcA" / JOB / "chk-1", replica.parent)
        assert (ended.code, "nothing to do" in ended.out) == (0, True)

    def test_of_another_checkpoint_of_the_same_number_is_refused(self, replica, tmp_path):
        (replica / "chk-1" / "x").unlink()
        write_checkpoint(tmp_path / "dcA", 1, THIRD)
        before = paths(replica)
        ended = run("sync", "--repair", tmp_path / "dcA" / JOB / "chk-1", replica.parent)
        assert (ended.code, "is not the checkpoint" in ended.message) == (6, True)
        assert paths(replica) == before

    @pytest.mark.parametrize("source", ["", "chk-3"])
    def test_of_a_checkpoint_that_is_not_kept_names_those_that_are(self, replica, tmp_path, source):
        write_checkpoint(tmp_path / "dcA", 3, THIRD)
        ended = run("sync", "--repair", tmp_path / "dcA" / JOB / source, replica.parent)
        assert (ended.code, "It holds chk-2, chk-1" in ended.message) == (10, True)

    @pytest.mark.parametrize(
        "option",
        ["--keep=9", "--keep-daily=9", "--keep-less", "--allow-older", "--paths=relative"],
    )
    def test_refuses_by_name_an_option_that_it_would_ignore(self, replica, tmp_path, option):
        before = paths(replica)
        place = tmp_path / "dcA" / JOB / "chk-1"
        ended = printed("sync", option, "--repair", place, replica.parent)
        assert ended.returncode == 2
        assert f"{option.partition('=')[0]} cannot be given with --repair" in ended.stderr
        assert paths(replica) == before

    def test_takes_what_is_set_for_every_sync(self, replica, tmp_path, monkeypatch):
        monkeypatch.setenv("CPREPLICATE_SYNC_KEEP", "9")
        monkeypatch.setenv("CPREPLICATE_SYNC_PATHS", "relative")
        place = tmp_path / "dcA" / JOB / "chk-1"
        assert run("sync", "--repair", place, replica.parent).code == 0

    @pytest.mark.parametrize("option", ["--pack=on", "--adopt", "--name=x"])
    def test_takes_an_option_that_it_heeds(self, replica, tmp_path, option):
        place = tmp_path / "dcA" / JOB / "chk-1"
        assert run("sync", option, "--repair", place, replica.parent).code == 0

    def test_where_no_replica_is_writes_nothing(self, tmp_path):
        write_checkpoint(tmp_path / "dcA", 1, FILES)
        ended = run("sync", "--repair", tmp_path / "dcA" / JOB / "chk-1", tmp_path / "dcB")
        assert ended.code == 10
        assert not (tmp_path / "dcB").exists()

    def test_without_the_option_a_replica_does_not_go_back(self, replica, tmp_path):
        ended = run("sync", tmp_path / "dcA" / JOB / "chk-1", replica.parent)
        assert ended.code == 6

    def test_repairs_what_a_derived_checkpoint_shares(self, tmp_path):
        replica, _ = replicated_with_derived(tmp_path)
        (replica / "chk-1" / "state-1").unlink()
        found = json.loads(run("verify", "--all", replica, "--output", "json").out)
        assert found[0]["repair"] == found[1]["repair"]
        assert run(*shlex.split(found[1]["repair"])[1:]).code == 0
        assert run("verify", "--all", replica).code == 0

    def test_is_not_advised_for_what_only_a_derived_checkpoint_has(self, tmp_path):
        replica, name = replicated_with_derived(tmp_path)
        (replica / name / "state-0").unlink()
        found = json.loads(run("verify", "--all", replica, "--output", "json").out)
        assert [each["repair"] for each in found] == [None, None]
