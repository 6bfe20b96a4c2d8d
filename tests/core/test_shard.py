"""Parts of the jobs."""

from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.core.shard import WHOLE, Shard


@given(st.text() | st.sampled_from(["\ud800", "\udcff"]), st.integers(1, 50))
def test_each_job_is_in_exactly_one_shard(name, shards):
    parts = [Shard(number, shards) for number in range(1, shards + 1)]
    assert sum(part.has(name) for part in parts) == 1
    assert WHOLE.has(name)


def test_the_shard_of_a_job_is_the_same_in_every_release():
    jobs = [f"{number:032x}" for number in range(6)]
    assert [1 + [Shard(n, 3).has(job) for n in (1, 2, 3)].index(True) for job in jobs] == [
        3,
        1,
        2,
        1,
        3,
        3,
    ]


def test_shards_have_about_as_many_jobs_each():
    jobs = [f"{number:032x}" for number in range(3000)]
    counts = [sum(Shard(number, 3).has(job) for job in jobs) for number in (1, 2, 3)]
    assert all(900 < count < 1100 for count in counts)
