"""The heartbeat, received by a real server."""

from __future__ import annotations

import http.server
import threading
import time

import pytest

from cpreplicate.core.lag import Newest
from cpreplicate.errors import UsageError
from cpreplicate.operations.jobs.observation import Observation
from cpreplicate.output import heartbeat as heartbeat_module
from cpreplicate.output.heartbeat import Heartbeat, is_in_time
from tests.support.waiting import PATIENCE


class Receiver(http.server.ThreadingHTTPServer):
    """Counts the calls, and answers with a status or not at all."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.paths, self.status, self.hang = [], 200, threading.Event()
        self.hang.set()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/ping/secret"


class Answer(http.server.BaseHTTPRequestHandler):
    server: Receiver

    def do_GET(self):
        self.server.paths.append(self.path)
        self.server.hang.wait(PATIENCE)
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_words):
        pass


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """A call ends with its answer, however late that comes."""
    monkeypatch.setattr(heartbeat_module, "_TIMEOUT", PATIENCE)


@pytest.fixture
def receiver():
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.hang.set()
        server.shutdown()
        thread.join()


def update_until(condition, heartbeat, jobs):
    """Update the heartbeat, as a loop does, until the condition holds."""

    def updated():
        heartbeat.update(jobs)
        return condition()

    eventually(updated)


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def job(lag=0.0, tries=1, **values):
    newest = Newest(41, 1000.0 - lag)
    source = Newest(42, 999.0) if lag else newest
    return Observation("orders", source_newest=source, replica_newest=newest, tries=tries, **values)


def eventually(condition, seconds=PATIENCE):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_url_is_called_while_every_job_is_in_time(receiver):
    lines: list[str] = []
    clock = Clock()
    heartbeat = Heartbeat(receiver.url, 60, lines.append, clock=clock)
    heartbeat.update([job(), job(lag=59)])
    eventually(lambda: receiver.paths == ["/ping/secret"])
    heartbeat.update([job()])  # not due
    clock.now += 31
    update_until(lambda: len(receiver.paths) == 2, heartbeat, [job()])
    assert lines == []


def test_the_url_is_not_called_while_a_job_lags_or_was_never_tried(receiver):
    receiver.hang.clear()  # so that the thread of a call would be there at the end
    heartbeat = Heartbeat(receiver.url, 60, pytest.fail, clock=Clock())
    before = set(threading.enumerate())
    for jobs in ([job(), job(lag=61)], [job(), job(tries=0)], []):
        heartbeat.update(jobs)
    assert set(threading.enumerate()) <= before


def test_a_job_whose_tries_fail_is_in_time_until_its_last_success_is_too_old():
    # its lag is 0: nobody saw what the source has completed since
    failing = job(last_success=950.0, last_error="not reachable")
    assert is_in_time(failing, 60, now=1010.0)
    assert not is_in_time(failing, 60, now=1011.0)
    assert not is_in_time(job(last_error="not reachable"), 60, now=1000.0)


def test_a_job_without_a_replica_is_not_in_time():
    assert not is_in_time(Observation("a", source_newest=Newest(1, 999.0), tries=1), 1e9, 1000.0)


def test_a_server_that_hangs_does_not_hold_up_the_loop_and_gets_one_call(receiver):
    receiver.hang.clear()
    clock = Clock()
    heartbeat = Heartbeat(receiver.url, 60, pytest.fail, clock=clock)
    for _ in range(10):
        heartbeat.update([job()])
        clock.now += 31
    eventually(lambda: len(receiver.paths) == 1)


def test_a_failure_is_reported_once_a_minute_and_without_the_path(receiver):
    receiver.status = 404
    lines: list[str] = []
    clock = Clock()
    heartbeat = Heartbeat(receiver.url, 1e9, lines.append, every=0, clock=clock)
    update_until(lambda: len(receiver.paths) >= 3, heartbeat, [job()])
    eventually(lambda: lines)
    assert lines == [
        "the heartbeat could not be sent to http://127.0.0.1: it answered with status 404"
    ]
    clock.now += 61
    update_until(lambda: len(lines) == 2, heartbeat, [job()])


def test_a_server_that_is_not_there_is_reported():
    lines: list[str] = []
    heartbeat = Heartbeat("http://127.0.0.1:1/secret", 60, lines.append, clock=Clock())
    heartbeat.update([job()])
    eventually(lambda: lines)
    assert "Connection refused" in lines[0]
    assert "secret" not in lines[0]


def test_the_proxies_of_the_environment_are_not_used(receiver, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    Heartbeat(receiver.url, 60, pytest.fail, clock=Clock()).update([job()])
    eventually(lambda: receiver.paths == ["/ping/secret"])


@pytest.mark.parametrize("url", ["file:///etc/passwd", "hc-ping.com/secret", "http://", ""])
def test_what_is_no_url_of_http_is_a_usage_error(url):
    with pytest.raises(UsageError, match="--heartbeat: expected a URL") as refused:
        Heartbeat(url, 60, pytest.fail)
    assert "secret" not in str(refused.value)


def test_a_job_whose_source_nobody_looked_at_is_in_time_by_the_age_of_its_replica():
    job = Observation("orders", tries=1, look_within=60.0, replica_newest=Newest(1, 900.0))
    job.saw(Newest(1, 900.0), 1000.0)
    assert is_in_time(job, max_lag=150.0, now=1060.0)
    assert is_in_time(job, max_lag=200.0, now=1090.0)
    assert not is_in_time(job, max_lag=150.0, now=1090.0)
