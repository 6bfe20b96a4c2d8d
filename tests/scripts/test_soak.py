"""What a soak says of memory: growth is found, and teeth are none."""

import random

import pytest

from scripts.soak import Sample, least, report, slope

TIMES = [5.0 * number for number in range(360)]  # half an hour


def memories(growth, seed):
    """Memory that grows by so much an hour, with the teeth of syncs and collections."""
    draw = random.Random(seed)
    return [200 + growth * at / 3600 + draw.choice([0, 0, 10, 40]) + at % 60 / 4 for at in TIMES]


def test_a_slope_is_that_of_the_line_and_its_error_that_of_the_rest():
    assert slope(TIMES, [3 + at / 360 for at in TIMES]) == pytest.approx((10.0, 0.0))
    assert slope([0.0, 3600.0, 7200.0], [0.0, 1.0, 0.0])[1] > 0


def test_the_least_of_each_part_counts():
    times, values = least(TIMES, memories(0.0, 1))
    assert (len(times), max(values) < 215) == (20, True)


@pytest.mark.parametrize("seed", range(10))
def test_growth_fails_and_teeth_do_not(seed):
    def is_too_steep(growth):
        samples = [Sample(each, 20, 30, 1000, 50) for each in memories(growth, seed)]
        return report(TIMES, samples, 20.0)

    assert is_too_steep(60.0)
    assert not is_too_steep(0.0)
