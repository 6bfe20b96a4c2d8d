"""What the REST client of WebHDFS sends, and how it reports answers that no NameNode of the tests
gives.
"""

from __future__ import annotations

import base64
import errno
import json
import ssl
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from cpreplicate.errors import UsageError
from cpreplicate.storage import Side
from cpreplicate.storage.backends.web.webhdfs import WebHdfsStorage
from cpreplicate.storage.base import NoAnswer, NotAuthenticated, Transient, WriteSettings
from cpreplicate.storage.option_names import NAMES
from cpreplicate.storage.wrappers.retry import Pauses, Retrying
from tests.support import hostile
from tests.support.certificates import self_signed
from tests.support.waiting import PATIENCE

FILE = {"FileStatus": {"length": 3, "type": "FILE", "modificationTime": 1000, "permission": "640"}}
SECRET = "SECRET-of-a-token"


class NameNode:
    """An HTTP server that records what it is asked, and gives one answer."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.headers: list[dict[str, str]] = []
        self.status, self.body, self.location = 200, json.dumps(FILE).encode(), ""
        self.content = b"abc"  # of every file
        self.cuts: list[int] = []  # bytes that the next answers with content lack at their end
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.filesystem = f"webhdfs://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def behind_tls(self, certificate: str) -> str:
        """From now on the server demands this certificate of its clients, and has it itself."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        context.load_verify_locations(certificate)
        context.verify_mode = ssl.CERT_REQUIRED
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        return f"swebhdfs://localhost:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def parameters(self) -> dict[str, str]:
        """The query parameters of the last request."""
        return self.asked[-1][2]

    def storage(self, **options: str) -> WebHdfsStorage:
        return WebHdfsStorage(
            self.filesystem,
            {name.replace("__", "."): value for name, value in options.items()},
            WriteSettings(),
            deadline=PATIENCE,
        )

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        namenode = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                address = urlsplit(self.path)
                namenode.asked.append((self.command, address.path, dict(parse_qsl(address.query))))
                namenode.headers.append(dict(self.headers))
                self.send_response(namenode.status)
                if namenode.location:
                    self.send_header("Location", namenode.location)
                is_content = namenode.parameters.get("op") == "OPEN"
                body = namenode.content if is_content else namenode.body
                cut = namenode.cuts.pop() if is_content and namenode.cuts else 0
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) - cut])
                self.close_connection = self.close_connection or cut > 0

            do_GET = do_PUT = do_DELETE = answer  # noqa: N815  # the names that http.server calls

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@pytest.fixture
def namenode() -> Iterator[NameNode]:
    started = NameNode()
    yield started
    started.close()


@pytest.mark.parametrize(
    ("options", "identity"),
    [
        ({}, {}),
        ({"hadoop__user__name": "ann"}, {"user.name": "ann"}),
        ({"hadoop__user__name": "ann", "user": "bob"}, {"user.name": "bob"}),
        ({"user": "bob", "proxy_to": "ann"}, {"user.name": "bob", "doas": "ann"}),
        ({"hadoop__user__name": "ann", "token": "abc"}, {"delegation": "abc"}),
    ],
)
def test_each_request_carries_the_identity(
    namenode: NameNode, options: dict[str, str], identity: dict[str, str]
) -> None:
    uri = f"{namenode.filesystem}/a b"
    assert namenode.storage(**options).stat(uri) is not None
    assert namenode.asked == [("GET", "/webhdfs/v1/a%20b", {**identity, "op": "GETFILESTATUS"})]


def test_a_password_is_sent_as_basic_authentication_and_not_in_the_address(
    namenode: NameNode,
) -> None:
    namenode.storage(user="ann", password="x").stat(f"{namenode.filesystem}/a")
    assert namenode.headers[0]["Authorization"] == "Basic " + base64.b64encode(b"ann:x").decode()
    assert namenode.parameters == {"op": "GETFILESTATUS"}


