"""The command line of `switch`."""

import json

import click
import pytest

from tests.support import commandline

CLUSTERS = ("--flink", "http://127.0.0.1:1", "--job", "orders")


@pytest.mark.parametrize(
    ("words", "effective"),
    [
        (("--savepoints", "file:/savepoints"), "--stop savepoint"),
        (("--savepoint-format", "native"), "--stop savepoint"),
        (("--yes",), "--yes is of --all"),
        (("--all",), "--job NAME, --job-file FILE or --all"),
        (("--start-header", "Authorization: Bearer t"), "--start-at URL"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(tmp_path, words, effective):
    with pytest.raises(click.UsageError, match=effective) as refused:
        commandline.run("switch", *CLUSTERS, *words, tmp_path)
    assert refused.value.exit_code == 2


def test_the_jobs_of_a_file_are_taken_in_its_order(tmp_path):
    (tmp_path / "jobs").write_text("# the most important one first\norders\n\ninvoices\norders\n")
    words = ("--flink", "http://127.0.0.1:1", "--job-file", tmp_path / "jobs", "--retry-for", "0s")
    done = commandline.run("switch", *words, "--output", "json", tmp_path)
    assert done.code == 3
    assert [job["name"] for job in json.loads(done.out)["jobs"]] == ["orders", "invoices"]
    (tmp_path / "jobs").write_text("# none\n")
    assert "names no job" in commandline.run("switch", *words, tmp_path).message
