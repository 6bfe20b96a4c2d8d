"""How a job is started from a promoted checkpoint: what is printed can be executed as it is."""

import json
import re
import shlex

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.core import start
from cpreplicate.core.metadata import decode
from tests.support.jobs import JOB, metadata_of

PLACE = f"hdfs://dcB/flink/replicas/{JOB}/chk-42"
NONCE = 1_700_000_000
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")  # RFC 1123
# characters that a URI, or YAML, may have trouble with
ODD = st.text("aB1-_.:#'\"{}[]&*!|>%@`, \t\\~é😀\x7f\x85\u2028\ufeff", min_size=1)


def starting(place=PLACE, version=6):
    return start.starting(decode(metadata_of(42, {}, version), place), place, NONCE)


@pytest.mark.parametrize(
    ("version", "options"),
    [(6, ["-claimMode", "NO_CLAIM"]), (4, ["-restoreMode", "NO_CLAIM"]), (3, [])],
)
def test_the_command_is_a_list_of_arguments_and_the_same_for_a_shell(version, options):
    restore = starting(version=version).restore
    assert restore.arguments == ("flink", "run", "-s", PLACE, *options, "JAR")
    assert shlex.split(restore.command) == list(restore.arguments)


@pytest.mark.parametrize(
    ("version", "options"),
    [
        (6, ["-Dexecution.state-recovery.claim-mode=NO_CLAIM"]),
        (4, ["-Dexecution.savepoint-restore-mode=NO_CLAIM"]),
        (3, []),
    ],
)
def test_an_application_gets_the_claim_mode_as_a_dynamic_property(version, options):
    command = shlex.split(starting(version=version).application)
    words = ["-s", PLACE, "-j", "CLASS"]
    assert command == ["standalone-job.sh", "start", *options, *words]


@given(ODD)
def test_a_path_with_spaces_and_quotes_is_one_argument(odd):
    arguments = starting(f"file:/a/{odd}/chk-1").restore.arguments
    assert arguments[3] == f"file:/a/{odd}/chk-1"
    assert shlex.split(starting(f"file:/a/{odd}/chk-1").restore.command) == list(arguments)


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (6, {"savepointPath": PLACE, "claimMode": "NO_CLAIM"}),
        (4, {"savepointPath": PLACE, "restoreMode": "NO_CLAIM"}),
        (3, {"savepointPath": PLACE}),
    ],
)
def test_the_body_for_the_rest_api_is_json(version, body):
    assert json.loads(json.dumps(starting(version=version).rest)) == body


def test_a_deployment_that_ran_before_is_restored_because_the_nonce_is_another_one():
    assert starting().deployment == {
        "spec": {
            "job": {"initialSavepointPath": PLACE, "savepointRedeployNonce": NONCE},
            "flinkConfiguration": {"execution.state-recovery.claim-mode": "NO_CLAIM"},
        }
    }
    assert "flinkConfiguration" not in starting(version=3).deployment["spec"]


def test_snapshots_of_derived_checkpoints_have_names_of_their_jobs():
    of_one = start.snapshot_name("file:/a/55d1/rebased/chk-4-1")
    assert re.fullmatch("cpreplicate-55d1-rebased-chk-4-1-[0-9a-f]{8}", of_one)
    assert of_one != start.snapshot_name("file:/a/66e2/rebased/chk-4-1")


def test_a_snapshot_names_a_checkpoint_that_is_there_and_deletes_nothing():
    assert starting().snapshot == {
        "apiVersion": "flink.apache.org/v1beta1",
        "kind": "FlinkStateSnapshot",
        "metadata": {"name": start.snapshot_name(PLACE)},
        "spec": {
            "savepoint": {"path": PLACE, "alreadyExists": True, "disposeOnDelete": False},
        },
    }


@given(ODD)
def test_what_is_written_as_yaml_and_json_is_read_as_the_same(odd):
    one = starting(f"file:/a/{odd}/chk-1")
    for manifest in (one.deployment, one.snapshot):
        assert yaml.safe_load(start.yaml(manifest)) == manifest
        assert json.loads(json.dumps(manifest)) == manifest


@given(ODD, st.integers(1, 300))
def test_a_snapshot_has_a_name_that_kubernetes_accepts(odd, times):
    name = start.snapshot_name(f"file:/a/{odd * times}/chk-12")
    assert NAME.fullmatch(name)
    assert "." not in name
    assert len(name) <= 63
    assert "-chk-12-" in name


def test_snapshots_of_jobs_of_one_id_have_names_of_their_own():
    places = [f"hdfs://{place}/{JOB}/chk-7" for place in ("b/one", "b/two", "c/one")]
    assert len({start.snapshot_name(place) for place in places}) == 3
    assert start.snapshot_name("hdfs://me:secret@b/one/chk-7") == start.snapshot_name(
        "hdfs://b/one/chk-7"
    )
