"""The exceptions of Java that Hadoop's client throws, and what `Storage` raises for them."""

from __future__ import annotations

import errno
import re
from typing import Any

from cpreplicate.storage.backends.hdfs.errors import translated
from cpreplicate.storage.backends.hdfs.kerberos_errors import raised_for_kerberos
from cpreplicate.storage.backends.jvm import client as jvm_client
from cpreplicate.storage.backends.jvm.client import Jvm
from cpreplicate.storage.base import Transient

_THROWN = re.compile(r"([\w.$]+)(?:\(([\w.$]+)\))?(?:: (.*))?", re.DOTALL)
_WRAPPERS = (
    "UndeclaredThrowableException",
    "InvocationTargetException",
    "ExecutionException",
    "RuntimeException",
)
_ADVICE = "; For more details see:"  # in Hadoop's wiki
# the exception of Hadoop's RPC client wraps them, by its text only
_SECURITY = (
    "SaslException",
    "GSSException",
    "KerberosAuthException",
    "LoginException",
    "Client cannot authenticate",
    "GSS initiate failed",
    "invalid Kerberos principal",
    "No rules applied to",
)


def raised_for(jvm: Jvm, exception: Any, uri: str) -> OSError:
    """Return what is raised in place of an exception of Java."""
    try:
        name, message = thrown(jvm, exception)
    except jvm_client.Failed:
        return Transient(errno.EIO, "Hadoop's client failed, and its JVM is gone", uri)
    if is_of_kerberos(name, message):
        return raised_for_kerberos(message, uri)
    return translated(name, message, uri)


def is_of_kerberos(name: str, message: str) -> bool:
    """Return whether an exception of this class and message is a failure to authenticate."""
    return any(sign in f"{name} {message}" for sign in _SECURITY)


def thrown(jvm: Jvm, exception: Any) -> tuple[str, str]:
    """Return the class and the message of an exception, by one call of `Throwable.toString`.

    Of a `RemoteException`, return those that the NameNode sent.
    """
    match = _THROWN.fullmatch(jvm.call(exception, "toString"))
    if match is None:
        return "java.io.IOException", "failed without a message"
    cause = jvm.call(exception, "getCause") if match[1].endswith(_WRAPPERS) else None
    return (
        thrown(jvm, cause)
        if cause is not None
        else (match[2] or match[1], (match[3] or "").partition(_ADVICE)[0])
    )
