"""Mistakes of a new user end at once, with a documented code and a message with the remedy."""

import os
from pathlib import Path
from typing import ClassVar

import click
import fsspec
import pytest
from click.testing import CliRunner

from cpreplicate.cli.commands.replication import cli
from cpreplicate.core.placement import METADATA
from cpreplicate.errors import NoJob, UsageError
from cpreplicate.operations.jobs.discovery import JobsUnder
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.protocol import lease
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Unreachable
from tests.support.commandline import printed, run
from tests.support.jobs import JOB, NEXT_JOB, write_checkpoint
from tests.support.memory import MemoryStorage
from tests.support.registry import serving
from tests.support.replicas import FILES, synced
from tests.support.watching import watch

ON_REPLICAS = {
    "promote": (),
    "verify": (),
    "sweep": (),
    "sweep --dry-run": (),
    "relocate": (),
    "relocate --unpack": (),
    "unseal --no-job-uses-it": (),
}


@pytest.fixture
def data(tmp_path):
    """A source of one job, and its replica."""
    synced(tmp_path, {1: FILES})
    return tmp_path


def watching(source, target):
    """Watch until an error, or until it waits; return what it waits for."""
    lines = []

    def notify(stop):
        def add(line):
            lines.append(line)
            stop()

        return add

    request = SyncRequest(
        f"file:{source}", f"file:{target}", execution=ExecutionOptions(runner="inline")
    )
    watch(request, notify=notify)
    return lines[0]


# SOURCE


@pytest.mark.parametrize("command", ["sync", "diff", "watch", "watch --metrics 0", "inspect"])
def test_a_root_of_jobs_as_source_names_them_and_what_follows_all(data, command):
    words = [*command.split(), data / "dcA", *([] if command == "inspect" else [data / "dcC"])]
    ended = run(*words)
    assert ended.code == 10
    assert f"holds no checkpoint but the directories of jobs: {JOB}" in ended.message
    assert f"`cpreplicate watch --jobs-under file:{data}/dcA TARGET_ROOT`" in ended.message
    assert not (data / "dcC").exists()


def test_a_root_of_many_jobs_names_some(tmp_path):
    for number in range(9):
        (tmp_path / "dcA" / f"{number:032x}").mkdir(parents=True)
    message = run("sync", tmp_path / "dcA", tmp_path / "dcB").message
    assert f"{2:032x} and 6 more" in message
    assert f"{3:032x}" not in message


@pytest.mark.parametrize("options", [(), ("--metrics", "0")])
def test_a_job_directory_that_is_not_there_ends_a_watch_whether_it_is_observed_or_not(
    data, options
):
    ended = run("watch", data / "dcA" / NEXT_JOB, data / "dcB", *options)
    assert (ended.code, "give --wait-for-source" in ended.message) == (10, True)


@pytest.mark.parametrize("options", [(), ("--metrics", "0")])
def test_a_sealed_replica_ends_a_watch_whether_it_is_observed_or_not(data, options):
    assert run("promote", data / "dcB" / JOB).code == 0
    ended = run("watch", data / "dcA" / JOB, data / "dcB", *options)
    assert (ended.code, "is sealed by" in ended.message) == (6, True)


@pytest.mark.parametrize("content", [(), ("shared", "taskowned"), ("chk-1", "shared")])
def test_a_job_without_a_checkpoint_is_waited_for(tmp_path, content):
    (tmp_path / "dcA" / JOB).mkdir(parents=True)
    for name in content:
        (tmp_path / "dcA" / JOB / name).mkdir()
    waited_for = watching(tmp_path / "dcA" / JOB, tmp_path / "dcB")
    assert waited_for.endswith("holds no completed checkpoint yet. Waiting for the first one")


@pytest.mark.parametrize("command", ["sync", "diff", "watch", "watch --metrics 0", "inspect"])
def test_a_file_as_source_is_reported_as_one(data, command):
    words = [*command.split(), data / "dcA" / JOB / "shared" / "a"]
    ended = run(*words, *([] if command == "inspect" else [data / "dcC"]))
    assert (ended.code, "is a file, or is below one. SOURCE" in ended.message) == (10, True)


@pytest.mark.parametrize("name", ["chk-1", f"chk-1/{METADATA}"])
@pytest.mark.parametrize("options", [(), ("--metrics", "0")])
def test_a_watch_of_one_checkpoint_is_a_usage_error(data, name, options):
    ended = run("watch", data / "dcA" / JOB / name, data / "dcC", *options)
    assert (ended.code, "watch takes the directory of its job" in ended.message) == (2, True)


