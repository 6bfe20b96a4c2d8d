"""The JVM beside a process tree in which Apache Hadoop's own client runs, reached through py4j;
nothing in Java is ours.

It lives exactly as long as a process that uses it. Its standard input is a named pipe whose writing
end each of them holds open, and `py4j.GatewayServer --die-on-broken-pipe` ends with that pipe, in
whatever way those processes ended. The Python workers of a Spark executor, forked by one daemon,
find their siblings' JVM by a file; any other process has its own.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import importlib.util
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import uuid
import weakref
from collections import deque
from collections.abc import Iterator
from pathlib import Path
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
except ImportError as error:  # pragma: no cover
    raise UsageError(
        f"--hdfs-client hadoop: the Python package pyspark cannot be imported ({error}). It is a"
        " dependency of cpreplicate: install it with `pip install pyspark`, here and on every"
        " executor, or use --hdfs-client native"
    ) from error

Thrown = Py4JJavaError  # an exception in Java
Gone = Py4JNetworkError  # the JVM does not answer
Failed = Py4JError  # either

_NO_JAVA = (
    "--hdfs-client hadoop needs Java 17 or later; install it or set JAVA_HOME, or use --hdfs-client"
    " native"
)
_NO_JARS = (
    "--hdfs-client hadoop needs the jars of Spark with Hadoop's client, and none were found;"
    " install pyspark or set SPARK_HOME, or use --hdfs-client native"
)
_JVM_OPTIONS = (
    "-Xmx1g",  # what several workers with 64 files each may need; it takes as much when they do
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # compiles less: what it does is to wait and to copy
    "-XX:+ExitOnOutOfMemoryError",  # so that it is started anew
    "-XX:-UsePerfData",
    "-Dlog4j2.level=OFF",
    "-Dlog4j2.statusLoggerLevel=OFF",
    # for Kerberos, as in Spark's JavaModuleOptions
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
)
_ADDRESS = "127.0.0.1"
_ADVERTISED = "jvm.json"
_REAP_SECONDS = 5.0
_RELEASED_AT_ONCE = 32
_BUFFER = 128 << 10  # bytes; a packet of HDFS has 64 KiB
_JARS = (
    "py4j-",
    "hadoop-client-",
    "slf4j-api-",
    "log4j-",
    "jcl-over-slf4j-",
    "commons-logging-",
    "htrace-",
    "snappy-java-",
)


class _Address(NamedTuple):
    """How the JVM is reached; `pipe` is what it ends with."""

    port: int
    token: str
    pid: int
    pipe: str


class Jvm:
    """This process's way to the JVM, for any number of threads: a connection for each that is in a
    call.

    Raises `Thrown` and `Gone`.
    """

    def __init__(
        self, address: _Address, pipe_end: int, process: subprocess.Popen[bytes] | None = None
    ) -> None:
        self.address = address
        self.pipe_end = pipe_end
        self.process = process
        self._client = _Client(address)
        self._exchanges: deque[Exchange] = deque()

    def new(self, name: str, *arguments: object) -> Any:
        """An object of a class."""
        return JavaClass(name, self._client)(*arguments)

    def call(self, target: Any, method: str, *arguments: object) -> Any:
        """What a method returns.

        Not `target.method()`: py4j would tie its method to it in a cycle that only GC undoes.
        """
        return JavaMember(method, None, target._get_object_id(), self._client)(*arguments)

    def static(self, name: str, method: str, *arguments: object) -> Any:
        """What a static method of a class returns."""
        return JavaMember(method, None, f"z:{name}", self._client)(*arguments)

    def array(self, name: str, length: int) -> Any:
        """An array of a class; not of bytes, which py4j passes by value."""
        parts = get_command_part(name, None) + get_command_part(length, None)
        return get_return_value(self._client.send_command(f"a\nc\n{parts}e\n"), self._client)

    def copy(self, source: Any, target: Any) -> None:
        """From an `InputStream`, to its end, to an `OutputStream`; neither is closed."""
        self.static("org.apache.hadoop.io.IOUtils", "copyBytes", source, target, _BUFFER, False)

    @contextlib.contextmanager
    def exchange(self) -> Iterator[Exchange]:
        """One for the time of a transfer.

        Afterwards for others, unless that failed and Java may still be at it.
        """
        try:
            found = self._exchanges.pop()
        except IndexError:
            found = Exchange(self)
        yield found
        self._exchanges.append(found)

    def is_there(self) -> bool:
        """Whether it answers."""
        try:
            self.static("java.lang.System", "nanoTime")
        except Failed:
            return False
        return True

    def abandon(self) -> None:
        """Never send anything again, not even from finalizers."""
        self._client.is_connected = False


class Exchange:
    """Carries bytes between Python and streams in Java, by a file without a name: py4j itself would
    make text of them.
    """

    size = 1 << 20  # bytes at most

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm
        try:
            self._open()
        except (OSError, Thrown) as error:  # not to be taken for what it says of a place in HDFS
            raise OSError(
                errno.EIO, f"no temporary file to exchange bytes with the JVM: {error}"
            ) from error

    def _open(self) -> None:
        with tempfile.NamedTemporaryFile() as file:
            self._file = self._jvm.new("java.io.RandomAccessFile", file.name, "rw")
            self._descriptor = os.dup(file.fileno())
            weakref.finalize(self, os.close, self._descriptor)
        place = self._jvm.call(self._file, "getFD")  # with one position for all three
        self._input = self._jvm.new("java.io.FileInputStream", place)
        self._output = self._jvm.new("java.io.FileOutputStream", place)

    def read(self, stream: Any, buffer: memoryview) -> int:
        """Fill the buffer from an `InputStream`, or less of it at the end."""
        self._jvm.call(self._file, "setLength", 0)
        limited = self._jvm.new(
            "org.apache.hadoop.util.LimitInputStream", stream, min(len(buffer), self.size)
        )
        self._jvm.copy(limited, self._output)
        return os.preadv(self._descriptor, [buffer], 0)

    def write(self, data: memoryview, stream: Any) -> None:
        """To an `OutputStream`."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, data, 0)
        self._jvm.call(self._file, "seek", 0)
        self._jvm.copy(self._input, stream)


