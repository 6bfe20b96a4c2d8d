"""The TOML file of `switch`: each job with its own program, in the order of the switch."""

import click
import pytest

from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.files.switch_file import jobs_of
from tests.support.commandline import run

JOBS = """
[[job]]
name = "payments"
jar = "./payments.jar"
entry-class = "com.example.Payments"
arguments = ["--brokers", "kafka-b:9092", ""]
origin_arguments = ["--brokers", "kafka-a:9092"]
job-parallelism = 8

[[job]]
name = "orders"
origin-jar = "orders-1.4.jar"
"""


def read(tmp_path, text):
    (tmp_path / "jobs.toml").write_text(text)
    command = cli.commands["switch"]
    with click.Context(command, info_name="switch"):
        return jobs_of(str(tmp_path / "jobs.toml"), command)


def test_each_job_has_what_it_states_in_the_order_of_the_file(tmp_path):
    found = read(tmp_path, JOBS)
    assert list(found) == ["payments", "orders"]
    assert found["payments"] == {
        "jar": "./payments.jar",
        "entry_class": "com.example.Payments",
        "arguments": ["--brokers", "kafka-b:9092", ""],
        "origin_arguments": ["--brokers", "kafka-a:9092"],
        "job_parallelism": 8,
    }
    assert found["orders"] == {"origin_jar": "orders-1.4.jar"}


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ('[[job]]\nname = "a"\njars = "b"\n', r"toml:3: unknown key 'jars' .*did you mean 'jar'"),
        ('[[jobs]]\nname = "a"\n', r"toml:1: unknown table 'jobs'; did you mean 'job'"),
        ('[job]\nname = "a"\n', r"toml:1: write a table \[\[job\]\]"),
        ("[[job]]\njar = 'b'\n", r"toml:1: .* must have a `name`"),
        ('[[job]]\nname = " "\n', r"toml:2: .* must have a `name`"),
        ('[[job]]\nname = "a"\n[[job]]\nname = "a"\n', r"toml:4: 'a' is the name of another"),
        ('[[job]]\nname = "a"\narguments = "x"\n', r"toml:3: 'arguments' .* must be an array"),
        ('[[job]]\nname = "a"\narguments = ["x", 1]\n', r"toml:3: .* each a text"),
        ('[[job]]\nname = "a"\njob-parallelism = "8"\n', r"toml:3: 'job-parallelism'"),
        ('[[job]]\nname = "a"\njob-parallelism = 0\n', r"toml:3: 'job-parallelism'"),
        ('[[job]]\nname = "a"\njar = ""\n', r"toml:3: 'jar'"),
        ('[[job]]\nname = "a"\nstop = "savepoint"\n', r"toml:3: unknown key 'stop'"),
        ('[[job]]\nname = "a"\norigin-jar = "x"\norigin_jar = "y"\n', "are one key"),
        ("[[job]]\nname = 'a\n", "toml:2"),
    ],
)
def test_a_mistake_is_reported_with_its_line(tmp_path, text, mistake):
    with pytest.raises(click.UsageError, match=mistake):
        read(tmp_path, text)


def test_a_file_without_a_job_switches_nothing(tmp_path):
    (tmp_path / "jobs.toml").write_text("# none yet\n")
    words = ("--flink", "http://127.0.0.1:1", "--job-file", tmp_path / "jobs.toml", tmp_path)
    assert "names no job" in run("switch", *words).message
