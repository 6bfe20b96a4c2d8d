"""What a service has done costs no memory for long: cycles are collected while it rests."""

import gc
import weakref

import pytest

from cpreplicate.operations.jobs.memory import Collector
from tests.support.stepping import ManualClock


class Cycle:
    """Something that only a collection frees, as an exception and the frame that has it."""

    def __init__(self):
        self.itself = self


@pytest.fixture
def uncollected():
    """A reference to a cycle that nothing collects by itself."""
    gc.disable()
    yield weakref.ref(Cycle())
    gc.enable()


@pytest.mark.parametrize(("is_resting", "seconds"), [(True, 60.0), (False, 300.0)])
def test_cycles_are_collected_when_a_service_rests_and_later_if_it_never_does(
    uncollected, is_resting, seconds
):
    clock = ManualClock()
    memory = Collector(clock)
    clock.pass_(seconds - 1)
    memory.tidy(is_resting)
    assert uncollected() is not None
    clock.pass_(1)
    memory.tidy(is_resting)
    assert uncollected() is None


def test_collections_that_take_long_are_rare(uncollected, monkeypatch):
    clock = ManualClock()
    memory = Collector(clock)
    collect = gc.collect

    def collect_for_long():
        collect()
        clock.pass_(2.0)

    monkeypatch.setattr(gc, "collect", collect_for_long)
    clock.pass_(60.0)
    memory.tidy(is_resting=True)
    assert uncollected() is None
    another = weakref.ref(Cycle())
    clock.pass_(399.0)
    memory.tidy(is_resting=True)
    assert another() is not None
    clock.pass_(1.0)
    memory.tidy(is_resting=True)
    assert another() is None