class _Client(GatewayClient):  # type: ignore[misc]  # py4j has no types
    """Without what py4j's own does on failures: log to the root logger, and send again what may
    have been carried out.
    """

    def __init__(self, address: _Address) -> None:
        parameters = GatewayParameters(
            address=_ADDRESS, port=address.port, auth_token=address.token
        )
        super().__init__(
            gateway_property=GatewayProperty(auto_field=False, pool=None),
            gateway_parameters=parameters,
        )
        self.converters: list[Any] = []
        self._released: deque[str] = deque()

    def garbage_collect_object(self, target_id: str) -> None:
        """Let the JVM forget an object, with many others later: here, in a finalizer, is no place
        for a round trip.
        """
        self._released.append(f"m\nd\n{target_id}\ne\n")

    def send_command(self, command: str, retry: bool = True, binary: bool = False) -> str:  # noqa: ARG002
        connection = self._get_connection()
        try:
            if len(self._released) >= _RELEASED_AT_ONCE:
                self._release(connection)
            answer: str = connection.send_command(command)
        except BaseException:
            connection.close()  # an answer may be on its way
            raise
        self._give_back_connection(connection)
        return answer

    def _release(self, connection: GatewayConnection) -> None:
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
    """Else each further answer waits 40 ms: the JVM holds it back until the one before is
    acknowledged (Nagle).
    """
    if hasattr(socket, "TCP_QUICKACK"):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


_lock = threading.Lock()
_current: Jvm | None = None
_abandoned: list[
    Jvm
] = []  # kept: what is inherited by a fork must not be shut down by this process's finalizers


def jvm() -> Jvm:
    """The JVM of this process tree, started if need be. Raises `UsageError` where it cannot be."""
    global _current
    found = _current
    if found is not None:
        return found
    with _lock:
        if _current is None:
            _current = _joined_or_launched()
        return _current


def forget(lost: Jvm) -> None:
    """Start anew at the next call, if it is gone."""
    global _current
    with _lock:
        if _current is not lost or lost.is_there():
            return
        _current = None
        lost.abandon()
        os.close(lost.pipe_end)
        _reap(lost)


