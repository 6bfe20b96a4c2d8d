"""Which job is tried next."""

from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.operations.jobs.schedule import Schedule, Wanted


def schedule(slots=2, interval=10.0, max_backoff=100.0, chance=lambda: 0.0):
    return Schedule(slots, interval, max_backoff, chance)


def test_jobs_are_begun_by_priority_and_then_by_how_long_they_are_due():
    jobs = schedule()
    jobs.update({"late": Wanted(0)}, 0.0)
    jobs.update({"late": Wanted(0), "later": Wanted(0), "critical": Wanted(9)}, 1.0)
    assert jobs.take(2.0) == ["critical", "late"]
    assert jobs.take(3.0) == []
    jobs.ended("late", "done", 4.0)
    assert jobs.take(5.0) == ["later"]


def test_a_job_waits_only_for_jobs_of_its_own_or_a_higher_priority():
    jobs = schedule(slots=2)
    jobs.update({f"low-{number}": Wanted(0) for number in range(5)}, 0.0)
    assert len(jobs.take(0.0)) == 2
    critical = {f"critical-{number}": Wanted(1) for number in range(3)}
    jobs.update({**{f"low-{number}": Wanted(0) for number in range(5)}, **critical}, 1.0)
    assert jobs.take(1.0) == ["critical-0", "critical-1"]
    jobs.ended("low-0", "done", 2.0)  # two critical ones run, and one that is not
    assert jobs.take(2.0) == []


def test_one_job_of_each_priority_runs_however_many_important_ones_are_due():
    jobs = schedule(slots=2)
    critical = {f"critical-{number}": Wanted(1) for number in range(9)}
    jobs.update({**critical, "low-0": Wanted(0), "low-1": Wanted(0)}, 0.0)
    assert jobs.take(0.0) == ["critical-0", "critical-1", "low-0"]


def test_the_load_is_what_runs_and_what_is_due_without_a_slot():
    jobs = schedule(slots=2)
    assert jobs.load(0.0) == (0, 0, 2)
    jobs.update({f"job-{number}": Wanted() for number in range(5)}, 0.0)
    jobs.take(0.0)
    assert jobs.load(0.0) == (2, 3, 2)
    jobs.ended("job-0", "done", 1.0)  # due again at 10
    assert (jobs.load(1.0), jobs.load(10.0)) == ((1, 3, 2), (1, 4, 2))


def test_a_job_is_due_an_interval_after_it_was_begun():
    jobs = schedule(interval=10.0)
    jobs.update({"a": Wanted()}, 0.0)
    assert jobs.take(0.0) == ["a"]
    assert jobs.ended("a", "done", 4.0) == 6.0
    assert (jobs.take(9.9), jobs.take(10.0)) == ([], ["a"])
    assert jobs.ended("a", "again", 12.0) == 0.0
    assert jobs.take(12.0) == ["a"]


def test_a_job_that_keeps_failing_backs_off_to_the_maximum():
    jobs = schedule(interval=10.0, max_backoff=50.0)
    jobs.update({"a": Wanted()}, 0.0)
    now, pauses = 0.0, []
    for _ in range(5):
        assert jobs.take(now) == ["a"]
        pauses.append(jobs.ended("a", "failed", now))
        now += pauses[-1]
    assert pauses == [10, 20, 40, 50, 50]
    assert jobs.take(now) == ["a"]
    assert jobs.ended("a", "done", now) == 10.0


def test_jobs_that_failed_together_are_tried_again_at_different_times():
    chances = iter((0.0, 0.5, 1.0))
    jobs = schedule(slots=3, chance=lambda: next(chances))
    jobs.update({name: Wanted() for name in "abc"}, 0.0)
    assert [jobs.ended(name, "failed", 0.0) for name in jobs.take(0.0)] == [10.0, 7.5, 5.0]


