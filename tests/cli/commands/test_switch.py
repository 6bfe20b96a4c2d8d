"""The command line of `switch`."""

import click
import pytest

from tests.support import commandline

CLUSTERS = ("--flink", "http://127.0.0.1:1", "--job", "orders")


@pytest.mark.parametrize(
    ("words", "effective"),
    [
        (("--savepoints", "file:/savepoints"), "--stop savepoint"),
        (("--savepoint-format", "native"), "--stop savepoint"),
        (("--start-header", "Authorization: Bearer t"), "--start-at URL"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(tmp_path, words, effective):
    with pytest.raises(click.UsageError, match=effective) as refused:
        commandline.run("switch", *CLUSTERS, *words, tmp_path)
    assert refused.value.exit_code == 2
