"""The file of options: where it is looked for, named places, `config check`, and its schema."""

import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path

import click
import jsonschema
import pytest

from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.files import config
from cpreplicate.cli.files.config_schema import schema
from cpreplicate.cli.files.toml_options import by_name, is_general
from tests.support.commandline import printed
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = pytest.mark.usefixtures("still_source")
PIPE = object()
SCHEMA = Path(__file__).parents[3] / "docs" / "schemas" / "config.schema.json"


@pytest.fixture
def directory(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    return tmp_path


@pytest.fixture
def defaults(directory, monkeypatch):
    """The files that are used without `--config`: the user's and the machine's."""
    own = directory / "home" / ".config" / "cpreplicate" / "config.toml"
    own.parent.mkdir(parents=True)
    machine = directory / "config.toml"
    monkeypatch.setenv("HOME", str(directory / "home"))
    monkeypatch.delenv("CPREPLICATE_CONFIG")
    monkeypatch.setattr(config, "MACHINE", machine)
    return own, machine


def paths_of(directory, *words):
    """How the paths would be written: what an option sets."""
    done = printed("diff", *words, f"dcA/{JOB}", "dcB", "--output", "json", cwd=directory)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["paths"]


def test_the_first_default_file_that_exists_is_used_alone(defaults, directory):
    own, machine = defaults
    assert paths_of(directory) == "relative"
    machine.write_text('[options]\npaths = "absolute"\n')
    assert paths_of(directory) == "absolute"
    own.write_text("[options]\nkeep = 3\n")
    assert paths_of(directory) == "relative"


def test_an_empty_variable_disables_the_default_file(defaults, directory, monkeypatch):
    own, _ = defaults
    own.write_text('[options]\npaths = "absolute"\n')
    assert paths_of(directory) == "absolute"
    monkeypatch.setenv("CPREPLICATE_CONFIG", "")
    assert paths_of(directory) == "relative"


def test_a_default_file_with_a_mistake_ends_the_command(defaults, directory):
    own, _ = defaults
    own.write_text("[sync]\nkepp = 3\n")
    done = printed("sync", f"dcA/{JOB}", "dcB", cwd=directory)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{own}:2: unknown key 'kepp' in [sync]" in done.stderr
    assert not (directory / "dcB").exists()


def test_a_file_may_be_given_before_and_behind_the_command(directory):
    (directory / "c.toml").write_text('[diff]\npaths = "absolute"\n')
    (directory / "d.toml").write_text("[diff]\nkeep = 2\n")
    before = printed(
        *("--config", "c.toml", "diff", f"dcA/{JOB}", "dcB", "--output", "json"), cwd=directory
    )
    assert json.loads(before.stdout)["paths"] == "absolute"
    assert paths_of(directory, "--config", "c.toml") == "absolute"
    both = printed(
        *("--config", "c.toml", "diff", f"dcA/{JOB}", "dcB", "--output", "json"),
        *("--config", "d.toml"),
        cwd=directory,
    )
    assert json.loads(both.stdout)["paths"] == "relative"


def with_places(directory):
    text = f'[places.dcA]\nurl = "{directory}/dcA"\n[places.dcB]\nurl = "file:{directory}/dcB/"\n'
    (directory / "c.toml").write_text(text)
    return ("--config", "c.toml")


def test_a_place_stands_for_its_url(directory):
    words = with_places(directory)
    done = printed("sync", f"dcA:{JOB}", "dcB:", *words, "--runner", "inline", cwd=directory)
    assert done.returncode == 0, done.stderr
    assert (directory / "dcB" / JOB / "chk-1" / "_metadata").exists()
    verified = printed("verify", f"dcB:/{JOB}", *words, cwd=directory)
    assert verified.returncode == 0, verified.stderr
    remapped = printed(
        *("inspect", f"dcA:{JOB}", "--remap", f"dcB:x=dcA:{JOB}", "--output", "json"), *words,
        cwd=directory,
    )  # fmt: skip
    assert remapped.returncode == 0, remapped.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dcB2:replicas", "no [places.dcB2] is in the configuration. Did you mean dcB:replicas?"),
        ("frankfurt:replicas", "There are dcA, dcB."),
        ("dcA:../replicas", "leads out of dcA:"),
        ("dcA:a/../b", "leads out of dcA:"),
        (r"dcA:..\replicas", "leads out of dcA:"),
        (r"dcA:replicas\..\..\outside", "leads out of dcA:"),
    ],
)
def test_what_no_place_has_is_a_mistake(directory, text, message):
    done = printed("verify", text, *with_places(directory), cwd=directory)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.split())


