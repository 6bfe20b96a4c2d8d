"""Each option of Azure, Google and Alibaba changes what is sent, or is refused by name."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from cpreplicate.errors import UsageError
from cpreplicate.storage import Side
from cpreplicate.storage.backends.objects.clients import OPTIONS
from tests.support.certificates import self_signed

pytestmark = [pytest.mark.rest, pytest.mark.xdist_group("options-on-the-wire")]

_ROOT = Path(__file__).parents[4]
_HOSTS = (
    "mine.blob.core.windows.net",
    "mine.example",
    "login.microsoftonline.com",
    "oauth2.googleapis.com",
)
_FORBIDDEN = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_CLIENT = """
import json, sys
from cpreplicate.storage import Side
for line in sys.stdin:
    uri, options = json.loads(line)
    try:
        Side((("", tuple(options.items())),), retry_for=0).storage(uri).stat(uri)
    except Exception as error:
        print(type(error).__name__, error, file=sys.stderr)
    print(flush=True)
"""


class Recorder:
    """A proxy that records requests, also those within TLS, and forbids all of them."""

    def __init__(self, certificate: Path) -> None:
        self.requests: list[str] = []
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(certificate)
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return "http://127.0.0.1:{1}".format(*self._listener.getsockname())

    def close(self) -> None:
        """Accepts nothing more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=self._listener.accept()[:1]).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.enter_context(client)
            client.settimeout(60)
            request, host = _request(client), ""
            if request.startswith("CONNECT "):
                host = request.split()[1]
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                client = stack.enter_context(self._tls.wrap_socket(client, server_side=True))
                request = _request(client)
            self.requests.append(f"{host} {request}")
            client.sendall(_FORBIDDEN)


def _request(client: socket.socket) -> str:
    """Returns the head of a request, and its body."""
    data = b""
    while (head := data.partition(b"\r\n\r\n"))[1] == b"" or len(head[2]) < _length(head[0]):
        piece = client.recv(1 << 16)
        if not piece:
            raise ConnectionResetError
        data += piece
    return data.decode()


def _length(head: bytes) -> int:
    found = re.search(rb"content-length: (\d+)", head.lower())
    return int(found[1]) if found else 0


class Client:
    """A process that trusts the recorder, and asks for a file by options that it is given."""

    def __init__(self, recorder: Recorder, certificate: Path) -> None:
        self.recorder = recorder
        trusted = dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"), str(certificate))
        without = {name: value for name, value in os.environ.items() if "PROXY" not in name.upper()}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CLIENT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
            env={**without, **trusted, "HTTPS_PROXY": recorder.url, "https_proxy": recorder.url},
        )

    def sends(self, uri: str, options: Mapping[str, str]) -> str:
        """Returns the requests that it made, one after the other."""
        self.recorder.requests.clear()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([uri, options]) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "\n"
        return "\n".join(self.recorder.requests)

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    certificate = self_signed(tmp_path_factory.mktemp("tls"), *_HOSTS)
    with (
        contextlib.closing(Recorder(certificate)) as recorder,
        contextlib.closing(Client(recorder, certificate)) as started,
    ):
        yield started


