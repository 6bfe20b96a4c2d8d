"""JobManagers that answer as none should: slowly, without end, too much; and what they are sent."""

import gzip
import json
import threading

import pytest

from cpreplicate.errors import CpreplicateError, UsageError
from cpreplicate.flink import FlinkRest, address
from cpreplicate.flink.client import RequestLimits, Silent
from cpreplicate.storage import Transient
from tests.support.hostile import answer, endless, hostile
from tests.support.waiting import PATIENCE

JOB = "0123456789abcdef0123456789abcdef"
SHORT = RequestLimits(0.5, 100_000)  # met only by a server that never ends
LIMITS = [RequestLimits(seconds, 100_000) for seconds in (0.5, 5.0, 50.0, 500.0)]
AMPLE = RequestLimits(PATIENCE, 100_000)  # met only by a hang
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
OVERVIEW = {"jobs": [{"jid": JOB, "name": "orders", "start-time": 5000, "state": "RUNNING"}]}


CLIENTS: list[FlinkRest] = []


@pytest.fixture(autouse=True)
def _closed():
    yield
    while CLIENTS:
        CLIENTS.pop().close()


def client(url, limits=AMPLE, **options):
    """A client that is closed when the test ends."""
    CLIENTS.append(FlinkRest(url, limits=limits, **options))
    return CLIENTS[-1]


def assert_no_thread_is_left():
    """Wait for the threads of requests: a server that sends for ever cannot hold them."""
    for thread in threading.enumerate():
        if thread.name == "rest":
            thread.join(PATIENCE)
            assert not thread.is_alive()


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(lambda connection, _: connection.recv(1), id="no byte"),
        pytest.param(endless(b"", b"H", 0.05), id="a status line that drips"),
        pytest.param(endless(OK, b"X", 0.05), id="a header that drips"),
        pytest.param(endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.01), id="always continue"),
        pytest.param(endless(OK + b"Content-Length: 9999\r\n\r\n", b" ", 0.05), id="a body"),
        pytest.param(endless(CHUNKED, b"1\r\n \r\n", 0.05), id="chunks that drip"),
        pytest.param(endless(CHUNKED, b"0", 0.05), id="the size of a chunk"),
        pytest.param(endless(CHUNKED + b"0\r\n", b"X: y\r\n", 0.01), id="trailers"),
    ],
)
def test_an_answer_without_end_ends_in_time_and_its_connection_is_closed(script):
    with hostile(script) as server:
        rest = client(server.url, SHORT)
        with pytest.raises(Silent, match=r"no complete answer came within 0\.5 s"):
            rest.jobs()
        assert_no_thread_is_left()


def test_a_handshake_that_drips_ends_in_time_and_its_connection_is_closed():
    with hostile(lambda *_: None) as server:
        # it waits for the end of a head, which a handshake has not
        rest = client(f"https://{server.place}", SHORT)
        with pytest.raises(Silent, match="within"):
            rest.jobs()
        assert_no_thread_is_left()


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(endless(OK + b"\r\n", b" " * 65536), id="a body"),
        pytest.param(endless(CHUNKED, b"10000\r\n" + b" " * 65536 + b"\r\n"), id="chunks"),
        pytest.param(endless(CHUNKED, b"0" * 65536), id="the size of a chunk"),
        pytest.param(endless(OK, b"X" * 65536), id="a header"),
        pytest.param(endless(OK, b"X: y\r\n"), id="headers"),
        pytest.param(endless(b"", b"H" * 65536), id="a status line"),
        pytest.param(
            answer(gzip.compress(b" " * 1_000_000), "200 OK", "Content-Encoding: gzip"), id="gzip"
        ),
        pytest.param(answer(b" " * 100_001), id="one byte too many"),
        pytest.param(lambda connection, _: connection.close(), id="closed at once"),
        pytest.param(
            answer(b"", "302 Found", "Location: /jobs/overview"), id="a redirect in a loop"
        ),
        pytest.param(answer(b"", "302 Found", "Location: file:///etc/passwd"), id="to a file"),
        pytest.param(answer(b"", "302 Found", "Location: http://[::1"), id="to no URL"),
        pytest.param(answer(b"", "500 Oops"), id="500"),
    ],
)
def test_an_answer_that_is_too_large_or_no_answer_is_a_failure_that_may_pass(script):
    with hostile(script) as server, pytest.raises(Transient, match="cannot be read") as raised:
        client(server.url).jobs()
    assert not isinstance(raised.value, Silent)


def test_a_redirect_with_a_body_without_end_is_followed_without_reading_it():
    overview = json.dumps(OVERVIEW).encode()
    endless_body = endless(b"HTTP/1.1 302 Found\r\nLocation: /jobs/there\r\n\r\n", b" " * 65536)

    def script(connection, head):
        (answer(overview) if b"/there" in head else endless_body)(connection, head)

    with hostile(script) as server:
        assert [job.name for job in client(server.url).jobs().jobs] == ["orders"]


def test_a_connection_is_used_again_after_an_answer_and_replaced_after_a_failure():
    good, too_large = answer(b'{"jobs": []}'), answer(b" " * 100_001)
    answers = [good, good, too_large, good]
    with hostile(lambda connection, head: answers.pop(0)(connection, head)) as server:
        rest = client(server.url)
        rest.jobs()
        rest.jobs()
        assert server.accepted == 1
        with pytest.raises(Transient):
            rest.jobs()
        assert rest.jobs().jobs == ()
        assert server.accepted == 2


