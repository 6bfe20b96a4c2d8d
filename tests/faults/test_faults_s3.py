"""What an S3 that is busy, slow or cuts connections makes of a sync: `test_faults.py`, with a proxy
before a real server.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import s3fs

from cpreplicate.errors import CopyFailed, SourceBroken, SourceMovedOn
from cpreplicate.operations.replicas.replicas import replicas_below
from cpreplicate.operations.replicas.status import status
from cpreplicate.protocol import source
from cpreplicate.protocol.digest import digest_of
from cpreplicate.protocol.journal import JournalWriter
from cpreplicate.storage import Side, Sides
from cpreplicate.storage.wrappers import retry
from tests.faults.test_faults import (
    FILES,
    KIB,
    MIB,
    Ended,
    Job,
    assert_clear,
    assert_completes,
    assert_ends,
    halfway,
    new,
    run_sync,
    synced,
)
from tests.support.jobs import JOB
from tests.support.s3 import FaultyProxy, S3Server, side_options
from tests.support.waiting import PATIENCE

EVER = 1_000_000
SHARED = f"/{JOB}/shared/"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PAUSES", retry.Pauses(first=0.2, longest=0.2))


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultyProxy]:
    with FaultyProxy(s3.endpoint) as started:
        yield started


@pytest.fixture
def place(s3: S3Server) -> str:
    """Of the test's own, in a bucket."""
    s3.make_bucket("faults")
    return f"s3://faults/{uuid.uuid4().hex}"


def side_of(endpoint: str, retry_for: float = PATIENCE) -> Side:
    return Side((("s3:", tuple(side_options(endpoint).items())),), retry_for=retry_for)


@pytest.fixture
def to_s3(proxy: FaultyProxy, place: str, tmp_path: Path) -> Job:
    return synced(f"file:{tmp_path}/source", place, Sides(Side(), side_of(proxy.endpoint)))


@pytest.fixture
def from_s3(proxy: FaultyProxy, place: str, tmp_path: Path) -> Job:
    return synced(place, f"file:{tmp_path}/target", Sides(side_of(proxy.endpoint), Side()))


def run(job: Job, proxy: FaultyProxy, *options: str) -> Ended:
    """`cpreplicate sync` to S3."""
    words = [f"{name}={value}" for name, value in side_options(proxy.endpoint).items()]
    settings = [each for word in words for each in ("--target-conf", word)]
    return run_sync(job, *settings, *options)


def below(place: str) -> str:
    """Return the key of a URI in the bucket of these tests."""
    return place.removeprefix("s3://faults/")


class TestWhatPassesCostsTimeOnly:
    def test_a_busy_target(self, to_s3: Job, proxy: FaultyProxy) -> None:
        proxy.slow_down(30, f"{SHARED}new-")
        assert_completes(to_s3)
        assert proxy.pending == 0

    @pytest.mark.rest
    def test_a_busy_source(self, from_s3: Job, proxy: FaultyProxy) -> None:
        proxy.slow_down(30, f"{SHARED}new-")
        assert_completes(from_s3)
        assert proxy.pending == 0

    @pytest.mark.rest
    def test_a_slow_target(self, to_s3: Job, proxy: FaultyProxy) -> None:
        proxy.delay(0.1)
        assert_completes(to_s3)

    @pytest.mark.rest
    def test_a_slow_source(self, from_s3: Job, proxy: FaultyProxy) -> None:
        proxy.delay(0.1)
        assert_completes(from_s3)

    @pytest.mark.rest
    def test_connections_cut_while_files_are_written(self, to_s3: Job, proxy: FaultyProxy) -> None:
        proxy.cut_request(30, 100 * KIB, f"{SHARED}new-")
        assert_completes(to_s3)
        assert proxy.pending == 0

    @pytest.mark.rest
    def test_connections_cut_while_files_are_read(self, from_s3: Job, proxy: FaultyProxy) -> None:
        proxy.cut_response(30, 100 * KIB, f"{SHARED}new-")
        assert_completes(from_s3)
        assert proxy.pending == 0

    def test_connections_cut_at_the_lease_and_the_commit(
        self, to_s3: Job, proxy: FaultyProxy
    ) -> None:
        for name in ("/.cpreplicate/lease", "/chk-2/_metadata"):
            proxy.cut_request(2, 10, f"{name} HTTP")
            proxy.slow_down(2, f"{name} HTTP")
        assert_completes(to_s3)
        assert proxy.pending == 0

    @pytest.mark.rest
    def test_connections_cut_within_a_large_file_that_is_uploaded_in_parts(
        self, proxy: FaultyProxy, place: str, tmp_path: Path
    ) -> None:
        sides = Sides(Side(), side_of(proxy.endpoint))
        job = synced(f"file:{tmp_path}/source", place, sides, new(1, 36 * MIB))
        proxy.cut_request(2, 2 * MIB, "partNumber=2")
        proxy.slow_down(1, "POST /")
        assert_completes(job)
        assert proxy.pending == 0


