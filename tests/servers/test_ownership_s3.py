"""On a real S3 server: the source under another name is no target, what others keep is left as it
is, upkeep works.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import pytest
import s3fs

from cpreplicate.storage import Side
from tests.support import parts
from tests.support.commandline import Ended, run
from tests.support.jobs import JOB, put_checkpoint
from tests.support.s3 import S3Server, side_options

REFUSED = 6
NOT_THERE = 10
BUCKET = "ownership"
FILES = {"shared/a": 1000, "shared/b": 2000, "chk-1/own": 30}
NEXT = {"shared/b": 2000, "shared/c": 500, "chk-2/own": 40}
FOREIGN = {"shared/z": 700, "chk-7/own": 50}
# scheme and endpoint of the source, those of the target; None stands for what the environment names
NAMES = {
    "the endpoint of the environment beside one spelled out": (
        ("s3", None),
        ("s3", "http://127.0.0.1:{port}"),
    ),
    "one spelled out beside that of the environment": (
        ("s3", "http://127.0.0.1:{port}"),
        ("s3", None),
    ),
    "s3a beside s3": (("s3a", None), ("s3", None)),
    "s3 beside s3a with the endpoint spelled out": (
        ("s3", None),
        ("s3a", "http://127.0.0.1:{port}"),
    ),
    "an endpoint with a slash at its end": (("s3", None), ("s3", "http://127.0.0.1:{port}/")),
    "a host beside an IP address": (("s3", None), ("s3", "http://localhost:{port}")),
}

MAIN = ["s3 beside s3a with the endpoint spelled out"]


class Store:
    """Objects of the test's own in one bucket, and the words of a command for a source and a target
    in it.
    """

    def __init__(self, server: S3Server, names: str) -> None:
        self.prefix = f"{BUCKET}/{uuid.uuid4().hex}"
        (self._source, source), (self._target, target) = NAMES[names]
        self._words = {
            "source": self._conf("source", source, server),
            "target": self._conf("target", target, server),
        }
        self._client = s3fs.S3FileSystem(
            **server.options, use_listings_cache=False, skip_instance_cache=True
        )
        self._side = Side(
            tuple(
                (f"{each}:", tuple(side_options(server.endpoint).items())) for each in ("s3", "s3a")
            )
        )

    @staticmethod
    def _conf(side: str, endpoint: str | None, server: S3Server) -> tuple[str, ...]:
        return (
            ()
            if endpoint is None
            else (f"--{side}-conf", f"endpoint_url={endpoint.format(port=server.port)}")
        )

    def at_source(self, path: str) -> str:
        return f"{self._source}://{self.prefix}/{path}"

    def at_target(self, path: str) -> str:
        return f"{self._target}://{self.prefix}/{path}"

    def complete(self, root: str, number: int, files: Mapping[str, int]) -> str:
        """Complete a checkpoint of a job below `root`. Returns the job's directory."""
        put_checkpoint(self._side, root, number, files)
        return f"{root}/{JOB}"

    def sync(self, source: str, root: str, *words: object) -> Ended:
        conf = (*self._words["source"], *self._words["target"])
        return run("sync", source, root, *conf, "--runner", "inline", "--output", "json", *words)

    def upkeep(self, verb: str, replica: str, *words: object) -> Ended:
        return run(verb, replica, *self._words["target"], *words)

    def remove(self, place: str) -> None:
        """Remove an object, as another program does."""
        self._client.rm_file(place.partition("://")[2])

    def mark(self, place: str, *paths: str) -> None:
        """Put the empty objects that other tools leave for directories."""
        bucket, _, key = place.partition("://")[2].partition("/")
        for path in paths:
            self._client.call_s3("put_object", Bucket=bucket, Key=f"{key}{path}", Body=b"")

    def objects(self) -> dict[str, bytes]:
        """Every object, and what it holds."""
        return {
            str(key): bytes(self._client.cat_file(key)) for key in self._client.find(self.prefix)
        }