def test_headers_user_and_password_follow_no_redirect_to_another_host():
    secret = {"Authorization": "Bearer 5f1c", "X-Token": "5f1c"}
    with hostile(answer(json.dumps(OVERVIEW).encode())) as other:
        elsewhere = answer(b"", "307 Temporary", f"Location: http://x:y@{other.place}/jobs")
        with hostile(elsewhere) as server:
            assert client(server.url, headers=secret).jobs().jobs
            assert client(f"http://me:p%40ss@{server.place}").jobs().jobs
        assert all(b"5f1c" in head or b"Basic bWU6cEBzcw==" in head for head in server.requests)
    assert len(other.requests) == 2
    for head in other.requests:
        assert b"5f1c" not in head
        assert b"authorization" not in head.lower()


def test_a_redirect_to_a_host_that_does_not_answer_is_blamed_on_that_host():
    place = "http://127.0.0.1:1"
    elsewhere = answer(b"", "307 Temporary", f"Location: {place}/jobs")
    with hostile(elsewhere) as server, pytest.raises(Transient) as raised:
        client(server.url).jobs()
    assert f"it redirects to {place}, which failed: " in str(raised.value)
    assert "Connection refused" in str(raised.value)
    assert f"Check {place}, and why" in str(raised.value)
    assert "whether the JobManager runs" not in str(raised.value)


def test_a_host_that_a_redirect_leads_to_is_named_if_it_is_silent_or_refuses():
    silent, refuses = endless(OK, b"X", 0.05), answer(b"", "401 Unauthorized")
    for script, limits, expected in (
        (silent, LIMITS, "which failed: no complete"),
        (refuses, [AMPLE], "which answers"),
    ):
        with hostile(script) as other:
            message = failure_behind(other, limits)
            assert f"it redirects to {other.url}, {expected}" in message


def failure_behind(other, limits):
    """What a client reports whom a redirect led to this server within one of these limits."""
    elsewhere = answer(b"", "307 Temporary", f"Location: {other.url}/jobs")
    for each in limits:
        with hostile(elsewhere) as server, pytest.raises(Transient) as raised:
            client(server.url, each).jobs()
        if other.requests:
            break
    return str(raised.value)


def test_nothing_of_the_environment_replaces_what_a_request_authenticates_with(
    monkeypatch, tmp_path
):
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password 7a9e\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with hostile(answer(json.dumps(OVERVIEW).encode())) as other:
        elsewhere = answer(b"", "307 Temporary", f"Location: http://{other.place}/jobs")
        with hostile(elsewhere) as server:
            headers = {"Authorization": "Bearer 5f1c"}
            assert client(server.url, headers=headers).jobs().jobs
    assert b"Authorization: Bearer 5f1c" in server.requests[0]
    assert b"authorization" not in other.requests[0].lower()


def test_no_variable_replaces_the_certificates_to_trust(monkeypatch, tmp_path):
    trusted = []

    def record(_adapter, _request, **options):
        trusted.append(options["verify"])
        raise ConnectionError("recorded")

    monkeypatch.setattr("requests.adapters.HTTPAdapter.send", record)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.setenv(name, str(tmp_path / "other.pem"))
    with pytest.raises(Transient, match="recorded"):
        client("https://127.0.0.1:1", authority="/mine.pem").jobs()
    assert trusted == ["/mine.pem"]


def test_headers_follow_a_redirect_on_the_same_host():
    def script(connection, head):
        is_moved = b"/proxy/" in head
        moved = answer(b"", "302 Found", "Location: /proxy/jobs")
        (answer(json.dumps(OVERVIEW).encode()) if is_moved else moved)(connection, head)

    with hostile(script) as server:
        assert client(server.url, headers={"X-Token": "5f1c"}).jobs().jobs
    assert all(b"X-Token: 5f1c" in head for head in server.requests)


ODD = ["p@ss", "a:b", "50%", "a/b", "a#b", "a?b", "п@роль", "p w", "]", "\\", "@", "a@b:c/d@e"]


@pytest.mark.parametrize("password", ODD)
@pytest.mark.parametrize("user", ["flink", ""])
def test_no_part_of_an_odd_password_is_in_an_error(user, password, caplog):
    caplog.set_level("DEBUG")  # also what the HTTP library logs
    secret = f"SECRET{password}SECRET"
    for place in ("127.0.0.1:1", "127.0.0.1:x", "[::1", ""):
        with pytest.raises((CpreplicateError, OSError)) as raised:
            client(f"http://{user}:{secret}@{place}").jobs()
        assert "SECRET" not in str(raised.value) + caplog.text
    assert "SECRET" not in address.parse(f"http://{user}:{secret}@host:1").url


@pytest.mark.parametrize("password", ODD)
def test_an_odd_password_is_sent(password):
    with hostile(answer(b'{"jobs": []}')) as server:
        client(f"http://me:{password}@{server.place}").jobs()
    import base64

    (line,) = [line for line in server.requests[0].split(b"\r\n") if b"Authorization" in line]
    assert base64.b64decode(line.split()[-1]).decode() == f"me:{password}"


@pytest.mark.parametrize(
    "url",
    [
        "host:8081",
        "http://",
        "http://user:5f1c",
        "ftp://u:5f1c@h",
        "http://h:5f1c",
        "http://5f\udc80",
    ],
)
def test_what_is_no_url_is_refused_without_its_text(url):
    with pytest.raises(UsageError, match="URL of a JobManager is none") as raised:
        client(url)
    assert "5f" not in str(raised.value)
