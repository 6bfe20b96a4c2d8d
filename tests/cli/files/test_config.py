"""The TOML file of options: a mistake is reported with file, line and key, and nothing is done."""

import json
import subprocess
import sys

import click
import pytest

from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.files.config import load
from cpreplicate.cli.files.toml_options import options_of
from tests.support.commandline import printed
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, NEXT
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.usefixtures("still_source")


@pytest.fixture
def directory(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    return tmp_path


def run(directory, text, *words):
    """A sync, or another command, with a file of options."""
    (directory / "c.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    words = words or ("sync", f"dcA/{JOB}", "dcB", "--runner", "inline")
    return printed("--config", "c.toml", *words, cwd=directory)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[sync]\n\n\n# cap\nmax-delte = 3\n",
            "c.toml:5: unknown key 'max-delte' in [sync]; did you mean 'max-delete'?",
        ),
        (
            "[sync]\nmax_delte = 3\n",
            "c.toml:2: unknown key 'max_delte' in [sync]; did you mean 'max-delete'?",
        ),
        ("[syncs]\nkeep = 2\n", "c.toml:1: unknown table 'syncs'; did you mean 'sync'?"),
        (
            "[watch]\nintervall = '3s'\n",
            "c.toml:2: unknown key 'intervall' in [watch]; did you mean 'interval'?",
        ),
        (
            "[fleet]\nrunnner = 'inline'\n",
            "c.toml:2: unknown key 'runnner' in [fleet]; did you mean 'runner'?",
        ),
        (
            "[verify]\nzzz = 1\n",
            "c.toml:2: unknown key 'zzz' in [verify]; valid are all, bandwidth, batch-bytes,",
        ),
        (
            "[options]\nkeep = 2\n\nrunnr = 'inline'\n",
            "c.toml:4: unknown key 'runnr' in [options]; did you mean 'runner'?",
        ),
        (
            "[options]\ntarget-root = '/b'\n",
            "c.toml:2: unknown key 'target-root' in [options]; did you mean 'target-conf'?",
        ),
        (
            "[options]\nremap = 3\n",
            "c.toml:2: 'remap' in [options] must be a string, or an array of them, not 3",
        ),
        (
            "[options]\ninterval = 'soon'\n",
            "c.toml:2: 'interval' in [options]: soon: expected a time such as 30s or 5m",
        ),
        ("[[options]]\nkeep = 2\n", "c.toml:1: 'options' must be a table: write [options]"),
        ("[option]\nkeep = 2\n", "c.toml:1: unknown table 'option'; did you mean 'options'?"),
        (
            "keep = 2\n[sync]\n",
            "c.toml:1: 'keep' is in no table; write it below the table of a command, such as",
        ),
        ("\n[[sync]]\nkeep = 2\n", "c.toml:2: 'sync' must be a table: write [sync]"),
        ('[sync]\nkeep = "two"\n', "c.toml:2: 'keep' in [sync] must be a whole number, not 'two'"),
        ("[sync]\nkeep = [1]\n", "c.toml:2: 'keep' in [sync] must be a whole number, not an array"),
        ("[sync]\nkeep = true\n", "c.toml:2: 'keep' in [sync] must be a whole number, not true"),
        (
            '[storage."s3://b"]\nkey = "k"\nendpont_url = "x"\n',
            "c.toml:3: unknown option 'endpont_url' of the storages of s3. Did you mean 'endpoint_",
        ),
        (
            '[storage."hdfs://a"]\nconf-dri = "x"\n',
            "c.toml:2: unknown option 'conf-dri' of the storages of hdfs. Did you mean 'conf-dir'?",
        ),
        (
            '[storage.hdfs]\n"dfs.nameservices" = "a"\n',
            "c.toml:1: unknown filesystem 'hdfs' in [storage]; did you mean 'hdfs:'?",
        ),
        (
            '[storage."hfds://a"]\n"dfs.nameservices" = "a"\n',
            "c.toml:1: unknown filesystem 'hfds://a' in [storage]; did you mean 'hdfs:'?",
        ),
        (
            '[storage."s3://b/replicas"]\nkey = "k"\n',
            "c.toml:1: 's3://b/replicas' in [storage] must be a filesystem, such as 's3://b'",
        ),
        ("[sync]\nkeep = 0\n", "c.toml:2: 'keep' in [sync]: 0: expected a whole number, 1 or more"),
        (
            "[sync]\nmax-delete = true\n",
            "c.toml:2: 'max-delete' in [sync] must be a string or a number, not true",
        ),
        (
            '[sync]\nmax-delete = "few"\n',
            "c.toml:2: 'max-delete' in [sync]: few: expected a number of files or a share",
        ),
        (
            "[sync]\nremap = 3\n",
            "c.toml:2: 'remap' in [sync] must be a string, or an array of them, not 3",
        ),
        (
            '[sync]\nremap = [\n  "a=b",\n  3,\n]\n',
            "c.toml:2: 'remap' in [sync] must be a string, or an array of them",
        ),
        ('[sync]\nremap = ["a"]\n', "c.toml:2: 'remap' in [sync]: "),
        (
            '[sync]\nasync-deletes = "yes"\n',
            "c.toml:2: 'async-deletes' in [sync] must be true or false, not 'yes'",
        ),
        ('[sync]\npaths = "relativ"\n', "c.toml:2: 'paths' in [sync]: 'relativ' is not one of"),
        (
            "[sync]\nmaster = { url = 'yarn' }\n",
            "c.toml:2: 'master' in [sync] must be a string, not a table",
        ),
        (
            "[sync]\nmax-rps = 'many'\n",
            "c.toml:2: 'max-rps' in [sync] must be a number, not 'many'",
        ),
        (
            "sync = { keep = 1, kep = 2 }\n",
            "c.toml:1: unknown key 'kep' in [sync]; did you mean 'keep'?",
        ),
        (
            "sync.keep = 1\nsync.kep = 2\n",
            "c.toml:2: unknown key 'kep' in [sync]; did you mean 'keep'?",
        ),
        ("[sync]\nkeep = 1\nkeep = 2\n", "c.toml:3: Cannot overwrite a value"),
        ("[sync]\nkeep =\n", "c.toml:2: Invalid value"),
        ("[sync]\npaths = absolute\n", 'A text is in quotes, as in runner = "inline"'),
        ('[sync]\nproperties-file = """\n', "c.toml:2: Unterminated string"),
        (b"[sync]\r\n# \xe4\r\nkeep = 1\r\n", "c.toml:2: not UTF-8: byte 0xe4"),
        (
            "[storage]\nx = 1\n",
            "c.toml:2: 'x' in [storage] must be a table, such as [storage.\"hdfs://dcA\"]",
        ),
        (
            '[storage."hdfs://a"]\ndfs.nameservices = "a"\n',
            "c.toml:2: 'dfs' in [storage.\"hdfs://a\"] must be a string",
        ),
        ("storage = 1\n", "c.toml:1: 'storage' must be a table: write [storage]"),
        (
            '[storage."s3://b"]\nkey = "k"\nsecret = ["s3cr3t"]\n',
            "c.toml:3: 'secret' in [storage.\"s3://b\"] must be",
        ),
        (
            '[storage."hdfs://a"]\nconf-dir = 3\n',
            "c.toml:2: 'conf-dir' in [storage.\"hdfs://a\"] must be a string",
        ),
        (
            '[storage."hdfs://a"]\nconf_dir = "/nowhere"\n',
            "c.toml:2: 'conf_dir' in [storage.\"hdfs://a\"]: /nowhere holds",
        ),
        (
            "[sync]\nhdfs-client = 'hdfs3'\n",
            "c.toml:2: 'hdfs-client' in [sync]: --hdfs-client hdfs3: ",
        ),
    ],
)
def test_a_mistake_is_reported_with_file_line_and_key_and_nothing_is_done(
    directory, text, expected
):
    done = run(directory, text)
    assert done.returncode == 2
    assert expected in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert "s3cr3t" not in done.stderr
    assert not (directory / "dcB").exists()


