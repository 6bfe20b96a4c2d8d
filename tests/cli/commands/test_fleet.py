"""The jobs that a TOML file names, as requests: they pass the converters of `sync`."""

import pytest
from click.testing import CliRunner

from cpreplicate.cli.commands.replication import cli
from cpreplicate.core.packs import PackOptions
from cpreplicate.core.plan import Cap
from cpreplicate.core.retention import Retention
from cpreplicate.core.uri import Remap
from cpreplicate.operations.jobs import fleet
from cpreplicate.operations.sync.request import SyncRequest
from tests.support.replicas import DAY


@pytest.fixture
def members_of(tmp_path, monkeypatch):
    """Return the function that parses a file, and returns the members of its fleet."""
    members = []

    def replicate_fleet(given, *_arguments):
        members.extend(given)
        return fleet.FleetReport((), "inline", 0.0)

    monkeypatch.setattr(fleet, "replicate_fleet", replicate_fleet)

    def parse(text, *words):
        (tmp_path / "jobs.toml").write_text(text)
        command = ["fleet", str(tmp_path / "jobs.toml"), *words]
        done = CliRunner().invoke(cli, command, standalone_mode=False, catch_exceptions=False)
        assert not done.return_value
        return members

    return parse


JOB = '[[job]]\nsource = "/a/job"\ntarget = "/b"\n'


def test_a_job_without_options_is_a_request_with_the_defaults_of_sync(members_of):
    (member,) = members_of(JOB)
    sides = member.request.sides
    assert (member.name, member.priority, member.is_discovered) == ("job", 0, False)
    by = member.request.stated_by
    assert member.request == SyncRequest("file:/a/job", "file:/b", sides=sides, stated_by=by)


def test_the_file_states_which_points_its_jobs_keep_and_only_the_command_line_may_accept_less(
    members_of, tmp_path
):
    (member,) = members_of(JOB + "keep = 3\n", "--keep-less")
    assert member.request.stated_by.path == str(tmp_path / "jobs.toml")
    assert member.request.keep_less
    (tmp_path / "jobs.toml").write_text(JOB + "keep-less = true\n")
    done = CliRunner().invoke(cli, ["fleet", str(tmp_path / "jobs.toml")])
    assert done.exit_code == 2
    assert "give --keep-less on the command line of fleet" in done.output


def test_options_of_a_job_mean_what_they_mean_on_the_command_line(members_of):
    text = f"""{JOB}
name = "orders"
priority = 7
paths = "absolute"
keep = 2
keep-within = "2d"
keep-hourly = 24
keep_daily = 7
remap = "s3a=s3"
source-root = ["/a", "/c"]
max_delete = "20%"
async-deletes = true
lock-wait = 3
adopt = true
same-source = false
"""
    (member,) = members_of(text)
    assert (member.name, member.priority) == ("orders", 7)
    assert member.request == SyncRequest(
        "file:/a/job",
        "file:/b",
        paths="absolute",
        keep=Retention(2, within=2 * DAY, hourly=24, daily=7),
        remaps=(Remap("s3a:", "s3:"),),
        source_roots=("file:/a", "file:/c"),
        sides=member.request.sides,
        stated_by=member.request.stated_by,
        lock_wait=3.0,
        max_delete=Cap(0.2, is_share=True),
        async_deletes=True,
        adopt=True,
        name="orders",
    )


def test_a_job_overrides_the_defaults_and_these_the_command_line(members_of):
    text = '[defaults]\nlock-wait = "2s"\nkeep = 3\nkeep-daily = 7\ntarget = "/d"\n'
    text += '[[job]]\nsource = "/a/1"\n'
    text += f'{JOB}keep = 1\nkeep-daily = 0\nlock-wait = "1s"\n'
    first, second = members_of(text, "--lock-wait", "9s")
    assert (first.request.lock_wait, first.request.keep) == (2.0, Retention(3, daily=7))
    assert (second.request.lock_wait, second.request.keep) == (1.0, Retention(1))
    assert (first.request.target_root, second.request.target_root) == ("file:/d", "file:/b")


def test_options_of_the_command_line_count_where_no_table_has_them(members_of):
    (member,) = members_of(JOB + "allow-older = false\n", "--lock-wait", "9s", "--allow-older")
    assert member.request.lock_wait == 9.0
    assert member.request.allow_older


def test_packs_are_chosen_for_each_job_root_and_by_default(members_of, tmp_path):
    (tmp_path / "root" / ("0" * 32)).mkdir(parents=True)
    text = f"""
[defaults]
target = "/b"
pack = "auto"
[[job]]
source = "/a/defaults"
[[job]]
source = "/a/own"
pack = "on"
pack-below = "64KiB"
[[root]]
source = "{tmp_path}/root"
pack_below = 7
pack = "off"
"""
    packing = {member.name: member.request.packing for member in members_of(text)}
    assert packing == {
        "defaults": PackOptions("auto", 1 << 20),
        "own": PackOptions("on", 64 << 10),
        "0" * 32: PackOptions("off", 7),
    }


def test_an_unknown_way_to_pack_is_refused_with_its_line(tmp_path):
    (tmp_path / "jobs.toml").write_text(f'{JOB}pack = "always"\n')
    done = CliRunner().invoke(cli, ["fleet", str(tmp_path / "jobs.toml")])
    assert done.exit_code == 2
    assert "jobs.toml:4" in done.output
    assert "'always' is not one of 'off', 'on', 'auto'" in done.output
