"""The JVM of a process tree for Apache Hadoop's own client: find it, or start it.

It lives exactly as long as a process that uses it. Its standard input is a named pipe, and each
such process holds the writing end open. `py4j.GatewayServer --die-on-broken-pipe` ends when the
pipe closes, however the processes ended. The Python workers of a Spark executor are forked by one
daemon, and find their siblings' JVM by a file. Any other process has its own JVM.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import importlib.util
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

from cpreplicate.errors import UsageError
from cpreplicate.storage.backends.jvm_client import Gone, Jvm, JvmAddress, Thrown
from cpreplicate.storage.java import executable

_NO_JAVA = (
    "--hdfs-client hadoop needs Java 17 or later. Install it or set JAVA_HOME, or use --hdfs-client"
    " native"
)
_NO_JARS = (
    "--hdfs-client hadoop needs the jars of Spark with Hadoop's client, and none were found."
    " Install pyspark or set SPARK_HOME, or use --hdfs-client native"
)
_JVM_OPTIONS = (
    "-Xmx1g",  # several workers with 64 files each may need it; less is taken until they do
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # compiles less: it mostly waits and copies
    "-XX:+ExitOnOutOfMemoryError",  # so that another one is started
    "-XX:-UsePerfData",
    "-Dlog4j2.level=OFF",
    "-Dlog4j2.statusLoggerLevel=OFF",
    # for Kerberos, as in Spark's JavaModuleOptions
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
)
_ADVERTISED = "jvm.json"
_REAP_SECONDS = 5.0
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


_lock = threading.Lock()
_current: Jvm | None = None
# kept, because the finalizers of a forked process must not shut down what it inherited
_abandoned: list[Jvm] = []


def jvm() -> Jvm:
    """Return the JVM of this process tree, and start it if there is none.

    Raises `UsageError` if it cannot be started.
    """
    global _current
    current = _current
    if current is not None:
        return current
    with _lock:
        if _current is None:
            _current = _joined_or_launched()
        return _current


def drop_lost(lost: Jvm) -> None:
    """Start another JVM at the next call of `jvm`, if this one is gone."""
    global _current
    with _lock:
        if _current is not lost or lost.is_there():
            return
        _current = None
        lost.abandon()
        os.close(lost.pipe_end)
        _reap(lost)


def java() -> str:
    """Return the path of the `java` to run. Raises `UsageError` if there is none."""
    path = executable()
    if path is None:
        raise UsageError(_NO_JAVA)
    return path


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


def _environment() -> dict[str, str]:
    """Return the environment of the JVM.

    Each of its file systems is opened for the user of its options. `HADOOP_USER_NAME` may be the
    user of another cluster: for hdfs-native it is set to the one that was opened last.
    """
    return {name: value for name, value in os.environ.items() if name != "HADOOP_USER_NAME"}


def _class_path() -> str:
    """Return the class path of Hadoop's client, without importing pyspark.

    It has only those of Spark's jars that the client needs: with all of them it starts slowly.
    """
    spec = importlib.util.find_spec("pyspark")
    packages = spec.submodule_search_locations or [] if spec else []
    directories = [Path(package, "jars") for package in packages]
    if "SPARK_HOME" in os.environ:
        directories.append(Path(os.environ["SPARK_HOME"], "jars"))
    directories.append(Path("__spark_libs__").absolute())  # of a container on YARN
    for directory in directories:
        jars = [str(jar) for jar in directory.glob("*.jar") if jar.name.startswith(_JARS)]
        if any("/hadoop-client-" in jar for jar in jars):
            return os.pathsep.join(jars)
    raise UsageError(_NO_JARS)


def _directory() -> Path:
    """Return the directory in which the processes of this tree find the JVM; only this user can."""
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
        address = JvmAddress(**json.loads((directory / _ADVERTISED).read_text()))
        pipe_end = os.open(address.pipe, os.O_WRONLY | os.O_NONBLOCK)  # fails where nobody reads
    except (OSError, ValueError, TypeError):
        return None
    joined = Jvm(address, pipe_end)
    if joined.is_there():  # and it stays, because this process holds its pipe now
        return joined
    os.close(pipe_end)
    return None


def _launched(directory: Path, command: list[str]) -> Jvm:
    for file in directory.iterdir():  # a JVM that was killed left it
        file.unlink()
    pipe, reading, pipe_end = _pipe(directory)
    try:
        process, port, token = _started(command, reading)
        launched = Jvm(JvmAddress(port, token, process.pid, str(pipe)), pipe_end, process)
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
    """Make a named pipe and open it without waiting. Return its path and its two ends."""
    pipe = directory / f"pipe-{uuid.uuid4().hex}"
    os.mkfifo(pipe, 0o600)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reading, True)
    return pipe, reading, os.open(pipe, os.O_WRONLY)


def _check(launched: Jvm) -> None:
    try:
        launched.static("java.lang.Class", "forName", "org.apache.hadoop.conf.Configuration")
    except Thrown as error:  # UnsupportedClassVersionError
        raise UsageError(f"{launched.call(error.java_exception, 'toString')}. {_NO_JAVA}") from None
    except Gone as error:
        raise UsageError(
            f"the JVM of Hadoop's client ended as soon as it was started. {_NO_JAVA}"
        ) from error


def _started(command: list[str], stdin: int) -> tuple[subprocess.Popen[bytes], int, str]:
    """Start the JVM and return its process, its port and its token.

    It is in a session of its own: after Ctrl-C the run still needs it to clean up.
    """
    with tempfile.TemporaryFile() as stderr:
        try:
            process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=_environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise UsageError(f"{command[0]} did not start: {error}. {_NO_JAVA}") from error
        assert process.stdout is not None
        with process.stdout as answer:
            port, token = answer.readline().strip(), answer.readline().strip()
        if port.isdigit() and token:
            return process, int(port), token.decode()
        process.kill()
        process.wait()
        stderr.seek(0)
        text = stderr.read().decode(errors="replace").strip()[-500:]
        raise UsageError(f"{command[0]} did not start: {text}. {_NO_JAVA}")


def _advertise(launched: Jvm, directory: Path) -> None:
    """Write the address of the JVM for the sibling processes.

    The JVM removes the files when it ends, in reverse order (`File.deleteOnExit`).
    """
    file = directory / _ADVERTISED
    written = directory / f"{_ADVERTISED}.new"
    with open(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        json.dump(launched.address._asdict(), stream)
    written.rename(file)
    for path in (directory, file, launched.address.pipe):
        launched.call(launched.new("java.io.File", str(path)), "deleteOnExit")


def _leave() -> None:
    """At the end of this process, let go of the JVM, and reap it if no other process uses it."""
    if _current is None:
        return
    _current.abandon()
    os.close(_current.pipe_end)
    _reap(_current)


def _reap(left: Jvm) -> None:
    """Wait for a JVM that is a child of this process. It goes on if other processes use it."""
    if left.process is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            left.process.wait(_REAP_SECONDS)


def _after_fork() -> None:
    """In a forked child, use the same JVM by connections of its own.

    The inherited descriptor holds the pipe.
    """
    global _current, _lock
    _lock = threading.Lock()
    if _current is not None:
        _current.abandon()
        _abandoned.append(_current)
        _current = Jvm(_current.address, _current.pipe_end)


atexit.register(_leave)
os.register_at_fork(after_in_child=_after_fork)