def test_a_job_as_the_root_of_jobs_is_refused_at_once(data):
    ended = run("watch", "--jobs-under", data / "dcA" / JOB, data / "dcC")
    assert ended.code == 10
    assert f"Give file:{data}/dcA as the root" in ended.message


def test_a_file_as_the_root_of_jobs_is_refused_at_once(data):
    ended = run("watch", "--jobs-under", data / "dcA" / JOB / "shared" / "a", data / "dcC")
    assert (ended.code, "is a file" in ended.message) == (10, True)


def test_a_root_without_jobs_is_waited_for_and_reported_once(tmp_path):
    lines: list[str] = []
    found = JobsUnder(SyncRequest(f"file:{tmp_path}", "file:/dcB"), lines.append)
    assert found.jobs() == found.jobs() == []
    assert len(lines) == 1
    assert lines[0].endswith("Waiting for jobs")
    (tmp_path / JOB).mkdir()
    assert len(found.jobs()) == 1


def test_a_root_that_turns_out_to_be_a_job_is_an_error(data):
    found = JobsUnder(SyncRequest(f"file:{data}/dcA/{JOB}", "file:/dcB"), lambda _line: None)
    with pytest.raises(NoJob):
        found.jobs()


def test_a_file_of_jobmanagers_that_is_not_there_ends_a_watch_at_once(tmp_path):
    ended = run("watch", "--flink-file", tmp_path / "none", "--all-jobs", tmp_path / "dcB")
    assert (ended.code, "No such file" in ended.message) == (10, True)


def test_a_jobmanager_without_a_scheme_is_a_usage_error_that_hides_its_password(tmp_path):
    with pytest.raises(click.UsageError, match="begins with http:// or https://") as refused:
        run("watch", "--flink", "user:s3cr3t@host:8081", "--all-jobs", tmp_path / "dcB")
    assert refused.value.exit_code == 2
    assert "s3cr3t" not in str(refused.value)


# TARGET_ROOT


@pytest.mark.parametrize("command", ["sync", "doctor", "diff"])
@pytest.mark.parametrize("scheme", ["hdfs", "s3", "webhdfs"])
def test_a_target_without_the_colon_of_its_scheme_is_no_local_directory(
    data, monkeypatch, command, scheme
):
    monkeypatch.chdir(data)
    with pytest.raises(
        click.UsageError, match=f"Write {scheme}://dcB/replicas, or ./{scheme}//dcB"
    ) as it:
        run(command, data / "dcA" / JOB, f"{scheme}//dcB/replicas")
    assert it.value.exit_code == 2
    assert not (data / scheme).exists()


def test_a_local_directory_that_is_called_like_a_scheme_can_be_used(data, monkeypatch):
    monkeypatch.chdir(data)
    (data / "s3").mkdir()
    assert run("sync", data / "dcA" / JOB, "s3//replicas").code == 0
    assert (data / "s3" / "replicas" / JOB).exists()


@pytest.mark.parametrize("command", ["sync", "status"])
def test_a_file_uri_with_two_slashes_names_a_host_and_is_no_local_path(data, command):
    target = str(data / "dcB")[1:]
    words = [data / "dcA" / JOB] if command == "sync" else []
    with pytest.raises(click.UsageError, match=f"Write file:///{target}, with three") as refused:
        run(command, *words, f"file://{target}")
    assert refused.value.exit_code == 2
    assert run(command, *words, f"file:///{target}").code == 0


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["sync", "a", "b", "--debug"], "is given before the command"),
        (["--keep", "2", "sync", "a", "b"], "cpreplicate COMMAND … --keep …"),
    ],
)
def test_an_option_on_the_wrong_side_of_the_command_shows_the_right_one(words, hint):
    done = CliRunner().invoke(cli, words, prog_name="cpreplicate")
    assert (done.exit_code, hint in done.stderr) == (2, True)


@pytest.mark.parametrize("master", ["foo", "spark:/host:7077", "host:7077", "locally"])
def test_a_master_that_spark_does_not_know_is_a_usage_error(data, master):
    with pytest.raises(click.UsageError, match="expected a master of Spark") as refused:
        run("sync", data / "dcA" / JOB, data / "dcB", "--master", master)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("master", ["yarn", "local", "local[*]", "local[2,4]", "spark://h:7077"])
def test_masters_of_spark_are_accepted(data, master):
    assert run("sync", data / "dcA" / JOB, data / "dcB", "--master", master).code == 0


def test_a_bucket_that_is_missing_in_a_uri_is_a_usage_error(data):
    ended = run("sync", data / "dcA" / JOB, "s3:/bucket/replicas")
    assert (ended.code, "Write s3://bucket/" in ended.message) == (2, True)


