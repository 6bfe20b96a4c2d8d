"""The API server of the Kubernetes of this machine, as its administrator asks it."""

from __future__ import annotations

import contextlib
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from http.client import HTTPResponse
from ssl import CERT_NONE, create_default_context
from typing import Any

TOKEN = "of-this-machine-only"
DRIVER = "10.77.0.1"
API = f"https://{DRIVER}:6443"  # for pods, too: the certificate names this address
SECONDS = 1200  # only a hang takes that long, also on a busy machine


def asked(method: str, path: str, body: object = None) -> dict[str, Any]:
    """An answer of the API server."""
    with opened(method, path, body) as answer:
        return dict(json.load(answer))


def opened(method: str, path: str, body: object = None, timeout: float = 30) -> HTTPResponse:
    """An answer of the API server that is read as it comes."""
    trusting = create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, CERT_NONE
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{API}{path}", data, headers, method=method)
    answer: HTTPResponse = urllib.request.urlopen(request, timeout=timeout, context=trusting)
    return answer


def pods() -> list[str]:
    """The names of all pods."""
    return [
        pod["metadata"]["name"] for pod in asked("GET", "/api/v1/namespaces/default/pods")["items"]
    ]


def delete(pod: str) -> None:
    """Kill it at once, unless it has gone by itself, as that of a job does with its job."""
    try:
        asked("DELETE", f"/api/v1/namespaces/default/pods/{pod}?gracePeriodSeconds=0")
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.NOT_FOUND:
            raise


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Exit with a message if it does not come true."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError):  # it does not answer yet
            if condition():
                return
        time.sleep(0.5)
    sys.exit(f"not within {SECONDS} s: {what}")