KEY = base64.b64encode(b"of the account").decode()
BY_KEY = {"account_name": "mine", "account_key": KEY}
BY_TEXT = f"AccountName=mine;AccountKey={KEY};BlobEndpoint="
OF_USER = {"tenant_id": "tenant", "client_id": "who", "client_secret": "hidden"}
ANONYMOUS = {"account_name": "mine", "anon": "true"}
OF_ALIBABA = {"key": "mine", "secret": "hidden", "endpoint": ""}
ROWS = [  # and the option that changes what is sent, with what is in it, or is not
    ("abfs", BY_KEY, "account_name", "mine.blob.core.windows.net:443 ", None),
    ("abfs", BY_KEY, "account_key", "authorization: sharedkey mine:", None),
    (
        "abfs",
        {**ANONYMOUS, "account_host": "mine.example"},
        "account_host",
        "mine.example:443",
        None,
    ),
    ("abfs", {"account_name": "mine", "sas_token": "sv=1&sig=abc"}, "sas_token", "sig=abc", None),
    ("abfs", {"connection_string": BY_TEXT}, "connection_string", "sharedkey mine:", None),
    ("abfs", {"account_name": "mine", **OF_USER}, "tenant_id", "/tenant/oauth2/", None),
    ("abfs", {"account_name": "mine", **OF_USER}, "client_id", "client_id=who", None),
    ("abfs", {"account_name": "mine", **OF_USER}, "client_secret", "client_secret=hidden", None),
    ("abfs", ANONYMOUS, "anon", "mine.blob.core.windows.net:443", "authorization"),
    ("gs", {"token": "ya29.mine"}, "token", "access_token=ya29.mine", None),
    (
        "gs",
        {"token": "anon", "endpoint_url": ""},
        "endpoint_url",
        "get /storage/v1/",
        "userproject",
    ),
    (
        "gs",
        {"token": "anon", "endpoint_url": "", "project": "payer", "requester_pays": "true"},
        "project",
        "userproject=payer",
        None,
    ),
    ("oss", OF_ALIBABA, "endpoint", "get /wire/", "x-oss-security-token"),
    ("oss", OF_ALIBABA, "key", "authorization: oss mine:", None),
    ("oss", OF_ALIBABA, "secret", "authorization: oss mine:", None),
    ("oss", {**OF_ALIBABA, "token": "sts"}, "token", "x-oss-security-token: sts", None),
]


@pytest.mark.parametrize(
    ("scheme", "options", "option", "has", "lacks"),
    ROWS,
    ids=[f"{each[0]} {each[2]}" for each in ROWS],
)
def test_an_option_is_in_what_is_sent(
    client: Client, scheme: str, options: dict[str, str], option: str, has: str, lacks: str | None
) -> None:
    if scheme == "oss" and importlib.util.find_spec("ossfs") is None:
        pytest.skip("ossfs is not installed")  # it demands a version of each package that it has
    given = dict(options)
    if option == "connection_string":
        given[option] += f"{client.recorder.url}/mine;"
    for name in given.keys() & {"endpoint_url", "endpoint"}:
        given[name] = client.recorder.url
    sent = client.sends(f"{scheme}://wire/file", given).lower()
    assert has in sent
    assert lacks is None or lacks not in sent


def test_each_option_of_azure_google_and_alibaba_has_a_row() -> None:
    rows = {(scheme, option) for scheme, _options, option, *_ in ROWS}
    rows |= {("gs", "requester_pays"), ("gs", "hierarchical")}  # with the project; by gRPC
    schemes = ("abfs", "gs", "oss")
    assert rows == {(scheme, name) for scheme in schemes for name in OPTIONS[scheme]}


@pytest.mark.parametrize(
    ("scheme", "name"), [("gs", "consistency"), ("abfs", "max_concurrency"), ("oss", "timeout")]
)
def test_a_parameter_of_a_client_that_is_not_documented_is_none(scheme: str, name: str) -> None:
    with pytest.raises(UsageError, match=f"unknown option '{name}'"):
        Side((("", ((name, "1"),)),)).storage(f"{scheme}://wire")


@pytest.mark.parametrize("other", ["account_key", "sas_token", "anon", "account_host"])
def test_what_has_no_effect_beside_a_connection_string_is_refused(other: str) -> None:
    options = {"connection_string": f"{BY_TEXT}http://127.0.0.1:1/mine;", other: "x"}
    with pytest.raises(UsageError, match=f"{other} has no effect beside connection_string"):
        Side((("", tuple(options.items())),)).storage("abfs://wire")


@pytest.mark.parametrize("pays", [{}, {"requester_pays": "false"}], ids=str)
def test_a_project_that_does_not_pay_has_no_effect_and_is_refused(pays: dict[str, str]) -> None:
    options = {"token": "anon", "project": "mine", **pays}
    with pytest.raises(UsageError, match="project has no effect without requester_pays=true"):
        Side((("", tuple(options.items())),)).storage("gs://wire")