def test_a_mistake_is_printed_in_one_line(directory):
    done = run(directory, "[sync]\nmax-delte = 3\n")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("cpreplicate: error: c.toml:2: unknown key")
    assert "Traceback" not in done.stderr


def test_a_key_is_found_in_its_own_table_and_not_where_a_string_looks_like_it(directory):
    text = (
        '[watch]\nkeep = 1\n[sync]\nproperties-file = """\n[sync]\nkeep = "two"\n"""\nremap = [\n '
        ' "/a=/b",\n]\nkeep = "2"\n'
    )
    assert "c.toml:11: 'keep' in [sync]" in run(directory, text).stderr


def test_a_file_that_is_not_there_is_named(directory):
    done = printed("--config", "nowhere.toml", "inspect", "x", cwd=directory)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        "cpreplicate: error: nowhere.toml cannot be read: No such file or directory. Give a TOML"
        " file that is there and that this user may read",
    )


def test_values_of_every_kind_that_an_option_takes_are_accepted(directory):
    text = f"""
[sync]
keep = 2
paths = "absolute"
remap = "/elsewhere=/there"
source_root = ["{directory}"]
max-delete = 100
lock-wait = 3
batch-bytes = 1000000
retry-for = "2s"
max-rps = 1e6
bandwidth = "500MB/s"
async-deletes = false
[verify]
all = true
content = true
[storage."s3://bucket"]
secret = "s"
anon = true
fixed_upload_size = true
"""
    assert run(directory, text).returncode == 0
    write_checkpoint(directory / "dcA", 2, NEXT)
    assert run(directory, text).returncode == 0
    assert run(directory, text, "verify", f"dcB/{JOB}").stdout.count("restorable  yes") == 2


