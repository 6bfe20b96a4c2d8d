"""A client of a JVM in which Apache Hadoop's own client runs, through py4j.

The Java code is that of Hadoop, Spark and py4j only. `jvm_launcher` starts the JVM.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import tempfile
import weakref
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple

from cpreplicate.errors import UsageError

try:
    from py4j.java_gateway import (
        GatewayClient,
        GatewayConnection,
        GatewayParameters,
        GatewayProperty,
        JavaClass,
        JavaMember,
    )
    from py4j.protocol import (
        Py4JError,
        Py4JJavaError,
        Py4JNetworkError,
        get_command_part,
        get_return_value,
    )
except ImportError as error:  # pragma: no cover  # py4j comes with pyspark
    raise UsageError(
        f"--hdfs-client hadoop: the Python package pyspark cannot be imported ({error}). It is a"
        " dependency of cpreplicate: install it with `pip install pyspark`, here and on every"
        " executor, or use --hdfs-client native"
    ) from error

Thrown = Py4JJavaError  # an exception in Java
Gone = Py4JNetworkError  # the JVM does not answer
Failed = Py4JError  # either


class SilentJvm(Py4JError):  # type: ignore[misc]  # py4j has no types
    """The JVM is there, but has not answered a call in its time."""


QUIET_SECONDS = 30.0  # for a call on whose answer nothing depends but whether there is one
_HOST = "127.0.0.1"
_RELEASED_AT_ONCE = 32  # objects
_BUFFER = 128 << 10  # bytes; a packet of HDFS has 64 KiB


class JvmAddress(NamedTuple):
    """The address of a JVM: its port, and the token for calls."""

    port: int
    token: str


_seconds: ContextVar[float | None] = ContextVar("seconds", default=None)


@contextlib.contextmanager
def answering(seconds: float | None) -> Iterator[None]:
    """Limit each call in the block: one that takes longer raises `SilentJvm`.

    None: no limit, as outside any block.
    """
    token = _seconds.set(seconds)
    try:
        yield
    finally:
        _seconds.reset(token)


class Jvm:
    """A client of one JVM for all threads of this process; each call under way has a connection.

    Its methods raise `Thrown` for an exception in Java, `Gone` if the connection to the JVM is
    lost, and `SilentJvm` if a call exceeds the limit of `answering`.
    """

    def __init__(self, address: JvmAddress, process: subprocess.Popen[bytes]) -> None:
        self.address, self.process = address, process
        self._client = _Client(address)
        self._exchanges: deque[Exchange] = deque()

    def new(self, name: str, *arguments: object) -> Any:
        """Construct an object of a class."""
        return JavaClass(name, self._client)(*arguments)

    def call(self, target: Any, method: str, *arguments: object) -> Any:
        """Call a method of an object and return its result.

        `target.method()` is not used: py4j would make a reference cycle that only GC frees.
        """
        return JavaMember(method, None, target._get_object_id(), self._client)(*arguments)

    def static(self, name: str, method: str, *arguments: object) -> Any:
        """Call a static method of a class and return its result."""
        return JavaMember(method, None, f"z:{name}", self._client)(*arguments)

    def array(self, name: str, length: int) -> Any:
        """Make an array of a class. It cannot be of bytes, which py4j passes by value."""
        parts = get_command_part(name, None) + get_command_part(length, None)
        return get_return_value(self._client.send_command(f"a\nc\n{parts}e\n"), self._client)

    def copy(self, source: Any, target: Any) -> None:
        """Copy an `InputStream`, to its end, to an `OutputStream`. Neither is closed."""
        self.static("org.apache.hadoop.io.IOUtils", "copyBytes", source, target, _BUFFER, False)

    @contextlib.contextmanager
    def exchange(self) -> Iterator[Exchange]:
        """Provide an exchange for one transfer.

        Others use it afterwards, unless the transfer failed: then Java may still write to it.
        """
        try:
            exchange = self._exchanges.pop()
        except IndexError:
            exchange = Exchange(self)
        yield exchange
        self._exchanges.append(exchange)

    def is_there(self) -> bool:
        """Return whether the JVM answers, within half a minute."""
        try:
            with answering(QUIET_SECONDS):
                self.static("java.lang.System", "nanoTime")
        except Failed:
            return False
        return True

    def abandon(self) -> None:
        """Stop sending anything to the JVM, also from finalizers."""
        self._client.is_connected = False


class Exchange:
    """A nameless file that carries bytes between Python and streams in Java.

    py4j itself would encode them as text.
    """

    size = 1 << 20  # bytes at most

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm
        try:
            self._open()
        except (OSError, Thrown) as error:  # which must not look like an error of a path in HDFS
            raise OSError(
                errno.EIO,
                f"no temporary file to exchange bytes with the JVM could be made: {error}",
            ) from error

    def _open(self) -> None:
        with tempfile.NamedTemporaryFile() as file:
            self._file = self._jvm.new("java.io.RandomAccessFile", file.name, "rw")
            self._descriptor = os.dup(file.fileno())
            weakref.finalize(self, os.close, self._descriptor)
        descriptor = self._jvm.call(self._file, "getFD")  # with one position for all three
        self._input = self._jvm.new("java.io.FileInputStream", descriptor)
        self._output = self._jvm.new("java.io.FileOutputStream", descriptor)

    def read(self, stream: Any, buffer: memoryview) -> int:
        """Fill the buffer from an `InputStream`; return the number of bytes, less at its end."""
        self._jvm.call(self._file, "setLength", 0)
        limited = self._jvm.new(
            "org.apache.hadoop.util.LimitInputStream", stream, min(len(buffer), self.size)
        )
        self._jvm.copy(limited, self._output)
        return os.preadv(self._descriptor, [buffer], 0)

    def write(self, data: memoryview, stream: Any) -> None:
        """Write bytes to an `OutputStream`."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, data, 0)
        self._jvm.call(self._file, "seek", 0)
        self._jvm.copy(self._input, stream)


