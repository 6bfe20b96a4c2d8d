"""`inspect` counts the packed files of a replica as the files that they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cpreplicate.cli.commands import cli
from cpreplicate.core.packs import PackOptions
from cpreplicate.operations.inspect import PackSummary, inspect
from cpreplicate.storage import Side
from cpreplicate.storage.wrappers.base import StorageWrapper
from tests.support.registry import serving
from tests.support.replicas import FILES, NEXT, synced

PACKED = PackOptions("on", 700)
IN_PACKS = {name: size for name, size in FILES.items() if size < 700}


@pytest.fixture
def replica(tmp_path: Path) -> Path:
    return synced(tmp_path, {1: FILES}, packing=PACKED)


def test_a_packed_replica_has_the_files_and_bytes_of_its_source(replica, tmp_path):
    of_source = inspect(f"file:{tmp_path}/dcA/{replica.name}", Side(), ())
    of_replica = inspect(f"file:{replica}/chk-1", Side(), ())
    assert of_source.files == of_replica.files == len(FILES)
    assert of_source.bytes == of_replica.bytes == sum(FILES.values())
    assert of_source.operators == of_replica.operators
    assert of_source.packed is None
    whole = sum(IN_PACKS.values())
    assert of_replica.packed == PackSummary(len(IN_PACKS), 1, whole, 0)


def test_bytes_that_the_checkpoint_does_not_need_are_dead(tmp_path):
    replica = synced(tmp_path, {1: FILES, 2: NEXT}, packing=PACKED)
    kept = {name: size for name, size in NEXT.items() if size < 700}
    live = sum(kept.values())
    dead = sum(size for name, size in IN_PACKS.items() if name not in kept)
    result = inspect(f"file:{replica}/chk-2", Side(), ())
    assert result.packed == PackSummary(len(kept), 2, live, dead)
    assert dead > 0


def test_text_and_json_show_the_packs(replica):
    shown = CliRunner().invoke(cli, ["inspect", str(replica)]).stdout
    assert "packed      7 files in 1 packs; 2.1 KiB live, 0 B dead" in shown
    printed = CliRunner().invoke(cli, ["inspect", "--output", "json", str(replica)]).stdout
    packed = json.loads(printed)["packed"]
    assert packed == {"files": 7, "packs": 1, "live_bytes": 2130, "dead_bytes": 0}


class Counting(StorageWrapper):
    """Counts the listings of each directory."""

    listed: tuple[str, ...] = ()

    def list(self, uri):
        self.listed += (uri,)
        return super().list(uri)


def test_packed_is_listed_once_and_only_if_there_are_packs(replica, tmp_path):
    storage = Counting(Side().storage("file:/"))
    with serving("file", storage):
        inspect(f"file:{replica}/chk-1", Side(), ())
        inspect(f"file:{tmp_path}/dcA/{replica.name}/chk-1", Side(), ())
    assert [uri for uri in storage.listed if uri.endswith("/packed")] == [f"file:{replica}/packed"]