def test_a_bucket_that_no_service_could_have_is_a_usage_error(data):
    options = ("key=a", "secret=b", "endpoint_url=http://127.0.0.1:1")
    words = [word for option in options for word in ("--target-conf", option)]
    ended = run("sync", data / "dcA" / JOB, "s3://B_!/replicas", *words)
    assert (ended.code, 'Invalid bucket name "B_!". Correct the URI' in ended.message) == (2, True)


@pytest.mark.parametrize(
    "uri",
    ["s3a://AKIA:SECRET@bucket/r", "s3a://AKIA:ab/SECRET@bucket/r", "webhdfs://u:SECRET@h:9870/r"],
)
def test_a_password_in_the_uri_of_a_storage_is_a_usage_error_that_hides_it(data, uri):
    for words in (("sync", data / "dcA" / JOB, uri), ("status", uri), ("verify", uri)):
        with pytest.raises(click.BadParameter, match="a URI with a password") as raised:
            run(*words)
        assert "SECRET" not in raised.value.format_message()


@pytest.mark.parametrize("uri", ["nosuch://container@account.example/r", "nosuch://h:8020/a@b:c@d"])
def test_an_at_sign_of_an_account_or_a_path_is_no_password(data, uri):
    ended = run("sync", data / "dcA" / JOB, uri)
    assert "nosuch:" in ended.message


def test_a_misspelled_scheme_names_the_nearest_one(data):
    ended = run("sync", data / "dcA" / JOB, "hfds://dcB/replicas")
    assert (ended.code, "Did you mean hdfs:?" in ended.message) == (2, True)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no /proc")
@pytest.mark.parametrize("command", ["sync", "doctor"])
def test_a_target_where_no_directory_can_be_is_a_usage_error(data, command):
    ended = run(command, data / "dcA" / JOB, "file:/proc/x")
    shown = ended.message or ended.out
    assert (ended.code, "the filesystem of /proc takes no directories" in shown) == (2, True)


def test_the_root_directory_as_source_is_an_error_of_its_own():
    assert run("sync", "/", "file:/proc/x").code == 10


# REPLICA


@pytest.mark.parametrize("command", ON_REPLICAS)
def test_a_target_root_as_replica_names_the_replicas_in_it(data, command):
    (data / "dcB" / "other").mkdir()
    (data / "dcB" / NEXT_JOB).mkdir()
    ended = run(*command.split(), data / "dcB")
    assert ended.code == 10
    assert f"Give one of them, such as file:{data}/dcB/{JOB}. They are {JOB}" in ended.message
    assert NEXT_JOB not in ended.message
    assert "--adopt" not in ended.message
    assert not (data / "dcB" / ".cpreplicate").exists()


@pytest.mark.parametrize("command", ON_REPLICAS)
@pytest.mark.parametrize("inner", ["chk-1", f"chk-1/{METADATA}", "shared", ".cpreplicate"])
def test_a_path_in_a_replica_names_the_replica(data, command, inner):
    replica = data / "dcB" / JOB
    ended = run(*command.split(), replica / inner)
    assert ended.code == 10
    assert f"It is in the replica file:{replica}: give that" in ended.message
    assert not list(replica.rglob("*/.cpreplicate/lease"))


@pytest.mark.parametrize("command", ON_REPLICAS)
def test_the_directory_of_a_flink_job_is_no_replica_and_is_left_alone(data, command):
    job = data / "dcA" / JOB
    before = sorted(job.rglob("*"))
    ended = run(*command.split(), job)
    assert ended.code == 6
    assert "it holds chk-1, most likely of a Flink job that writes here" in ended.message
    assert "--adopt" not in ended.message
    assert "relocate" not in ended.message
    assert sorted(job.rglob("*")) == before
    assert ended.out == ""


def test_verify_all_of_the_directory_of_a_flink_job_is_refused_alike(data):
    assert run("verify", "--all", data / "dcA" / JOB).code == 6


@pytest.mark.parametrize("command", ON_REPLICAS)
def test_a_root_of_jobs_is_no_replica(data, command):
    ended = run(*command.split(), data / "dcA")
    assert (ended.code, f"directories of jobs, {JOB}, and none" in ended.message) == (6, True)


@pytest.mark.parametrize("command", ON_REPLICAS)
def test_a_file_or_nothing_as_replica_is_not_there(tmp_path, command):
    (tmp_path / "file").write_text("x")
    for name in ("file", "nothing", "file/x"):
        assert run(*command.split(), tmp_path / name).code == 10