def test_a_certificate_is_presented_to_the_server(
    namenode: NameNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = str(self_signed(tmp_path))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", certificate)
    uri = namenode.behind_tls(certificate)
    with pytest.raises(Transient):
        WebHdfsStorage(uri, {}, WriteSettings()).stat(f"{uri}/a")
    storage = WebHdfsStorage(uri, {"session_cert": certificate}, WriteSettings())
    assert storage.stat(f"{uri}/a") is not None


def test_each_option_of_webhdfs_has_a_test_here() -> None:
    assert NAMES["webhdfs"] == {"user", "password", "token", "proxy_to", "session_cert"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"token": "abc", "user": "ann"}, "a delegation token names its user"),
        ({"token": "abc", "proxy_to": "ann"}, "a delegation token names its user"),
        ({"password": "x"}, "the option password needs the option user"),
        (
            {"hadoop__security__authentication": "kerberos", "user": "ann"},
            "Kerberos takes the user from the ticket",
        ),
    ],
)
def test_options_that_contradict_each_other_are_a_usage_error(
    namenode: NameNode, options: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        namenode.storage(**options)


SECURE = {"hadoop__security__authentication": "kerberos"}


def test_kerberos_without_its_package_is_not_authenticated(
    namenode: NameNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "requests_kerberos", None)
    with pytest.raises(NotAuthenticated, match="pip install requests-kerberos, which needs"):
        namenode.storage(**SECURE)


def test_a_delegation_token_needs_no_package_of_kerberos(
    namenode: NameNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "requests_kerberos", None)
    namenode.storage(**SECURE, token=SECRET).stat(f"{namenode.filesystem}/a")
    assert namenode.parameters["delegation"] == SECRET


def test_a_keytab_is_refused_because_it_would_not_be_used() -> None:
    side = Side(principal="alice@A.TEST", keytab="/alice.keytab")
    with pytest.raises(UsageError, match="keytab are for hdfs: and viewfs:"):
        side.storage("webhdfs://namenode:9870/a")


def test_an_address_without_a_port_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="name the host and port"):
        WebHdfsStorage("webhdfs://namenode", {}, WriteSettings())


def test_an_upload_declares_its_content_type_as_httpfs_requires(namenode: NameNode) -> None:
    uri = f"{namenode.filesystem}/a"
    namenode.status, namenode.location = 201, f"http{uri.removeprefix('webhdfs')}?step=two"
    assert namenode.storage().write_new(uri, lambda: [b"ab", b"c"]) == 3
    assert [(method, parameters) for method, _, parameters in namenode.asked] == [
        ("PUT", {"op": "CREATE"}),
        ("PUT", {"step": "two"}),
    ]
    assert namenode.headers[1]["Content-Type"] == "application/octet-stream"


def test_a_create_that_is_not_redirected_is_reported(namenode: NameNode) -> None:
    uri = f"{namenode.filesystem}/a"
    with pytest.raises(Transient, match="did not redirect CREATE"):
        namenode.storage().write_new(uri, lambda: [b"abc"])


@pytest.mark.parametrize("status", [200, 502])
def test_an_answer_of_something_else_than_a_namenode_may_pass(
    namenode: NameNode, status: int
) -> None:
    namenode.status, namenode.body = status, b"<html>proxy</html>"
    uri = f"{namenode.filesystem}/a"
    with pytest.raises(Transient) as raised:
        namenode.storage(token=SECRET).stat(uri)
    assert raised.value.filename == uri
    assert SECRET not in str(raised.value)


def test_the_exception_of_a_namenode_names_the_uri_as_given(namenode: NameNode) -> None:
    namenode.status = 403
    remote = {
        "exception": "AccessControlException",
        "javaClassName": "x.AccessControlException",
        "message": "user=ann",
    }
    namenode.body = json.dumps({"RemoteException": remote}).encode()
    uri = f"{namenode.filesystem}/a"
    with pytest.raises(PermissionError, match="permission denied: user=ann") as raised:
        namenode.storage(token=SECRET).list(uri)
    assert (raised.value.errno, raised.value.filename) == (errno.EACCES, uri)


def test_a_cut_answer_is_read_again(namenode: NameNode) -> None:
    storage = Retrying(namenode.storage(), 60.0, Pauses(0.0, 0.0))
    namenode.cuts = [1, 3, 2]
    assert storage.read(f"{namenode.filesystem}/f") == b"abc"
    assert namenode.cuts == []


def test_a_file_that_is_shorter_than_its_length_is_a_failure_that_may_pass(
    namenode: NameNode,
) -> None:
    namenode.content = b""
    with pytest.raises(Transient, match="the file ended before byte 1"):
        namenode.storage().read(f"{namenode.filesystem}/f")


def dripping(head: bytes) -> hostile.Script:
    """An answer of which a byte comes now and then."""
    return hostile.endless(head, b" ", 0.05)


@pytest.mark.parametrize("length", [b"Content-Length: 100000", b"X-Length: unknown"])
def test_an_answer_that_drips_is_none(length: bytes) -> None:
    """The timeouts of `requests` are for each call of the socket."""
    script = dripping(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n\r\n")
    with hostile.hostile(script) as server:
        storage = WebHdfsStorage(f"webhdfs://{server.place}", {}, WriteSettings(), 0.5)
        with pytest.raises(NoAnswer, match=r"has not answered for 0\.5 s"):
            storage.list(f"webhdfs://{server.place}/r")


@pytest.mark.parametrize("body", [json.dumps(FILE).encode(), b"{}" + b" " * 100_000])
def test_a_connection_is_used_again(body: bytes) -> None:
    with hostile.hostile(hostile.answer(body)) as server:
        client = WebHdfsStorage(f"webhdfs://{server.place}", {}, WriteSettings())._client
        for _ in range(3):
            client.query("GET", "GETFILESTATUS", f"webhdfs://{server.place}/f")
        assert (server.accepted, len(server.requests)) == (1, 3)