def test_jobs_of_an_unreachable_cluster_leave_three_quarters_of_the_slots_to_others():
    jobs = schedule(slots=8)
    dead = {f"dead-{number}": Wanted(0, "dead") for number in range(20)}
    jobs.update(dead, 0.0)
    begun = jobs.take(0.0)
    assert len(begun) == 8
    for name in begun:
        jobs.ended(name, "unreachable", 1.0)
    jobs.update({**dead, **{f"live-{number}": Wanted(0, "live") for number in range(20)}}, 2.0)
    begun = jobs.take(20.0)
    assert sum(name.startswith("live") for name in begun) == 6
    for name in begun:
        jobs.ended(name, "done", 21.0)  # the cluster is back
    assert sum(name.startswith("dead") for name in jobs.take(21.0)) > 2


def test_a_job_that_is_gone_is_not_tried_again_and_one_that_runs_ends_first():
    jobs = schedule()
    jobs.update({"a": Wanted(), "b": Wanted()}, 0.0)
    assert jobs.take(0.0) == ["a", "b"]
    jobs.update({"b": Wanted()}, 1.0)
    jobs.ended("a", "done", 2.0)
    jobs.update({"b": Wanted()}, 3.0)
    jobs.ended("b", "done", 3.0)
    assert jobs.take(100.0) == ["b"]


def test_a_job_with_a_new_checkpoint_is_tried_at_once_unless_it_failed():
    jobs = schedule()
    jobs.update({"a": Wanted(), "b": Wanted()}, 0.0)
    jobs.take(0.0)
    jobs.ended("a", "done", 0.0)
    jobs.ended("b", "failed", 0.0)
    jobs.hurry("a", 1.0)
    jobs.hurry("b", 1.0)
    assert jobs.take(1.0) == ["a"]


steps = st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["done", "failed", "unreachable"])))


@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from("xy")), min_size=1, max_size=12), steps
)
def test_no_slot_is_ever_given_twice_and_no_job_is_forgotten(jobs, steps):
    schedule_: Schedule[str] = Schedule(3, 10.0, 40.0)
    wanted = {str(number): Wanted(*job) for number, job in enumerate(jobs)}
    schedule_.update(wanted, 0.0)
    running: list[str] = []
    now = 0.0
    for number, ending in steps:
        now += number
        for name in schedule_.take(now):
            priority = wanted[name].priority
            rivals = [each for each in running if wanted[each].priority >= priority]
            is_first = all(wanted[each].priority != priority for each in running)
            assert len(rivals) < 3 or is_first  # one of each priority runs in any case
            running.append(name)
        assert len(set(running)) == len(running)
        if running:
            schedule_.ended(running.pop(0), ending, now)
    for name in running:
        schedule_.ended(name, "done", now)
    tried = set()
    for _ in range(100):
        now += 50.0
        for name in schedule_.take(now):
            tried.add(name)
            schedule_.ended(name, "done", now)
    assert tried == set(wanted)


def test_first_copies_leave_slots_to_jobs_that_were_copied_before():
    jobs = schedule(slots=8)
    new = {f"new-{number}": Wanted(is_first=True) for number in range(20)}
    jobs.update({**new, "old-0": Wanted(), "old-1": Wanted()}, 0.0)
    begun = jobs.take(0.0)
    assert sum(name.startswith("new") for name in begun) == 6
    assert {"old-0", "old-1"} <= set(begun)
    alone = schedule(slots=1)
    alone.update(new, 0.0)
    assert len(alone.take(0.0)) == 1


def test_a_job_that_proves_to_be_a_first_copy_waits_for_a_slot_of_these():
    jobs = schedule(slots=2)
    jobs.update({"a": Wanted(), "b": Wanted()}, 0.0)
    assert jobs.take(0.0) == ["a", "b"]
    for name in "ab":
        assert jobs.ended(name, "first", 1.0) == 0.0
    assert jobs.take(1.0) == ["a"]
    assert jobs.take(1.0) == []