@pytest.mark.parametrize("command", ["sweep", "relocate", "relocate --unpack", "promote"])
def test_a_lease_that_another_run_holds_ends_with_11(data, command):
    replica = data / "dcB" / JOB
    with lease.acquire(f"file:{replica}", Side()):
        ended = run(*command.split(), replica)
    assert (ended.code, "is held by" in ended.message) == (11, True)


def test_a_lease_that_another_run_holds_ends_unseal_with_11_and_leaves_the_seal(data):
    replica = data / "dcB" / JOB
    assert run("promote", replica).code == 0
    with lease.acquire(f"file:{replica}", Side()):
        ended = run("unseal", "--no-job-uses-it", replica)
    assert (ended.code, "is held by" in ended.message) == (11, True)
    assert (replica / ".cpreplicate" / "sealed").exists()
    assert run("unseal", "--no-job-uses-it", replica).code == 0
    assert not (replica / ".cpreplicate" / "lease").exists()


# options of storages


@pytest.mark.parametrize(
    ("target", "option", "hint"),
    [
        ("s3://b/replicas", "endpont_url=http://127.0.0.1:1", "Did you mean 'endpoint_url'?"),
        ("webhdfs://127.0.0.1:1/r", "usr=me", "Did you mean 'user'?"),
        ("hdfs://127.0.0.1:1/r", "replicaton=3", "Hadoop's properties, which have dots"),
        ("dcC", "endpont_url=http://127.0.0.1:1", "Other storages have 'endpoint_url'"),
    ],
)
def test_an_unknown_option_of_a_storage_is_a_usage_error(data, target, option, hint):
    place = target if ":" in target else data / target
    ended = run("sync", data / "dcA" / JOB, place, "--target-conf", option)
    assert ended.code == 2
    assert f"unknown option {option.partition('=')[0]!r}" in ended.message
    assert hint in ended.message
    assert not (data / "dcC").exists()


def test_an_option_of_another_storage_may_be_given_for_a_side(data):
    words = ("--target-conf", "endpoint_url=http://127.0.0.1:1", "--target-conf", "fs.x=1")
    assert run("sync", data / "dcA" / JOB, data / "dcC", *words).code == 0


@pytest.mark.parametrize(
    ("target", "option", "words"),
    [
        ("s3://b/r", "use_ssl=no", "use_ssl of a storage must be true or false"),
        ("gs://b/r", "requester_pays=me", "requester_pays of a storage must be true or false"),
        ("s3://b/r", "endpoint_url=http://h:99999", "endpoint_url of a storage is no URL"),
        ("hdfs://127.0.0.1:1/r", "dfs.replication=x", "it must be a whole number"),
    ],
)
def test_a_value_that_an_option_cannot_have_is_a_usage_error(data, target, option, words):
    ended = run("sync", data / "dcA" / JOB, target, "--target-conf", option)
    assert (ended.code, words in ended.message) == (2, True)


@pytest.mark.parametrize("interval", ["0", "0s", "1ms"])
def test_a_watch_without_a_pause_is_a_usage_error(data, interval):
    (data / "dcA" / JOB).rename(data / "dcA" / NEXT_JOB)  # a watch would end with 10 at once
    with pytest.raises(click.BadParameter, match="must be longer than 0 s, and at least 10ms"):
        run("watch", data / "dcA" / JOB, data / "dcB", "--interval", interval)


class Bucket(fsspec.AbstractFileSystem):  # type: ignore[misc]  # it has no types
    """A class of another object store, with parameters of its own."""

    given: ClassVar[dict[str, object]] = {}

    def __init__(self, project=None, requester_pays=False, session_kwargs=None, **others):  # noqa: ARG002
        super().__init__(**others)
        Bucket.given = {"project": project, "requester_pays": requester_pays}

    def ls(self, *_words, **_others):
        return []


def test_the_parameters_of_a_client_library_are_options_in_the_type_of_their_default(monkeypatch):
    monkeypatch.setattr(fsspec, "get_filesystem_class", lambda _protocol: Bucket)
    options = (("requester_pays", "True"), ("project", "p"), ("fs.gs.project.id", "q"))
    Side((("", options),)).storage("gs://b/x")
    assert Bucket.given == {"project": "p", "requester_pays": True}
    for name in ("projct", "session_kwargs", "listings_expiry_time"):
        with pytest.raises(UsageError, match=f"unknown option '{name}'"):
            Side((("", ((name, "x"),)),)).storage("gs://b/x")