def test_a_misspelled_cap_no_longer_lets_a_sync_delete_what_it_likes(directory):
    run(directory, "").check_returncode()
    write_checkpoint(directory / "dcA", 2, NEXT)
    before = sorted(path.name for path in (directory / "dcB" / JOB / "shared").iterdir())
    assert run(directory, "[sync]\nmax-delete = 1\n").returncode == 6
    assert run(directory, "[sync]\nmax-deletes = 1\n").returncode == 2
    assert sorted(path.name for path in (directory / "dcB" / JOB / "shared").iterdir()) == before


def test_the_environment_calls_verify_all_as_the_command_line_does(directory, monkeypatch):
    for number, files in ((1, FILES), (2, NEXT)):
        write_checkpoint(directory / "dcA", number, files)
        run(directory, "[sync]\nkeep = 2\n").check_returncode()
    monkeypatch.setenv("CPREPLICATE_VERIFY_ALL", "true")
    assert run(directory, "", "verify", f"dcB/{JOB}").stdout.count("restorable  yes") == 2


def planned(directory, *words):
    """The paths of a plan, for which a source is given."""
    done = run(directory, (directory / "c.toml").read_text(), *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["paths"]


def test_flag_environment_table_of_the_command_and_options_win_in_this_order(
    directory, monkeypatch
):
    words = ("diff", f"dcA/{JOB}", "dcB")
    (directory / "c.toml").write_text('[options]\noutput = "json"\npaths = "absolute"\nkeep = 2\n')
    assert planned(directory, *words) == "absolute"
    (directory / "c.toml").write_text(
        '[options]\noutput = "json"\npaths = "absolute"\n[diff]\npaths = "relative"\n'
    )
    assert planned(directory, *words) == "relative"
    monkeypatch.setenv("CPREPLICATE_DIFF_PATHS", "absolute")
    assert planned(directory, *words) == "absolute"
    assert planned(directory, *words, "--paths", "relative") == "relative"


def test_an_option_of_all_commands_holds_for_each_that_has_it(directory):
    text = '[options]\nremap = "/recorded=/mounted"\nsource_root = "/a"\n[sync]\nremap = []\n'
    (directory / "c.toml").write_text(text)
    with click.Context(cli):
        tables = load(str(directory / "c.toml"), cli.commands).parameters
    having = {name for name, command in cli.commands.items() if has_remap(command)}
    assert having == {"diff", "doctor", "inspect", "switch", "sync", "watch"}
    assert {name for name, table in tables.items() if "remaps" in table} == having
    assert {name for name, table in tables.items() if table.get("remaps")} == having - {
        "diff",
        "doctor",
        "sync",
    }


def has_remap(command):
    return "remap" in options_of(command)


def test_a_remap_of_all_commands_is_used_by_diff_sync_and_watch(directory):
    (directory / "dcA").rename(directory / "moved")
    remap = f'[options]\nremap = "{directory}/dcA={directory}/moved"\n'
    for command in ("diff", "sync"):
        assert run(directory, "", command, f"moved/{JOB}", "dcB").returncode == 10
        assert run(directory, remap, command, f"moved/{JOB}", "dcB").returncode == 0
    watch = [sys.executable, "-m", "cpreplicate", "--config", "c.toml", "watch"]
    process = subprocess.Popen([*watch, f"moved/{JOB}", "dcC"], cwd=directory)
    try:
        wait_until(lambda: (directory / "dcC" / JOB / "chk-1" / "_metadata").exists())
    finally:
        process.terminate()
        process.wait(PATIENCE)
