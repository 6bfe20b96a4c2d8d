"""A seal records by whom, when and for which checkpoint, and is respected even if it is damaged."""

import json
import re

import pytest

from cpreplicate.errors import Refused
from cpreplicate.protocol import seal
from cpreplicate.protocol.seal import Seal
from tests.support.replicas import held


@pytest.fixture
def replica(tmp_path):
    with held(tmp_path / "job's") as replica:
        yield replica


def content(replica):
    with replica.storage.open(seal.seal_uri(replica)) as stream:
        return json.loads(stream.read())


def test_a_seal_is_read_as_it_was_written(replica):
    assert not seal.is_sealed(replica)
    assert seal.read(replica) is None
    assert seal.describe(replica) is None
    made = seal.seal(replica, "chk-7", ["b1", "a0"])
    assert seal.is_sealed(replica)
    fields, status = content(replica), replica.storage.stat(seal.seal_uri(replica))
    described = seal.describe(replica)
    assert made == Seal("chk-7", status.modified, frozenset({"a0", "b1"}), described)
    assert seal.read(replica) == made
    assert described.startswith(f"by {fields['owner']}@{fields['host']} at ")
    assert described.endswith(" for chk-7")


def test_a_seal_is_renewed_for_another_checkpoint(replica):
    seal.seal(replica, "chk-7")
    seal.seal(replica, "chk-8")
    assert seal.read(replica).checkpoint == "chk-8"


@pytest.mark.parametrize("operators", ["", ', "operators": 7', ', "operators": null'])
def test_a_seal_of_an_earlier_version_or_a_malformed_one_names_no_operators(replica, operators):
    text = f'{{"checkpoint": "chk-7"{operators}}}'
    replica.storage.put(seal.seal_uri(replica), lambda: [text.encode()])
    assert seal.read(replica).operators == frozenset()


@pytest.mark.parametrize("text", ["", "[]", "nonsense"])
def test_a_damaged_seal_seals(replica, text):
    replica.storage.put(seal.seal_uri(replica), lambda: [text.encode()])
    assert seal.is_sealed(replica)
    assert seal.read(replica).checkpoint == "unknown"
    with pytest.raises(Refused, match="is sealed by unknown@unknown"):
        seal.refuse_sealed(replica)


def test_the_refusal_names_the_command_that_removes_the_seal(replica):
    seal.refuse_sealed(replica)
    seal.seal(replica, "chk-7")
    with pytest.raises(
        Refused, match=r"Nothing was done\. .*`cpreplicate unseal 'file:.*--job DIR`"
    ):
        seal.refuse_sealed(replica)


def test_the_refusal_of_another_point_has_what_would_withdraw_it_stopped_before_the_unseal(replica):
    seal.seal(replica, "chk-7")
    reason = seal.reason_against(replica, "chk-6")
    assert reason is not None
    assert re.search("stop what syncs .* withdraw chk-6.* unseal .* promote chk-6$", reason)