def test_properties_of_a_hadoop_configuration_are_no_options_of_s3(tmp_path):
    """A core-site.xml has more than what its s3a filesystem needs."""
    names = ("io.file.buffer.size", "ipc.client.connect.timeout", "cluster", "fs.s3a.access.key")
    entries = "".join(f"<property><name>{n}</name><value>1</value></property>" for n in names)
    (tmp_path / "core-site.xml").write_text(f"<configuration>{entries}</configuration>")
    options = (tmp_path, "fs.s3a.secret.key=x", "endpoint_url=http://127.0.0.1:1")
    words = [word for option in options for word in ("--target-conf", option)]
    with pytest.raises(Unreachable):  # so the client was made
        run("status", "s3://b/replicas", "--retry-for", "0s", *words)


def test_a_table_for_another_filesystem_is_not_checked_against_this_one(data):
    side = Side((("s3://b", (("key", "k"),)), ("", (("hadoop.user.name", "me"),))))
    assert side.storage(f"file:{data}").list(f"file:{data}")


def test_a_checkpoint_with_the_name_of_a_job_hides_nothing(tmp_path):
    """A job's directory with a checkpoint is one, whatever else is in it."""
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    (tmp_path / "dcA" / JOB / NEXT_JOB).mkdir()
    assert run("sync", tmp_path / "dcA" / JOB, tmp_path / "dcB").code == 0


class Objects(MemoryStorage):
    """An object store: it lists nothing of an object, and takes others below it."""

    has_directories = False


@pytest.mark.parametrize("place", ["TARGET_ROOT", "REPLICA"])
def test_an_object_where_a_directory_is_expected_is_a_file(data, place):
    objects = Objects()
    objects.put(f"memory:/dcC{'' if place == 'TARGET_ROOT' else f'/{JOB}'}", lambda: [b"x"])
    source, root, replica = data / "dcA" / JOB, "memory:/dcC", f"memory:/dcC/{JOB}"
    known = replica if place == "REPLICA" else root
    with serving("memory", objects):
        for command in ("status", "list", "promote --all" if place == "TARGET_ROOT" else "list"):
            ended = run(*command.split(), known)
            assert (ended.code, f"{known} is a file. TARGET_ROOT" in ended.message) == (10, True)
        for command in ON_REPLICAS:
            ended = run(*command.split(), replica)
            problem = "is a file. Nothing" if place == "REPLICA" else "a file is above it"
            assert (ended.code, problem in ended.message) == (10, True)
        for command in ("diff", "sync"):
            ended = run(command, source, root)
            assert (ended.code, f"{known}: a file is where" in ended.message) == (6, True)
        ended = run("promote", root, "--job", JOB)
        assert ended.code == 10
        assert objects.list(replica) == []


@pytest.mark.parametrize("command", ["promote", "verify", "sweep", "relocate"])
def test_a_mistyped_id_in_the_path_of_a_replica_gets_the_nearest(data, command):
    for name in (JOB[:6], f"{JOB[:-1]}0"):
        ended = run(*command.split(), data / "dcB" / name)
        assert ended.code == 10
        assert f"file:{data}/dcB holds the replica {JOB}: correct the name" in ended.message
    assert "holds the replica" not in run(command, data / "dcB" / "zzzz").message


def test_promote_all_of_what_holds_no_replica_names_what_to_give(data):
    assert "REPLICA is the TARGET_ROOT" in run("promote", "--all", data / "dcA").message
    ended = run("promote", "--all", "--include", "x*", data / "dcB")
    assert (ended.code, f"There are '{JOB}'" in ended.message) == (10, True)


def test_a_fleet_names_no_option_that_only_sync_has_also_before_its_result(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    (tmp_path / "dcA").rename(tmp_path / "moved")
    file = tmp_path / "fleet.toml"
    file.write_text(
        f'[[job]]\nsource = "{tmp_path}/moved/{JOB}"\ntarget = "{tmp_path}/dcB"\n', encoding="utf-8"
    )
    ended = printed("fleet", file)
    assert "--remap" not in ended.stderr
    assert ended.stderr.count('`remap = "') == 1


@pytest.mark.parametrize("command", ["verify", "status", "sweep"])
def test_the_reason_of_a_row_or_a_warning_has_the_path_and_no_number(data, command):
    marker = data / "dcB" / JOB / ".cpreplicate" / "replica.json"
    marker.unlink()
    os.mkfifo(marker)
    ended = run(command, data / "dcB" / ("" if command == "status" else JOB))
    assert f"{marker}: not a regular file" in ended.out + ended.message
    assert "Errno" not in ended.out + ended.message


def test_the_words_of_a_missing_argument_stand_on_one_line():
    assert printed("completion").stderr.endswith("Choose from: bash, zsh, fish\n")
