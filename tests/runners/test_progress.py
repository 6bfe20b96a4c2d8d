"""The progress that a run reports."""

import pytest

from cpreplicate.runners.progress import EachRun, Progress, showing
from tests.support.waiting import wait_until


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def progress(clock):
    made = Progress(clock)
    made.expect(10, 1000)
    return made


def test_files_and_bytes_count_as_they_are_done_and_bytes_also_before_their_file_is(progress):
    progress.begin("a")
    progress.add("a", moved=70)
    assert progress.snapshot()[:4] == (0, 10, 70, 1000)
    progress.add("a", files=1, size=100, moved=30)
    assert progress.snapshot()[:4] == (1, 10, 100, 1000)
    progress.end("a")
    assert progress.snapshot()[:4] == (1, 10, 100, 1000)


def test_what_an_attempt_moved_in_vain_is_not_counted_as_done(progress):
    progress.begin("a")
    progress.add("a", files=1, size=100, moved=400, failed=1)
    progress.retry()
    progress.begin("a")
    progress.add("a", files=1, size=100)
    now = progress.snapshot()
    assert (now.files, now.bytes, now.failed, now.retried) == (1, 100, 0, 1)


def test_only_what_failed_for_good_counts_as_failed_in_the_end(progress):
    progress.add("a", files=1, size=100, failed=2)
    progress.end("a")
    assert progress.snapshot().failed == 0  # it is to be tried again
    progress.fail(1)
    assert progress.snapshot().failed == 1


def test_no_more_is_done_than_there_was_to_do(progress):
    progress.add("a", moved=5000)
    assert progress.snapshot().bytes == 1000


def test_the_rate_is_that_of_the_last_ten_seconds_and_gives_the_time_left(progress, clock):
    for _ in range(30):
        clock.now += 1
        progress.add("a", moved=10)
        progress.snapshot()
    for _ in range(10):
        clock.now += 1
        progress.add("a", moved=20)
        now = progress.snapshot()
    assert now.rate == pytest.approx(20)
    assert now.left == pytest.approx((1000 - 500) / 20)


def test_time_left_without_bytes_is_computed_from_files(clock):
    deletes = Progress(clock)
    deletes.expect(100, 0)
    assert deletes.snapshot().left is None
    clock.now += 5
    deletes.add("a", files=20)
    assert deletes.snapshot().left == pytest.approx(20)


def test_it_is_shown_every_second_and_at_the_end_also_of_a_failure():
    shown = []
    progress = Progress()

    def fail():
        with showing(progress, lambda now, last: shown.append((now.files, last))):
            progress.expect(1, 1)
            wait_until(lambda: shown)
            progress.add("a", files=1)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert (shown[0], shown[-1]) == ((0, False), (1, True))
    assert [is_last for _, is_last in shown] == [False] * (len(shown) - 1) + [True]


def test_a_runner_that_is_kept_shows_each_run_as_if_it_were_the_only_one(progress, clock):
    shown = []
    show = EachRun(lambda now, last: shown.append((now.files, now.files_total, now.seconds, last)))
    progress.add("a", files=4, size=400)
    show(progress.snapshot(), False)
    progress.add("a", files=6, size=600)
    show(progress.snapshot(), False)
    clock.now += 3600
    show(progress.snapshot(), False)  # nothing is under way
    progress.expect(2, 20)
    clock.now += 5
    progress.add("a", files=1, size=10)
    show(progress.snapshot(), False)
    show(progress.snapshot(), True)
    assert shown == [
        (4, 10, 0, False),
        (10, 10, 0, True),
        (1, 2, 5, False),
        (1, 2, 5, True),
    ]