RECORDS = ["replica.json", "chk-1.json", "chk-1.parquet"]


class TestEveryReadOfTheProtocolIsTriedAgainAsAWhole:
    """Opening a small object asks for its length, and reading it is a second request."""

    @pytest.fixture(params=["busy", "cut"])
    def disturb(self, request: pytest.FixtureRequest, proxy: FaultyProxy) -> Callable[[str], None]:
        """Make the next three requests for the bytes of an object fail."""
        if request.param == "busy":
            return lambda path: proxy.slow_down(3, f"GET /faults/{path}")
        return lambda path: proxy.cut_response(3, 10, f"GET /faults/{path}")

    @pytest.mark.rest
    def test_of_the_records_in_the_replica(
        self, to_s3: Job, proxy: FaultyProxy, disturb: Callable[[str], None]
    ) -> None:
        for record in (*RECORDS, "lease"):
            disturb(f"{below(to_s3.replica)}/.cpreplicate/{record} ")
        assert_completes(to_s3)
        assert proxy.pending == 0

    @pytest.mark.rest
    def test_of_the_metadata_in_the_replica(
        self, to_s3: Job, proxy: FaultyProxy, disturb: Callable[[str], None]
    ) -> None:
        disturb(f"{below(to_s3.replica)}/chk-1/_metadata ")
        assert_completes(to_s3)
        assert proxy.pending == 0

    def test_of_the_metadata_at_the_source(
        self, from_s3: Job, proxy: FaultyProxy, disturb: Callable[[str], None]
    ) -> None:
        disturb(f"{below(from_s3.source)}/{JOB}/chk-2/_metadata ")
        assert_completes(from_s3)
        assert proxy.pending == 0

    @pytest.mark.rest
    def test_of_the_journal_of_a_run_that_died(
        self, to_s3: Job, proxy: FaultyProxy, disturb: Callable[[str], None]
    ) -> None:
        own = to_s3.sides.target.storage(to_s3.replica)
        journal = JournalWriter(own, to_s3.replica)
        journal.plan(["shared/new-000"])
        disturb(f"{below(to_s3.replica)}/.cpreplicate/copied-")
        assert_completes(to_s3)
        assert proxy.pending == 0

    @pytest.mark.rest
    def test_of_the_records_that_verify_and_status_need(
        self, to_s3: Job, proxy: FaultyProxy, disturb: Callable[[str], None]
    ) -> None:
        for record in RECORDS:
            disturb(f"{below(to_s3.replica)}/.cpreplicate/{record} ")
        to_s3.assert_restorable(1)
        [job] = replicas_below(to_s3.target, (), to_s3.sides)
        [row] = status([job], to_s3.sides).replicas
        assert (row.checkpoint, row.source_error) == ("chk-1", None)
        assert row.totals is not None
        assert proxy.pending == 0

    @pytest.mark.rest
    def test_of_a_metadata_that_is_read_through_a_window(
        self,
        from_s3: Job,
        proxy: FaultyProxy,
        disturb: Callable[[str], None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(source, "_KEPT_IN_MEMORY", 64)
        checkpoint = f"{from_s3.source}/{JOB}/chk-2"
        decoded = source.read_metadata(checkpoint, from_s3.sides.source)
        assert decoded.in_memory is None
        with ExitStack() as stack:
            stream = decoded.open(stack)
            assert not isinstance(stream, bytes)
            disturb(f"{below(checkpoint)}/_metadata ")
            data = stream.read()
        assert digest_of([data]) == source.read_bytes(checkpoint, from_s3.sides.source).digest
        assert proxy.pending == 0

    @pytest.mark.rest
    @pytest.mark.parametrize("record", ["chk-1.json", "chk-1.parquet"])
    def test_and_ends_with_one_line_if_it_goes_on_failing(
        self, to_s3: Job, proxy: FaultyProxy, record: str
    ) -> None:
        path = f"{to_s3.replica}/.cpreplicate/{record}"
        proxy.cut_response(EVER, 10, f"GET /faults/{below(path)} ")
        ended = run(to_s3, proxy, "--retry-for", "1s")
        assert ended.code == 7
        assert_clear(ended.line, path, "longer than --retry-for allows (1 s)")
        proxy.heal()
        to_s3.assert_restorable(1)
        assert_completes(to_s3)


class TestWhatLastsIsToldInOneLine:
    @pytest.mark.rest
    def test_a_busy_target(self, to_s3: Job, proxy: FaultyProxy) -> None:
        proxy.slow_down(EVER, f"{SHARED}new-")
        ended = run(to_s3, proxy)
        assert ended.code == 3
        assert_clear(
            ended.line,
            "12 of 12 copies failed",
            f"{to_s3.replica}/shared/new-",
            "Please reduce your request rate",
        )
        to_s3.assert_restorable(1)
        proxy.heal()
        assert_completes(to_s3)

    @pytest.mark.rest
    def test_a_target_that_refuses_the_lease(self, to_s3: Job, proxy: FaultyProxy) -> None:
        proxy.slow_down(EVER, "/.cpreplicate/lease HTTP")
        ended = run(to_s3, proxy)
        assert ended.code == 7
        assert_clear(
            ended.line, f"{to_s3.replica}/.cpreplicate/lease", "Please reduce your request rate"
        )
        proxy.heal()
        to_s3.assert_restorable(1)
        assert_completes(to_s3)

    @pytest.mark.rest
    def test_a_target_that_refuses_the_commit(self, to_s3: Job, proxy: FaultyProxy) -> None:
        proxy.slow_down(
            EVER, "PUT /faults" + to_s3.replica.removeprefix("s3://faults") + "/chk-2/_metadata"
        )
        ended = run(to_s3, proxy)
        assert ended.code == 7
        assert_clear(
            ended.line, f"{to_s3.replica}/chk-2/_metadata", "Please reduce your request rate"
        )
        to_s3.assert_restorable(1)
        proxy.heal()
        assert to_s3.sync().plan.copies == ()
        to_s3.assert_restorable(2)

    @pytest.mark.rest
    def test_a_target_that_cuts_every_upload(self, to_s3: Job, proxy: FaultyProxy) -> None:
        proxy.cut_request(EVER, 100 * KIB, f"{SHARED}new-")
        ended = run(to_s3, proxy)
        assert ended.code == 3
        assert_clear(ended.line, "12 of 12 copies failed", f"{to_s3.replica}/shared/new-")
        assert to_s3.new_names() == []
        to_s3.assert_restorable(1)
        proxy.heal()
        assert_completes(to_s3)

    @pytest.mark.rest
    def test_a_target_that_is_gone_during_the_copies(
        self, to_s3: Job, proxy: FaultyProxy, s3: S3Server
    ) -> None:
        job = Job(to_s3.source, to_s3.target, Sides(Side(), side_of(proxy.endpoint, retry_for=1)))
        direct = Job(job.source, job.target, Sides(Side(), side_of(s3.endpoint)))
        with pytest.raises(CopyFailed) as ended, halfway(job, FILES, proxy.close):
            job.sync()
        assert_clear(str(ended.value), "12 of 12 copies failed", f"{job.replica}/shared/new-")
        direct.assert_restorable(1)

    def test_a_source_that_cuts_every_download(self, from_s3: Job, proxy: FaultyProxy) -> None:
        job = Job(
            from_s3.source, from_s3.target, Sides(side_of(proxy.endpoint, retry_for=1), Side())
        )
        proxy.cut_response(
            EVER, 100 * KIB, f"GET /faults{job.source.removeprefix('s3://faults')}{SHARED}new-003"
        )
        assert_ends(job, CopyFailed, 3, "1 of 12 copies failed", f"{job.source}{SHARED}new-003")
        proxy.heal()
        assert_completes(job)


@pytest.mark.rest
class TestASourceFileThatVanishesWhileItIsRead:
    FILES = new(2, 20 * MIB)

    @pytest.fixture
    def job(self, proxy: FaultyProxy, place: str, tmp_path: Path) -> Job:
        return synced(
            place, f"file:{tmp_path}/target", Sides(side_of(proxy.endpoint), Side()), self.FILES
        )

    def test_with_its_checkpoint_was_subsumed(self, job: Job, s3: S3Server) -> None:
        with halfway(job, self.FILES, lambda: vanish(job, s3, "chk-2/_metadata", "shared/new-000")):
            assert_ends(job, SourceMovedOn, 12, f"{job.source}/{JOB}/chk-2 was subsumed")
        assert_the_next_completes(job)

    def test_alone_leaves_a_broken_checkpoint(self, job: Job, s3: S3Server) -> None:
        with halfway(job, self.FILES, lambda: vanish(job, s3, "shared/new-000")):
            assert_ends(
                job,
                SourceBroken,
                10,
                f"{job.source}/{JOB}/chk-2 is incomplete at the source",
                f"{job.source}{SHARED}new-000",
            )
        assert_the_next_completes(job)


def vanish(job: Job, s3: S3Server, *names: str) -> None:
    client = s3fs.S3FileSystem(**s3.options)
    for name in names:
        client.rm_file(f"{job.source.removeprefix('s3://')}/{JOB}/{name}")


def assert_the_next_completes(job: Job) -> None:
    job.checkpoint(3, new(2, MIB))
    assert job.sync().committed
    job.assert_restorable(3)
