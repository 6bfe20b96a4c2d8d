"""Runs real object stores on loopback: versitygw (S3), Azurite (Azure), fake-gcs-server (Google).

`make stores` installs them into `.stores`. Without one, the tests that need it
fail: `make test` leaves them to `make test-stores`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cpreplicate.storage import Side
from tests.support.ports import free_port
from tests.support.waiting import wait_until

_INSTALLED = Path(os.environ.get("TESTS_STORES", Path(__file__).parents[2] / ".stores"))
_ACCOUNT = "devstoreaccount1"  # Azurite's own, with its well-known key
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
NAMES = ("versitygw", "azurite", "fake-gcs-server")
BUCKET = "tests"


class Store(NamedTuple):
    """A running store, and how cpreplicate reaches it. The bucket `tests` is there."""

    name: str
    scheme: str
    port: int
    options: dict[str, str]

    @property
    def root(self) -> str:
        """The URI of the bucket."""
        return f"{self.scheme}://{BUCKET}"

    def side(self, retry_for: float = 60.0, **changed: str) -> Side:
        """Return the side that reaches it, with some options changed."""
        options = {**self.options, **changed}
        return Side(((f"{self.scheme}:", tuple(options.items())),), retry_for=retry_for)

    def words(self, side: str = "target", **changed: str) -> list[str]:
        """Return the words of a command line that reach it."""
        return [
            f"--{side}-conf={name}={value}" for name, value in {**self.options, **changed}.items()
        ]

    def at(self, port: int) -> dict[str, str]:
        """Return the options that would reach it at another port."""
        return {
            name: value.replace(f":{self.port}", f":{port}") for name, value in self.options.items()
        }


@contextmanager
def running(name: str) -> Iterator[Store]:
    """Run a store of this name, empty but for its bucket."""
    commands: dict[str, Callable[[int, str], list[str]]] = {
        "versitygw": _versitygw,
        "azurite": _azurite,
        "fake-gcs-server": _fake_gcs_server,
    }
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile() as log:
        port = free_port()
        command = commands[name](port, directory)
        assert Path(command[0]).exists(), f"{command[0]} is not there: run `make stores`"
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory)
        try:
            wait_until(lambda: _answers(port) or process.poll() is not None, name)
            assert process.poll() is None, _read(log)
            yield _with_bucket(_store(name, port), directory)
        finally:
            process.kill()
            process.wait()


def _versitygw(port: int, directory: str) -> list[str]:
    address = f"127.0.0.1:{port}"
    program = str(_INSTALLED / "bin" / "versitygw")
    (Path(directory) / "data").mkdir()
    keys = ["--access", "testing", "--secret", "testingsecret"]
    return [program, "--port", address, *keys, "--quiet", "posix", f"{directory}/data"]


def _azurite(port: int, directory: str) -> list[str]:
    program = str(_INSTALLED / "node_modules" / ".bin" / "azurite-blob")
    place = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "-l", directory]
    return [program, *place, "--disableTelemetry", "--skipApiVersionCheck", "--silent"]


def _fake_gcs_server(port: int, _directory: str) -> list[str]:
    program, address = str(_INSTALLED / "bin" / "fake-gcs-server"), f"127.0.0.1:{port}"
    names = ["-public-host", address, "-external-url", f"http://{address}"]
    place = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    return [program, *place, *names, "-log-level", "error"]


def _store(name: str, port: int) -> Store:
    url = f"http://127.0.0.1:{port}"
    if name == "versitygw":
        keys = {"key": "testing", "secret": "testingsecret", "region": "us-east-1"}
        return Store(name, "s3", port, {**keys, "endpoint_url": url})
    if name == "azurite":
        text = (
            f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY}"
            f";BlobEndpoint={url}/{_ACCOUNT};"
        )
        return Store(name, "abfs", port, {"connection_string": text})
    return Store(name, "gs", port, {"token": "anon", "endpoint_url": url})


def _with_bucket(store: Store, directory: str) -> Store:
    if store.name == "versitygw":
        (Path(directory) / "data" / BUCKET).mkdir()
    elif store.name == "azurite":
        from azure.storage.blob import BlobServiceClient

        with BlobServiceClient.from_connection_string(store.options["connection_string"]) as client:
            client.create_container(BUCKET)
    else:
        url = f"{store.options['endpoint_url']}/storage/v1/b?project=tests"
        body, headers = b'{"name": "%s"}' % BUCKET.encode(), {"Content-Type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(url, body, headers)).close()
    return store


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def _read(log: Any) -> str:
    log.seek(0)
    return str(log.read().decode(errors="replace"))


@pytest.fixture(scope="session")
def versitygw() -> Iterator[Store]:
    """An S3 that checks signatures and honours both conditions."""
    with running("versitygw") as store:
        yield store


@pytest.fixture(scope="session")
def azurite() -> Iterator[Store]:
    """Microsoft's emulator of Azure's blobs."""
    with running("azurite") as store:
        yield store


@pytest.fixture(scope="session")
def fake_gcs_server() -> Iterator[Store]:
    """A Google Cloud Storage without credentials."""
    with running("fake-gcs-server") as store:
        yield store
