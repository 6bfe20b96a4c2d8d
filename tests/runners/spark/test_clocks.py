"""An executor whose clock is off by more than a lease tolerates does nothing, and is named."""

import logging
import time

import pytest

from cpreplicate.protocol.lease import TOLERATED_SKEW
from cpreplicate.runners.spark import clocks, failures
from cpreplicate.runners.spark.executors import Differs
from cpreplicate.storage.rpc import RpcAddress, RpcClient, serve

OFF = TOLERATED_SKEW + 3600  # a slow test takes seconds of it


class Driver:
    """A driver whose clock is so many seconds ahead of this host's."""

    def __init__(self, ahead):
        self._ahead, self.own = ahead, clocks.DriverClock()

    @property
    def answers(self):
        return {**self.own.answers, "clock": lambda: time.time() + self._ahead}


@pytest.mark.parametrize(("ahead", "direction"), [(OFF, "behind"), (-OFF, "ahead of")])
def test_a_clock_that_is_off_is_refused_and_named_in_a_warning_of_the_driver(
    ahead, direction, caplog
):
    driver = Driver(ahead)
    with serve(driver.answers, "127.0.0.1") as address, caplog.at_level(logging.WARNING):
        for _ in range(2):
            with pytest.raises(Differs, match=rf"is \d+ s {direction} the driver's"):
                clocks.check(RpcClient(address), time.time())
    [warning] = [record.getMessage() for record in caplog.records]
    assert warning.endswith("see docs/clusters.md. Its batches are given to other executors")


@pytest.mark.parametrize("ahead", [0, TOLERATED_SKEW - 5, 5 - TOLERATED_SKEW])
def test_a_clock_within_what_a_lease_tolerates_is_accepted(ahead):
    with serve(Driver(ahead).answers, "127.0.0.1") as address:
        clocks.check(RpcClient(address), time.time())


def test_a_task_that_waited_for_long_is_no_clock_that_is_ahead():
    with serve(Driver(0).answers, "127.0.0.1") as address:
        clocks.check(RpcClient(address), time.time() - 3600)


@pytest.mark.parametrize("client", [None, RpcClient(RpcAddress(("127.0.0.1", 1), b"key"))])
def test_without_the_driver_a_clock_that_is_behind_is_noticed_by_the_time_of_the_task(client):
    with pytest.raises(Differs, match="s behind the driver's"):
        clocks.check(client, time.time() + OFF)
    clocks.check(client, time.time() - 3600)


def test_the_reason_of_a_run_is_the_clock():
    with pytest.raises(Differs) as raised:
        clocks.check(None, time.time() + OFF)
    error = Exception(f"cpreplicate.runners.spark.executors.Differs: {raised.value}\n")
    assert failures.difference(error) == str(raised.value)
