"""The actions of a plan by operator and reason."""

from collections import Counter

import pytest

from cpreplicate.core.closure import closure, owners
from cpreplicate.core.plan import replaces
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.plan.groups import Group
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.protocol.source import read_metadata
from cpreplicate.storage import Side
from tests.support.commandline import printed
from tests.support.corpus import ROOT
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, NEXT, synced


def plan_of(source, target, **options):
    return diff(SyncRequest(source, target, **options))


def test_actions_are_grouped_by_operator_and_reason_with_the_largest_of_each_action_first(tmp_path):
    synced(tmp_path, {1: FILES})
    write_checkpoint(tmp_path / "dcA", 2, {**NEXT, "shared/a": 100})
    report = plan_of(f"file:{tmp_path}/dcA/{JOB}", f"file:{tmp_path}/dcB")
    (operator,) = {group.operator for group in report.groups if group.action in ("copy", "keep")}
    (withdrawal,) = report.plan.withdrawals
    assert report.groups == (
        Group("copy", operator, None, "new", 2, 100),
        Group("withdraw", None, None, "not kept by --keep 1", 1, withdrawal.action.bytes),
        Group("delete", None, None, "only chk-1 needed it", 3, 530),
        Group("keep", operator, None, "shared with chk-1", 6, 3100),
    )


def test_groups_have_every_action_of_the_plan(tmp_path):
    synced(tmp_path, {1: FILES})
    (tmp_path / "dcB" / JOB / "shared" / "a").unlink()
    (tmp_path / "dcB" / JOB / "shared" / "b").write_bytes(b"short")
    write_checkpoint(tmp_path / "dcA", 2, {**FILES, "shared/new": 10})
    report = plan_of(f"file:{tmp_path}/dcA/{JOB}", f"file:{tmp_path}/dcB")
    files: Counter[tuple[str, str]] = Counter()
    size: Counter[tuple[str, str]] = Counter()
    for action in report.plan.actions:
        files[action.action, action.reason] += 1
        size[action.action, action.reason] += action.bytes
    assert {group[0:1] + group[3:4]: group.files for group in report.groups} == files
    assert {group[0:1] + group[3:4]: group.bytes for group in report.groups} == size
    assert {each.target for each in report.plan.copies if replaces(each)} == {"shared/b"}


@pytest.mark.parametrize("name", sorted(path.name for path in ROOT.iterdir() if path.is_dir()))
def test_each_file_belongs_to_the_operator_whose_handles_name_it(name):
    for path in sorted((ROOT / name).rglob("_metadata")):
        metadata = read_metadata(f"file:{path.parent}", Side()).metadata
        needed = closure(metadata)
        expected: dict[str, set[int | None]] = {}
        for handle in metadata.handles:
            if handle.path is not None and handle.kind != "directory":
                expected.setdefault(needed.uris[handle.path], set()).add(handle.operator)
        found = owners(metadata, needed).tolist()
        assert found == [
            next(iter(expected[each])) if len(expected[each]) == 1 else -1 for each in needed.files
        ]


def test_combined_has_a_sign_and_the_path_of_each_file_in_the_order_of_the_paths(tmp_path):
    synced(tmp_path, {1: {"shared/gone": 10, "shared/kept": 20, "shared/short": 30}})
    (tmp_path / "dcB" / JOB / "shared" / "short").write_bytes(b"short")
    write_checkpoint(tmp_path / "dcA", 2, {"shared/kept": 20, "shared/new": 40, "shared/short": 30})
    ended = printed("diff", f"dcA/{JOB}", "dcB", "--combined", cwd=tmp_path)
    assert ended.stdout.splitlines() == [
        "- chk-1/_metadata",
        "- shared/gone",
        "= shared/kept",
        "+ shared/new",
        "* shared/short",
    ]


@pytest.mark.parametrize(
    "options",
    [("--combined", "--all"), ("--all", "--actions"), ("--combined", "--output", "json")],
)
def test_listings_that_exclude_each_other_are_a_mistake(tmp_path, options):
    assert printed("diff", "dcA", "dcB", *options, cwd=tmp_path).returncode == 2
