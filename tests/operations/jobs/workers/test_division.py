"""How many worker processes there are, and which jobs are whose."""

import os

import pytest

from cpreplicate.operations.jobs.workers.division import Division, most_processes, processes_for


@pytest.mark.parametrize(
    ("jobs", "processes"), [(0, 1), (1, 1), (50, 1), (51, 2), (100, 2), (101, 3), (1000, 4)]
)
def test_there_is_a_process_for_each_50_jobs_and_at_most_one_a_core(jobs, processes):
    assert processes_for(jobs, now=1, most=4) == processes


def test_a_few_jobs_that_come_and_go_change_no_number_of_processes():
    assert processes_for(51, now=1, most=8) == 2
    assert processes_for(45, now=2, most=8) == 2
    assert processes_for(40, now=2, most=8) == 1


def test_a_limit_of_the_container_or_unit_bounds_the_processes(tmp_path):
    (tmp_path / "cgroup").write_text("0::/slice/unit\n")
    (tmp_path / "slice/unit").mkdir(parents=True)
    allowed = len(os.sched_getaffinity(0))
    assert most_processes(tmp_path, tmp_path / "cgroup") == allowed
    (tmp_path / "slice/unit/cpu.max").write_text("max 100000\n")
    (tmp_path / "slice/unit/memory.max").write_text("max\n")
    assert most_processes(tmp_path, tmp_path / "cgroup") == allowed
    (tmp_path / "slice/cpu.max").write_text("50000 100000\n")
    assert most_processes(tmp_path, tmp_path / "cgroup") == 1
    assert most_processes(tmp_path, tmp_path / "no such file") == allowed


def test_a_limit_of_the_first_version_of_control_groups_bounds_them_too(tmp_path):
    """A container sees its own group where its host has the one above all."""
    own = tmp_path / "cgroup"
    own.write_text("4:cpu,cpuacct:/docker/1\n9:memory:/docker/1\n0::/\n")
    for controller in ("cpu", "memory"):
        (tmp_path / controller).mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / "memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert most_processes(tmp_path, own) == len(os.sched_getaffinity(0))
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("100000\n")
    assert most_processes(tmp_path, own) == 1
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "memory/memory.limit_in_bytes").write_text(f"{1 << 29}\n")
    assert most_processes(tmp_path, own) == 1


def test_each_process_has_512_mib_of_the_memory_of_its_container(tmp_path):
    (tmp_path / "cgroup").write_text("0::/\n")
    (tmp_path / "memory.max").write_text(f"{1 << 29}\n")
    assert most_processes(tmp_path, tmp_path / "cgroup") == 1
    (tmp_path / "memory.max").write_text(f"{1 << 40}\n")
    assert most_processes(tmp_path, tmp_path / "cgroup") == len(os.sched_getaffinity(0))


def divided(count, keys):
    division = Division[int]()
    division.divide(keys, count)
    return division


def sizes(division, keys):
    parts = [division.of(key) for key in keys]
    return sorted(parts.count(part) for part in range(division.count))


def test_jobs_are_divided_into_parts_of_the_same_size():
    keys = range(100)
    assert sizes(divided(3, keys), keys) == [33, 33, 34]


def test_a_job_stays_where_it_is_while_others_come_and_go():
    division = divided(3, range(90))
    before = {key: division.of(key) for key in range(90)}
    stay = [key for key in range(90) if before[key] != 1]
    division.divide(stay, 3)
    assert {key: division.of(key) for key in stay} == {key: before[key] for key in stay}
    new = [*stay, *range(100, 130)]
    division.divide(new, 3)
    assert {division.of(key) for key in range(100, 130)} == {1}
    assert sizes(division, new) == [30, 30, 30]


@pytest.mark.parametrize(("before", "after", "moved"), [(2, 3, 20), (3, 2, 20), (2, 2, 0)])
def test_no_more_jobs_move_than_a_change_of_the_number_needs(before, after, moved):
    keys = range(60)
    division = divided(before, keys)
    places = [division.of(key) for key in keys]
    division.divide(keys, after)
    now = [division.of(key) for key in keys]
    assert sum(one != other for one, other in zip(places, now, strict=True)) == moved
    assert sizes(division, keys) == [60 // after] * after