class _Client(GatewayClient):  # type: ignore[misc]  # py4j has no types
    """py4j's client, except that it does not log to the root logger or repeat commands.

    A command that failed may have been carried out.
    """

    def __init__(self, address: JvmAddress) -> None:
        parameters = GatewayParameters(address=_HOST, port=address.port, auth_token=address.token)
        super().__init__(
            gateway_property=GatewayProperty(auto_field=False, pool=None),
            gateway_parameters=parameters,
        )
        self.converters: list[Any] = []
        self._released: deque[str] = deque()

    def garbage_collect_object(self, target_id: str) -> None:
        """Release an object in the JVM later: a finalizer must not make a call."""
        self._released.append(f"m\nd\n{target_id}\ne\n")

    def send_command(self, command: str, retry: bool = True, binary: bool = False) -> str:  # noqa: ARG002  # py4j's parameters
        connection = self._get_connection()
        connection.socket.settimeout(_seconds.get())
        try:
            if len(self._released) >= _RELEASED_AT_ONCE:
                self._release(connection)
            answer: str = connection.send_command(command)
        except Gone as error:
            connection.close()
            if isinstance(error.cause, TimeoutError):
                raise SilentJvm(f"has not answered for {_seconds.get():.3g} s") from None
            raise
        except BaseException:
            connection.close()  # an answer may be on its way
            raise
        self._give_back_connection(connection)
        return answer

    def _release(self, connection: GatewayConnection) -> None:
        """Release objects of the JVM that Python no longer has, before another call."""
        commands: list[str] = []
        with contextlib.suppress(IndexError):  # other threads take from it as well
            while len(commands) < _RELEASED_AT_ONCE:
                commands.append(self._released.popleft())
        if commands:
            connection.send_command("".join(commands))
        try:
            for _ in commands[1:]:
                _acknowledge_at_once(connection.socket)
                connection.stream.readline()
        except OSError as error:
            raise Gone("while releasing objects", error) from error


def _acknowledge_at_once(connected: socket.socket) -> None:
    """Have the kernel acknowledge the next answer without a delay.

    Each further answer would wait 40 ms, because the JVM holds it back until the one before is
    acknowledged (Nagle's algorithm).
    """
    if hasattr(socket, "TCP_QUICKACK"):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
