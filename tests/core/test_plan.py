"""What a plan copies, keeps and deletes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.core.closure import File
from cpreplicate.core.ledger import LedgerEntry
from cpreplicate.core.path_columns import as_texts
from cpreplicate.core.plan import (
    Action,
    Committed,
    copies_and_keeps,
    deletes,
    dropped,
    not_needed,
    total,
)

TARGETS = st.sampled_from([f"shared/{n}" for n in "abcdefgh"])
FILES = st.dictionaries(TARGETS, st.integers(0, 9))
CHECKPOINTS = st.lists(FILES, max_size=4).map(
    lambda files: [Committed(f"chk-{n}", n, each) for n, each in enumerate(files, start=1)]
)


def needed(**extents: int) -> dict[str, File]:
    return {
        f"shared/{name}": File(f"hdfs://dcA/job/shared/{name}", extent)
        for name, extent in extents.items()
    }


def ledger(**lengths: int) -> dict[str, LedgerEntry]:
    return {f"shared/{name}": LedgerEntry(length, 0, True) for name, length in lengths.items()}


def test_what_is_new_is_copied_and_what_is_shared_is_kept():
    held = [Committed("chk-41", 41, {"shared/a": 5})]
    copies, keeps, _ = copies_and_keeps(needed(a=5, b=7), held, {"shared/a": 5}, ledger(a=5))
    assert copies == (Action("copy", "hdfs://dcA/job/shared/b", "shared/b", 7, "new"),)
    assert keeps == (
        Action("keep", "hdfs://dcA/job/shared/a", "shared/a", 5, "shared with chk-41"),
    )


def test_a_merged_file_that_grew_is_copied_again():
    held = [Committed("chk-41", 41, {"shared/a": 5})]
    copies, *_ = copies_and_keeps(needed(a=9), held, {"shared/a": 5}, ledger(a=5))
    assert copies[0].reason == "longer at source: a merged file grew"


def test_a_merged_file_that_was_already_copied_long_enough_is_kept():
    held = [Committed("chk-41", 41, {"shared/a": 5})]
    assert copies_and_keeps(needed(a=9), held, {"shared/a": 12}, ledger(a=12))[0] == ()


def test_a_committed_file_that_vanished_is_copied_again():
    held = [Committed("chk-41", 41, {"shared/a": 5})]
    assert (
        copies_and_keeps(needed(a=5), held, {}, ledger(a=5))[0][0].reason
        == "missing in the replica"
    )


def test_what_a_run_that_died_had_copied_is_kept():
    assert (
        copies_and_keeps(needed(a=5), [], {"shared/a": 5}, ledger(a=5))[1][0].reason
        == "copied by an earlier run"
    )


def test_what_the_ledger_does_not_have_is_copied_again():
    reason = copies_and_keeps(needed(a=5), [], {"shared/a": 5}, {})[0][0].reason
    assert reason == "what is there is not recorded by cpreplicate"


def test_what_is_recorded_without_its_crc_is_copied_again():
    """Two attempts at a merged file raced: which of them won is not known."""
    raced = {"shared/a": LedgerEntry(5, None, True)}
    assert len(copies_and_keeps(needed(a=5), [], {"shared/a": 5}, raced)[0]) == 1


@pytest.mark.parametrize("length", [0, 4, 6])
def test_a_file_of_another_length_than_recorded_is_copied_again(length):
    """Also where the extent is 0, as of changelog files."""
    reason = copies_and_keeps(needed(a=0), [], {"shared/a": length}, ledger(a=5))[0][0].reason
    assert reason == f"damaged: it has {length} bytes, 5 are recorded"


def deletes_beside(replaced, needed, present):
    """The deletes of what only `replaced` checkpoints needed, beside those that need this."""
    return deletes(replaced, not_needed(replaced, *map(as_texts, needed)), present)


def test_what_only_the_old_checkpoint_needed_is_deleted():
    held = [Committed("chk-41", 41, {"shared/a": 5, "shared/b": 6})]
    assert deletes_beside(held, [needed(a=5)], {"shared/a": 5, "shared/b": 6}) == (
        Action("delete", None, "shared/b", 6, "only chk-41 needed it"),
    )


def test_what_another_program_wrote_or_another_checkpoint_needs_is_not_deleted():
    held = [Committed("chk-41", 41, {"shared/a": 5, "shared/b": 6})]
    for kept in ([{}, ["shared/a"]], [["shared/a"], {}]):
        found = deletes_beside(held, kept, {"shared/a": 5, "shared/b": 6})
        assert [each.target for each in found] == ["shared/b"]


def test_keep_counts_the_new_checkpoint():
    held = [Committed(f"chk-{n}", n, {}) for n in (41, 40)]
    assert [each.name for each in dropped(held, "chk-42", 42, keep=1)] == ["chk-40", "chk-41"]
    assert [each.name for each in dropped(held, "chk-42", 42, keep=2)] == ["chk-40"]
    assert [each.name for each in dropped(held, "chk-41", 41, keep=2)] == []


def test_checkpoints_with_higher_numbers_are_of_a_former_life_of_the_job_and_never_kept():
    held = [Committed(f"chk-{n}", n, {}) for n in (4, 41, 40)]
    assert [each.name for each in dropped(held, "chk-5", 5, keep=9)] == ["chk-40", "chk-41"]


@given(FILES, CHECKPOINTS, FILES, st.integers(1, 4))
def test_after_a_plan_every_kept_checkpoint_is_whole_and_nothing_else_is_left(
    wanted, committed, orphans, keep
):
    """A model: apply the plan to a set of files and look at what every checkpoint still held there
    needs.
    """
    new = 10
    files = {target: File(f"source/{target}", extent) for target, extent in wanted.items()}
    present = dict(orphans)
    for checkpoint in committed:
        for target, extent in checkpoint.files.items():
            present[target] = max(extent, present.get(target, 0))
    copies, keeps, _ = copies_and_keeps(
        files, committed, present, {path: LedgerEntry(n, 0, True) for path, n in present.items()}
    )
    gone = dropped(committed[::-1], "chk-10", new, keep)
    for action in copies:
        present[action.target] = action.bytes
    kept = [checkpoint for checkpoint in committed if checkpoint not in gone]
    needs = [files, *(checkpoint.files for checkpoint in kept)]
    for action in deletes_beside(gone, needs, present):
        del present[action.target]
    assert len(kept) == min(len(committed), keep - 1)
    for checkpoint in [*kept, Committed("chk-10", new, wanted)]:
        assert all(present[target] >= extent for target, extent in checkpoint.files.items())
    references = {
        target
        for checkpoint in [*committed, Committed("chk-10", new, wanted)]
        for target in checkpoint.files
    }
    needed_now = {target for checkpoint in kept for target in checkpoint.files} | set(wanted)
    assert not (references - needed_now) & set(present)
    assert {action.target for action in (*copies, *keeps)} == set(wanted)
    assert total(copies) == sum(wanted[action.target] for action in copies)
