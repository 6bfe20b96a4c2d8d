"""Attributes that are computed when they are first asked for."""

import threading

from cpreplicate.core.lazy import lazy
from tests.support.waiting import PATIENCE


class Table:
    def __init__(self, wait=lambda: None):
        self.wait, self.computed = wait, 0

    @lazy
    def rows(self):
        """The rows."""
        self.wait()
        self.computed += 1
        return [1, 2, 3]


def test_the_value_is_computed_once():
    table = Table()
    assert (table.computed, table.rows, table.rows, table.computed) == (0, [1, 2, 3], [1, 2, 3], 1)
    assert table.rows is table.rows
    assert Table.rows.__doc__ == "The rows."


def test_objects_do_not_wait_for_each_other():
    together = threading.Barrier(2, timeout=PATIENCE)
    tables = [Table(together.wait), Table(together.wait)]
    threads = [threading.Thread(target=lambda one=one: one.rows) for one in tables]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [table.computed for table in tables] == [1, 1]