def test_a_sync_writes_only_below_the_place_that_it_is_given(directory):
    words = (*with_places(directory), "--runner", "inline")
    done = printed("sync", f"dcA:{JOB}", r"dcB:replicas\..\..\outside", *words, cwd=directory)
    assert (done.returncode, (directory / "outside").exists()) == (2, False)
    done = printed("sync", f"dcA:{JOB}", r"dcB:replicas\of\dcA", *words, cwd=directory)
    assert done.returncode == 0, done.stderr
    assert (directory / "dcB" / "replicas" / "of" / "dcA" / JOB).is_dir()


def test_a_remap_between_places_whose_urls_have_an_equals_sign_is_used(directory):
    write_checkpoint(directory / "env=old", 1, FILES)
    (directory / "env=old").rename(directory / "env=new")
    (directory / "c.toml").write_text(
        "".join(f'[places.{each}]\nurl = "{directory}/env={each}"\n' for each in ("old", "new"))
    )
    words = ("diff", f"new:{JOB}", "dcB", "--config", "c.toml")
    assert printed(*words, cwd=directory).returncode == 10
    done = printed(*words, "--remap", f"old:{JOB}=new:{JOB}", cwd=directory)
    assert done.returncode == 0, done.stderr


def test_the_root_of_a_filesystem_may_be_a_place(directory):
    (directory / "c.toml").write_text('[places.all]\nurl = "/"\n')
    done = printed("inspect", f"all:{directory}/dcA/{JOB}", "--config", "c.toml", cwd=directory)
    assert done.returncode == 0, done.stderr


def test_a_scheme_and_a_local_path_are_no_place(directory):
    words = with_places(directory)
    for path in (f"file:{directory}/dcA/{JOB}", f"./dcA/{JOB}"):
        assert printed("inspect", path, *words, cwd=directory).returncode == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[places.hdfs]\nurl = "/a"\n', "c.toml:1: a place cannot have the name of a scheme"),
        ('[places.C]\nurl = "/a"\n', "c.toml:1: 'C' is no name of a place"),
        ("[places.dcA]\n", "c.toml:1: [places.dcA] must have a `url`"),
        ('[places.dcA]\nurl = "gopher://a/b"\n', "c.toml:2: `url` in [places.dcA] has no known"),
        (
            '[places.dcA]\nurl = "dcA"\n',
            "c.toml:2: `url` in [places.dcA] must be a URI or an absolute path, such as file:/",
        ),
        ('[places.dcA]\nurl = " ."\n', "c.toml:2: `url` in [places.dcA] must be a URI or an"),
        ('[places.dcA]\nurl = "hdfs//a/b"\n', "c.toml:2: `url` in [places.dcA]: hdfs//a/b has no"),
        ('[places.dcA]\nurl = ""\n', "c.toml:2: `url` in [places.dcA]: an empty path was given"),
        *(
            (text, f"c.toml:2: {where} is a relative path behind a scheme")
            for text, where in (
                ('[places.dcA]\nurl = "dcB:x"\n', "`url` in [places.dcA]: 'dcB:x'"),
                ('[places.dcA]\nurl = "hdfs:a"\n', "`url` in [places.dcA]: 'hdfs:a'"),
                ('[sync]\nsource-root = "foo:bar"\n', "'source-root' in [sync]: 'foo:bar'"),
                ('[sync]\nsource = "foo:bar"\n', "'source' in [sync]: 'foo:bar'"),
                ('[options]\nremap = "file:/a=s3:b/c"\n', "'remap' in [options]: 's3:b/c'"),
            )
        ),
        ('[sync]\nsource = "file:/../a"\n', "c.toml:2: 'source' in [sync]: 'file:/../a' climbs"),
        (
            '[places.dcA]\nurl = "/a"\nconf-dir = "/b"\n',
            "c.toml:3: unknown key 'conf-dir' in [places.dcA]; how its storage is reached",
        ),
        (
            "[options]\npositions = true\n",
            "c.toml:2: 'positions' in [options] would not mean the same for each command. Write it"
            " in [diff] or [inspect] or [list] or [promote] or [rebase] or [status]",
        ),
        (
            "[options]\nall = true\n",
            "Write it in [diff] or [forget] or [promote] or [switch] or [unseal] or",
        ),
        ('[options]\ncheckpoint = ["chk-1"]\n', "Write it in [promote] or [rebase] or [verify]"),
        (
            '[options]\nreport = "a.html"\n',
            "Write it in [diff] or [fleet] or [forget] or [inspect] or [list]",
        ),
        (
            "[sync]\nkeep = 1\nmax-rps = 3\nmax_rps = 4\n",
            "c.toml:4: 'max-rps' and 'max_rps' in [sync] are one key. Keep one of them",
        ),
        (
            "[options]\nmax_rps = 3\nmax-rps = 4\n",
            "c.toml:3: 'max_rps' and 'max-rps' in [options] are one key",
        ),
        (
            '[storage."hdfs://a"]\nconf-dir = "/"\nconf_dir = "/"\n',
            "c.toml:3: 'conf-dir' and 'conf_dir' in [storage.\"hdfs://a\"] are one key",
        ),
        ('[watch]\nplaces = ["/a", "/b"]\n', "c.toml:2: unknown key 'places' in [watch]"),
        ("places = 3\n", "c.toml:1: 'places' must hold tables"),
        ('[sync]\nconfig = "d.toml"\n', "c.toml:2: unknown key 'config' in [sync]"),
        ("[version]\n", "c.toml:1: unknown table 'version'"),
    ],
)
def test_a_mistake_is_reported_with_its_line(directory, text, message):
    (directory / "c.toml").write_text(text)
    for words in (("config", "check", "c.toml"), ("--config", "c.toml", "list", "dcB")):
        done = printed(*words, cwd=directory)
        assert done.returncode == 2
        assert message in " ".join(done.stderr.split())


