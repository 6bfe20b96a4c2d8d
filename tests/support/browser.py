"""A real Chromium without a window, driven by its DevTools protocol over two pipes."""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import PATIENCE, wait_until

_PROGRAM = "chromium"
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # CI runs as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--remote-debugging-pipe",
)
# The browser reads commands at descriptor 3 and writes answers to 4.
_START = """import os, sys
os.dup2(int(sys.argv[1]), 13)
os.dup2(int(sys.argv[2]), 4)
os.dup2(13, 3)
os.execvp(sys.argv[3], sys.argv[3:])"""
# of each failed check of a policy or of a script, also of what no handler has caught
_COMPLAINTS = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")


class Browser:
    """A browser with one tab. `complaints` are what its console has shown since `open`."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._buffer, self._last = b"", 0
        self._session: str | None = None
        self.complaints: list[dict[str, Any]] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM", "Accessibility"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._last:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])

    def open(self, page: Path) -> None:
        """Open a file from disk, and wait until its charts are drawn and its tables loaded."""
        self.complaints.clear()
        self.requests.clear()
        self.call("Page.navigate", url=page.as_uri())
        self.wait_for(
            "document.documentElement?.dataset.charts === 'drawn'"
            " && document.documentElement.dataset.tables === 'loaded'"
        )

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript, also of a promise.

        It is run by the debugger, which no policy of the page concerns.
        """
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until an expression is true."""
        wait_until(lambda: self.evaluate(expression), expression)

    def press(self, key: str, code: int, text: str = "", modifiers: int = 0) -> None:
        """Press and release a key."""
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        kind = "keyDown" if text else "rawKeyDown"
        self.call("Input.dispatchKeyEvent", type=kind, text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def tab(self, backwards: bool = False) -> None:
        """Move the focus by the keyboard."""
        self.press("Tab", 9, modifiers=8 if backwards else 0)

    def enter(self) -> None:
        """Press Enter on what has the focus."""
        self.press("Enter", 13, text="\r")

    def type(self, text: str) -> None:
        """Type a text into what has the focus."""
        self.call("Input.insertText", text=text)

    def prefer(self, theme: str) -> None:
        """Have the system prefer a theme, `light` or `dark`."""
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def pdf(self) -> bytes:
        """Print the page."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def screenshot(self, width: int, height: int) -> bytes:
        """Return the upper part of the page as PNG."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        try:
            return base64.b64decode(self.call("Page.captureScreenshot")["data"])
        finally:
            self.call("Emulation.clearDeviceMetricsOverride")

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], deadline - time.monotonic())
            assert ready, "the browser does not answer"
            part = os.read(self._from, 1 << 20)
            assert part, "the browser has ended"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if message.get("method") in _COMPLAINTS:
            self.complaints.append(message["params"])
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        return message


@contextmanager
def running(directory: Path) -> Iterator[Browser]:
    """Run a browser whose profile is in a directory."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    start = [sys.executable, "-c", _START, str(to_read), str(from_write)]
    process = subprocess.Popen(
        [*start, _PROGRAM, *_FLAGS, f"--user-data-dir={directory}"],
        pass_fds=(to_read, from_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(directory), "DBUS_SESSION_BUS_ADDRESS": "disabled:"},
    )
    os.close(to_read)
    os.close(from_write)
    try:
        yield Browser(to_write, from_read)
    finally:
        os.close(to_write)
        os.close(from_read)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser of all tests of a worker."""
    with running(tmp_path_factory.mktemp("chromium")) as started:
        yield started