def java() -> str:
    """The `java` to run. Raises `UsageError`."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        raise UsageError(_NO_JAVA)
    return found


def _joined_or_launched() -> Jvm:
    command = _command()
    for _ in range(3):  # a JVM that ends takes the directory with it
        with contextlib.suppress(FileNotFoundError), _locked(_directory()) as directory:
            return _joined(directory) or _launched(directory, command)
    raise UsageError(
        f"no JVM could be started: {tempfile.gettempdir()} does not keep its directories"
    )


def _command() -> list[str]:
    return [
        java(),
        *_JVM_OPTIONS,
        "-cp",
        _class_path(),
        "py4j.GatewayServer",
        "--die-on-broken-pipe",
        "--enable-auth",
        "0",
    ]


def _class_path() -> str:
    """Found without importing pyspark.

    Of its jars those that Hadoop's client needs: with all of them it starts slowly.
    """
    spec = importlib.util.find_spec("pyspark")
    places = [
        Path(each, "jars") for each in (spec.submodule_search_locations or [] if spec else [])
    ]
    places += [Path(os.environ["SPARK_HOME"], "jars")] if "SPARK_HOME" in os.environ else []
    places += [Path("__spark_libs__").absolute()]  # of a container on YARN
    for place in places:
        jars = [str(each) for each in place.glob("*.jar") if each.name.startswith(_JARS)]
        if any("/hadoop-client-" in each for each in jars):
            return os.pathsep.join(jars)
    raise UsageError(_NO_JARS)


def _directory() -> Path:
    """Where the processes of this tree look for the JVM; only this user can."""
    root = os.getppid() if "pyspark.worker" in sys.modules else os.getpid()
    directory = Path(tempfile.gettempdir(), f"cpreplicate-jvm-{os.getuid()}-{root}")
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        return Path(tempfile.mkdtemp(prefix="cpreplicate-jvm-"))
    return directory


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[Path]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield directory
    finally:
        os.close(descriptor)


def _joined(directory: Path) -> Jvm | None:
    try:
        address = _Address(**json.loads((directory / _ADVERTISED).read_text()))
        pipe_end = os.open(address.pipe, os.O_WRONLY | os.O_NONBLOCK)  # fails where nobody reads
    except (OSError, ValueError, TypeError):
        return None
    found = Jvm(address, pipe_end)
    if found.is_there():  # and stays, as its pipe is held
        return found
    os.close(pipe_end)
    return None


def _launched(directory: Path, command: list[str]) -> Jvm:
    for left in directory.iterdir():  # by a JVM that was killed
        left.unlink()
    pipe, reading, pipe_end = _pipe(directory)
    try:
        process, port, token = _started(command, reading)
        launched = Jvm(_Address(port, token, process.pid, str(pipe)), pipe_end, process)
        _check(launched)
        _advertise(launched, directory)
    except BaseException:
        os.close(pipe_end)  # which ends it
        shutil.rmtree(directory, ignore_errors=True)
        raise
    finally:
        os.close(reading)
    return launched


def _pipe(directory: Path) -> tuple[Path, int, int]:
    """Its place and both its ends; opened like this since either would wait for the other."""
    pipe = directory / f"pipe-{uuid.uuid4().hex}"
    os.mkfifo(pipe, 0o600)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reading, True)
    return pipe, reading, os.open(pipe, os.O_WRONLY)


def _check(launched: Jvm) -> None:
    try:
        launched.static("java.lang.Class", "forName", "org.apache.hadoop.conf.Configuration")
    except Thrown as error:  # UnsupportedClassVersionError
        raise UsageError(f"{launched.call(error.java_exception, 'toString')}; {_NO_JAVA}") from None
    except Gone as error:
        raise UsageError(
            f"the JVM of Hadoop's client ended as soon as it was started; {_NO_JAVA}"
        ) from error


def _started(command: list[str], stdin: int) -> tuple[subprocess.Popen[bytes], int, str]:
    """In a session of its own, as Ctrl-C ends the run by its own cleaning up, for which it needs
    its JVM.
    """
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                command, stdin=stdin, stdout=subprocess.PIPE, stderr=said, start_new_session=True
            )
        except OSError as error:
            raise UsageError(f"{command[0]} did not start: {error}; {_NO_JAVA}") from error
        assert process.stdout is not None
        with process.stdout as answer:
            port, token = answer.readline().strip(), answer.readline().strip()
        if port.isdigit() and token:
            return process, int(port), token.decode()
        process.kill()
        process.wait()
        said.seek(0)
        raise UsageError(
            f"{command[0]} did not start: {said.read().decode(errors='replace').strip()[-500:]};"
            f" {_NO_JAVA}"
        )


def _advertise(launched: Jvm, directory: Path) -> None:
    """For the siblings.

    The JVM removes it all when it ends (`File.deleteOnExit`: the last one first).
    """
    file = directory / _ADVERTISED
    written = directory / f"{_ADVERTISED}.new"
    with open(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        json.dump(launched.address._asdict(), stream)
    written.rename(file)
    for each in (directory, file, launched.address.pipe):
        launched.call(launched.new("java.io.File", str(each)), "deleteOnExit")


def _leave() -> None:
    """At the end of this process: let go of the JVM, and reap it if it was ours alone."""
    if _current is None:
        return
    _current.abandon()
    os.close(_current.pipe_end)
    _reap(_current)


def _reap(left: Jvm) -> None:
    """If it is our child; those that still use it keep it, and then it is nobody's."""
    if left.process is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            left.process.wait(_REAP_SECONDS)


def _after_fork() -> None:
    """In the child: the same JVM by connections of its own.

    The pipe is held by what it inherited.
    """
    global _current, _lock
    _lock = threading.Lock()
    if _current is not None:
        _current.abandon()
        _abandoned.append(_current)
        _current = Jvm(_current.address, _current.pipe_end)


atexit.register(_leave)
os.register_at_fork(after_in_child=_after_fork)
