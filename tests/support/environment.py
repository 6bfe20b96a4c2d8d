"""What the tests inherit from whoever starts them: nothing that changes what they see.

Variables of the tests themselves begin with TESTS_: a command refuses one that begins with
CPREPLICATE_ and sets nothing.

A run under nohup ignores SIGHUP, one in the background SIGINT, and every process that it starts
inherits this. A gateway node sets HADOOP_CONF_DIR, SPARK_HOME and AWS_PROFILE for all its users.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping

# Python ignores these in every process, and restores them in those that it starts.
_IGNORED_BY_PYTHON = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
_PREFIXES = (
    "AWS_",
    "AZURE_",
    "BOTO_",
    "CPREPLICATE_",
    "FLINK_",
    "GOOGLE_",
    "HADOOP_",
    "HDFS_",
    "LC_",
    "OSS_",
    "PROMETHEUS_",
    "PYSPARK_",
    "SPARK_",
    "XDG_",
    "YARN_",
)
_NAMES = frozenset(
    {
        "CLASSPATH",
        "CLICOLOR",
        "CLICOLOR_FORCE",
        "COLORTERM",
        "FORCE_COLOR",
        "JAVA_OPTS",
        "JAVA_TOOL_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "KRB5CCNAME",
        "KRB5_CONFIG",
        "LANGUAGE",
        "MASTER",
        "NO_COLOR",
        "POSIXLY_CORRECT",
        "PYTHONDONTWRITEBYTECODE",  # each process would compile all modules anew
        "PYTHONDEVMODE",
        "PYTHONIOENCODING",
        "PYTHONOPTIMIZE",
        "PYTHONSTARTUP",
        "PYTHONUNBUFFERED",
        "PYTHONUTF8",
        "PYTHONWARNINGS",
        "TTY_COMPATIBLE",
        "TTY_INTERACTIVE",
        "_JAVA_OPTIONS",
    }
)
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy")
_FIXED = {
    "COLUMNS": "80",
    "LANG": "C.UTF-8",
    "LINES": "24",
    "TERM": "xterm",
    "TZ": "UTC",
    "CPREPLICATE_CONFIG": "",  # not the configuration of this user or machine
    # not the profiles of this user, nor the role of this machine
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    # servers of the tests are on loopback, whatever proxy the machine has
    "NO_PROXY": "localhost,127.0.0.1,::1",
    "no_proxy": "localhost,127.0.0.1,::1",
}


def reset_signals() -> None:
    """Handle every signal as a process of an interactive shell does; call it in the main thread."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in signal.valid_signals() - _IGNORED_BY_PYTHON:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def reset_environment() -> None:
    """Remove what changes how cpreplicate, Spark, Hadoop, an SDK or a terminal behaves."""
    sys.dont_write_bytecode = False
    wanted = {**without_influence(os.environ), **_FIXED}
    for name in set(os.environ) - set(wanted):
        del os.environ[name]
    os.environ.update(wanted)


def without_influence(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a test may inherit."""
    return {name: value for name, value in environment.items() if not _has_influence(name)}


def _has_influence(name: str) -> bool:
    return name.startswith(_PREFIXES) or name in _NAMES or name.lower() in _PROXIES
