"""`cpreplicate watch --flink` follows real jobs by what Flink's REST API reports of them."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support import parts
from tests.support.flink import Flink, Job, RunResult
from tests.support.services import FollowService, following
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.xdist_group("flink")

JOB = Job(name="orders", rest_refresh_ms=100)
TOKEN = "Bearer 5f1c"


class Gateway:
    """One address for JobManagers that come and go, as a Kubernetes service has; it wants TOKEN."""

    def __init__(self) -> None:
        self.upstream: str | None = None
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(*gateway.ask(self.path, self.headers.get("Authorization")))

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def ask(self, path: str, authorization: str | None) -> tuple[int, bytes]:
        """The answer of the JobManager, if there is one and the request may ask it."""
        if authorization != TOKEN:
            return 401, b""
        try:
            with urllib.request.urlopen(f"{self.upstream}{path}", timeout=PATIENCE) as response:
                return 200, response.read()
        except (OSError, ValueError):
            return 502, b""

    def __enter__(self) -> Gateway:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with Gateway() as started:
        yield started


def follow(
    tmp_path: Path, gateway: Gateway, *words: object
) -> contextlib.AbstractContextManager[FollowService]:
    """Run the service; `words` choose the jobs."""
    header = f"Authorization: {TOKEN}"
    fixed = (tmp_path / "dcB", "--flink", gateway.url, "--header", header)
    return following(tmp_path / "service", *fixed, *words)


@pytest.mark.rest
def test_a_job_is_followed_by_its_name_also_under_a_new_id_and_without_its_jobmanager(
    flink: Flink, gateway: Gateway, tmp_path: Path
) -> None:
    root = tmp_path / "dcA"
    with follow(tmp_path, gateway, "--job-name", "orders") as service:
        with flink.start(root, JOB) as running:
            gateway.upstream = running.so_far.rest_url
            first = running.take_checkpoints(1)
            report = service.wait_for(first.newest_uri)
            service.wait_for_no_lag(f"file:{tmp_path / 'dcB' / first.job_id}")
            name = "cpreplicate_source_checkpoint_timestamp_seconds"
            completed = service.metric(name, f"file:{tmp_path / 'dcB' / first.job_id}")
            # the last acknowledgement, which comes before the job reports the checkpoint
            assert first.completed[first.newest_uri] >= completed
            first = running.stop()
        assert report["job"] == "orders"
        service.wait_for_message("jobs are followed by their directories meanwhile")
        with flink.start(root, JOB, restore=first.newest) as running:
            assert running.so_far.exact
            gateway.upstream = running.so_far.rest_url
            second = running.take_checkpoints(1)
            assert second.job_id != first.job_id
            service.wait_for(second.newest_uri)
            gateway.upstream = None  # only the job's directory is left
            last = running.take_checkpoints(1)
            service.wait_for(last.newest_uri)
            service.wait_for_no_lag(f"file:{tmp_path / 'dcB' / second.job_id}")
        messages = service.messages()
    assert f"orders: following the job {second.job_id}, which writes to" in messages
    assert messages.count("502") >= 2  # once each time, and again once a minute
    assert f"{gateway.url} answers again" in messages
    replica = tmp_path / "dcB" / second.job_id / last.newest.name
    restored = flink.run(tmp_path / "restored", restore=replica, checkpoints=0)
    assert restored.exact, restored.failure


@pytest.mark.parametrize("flink", [parts.rest("2")], indirect=True)
def test_a_job_of_the_same_id_that_writes_elsewhere_is_reported_and_has_its_own_replica(
    flink: Flink, gateway: Gateway, tmp_path: Path
) -> None:
    fixed = Job(name="orders", rest_refresh_ms=100, job_id="0" * 32)
    with follow(tmp_path, gateway, "--job-name", "orders") as service:
        with flink.start(tmp_path / "dcA", fixed) as running:
            gateway.upstream = running.so_far.rest_url
            service.wait_for(running.so_far.newest_uri)
            running.stop()
        with flink.start(tmp_path / "elsewhere", fixed) as running:
            gateway.upstream = running.so_far.rest_url
            service.wait_for_message("orders: source changed")
            service.wait_for(running.so_far.newest_uri)
        reports = [(str(each["source"]), str(each["replica"])) for each in service.reports()]
    replicas = {source.rpartition("/")[0]: replica for source, replica in reports}
    assert len(replicas) == len(set(replicas.values())) == 2


@pytest.mark.parametrize("flink", [parts.rest("1"), parts.rest("2")], indirect=True)
def test_a_checkpoint_that_was_subsumed_since_the_rest_api_cached_it_is_no_failure(
    flink: Flink, gateway: Gateway, tmp_path: Path
) -> None:
    job = Job(name="orders", retained=1, rest_refresh_ms=3_600_000)
    with follow(tmp_path, gateway, "--job-name", "orders") as service:
        with flink.start(tmp_path / "dcA", job) as running:
            first = running.so_far
            assert reported(first) == first.newest_uri  # and is cached
            later = running.take_checkpoints(2)  # the service knows no JobManager yet
            assert reported(later) == first.newest_uri
            wait_until(lambda: not _path(first.newest_uri).exists())  # deleted by another thread
            gateway.upstream = later.rest_url
            service.wait_for(later.newest_uri)
            replica = f"file:{tmp_path / 'dcB' / later.job_id}"
            service.wait_for_no_lag(replica)
            last = running.take_checkpoints(1)
            service.wait_for(last.newest_uri)
            assert not service.metric("cpreplicate_failures_total", replica)
        assert "tried again" not in service.messages(), service.messages()


def reported(run: RunResult) -> str:
    """Return the newest checkpoint of a job, by the REST API of its JobManager."""
    url = f"{run.rest_url}/jobs/{run.job_id}/checkpoints"
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return str(json.load(answer)["latest"]["completed"]["external_path"])


def _path(checkpoint: str) -> Path:
    return Path(checkpoint.removeprefix("file:"))


@pytest.mark.parametrize("flink", [parts.rest("2")], indirect=True)
def test_patterns_choose_the_jobs_and_a_wrong_header_is_reported(
    flink: Flink, gateway: Gateway, tmp_path: Path
) -> None:
    with flink.start(tmp_path / "dcA", JOB) as running:
        gateway.upstream = running.so_far.rest_url
        with following(
            tmp_path / "refused", tmp_path / "dcC", "--flink", gateway.url, "--all-jobs"
        ) as refused:
            refused.wait_for_message("it answers with status 401")
            refused.wait_for_message("--header")
        chosen = ("--include", "ord*", "--exclude", "*-test")
        with follow(tmp_path, gateway, *chosen) as service:
            service.wait_for(running.so_far.newest_uri)
        with following(
            tmp_path / "excluded",
            *(tmp_path / "dcC", "--flink", gateway.url, "--all-jobs", "--exclude", "ord*"),
            *("--header", f"Authorization: {TOKEN}"),
        ) as excluded:
            excluded.wait_until(lambda: "metrics and probes" in excluded.messages(), "no start")
            running.take_checkpoints(2)
            assert excluded.reports() == []
    assert not (tmp_path / "dcC").exists()
