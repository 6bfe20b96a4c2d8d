"""The JVM of a process for Apache Hadoop's own client.

It ends with the process, and with those that this one forked since: they hold the writing end of
its standard input open. `py4j.GatewayServer --die-on-broken-pipe` ends when that closes, however
the processes ended.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import subprocess
import tempfile
import threading
from pathlib import Path

from cpreplicate.errors import UsageError
from cpreplicate.storage.backends.jvm.client import Gone, Jvm, JvmAddress, Thrown
from cpreplicate.storage.java import executable

_NO_JAVA = (
    "--hdfs-client hadoop needs Java 17 or later (with Spark 3.5: 8 or later). Install it or set"
    " JAVA_HOME, or use --hdfs-client native"
)
_NO_JARS = (
    "--hdfs-client hadoop needs the jars of Spark with Hadoop's client, and none were found."
    " Install pyspark or set SPARK_HOME, or use --hdfs-client native"
)
_JVM_OPTIONS = (
    "-Xmx512m",  # 64 files need half of it; less is taken until they do
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # compiles less: it mostly waits and copies
    "-XX:+ExitOnOutOfMemoryError",  # so that another one is started
    "-XX:-UsePerfData",
    "-Dlog4j2.level=OFF",
    "-Dlog4j2.statusLoggerLevel=OFF",
    # for Kerberos, as in Spark's JavaModuleOptions; Java 8 knows no modules, and ignores it
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
)
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
    """Return the JVM of this process, and start it if there is none.

    Raises `UsageError` if it cannot be started.
    """
    global _current
    current = _current
    if current is not None:
        return current
    with _lock:
        if _current is None:
            _current = _launched(_command())
        return _current


def drop_lost(lost: Jvm) -> None:
    """Start another JVM at the next call of `jvm`, if this one is gone."""
    global _current
    with _lock:
        if _current is not lost or lost.is_there():
            return
        _current = None
        _let_go(lost)


def java() -> str:
    """Return the path of the `java` to run. Raises `UsageError` if there is none."""
    path = executable()
    if path is None:
        raise UsageError(_NO_JAVA)
    return path


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


def _launched(command: list[str]) -> Jvm:
    process, address = _started(command)
    launched = Jvm(address, process)
    try:
        _check(launched)
    except BaseException:
        _let_go(launched)
        raise
    return launched


def _check(launched: Jvm) -> None:
    try:
        launched.static("java.lang.Class", "forName", "org.apache.hadoop.conf.Configuration")
    except Thrown as error:  # UnsupportedClassVersionError
        raise UsageError(f"{launched.call(error.java_exception, 'toString')}. {_NO_JAVA}") from None
    except Gone as error:
        raise UsageError(
            f"the JVM of Hadoop's client ended as soon as it was started. {_NO_JAVA}"
        ) from error


def _started(command: list[str]) -> tuple[subprocess.Popen[bytes], JvmAddress]:
    """Start the JVM and return its process and its address.

    It is in a session of its own: after Ctrl-C the run still needs it to clean up.
    """
    with tempfile.TemporaryFile() as stderr:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
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
            return process, JvmAddress(int(port), token.decode())
        process.kill()
        process.wait()
        stderr.seek(0)
        text = stderr.read().decode(errors="replace").strip()[-500:]
        raise UsageError(f"{command[0]} did not start: {text}. {_NO_JAVA}")


def _let_go(left: Jvm) -> None:
    """End a JVM that no other process uses, and reap it if this one started it."""
    left.abandon()
    assert left.process.stdin is not None
    left.process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        left.process.wait(_REAP_SECONDS)


def _leave() -> None:
    """At the end of this process, let go of the JVM."""
    if _current is not None:
        _let_go(_current)


def _after_fork() -> None:
    """In a forked child, use the same JVM by connections of its own."""
    global _current, _lock
    _lock = threading.Lock()
    if _current is not None:
        _current.abandon()
        _abandoned.append(_current)
        _current = Jvm(_current.address, _current.process)


atexit.register(_leave)
os.register_at_fork(after_in_child=_after_fork)