@pytest.fixture(autouse=True)
def _environment(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.make_bucket(BUCKET)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")


@pytest.fixture(params=parts.cases(NAMES, MAIN))
def store(request: pytest.FixtureRequest, s3: S3Server) -> Store:
    return Store(s3, request.param)


@pytest.fixture(params=parts.cases(NAMES, MAIN))
def each_store(request: pytest.FixtureRequest, s3: S3Server) -> Store:
    """Also in `make test`: each pair of names is found to be one directory."""
    return Store(s3, request.param)


def assert_refused(done: Ended, *named: str) -> None:
    """The message names what was found, and what to do."""
    assert done.code == REFUSED, done
    for text in (*named, "TARGET_ROOT"):
        assert text in done.message, done.message


class TestASourceUnderTwoNames:
    """Each run ends with exit 6, and leaves every object as it was, and no other one."""

    def test_is_not_its_own_replica(self, each_store: Store) -> None:
        source = each_store.complete(each_store.at_source("src"), 1, FILES)
        before = each_store.objects()
        assert_refused(
            each_store.sync(source, each_store.at_target("src")), each_store.at_target(f"src/{JOB}")
        )
        assert_refused(
            each_store.sync(source, each_store.at_target("src"), "--adopt", "--same-source"),
            each_store.at_target(f"src/{JOB}"),
        )
        assert each_store.objects() == before

    @pytest.mark.rest
    @pytest.mark.parametrize("inner", ["/new", "/new/deeper"])
    def test_takes_no_replica_inside_of_it(self, store: Store, inner: str) -> None:
        source = store.complete(store.at_source("src"), 1, FILES)
        before = store.objects()
        assert_refused(store.sync(source, store.at_target(f"src/{JOB}{inner}")), source)
        assert store.objects() == before

    @pytest.mark.rest
    def test_that_is_a_replica_is_not_its_own_replica(self, store: Store) -> None:
        source = store.complete(store.at_source("src"), 1, FILES)
        assert store.sync(source, store.at_target("dst")).code == 0
        before = store.objects()
        done = store.sync(store.at_source(f"dst/{JOB}"), store.at_target("dst"))
        assert_refused(done, store.at_target(f"dst/{JOB}"))
        assert "--same-source" not in done.message
        assert store.objects() == before

    @pytest.mark.rest
    def test_is_never_changed_when_source_and_target_are_swapped(self, store: Store) -> None:
        source = store.complete(store.at_source("src"), 1, FILES)
        assert store.sync(source, store.at_target("dst")).code == 0
        store.complete(store.at_source("src"), 2, NEXT)
        before = store.objects()
        assert_refused(
            store.sync(store.at_source(f"dst/{JOB}"), store.at_target("src")), f"src/{JOB}", "chk-2"
        )
        assert store.objects() == before


@pytest.fixture
def plain(s3: S3Server) -> Store:
    return Store(s3, "s3a beside s3")


@pytest.mark.rest
def test_what_a_job_of_the_same_id_keeps_is_never_changed(plain: Store) -> None:
    source = plain.complete(plain.at_source("src"), 1, FILES)
    foreign = plain.complete(plain.at_target("flink"), 7, FOREIGN)
    before = plain.objects()
    assert_refused(plain.sync(source, plain.at_target("flink")), foreign, "chk-7", "--adopt")
    for verb in ("sweep", "relocate", "promote"):
        done = plain.upkeep(verb, foreign)
        assert (done.code, foreign in done.message) == (REFUSED, True)
    assert plain.objects() == before


@pytest.mark.rest
def test_a_second_source_of_one_id_has_its_own_replica_unless_it_is_the_same(plain: Store) -> None:
    one = plain.complete(plain.at_source("one"), 1, FILES)
    other = plain.complete(plain.at_source("other"), 2, NEXT)
    first = plain.sync(one, plain.at_target("dst")).json()["replica"]
    before = plain.objects()
    done = plain.sync(other, plain.at_target("dst")).json()
    assert done["replica"].startswith(f"{first}-")
    assert "--same-source" in done["warnings"][0]
    assert before.items() <= plain.objects().items()
    third = plain.complete(plain.at_source("third"), 3, NEXT)
    again = plain.sync(third, plain.at_target("dst"), "--same-source").json()
    assert (again["replica"], again["committed"]) == (first, True)


@pytest.mark.parametrize("again", parts.cases([name for name in NAMES if "host" not in name], MAIN))
def test_another_spelling_of_the_same_source_is_the_same_source(
    plain: Store, again: str, s3: S3Server
) -> None:
    source = plain.complete(plain.at_source("src"), 1, FILES)
    assert plain.sync(source, plain.at_target("dst")).json()["committed"]
    (scheme, _), (_, endpoint) = NAMES[again]
    conf = (
        ()
        if endpoint is None
        else ("--source-conf", f"endpoint_url={endpoint.format(port=s3.port)}")
    )
    done = plain.sync(
        f"{scheme}://{plain.prefix}/src/{JOB}",
        plain.at_target("dst"),
        *conf,
        "--remap",
        f"s3a={scheme}",
    )
    assert not done.json()["committed"]


def test_a_replica_is_kept_synced_swept_relocated_promoted_and_unsealed(plain: Store) -> None:
    source, root = plain.complete(plain.at_source("src"), 1, FILES), plain.at_target("dst")
    replica = f"{root}/{JOB}"
    assert plain.sync(source, root).json()["copy"]["files"] == 3
    assert not plain.sync(source, root).json()["committed"]
    plain.complete(plain.at_source("src"), 2, NEXT)
    again = plain.sync(source, root).json()
    assert (again["copy"]["files"], again["keep"]["files"], again["delete"]["files"]) == (2, 1, 2)
    assert plain.upkeep("sweep", replica, "--min-age", "0s", "--runner", "inline").code == 0
    assert plain.upkeep("relocate", replica, "--paths", "absolute").code == 0
    assert not plain.sync(source, root, "--paths", "absolute").json()["committed"]
    assert plain.upkeep("promote", replica, "--content").code == 0
    assert "unseal" in plain.sync(source, root).message
    assert plain.upkeep("unseal", replica, "--no-job-uses-it").code == 0
    plain.complete(plain.at_source("src"), 3, {"shared/c": 500, "chk-3/own": 40})
    assert plain.sync(source, root).json()["committed"]
    assert plain.upkeep("verify", replica, "--content").code == 0
    own = [
        key.rpartition("/")[2]
        for key in plain.objects()
        if "/dst/" in key and "/.cpreplicate/" in key
    ]
    assert sorted(own) == ["chk-3.json", "chk-3.parquet", "replica.json"]


@pytest.mark.rest
def test_a_replica_is_forgotten_whole_and_an_object_of_another_program_keeps_it(
    plain: Store,
) -> None:
    source = plain.complete(plain.at_source("src"), 1, FILES)
    before = plain.objects()
    replica = plain.sync(source, plain.at_target("dst")).json()["replica"]
    plain.complete(plain.at_target("dst"), 7, {"shared/theirs": 10})
    done = plain.upkeep("forget", replica, "--last-point", "--yes", "--leave-others")
    assert (done.code, "chk-7" in done.message) == (REFUSED, True)
    plain.remove(f"{replica}/chk-7/_metadata")
    held = plain.objects()
    done = plain.upkeep("forget", replica, "--last-point", "--yes")
    assert (done.code, "shared/theirs" in done.message) == (REFUSED, True)
    assert plain.objects() == held
    plain.remove(f"{replica}/shared/theirs")
    assert plain.upkeep("forget", replica, "--last-point", "--yes").code == 0
    assert plain.objects() == before
    assert plain.upkeep("forget", replica, "--last-point", "--yes").code == NOT_THERE
    assert plain.sync(source, plain.at_target("dst")).json()["committed"]


def test_a_replica_is_forgotten_with_what_other_tools_left_for_its_directories(
    plain: Store,
) -> None:
    source = plain.complete(plain.at_source("src"), 1, FILES)
    before = plain.objects()
    replica = plain.sync(source, plain.at_target("dst")).json()["replica"]
    plain.mark(replica, "", "/", "/chk-1", "/chk-7", "/shared/", "/taskowned", "/.cpreplicate")
    assert plain.upkeep("forget", replica, "--last-point", "--yes").code == 0
    assert plain.objects() == before
    assert plain.sync(source, plain.at_target("dst")).json()["committed"]
