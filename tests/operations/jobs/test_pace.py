"""When a job is asked for: when its next checkpoint is due, and more rarely while none comes."""

import itertools

import pytest

from cpreplicate.flink import CompletedCheckpoint
from cpreplicate.operations.jobs.pace import Pace

RUNNING, FAILED = "RUNNING", "FAILED"


def checkpoint(number, completed):
    return CompletedCheckpoint(number, f"file:/dcA/chk-{number}", 1e9 + completed)


def asked(completed, seconds, interval=10.0):
    """When a job was asked for that completes checkpoints at these times, and was looked at each
    interval; and by how much later than at the next look each of them was seen.
    """
    pace, known, times, late = Pace(), 0, [], []
    for look in range(int(seconds / interval)):
        now = look * interval
        if not pace.is_due(RUNNING, now):
            continue
        times.append(now)
        done = [each for each in completed if each <= now]
        late += [max(0.0, now - each - interval) for each in done[known:]]
        known = len(done)
        pace.saw(RUNNING, checkpoint(known, done[-1] if done else 0.0), now)
    return times, late


@pytest.mark.parametrize("between", [60.0, 97.0, 240.0])
def test_a_job_is_asked_for_when_its_next_checkpoint_is_due_and_none_is_seen_late(between):
    completed = [5 + between * number for number in range(50)]
    times, late = asked(completed, 50 * between)
    assert len(times) < 4.5 * len(completed)  # of 6, 9 and 24 looks
    assert max(late[3:]) == 0


def test_a_job_that_completes_none_is_asked_for_ever_more_rarely_and_each_five_minutes_at_least():
    times, _ = asked([0.0], 7200.0)
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert pauses[0] == 10.0
    assert pauses == sorted(pauses)
    assert pauses[-1] == 300.0
    assert len(times) < 40  # of 720 looks


def test_what_comes_after_a_pause_is_seen_within_a_quarter_of_it():
    for quiet in range(20, 900, 20):
        _, late = asked([0.0, float(quiet)], 1500.0)
        assert late[-1] <= quiet / 4


def test_a_job_whose_state_changes_is_asked_for_at_once():
    pace = Pace()
    pace.saw(RUNNING, checkpoint(1, 0.0), 0.0)
    pace.saw(RUNNING, checkpoint(1, 0.0), 1000.0)
    assert not pace.is_due(RUNNING, 1001.0)
    assert pace.is_due(FAILED, 1001.0)


def test_a_job_that_completes_one_at_each_look_is_asked_for_at_each_look():
    times, _ = asked([number * 5.0 for number in range(200)], 1000.0)
    assert len(times) == 100