@pytest.mark.parametrize("value", ["[" * 100_000, "9" * 5_000], ids=["nested", "a number"])
@pytest.mark.usefixtures("no_collection")
def test_what_no_parser_of_toml_can_hold_is_a_mistake(directory, value):
    (directory / "c.toml").write_text(f"[sync]\npaths = {value}\n")
    done = printed("config", "check", "c.toml", cwd=directory)
    assert done.returncode == 2
    assert "cpreplicate: error: c.toml:" in done.stderr


@pytest.mark.parametrize(
    "words", [("help",), ("version",), ("completion", "bash"), ("config", "schema")]
)
def test_what_uses_no_file_works_beside_one_with_a_mistake(directory, words):
    for text in ('[places.dcA]\nurl = "dcB:x"\n', '[sync]\nsource = "foo:bar"\n', "kepp\n"):
        (directory / "c.toml").write_text(text)
        assert printed("--config", "c.toml", *words, cwd=directory).returncode == 0
        if words[0] != "config":
            assert printed(*words, "--config", "c.toml", cwd=directory).returncode == 0


def test_a_file_is_checked_beside_a_default_one_with_a_mistake(defaults, directory):
    own, _ = defaults
    own.write_text('[sync]\nsource = "foo:bar"\n')
    with_places(directory)
    assert printed("config", "check", "c.toml", cwd=directory).returncode == 0


def test_config_check_reports_what_a_file_sets(directory):
    with_places(directory)
    done = printed("config", "check", "c.toml", cwd=directory)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "c.toml: no mistake. It sets options of 0 commands, 0 storages and 2 places\n"
    )


def test_config_check_looks_at_the_file_that_commands_use(defaults, directory):
    own, _ = defaults
    assert printed("config", "check", cwd=directory).returncode == 10
    own.write_text("[options]\nkeep = 3\n")
    done = printed("config", "check", cwd=directory)
    assert (done.returncode, done.stdout.startswith(f"{own}: no mistake")) == (0, True)
    assert printed("config", "check", "absent.toml", cwd=directory).returncode == 10


def test_config_check_without_a_file_checks_that_of_config(defaults, directory):
    own, _ = defaults
    own.write_text("kepp\n")
    with_places(directory)
    (directory / "d.toml").write_text("[sync]\nkepp = 3\n")
    for words in (
        ("--config", "c.toml", "config", "check"),
        ("config", "check", "--config", "c.toml"),
        ("--config", "d.toml", "config", "check", "--config", "c.toml"),
    ):
        done = printed(*words, cwd=directory)
        assert (done.returncode, done.stdout.startswith("c.toml: no mistake")) == (0, True)
    for words in (
        ("--config", "d.toml", "config", "check"),
        ("config", "check", "--config", "d.toml"),
    ):
        done = printed(*words, cwd=directory)
        assert (done.returncode, done.stdout) == (2, "")
        assert "d.toml:2: unknown key 'kepp' in [sync]" in done.stderr
    for words in (
        ("--config", "absent.toml", "config", "check"),
        ("config", "check", "--config", "absent.toml"),
    ):
        assert printed(*words, cwd=directory).returncode == 10


def test_config_check_of_an_empty_variable_checks_no_file(defaults, directory, monkeypatch):
    own, _ = defaults
    own.write_text("kepp\n")
    assert printed("config", "check", cwd=directory).returncode == 2
    monkeypatch.setenv("CPREPLICATE_CONFIG", "")
    done = printed("config", "check", cwd=directory)
    assert done.returncode == 10
    assert "CPREPLICATE_CONFIG is empty" in done.stderr


