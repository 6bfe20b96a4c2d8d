"""How actions are packed into batches."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.runners import Copy, Delete, Read
from cpreplicate.runners.batching import BATCH_BYTES, FILE_COST, batches
from cpreplicate.runners.tasks import SMALL, size_of

SIZES = st.lists(st.integers(0, 1 << 34), max_size=300)


def copies(sizes):
    return [Copy("s", f"t{number}", size) for number, size in enumerate(sizes)]


def cost(action):
    """In bytes moved in the same time."""
    return FILE_COST + size_of(action)


@given(SIZES, st.integers(1, 32), st.integers(1, 1 << 36), st.integers(1, 50))
def test_batches_hold_every_action_once_within_both_caps_and_most_bytes_first(
    sizes, slots, most_bytes, most_files
):
    packed = batches(copies(sizes), slots, most_bytes, most_files)
    assert sorted(action for batch in packed for action in batch) == sorted(copies(sizes))
    assert all(0 < len(batch) <= most_files for batch in packed)
    assert all(len(batch) == 1 or sum(map(size_of, batch)) <= most_bytes for batch in packed)
    bytes_ = [sum(map(size_of, batch)) for batch in packed]
    assert bytes_ == sorted(bytes_, reverse=True)


@given(
    st.lists(st.integers(SMALL + 1, BATCH_BYTES // 300), min_size=1, max_size=300),
    st.integers(1, 32),
)
def test_there_are_four_batches_a_slot_and_they_cost_alike(sizes, slots):
    packed = batches(copies(sizes), slots)
    assert len(packed) == min(len(sizes), 4 * slots)
    loads = [sum(map(cost, batch)) for batch in packed]
    assert max(loads) - min(loads) <= max(map(cost, copies(sizes)))


@given(st.lists(st.integers(0, SMALL), min_size=1, max_size=3000), st.integers(1, 32))
def test_small_files_make_batches_that_cost_alike_and_no_more_of_them_than_is_worth_a_task(
    sizes, slots
):
    packed = batches(copies(sizes), slots)
    assert len(packed) <= min(4 * slots, -(-len(sizes) // 16)) or len(sizes) > 2000
    loads = [sum(map(cost, batch)) for batch in packed]
    assert max(loads) - min(loads) <= 2 * max(map(cost, copies(sizes)))


def test_batches_of_many_sizes_have_about_as_many_bytes_each():
    """Else, where bytes are the limit, the batch that has most of them is most of the run."""
    sizes = [int(size) for size in np.random.default_rng(7).lognormal(14, 1.5, 20_000)]
    bytes_ = [sum(map(size_of, batch)) for batch in batches(copies(sizes), slots=8)]
    assert max(bytes_) <= 1.4 * sum(bytes_) / len(bytes_)


def test_a_huge_file_is_a_batch_of_its_own_and_goes_first():
    actions = [*(Copy("s", f"t{n}", 1 << 20) for n in range(100)), Copy("s", "huge", 1 << 40)]
    assert batches(actions, slots=2)[0] == (actions[-1],)


def test_a_file_much_larger_than_the_others_shares_its_batch_with_none():
    actions = [*(Copy("s", f"t{n}", 1 << 20) for n in range(100)), Copy("s", "large", 1 << 30)]
    assert batches(actions, slots=2)[0] == (actions[-1],)


def test_a_great_many_files_make_more_batches():
    assert max(map(len, batches([Delete(f"t{n}") for n in range(50_000)], slots=1))) <= 2000


def test_a_great_many_bytes_make_batches_for_slots_that_are_not_there_yet():
    assert len(batches(copies([1 << 30] * 1000), slots=1)) >= 1000 * (1 << 30) // BATCH_BYTES


def test_nothing_makes_no_batch():
    assert batches([], slots=4) == []


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(1, 8), SIZES)
def test_the_reads_of_a_pack_share_a_batch_with_every_other_action_in_one(members, slots, sizes):
    reads = [
        Read(f"m{pack}-{number}", 1 << 20, f"pack{pack}", number << 20)
        for pack, count in enumerate(members)
        for number in range(count)
    ]
    plain = [Read(f"p{number}", size) for number, size in enumerate(sizes)]
    packed = batches([*reads, *plain], slots)
    assert sorted(action.target for batch in packed for action in batch) == sorted(
        action.target for action in [*reads, *plain]
    )
    batches_of = [{action.pack for action in batch if action.pack} for batch in packed]
    assert sum(map(len, batches_of)) == len(members)
