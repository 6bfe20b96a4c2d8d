"""The server of metrics and probes, asked by real clients."""

import contextlib
import json
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from http import HTTPStatus
from http.client import HTTPConnection

import pytest

from cpreplicate.core.lag import Newest
from cpreplicate.errors import UsageError
from cpreplicate.operations.jobs.observation import Observation
from cpreplicate.operations.jobs.schedule import Load
from cpreplicate.output import http
from cpreplicate.output.http import MOST_OPEN, ListenAddress, Page, parse_address, serve
from tests.support.prometheus import prometheus, promtool
from tests.support.stepping import ManualClock
from tests.support.waiting import PATIENCE, wait_until

FREE = ListenAddress("127.0.0.1", 0)
JOB = Observation(
    "orders",
    replica="hdfs://dcB/r/55d1",
    source_newest=Newest(42, 990.0),
    replica_newest=Newest(40, 970.0),
    tries=3,
)


def yes():
    return True


def no():
    return False


def get(address, path, **headers):
    """Status, content type and body of an answer."""
    request = urllib.request.Request(f"http://{address}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return response.status, response.headers["Content-Type"], response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_metrics_have_the_format_that_the_client_accepts():
    with serve(FREE, lambda: [JOB], yes, yes) as address:
        status, kind, text = get(address, "/metrics")
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert 'cpreplicate_tries_total{flink_job="orders",operation="sync"' in text
        accepted = "application/openmetrics-text;version=1.0.0"
        status, kind, text = get(address, "/metrics", Accept=accepted)
        assert kind.startswith("application/openmetrics-text; version=1.0.0")
        assert text.endswith("# EOF\n")


class Scraped:
    """Jobs that count how often they are looked at, which takes some seconds."""

    def __init__(self, seconds=0.0):
        self.clock, self.seconds, self.looks = ManualClock(), seconds, 0

    def __call__(self):
        self.looks += 1
        self.clock.pass_(self.seconds)
        return [JOB]


def test_metrics_are_made_once_for_all_scrapes_of_a_second():
    jobs = Scraped()
    with serve(FREE, jobs, yes, yes, clock=jobs.clock) as address:
        texts = {get(address, f"/metrics?{number}")[2] for number in range(50)}
        assert (jobs.looks, len(texts)) == (1, 1)
        jobs.clock.pass_(1.0)
        get(address, "/metrics")
        assert jobs.looks == 2


def test_metrics_that_take_long_to_make_take_a_tenth_of_the_time():
    jobs = Scraped(seconds=2.0)
    with serve(FREE, jobs, yes, yes, clock=jobs.clock) as address:
        get(address, "/metrics")
        jobs.clock.pass_(19.0)
        get(address, "/metrics")
        assert jobs.looks == 1
        jobs.clock.pass_(1.0)
        get(address, "/metrics")
        assert jobs.looks == 2


def test_probes_answer_200_or_503():
    with serve(FREE, list, yes, no) as address:
        assert get(address, "/healthz")[0] == 200
        status, _, text = get(address, "/readyz")
        assert (status, text) == (503, "not each JobManager, root and job was asked yet\n")
    with serve(FREE, list, no, yes) as address:
        assert get(address, "/healthz")[0] == 503
        assert get(address, "/readyz?verbose")[0] == 200


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/page", "/nothing"])
def test_head_answers_as_get_without_a_body(path):
    def answer(method):
        connection = HTTPConnection(*address, timeout=PATIENCE)
        connection.request(method, path)
        with connection.getresponse() as response:
            headers = [header for header in response.getheaders() if header[0] != "Date"]
            body = response.read()
        connection.close()
        return response.status, headers, body

    with serve(FREE, lambda: [JOB], yes, no, pages=page) as address:
        got, head = answer("GET"), answer("HEAD")
    assert got[2]
    assert head == (*got[:2], b"")


def test_head_sends_nothing_after_its_headers():
    with (
        serve(FREE, lambda: [JOB], yes, yes) as address,
        socket.create_connection(address, PATIENCE) as client,
    ):
        client.sendall(b"HEAD /metrics HTTP/1.0\r\n\r\n")
        with client.makefile("rb") as stream:
            answer = stream.read()
    assert answer.startswith(b"HTTP/1.0 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n")
    assert answer.count(b"\r\n\r\n") == 1


def test_another_path_is_not_found():
    with serve(FREE, list, yes, yes) as address:
        assert get(address, "/")[0] == 404


def page(path):
    if path != "/page":
        return None
    return Page(HTTPStatus.CONFLICT, json.dumps({"asked": path}), "application/json")


def test_a_page_is_answered_with_its_status_and_kind_whatever_the_query():
    with serve(FREE, list, yes, yes, pages=page) as address:
        answer = (409, "application/json", '{"asked": "/page"}')
        assert get(address, "/page") == get(address, "/page?pretty") == answer


def test_the_path_of_a_page_is_not_decoded():
    asked: list[str] = []
    with serve(FREE, list, yes, yes, pages=asked.append) as address:
        assert get(address, "/jobs/a%2Fb%25/../x")[0] == 404
    assert asked == ["/jobs/a%2Fb%25/../x"]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", ["/metrics", "/page", "/nothing"])
def test_a_method_that_may_change_something_is_refused(method, path):
    with serve(FREE, list, yes, yes, pages=page) as address:
        connection = HTTPConnection(*address, timeout=PATIENCE)
        connection.request(method, path, body=b"x" * 10_000)
        with connection.getresponse() as response:
            assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
        connection.close()


def test_a_path_that_is_none_is_a_bad_request():
    with (
        serve(FREE, list, yes, yes) as address,
        socket.create_connection(address, PATIENCE) as client,
    ):
        client.sendall(b"GET http://[x/jobs HTTP/1.0\r\n\r\n")
        with client.makefile("rb") as stream:
            assert stream.read().startswith(b"HTTP/1.0 400 ")


def test_a_port_that_is_in_use_is_a_usage_error():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        message = rf"cannot listen on 127\.0\.0\.1:{port}: Address already in use\. Give another"
        with (
            pytest.raises(UsageError, match=message),
            serve(ListenAddress("127.0.0.1", port), list, yes, yes),
        ):
            pytest.fail("the port is in use")


def test_a_host_that_is_not_of_this_machine_is_a_usage_error():
    with (
        pytest.raises(UsageError, match="cannot listen on"),
        serve(ListenAddress("192.0.2.1", 0), list, yes, yes),
    ):
        pytest.fail("that is no address of this machine")


def test_slow_clients_block_neither_others_nor_the_end(monkeypatch):
    monkeypatch.setattr(http._Handler, "timeout", PATIENCE)
    with serve(FREE, lambda: [JOB], yes, yes) as address:
        slow = [socket.create_connection(address) for _ in range(20)]
        for client in slow:
            client.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert get(address, "/metrics")[0] == 200
        assert get(address, "/healthz")[0] == 200
    for client in slow:
        client.close()


def test_a_process_with_slow_clients_ends_at_once():
    script = (
        "import socket\n"
        "from cpreplicate.output import http\n"
        "from cpreplicate.output.http import ListenAddress, serve\n"
        "http._Handler.timeout = 1e6\n"
        "with serve(ListenAddress('127.0.0.1', 0), list, bool, bool) as address:\n"
        "    client = socket.create_connection(address)\n"
        "    client.sendall(b'GET /me')\n"
        "    import time; time.sleep(0.5)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=PATIENCE)


def test_observations_may_change_during_a_scrape():
    job = Observation("orders", replica="file:/r")
    stop = threading.Event()

    def change():
        number = 0
        while not stop.is_set():
            number += 1
            job.failures[number % 500] += 1
            job.files[f"action {number % 500}"] += 1
            if number % 500 == 0:
                job.failures.clear()
                job.files.clear()

    thread = threading.Thread(target=change)
    with serve(FREE, lambda: [job], yes, yes) as address:
        thread.start()
        try:
            assert {get(address, "/metrics")[0] for _ in range(30)} == {200}
        finally:
            stop.set()
            thread.join()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9464", ListenAddress("127.0.0.1", 9464)),
        ("0.0.0.0:9464", ListenAddress("0.0.0.0", 9464)),
        ("[::]:9464", ListenAddress("::", 9464)),
        ("localhost:0", ListenAddress("localhost", 0)),
    ],
)
def test_an_address_without_a_host_is_the_loopback_interface(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", ":9464", "host", "host:", "host:65536", "::1:9464", "a:-1"])
def test_what_is_no_address_is_a_usage_error(text):
    with pytest.raises(UsageError, match="expected PORT or HOST:PORT"):
        parse_address(text)


def test_a_server_listens_on_ipv6():
    with serve(ListenAddress("::1", 0), list, yes, yes) as address:
        assert get(address, "/healthz")[0] == 200


@pytest.mark.prometheus
def test_promtool_finds_nothing_wrong_with_the_metrics():
    job = Observation("orders", replica="file:/r", orphan_bytes=5, is_restorable=True)
    job.source_newest, job.replica_newest = Newest(42, 990.0), Newest(40, 970.0)
    job.unchanged(1000.0)
    job.failed(7, "not reachable", 1010.0)
    for counter in (job.files, job.bytes, job.seconds):
        counter["copied"] += 1
    with serve(FREE, lambda: [job], yes, yes, lambda: Load(1, 2, 20)) as address:
        text = get(address, "/metrics")[2]
    assert text.count("# TYPE cpreplicate_") == 23
    done = promtool("check", "metrics", stdin=text)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.prometheus
def test_prometheus_scrapes_the_server(tmp_path):
    with (
        serve(FREE, lambda: [JOB], yes, yes) as address,
        prometheus(tmp_path, [str(address)]) as server,
    ):
        (sample,) = server.wait_for("cpreplicate_replica_checkpoints_behind")
        assert sample.value == 2
        # the labels of the scrape do not hide those of the job
        assert sample.labels["job"] == "cpreplicate"
        assert sample.labels["flink_job"] == "orders"
        assert "exported_job" not in sample.labels
        server.wait_for("up == 1")  # a slow scrape makes it 0 until the next one


def test_healthz_names_the_sources_that_nobody_looked_at_and_stays_200():
    remarks = ["not looked at for more than 60 s: orders\x1b[2J\udcff"]
    with serve(FREE, list, yes, yes, remarks=lambda: remarks) as address:
        status, _, text = get(address, "/healthz")
    assert status == 200
    assert text.splitlines()[0] == "ok"
    assert "orders\\x1b[2J" in text


def answering() -> int:
    """How many threads answer a connection: as busy as the machine is, some of closed ones, too."""
    return sum("process_request" in each.name for each in threading.enumerate())


def test_many_connections_that_ask_for_nothing_cost_no_probe():
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(serve(FREE, list, yes, yes))
        for _ in range(300):
            client = stack.enter_context(socket.create_connection((address.host, address.port)))
            client.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        assert get(address, "/healthz")[0] == 200
        wait_until(lambda: answering() <= MOST_OPEN, "the end of the oldest connections' threads")
