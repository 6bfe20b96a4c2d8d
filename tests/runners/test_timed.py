"""What a timed runner measures."""

from cpreplicate.runners import Copy, Delete, Read, TimedRunner


class Slow:
    """A runner of which each call takes a second more than the one before."""

    name, reason, is_elsewhere = "slow", "a test", False

    def __init__(self):
        self.now = 0.0
        self.calls = 0

    def _work(self):
        self.calls += 1
        self.now += self.calls
        return [self.calls]

    def run(self, _actions, _level=0, _done=None):
        return self._work()

    def map(self, _function, _items, _places=()):
        return self._work()

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.now += 100


def test_copies_and_deletes_are_measured_apart_and_results_are_passed_on():
    slow = Slow()
    with TimedRunner(slow, lambda: slow.now) as runner:
        results: list[object] = [
            *runner.run([Copy("file:/a", "file:/b", 1)]),
            *runner.run([Delete("file:/b", 0.0)]),
            *runner.run([Read("file:/b", 1)]),
            *runner.map(str, [1]),
            *runner.run([Copy("file:/a", "file:/b", 1)]),
        ]
    assert results == [1, 2, 3, 4, 5]
    assert (runner.copies, runner.deletes) == (6, 2)
    assert (runner.name, runner.reason, runner.is_elsewhere) == ("slow", "a test", False)