@contextmanager
def a_pipe(text):
    """A file that can be read once, as `<(…)` of a shell."""
    read, write = os.pipe()
    os.write(write, text.encode())
    os.close(write)
    try:
        yield f"/dev/fd/{read}"
    finally:
        os.close(read)


@pytest.mark.parametrize(
    "words",
    [
        ("config", "check", PIPE),
        ("--config", PIPE, "config", "check"),
        ("config", "check", "--config", PIPE),
        ("--config", PIPE, "list", "dcB"),
        ("list", "dcB", "--config", PIPE),
    ],
)
def test_a_pipe_is_read_once(directory, words):
    with a_pipe("[sync]\nkepp = 3\n") as pipe:
        done = printed(*(pipe if word is PIPE else word for word in words), cwd=directory)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{pipe}:2: unknown key 'kepp' in [sync]" in done.stderr
    with a_pipe("[job]\n") as pipe:
        done = printed(*(pipe if word is PIPE else word for word in words), cwd=directory)
    assert done.returncode == 2
    assert "`cpreplicate fleet --dry-run` checks it" in done.stderr


def test_a_file_of_jobs_is_one_of_fleet(directory):
    (directory / "jobs.toml").write_text('[[job]]\nsource = "/a"\ntarget = "/b"\n')
    done = printed("config", "check", "jobs.toml", cwd=directory)
    assert done.returncode == 2
    assert "`cpreplicate fleet --dry-run` checks it" in done.stderr


def test_options_holds_what_means_the_same_for_each_command():
    own = {key for key, having in by_name(cli.commands).items() if not is_general(having.values())}
    assert own == {
        *("all", "checkpoint", "go-back", "job", "keep-less", "metrics-file", "name"),
        *("positions", "report", "take-back"),
    }
    published = json.loads(SCHEMA.read_text())["properties"]
    assert own.isdisjoint(published["options"]["properties"])
    # where commands differ in it, there is none: 5s for doctor, 60s for the others
    assert "default" not in published["options"]["properties"]["retry-for"]
    assert published["doctor"]["properties"]["retry-for"]["default"] == "5s"


def test_the_published_schema_is_that_of_the_options():
    published = json.loads(SCHEMA.read_text())
    assert published == schema(cli.commands), "run: cpreplicate config schema"
    jsonschema.Draft7Validator.check_schema(published)


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        ('[options]\nkeep = 2\nremap = ["/a=/b"]\n[sync]\nmax_delete = "5%"\n', True),
        ('[storage."hdfs://dcA"]\nconf-dir = "/etc/hadoop"\n[places.dcA]\nurl = "/a"\n', True),
        ('[sync]\nbandwidth = "08:00,1MB/s 20:00,off"\nrunner = "inline"\n', True),
        ("[diff]\nall = true\npositions = true\n[unseal]\nall = true\n", True),
        ('[rebase]\npositions = "p.csv"\n[verify]\ncheckpoint = ["chk-1", "chk-2"]\n', True),
        ('[promote]\ncheckpoint = "chk-1"\njob = "orders"\n[diff]\nreport = "a.html"\n', True),
        ("[options]\nall = true\n", False),
        ("[options]\npositions = true\n", False),
        ('[options]\ncheckpoint = "chk-1"\n', False),
        ('[options]\nreport = "a.html"\n', False),
        ('[options]\njob = "orders"\n', False),
        ('[options]\nname = "orders"\n', False),
        ("[options]\nmax-rps = 3\nmax_rps = 4\n", False),
        ("[sync]\nmax_rps = 3\nmax-rps = 3\n", False),
        ('[storage."hdfs://dcA"]\nconf-dir = "/"\nconf_dir = "/"\n', False),
        ('[watch]\nplaces = "/a"\n', False),
        ('[watch]\nplaces = ["/a", "/b"]\n', False),
        ("[sync]\nkepp = 2\n", False),
        ('[sync]\nrunner = "fast"\n', False),
        ("[syncs]\n", False),
        ('[places.C]\nurl = "/a"\n', False),
    ],
)
def test_the_schema_accepts_what_the_commands_accept(directory, text, is_valid):
    file = directory / "c.toml"
    file.write_text(text)
    validator = jsonschema.Draft7Validator(json.loads(SCHEMA.read_text()))
    assert validator.is_valid(tomllib.loads(text)) is is_valid
    with click.Context(cli):
        try:
            config.load(str(file), cli.commands)
            accepted = True
        except click.UsageError:
            accepted = False
    # what a directory holds is no matter of a schema
    assert accepted is is_valid or 'conf-dir = "/etc' in text
