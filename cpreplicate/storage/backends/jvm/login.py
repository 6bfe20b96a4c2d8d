"""Who a file system in the JVM is: the JVM's own login, or the principal of a keytab.

The login of a JVM is one for all. So that two sides have users of their own, a file system with a
keytab is opened as its principal. It keeps that user for all that it does.
"""

from __future__ import annotations

import time
from typing import Any

from cpreplicate.storage.backends.jvm.client import Jvm
from cpreplicate.storage.keytab import Keytab

_FILE_SYSTEM = "org.apache.hadoop.fs.FileSystem"
_USERS = "org.apache.hadoop.security.UserGroupInformation"
_INVOKE = "java.lang.invoke"
# Seconds between two looks at a ticket. Hadoop gets a new one when four fifths of its life are over
_LOOK = 10.0


class Login:
    """The principal of a keytab in the JVM, and its ticket."""

    def __init__(self, jvm: Jvm, keytab: Keytab) -> None:
        """`UserGroupInformation` was configured for Kerberos before."""
        self._jvm = jvm
        self._user = jvm.static(
            _USERS, "loginUserFromKeytabAndReturnUGI", keytab.principal, keytab.path
        )
        self._looked = time.monotonic()

    def file_system(self, uri: Any, conf: Any) -> Any:
        """Return a new `FileSystem` of this user."""
        return self._jvm.call(self._user, "doAs", _opening(self._jvm, uri, conf))

    def renew(self) -> None:
        """Get a new ticket from the keytab if the one at hand is old."""
        if time.monotonic() - self._looked >= _LOOK:
            self._looked = time.monotonic()
            self._jvm.call(self._user, "checkTGTAndReloginFromKeytab")


def log_in_again_if_needed(jvm: Jvm) -> None:
    """Have the JVM read its ticket and its tokens again if it had no ticket before."""
    user = jvm.static(_USERS, "getLoginUser")
    if not jvm.call(user, "hasKerberosCredentials"):
        jvm.static(_USERS, "loginUserFromSubject", None)


def _opening(jvm: Jvm, uri: Any, conf: Any) -> Any:
    """Return a `PrivilegedExceptionAction` that calls `FileSystem.newInstance(uri, conf)`.

    It is made of that method, because no class of Hadoop is one.
    """
    file_system = _class(jvm, _FILE_SYSTEM)
    parameters = jvm.array("java.lang.Class", 1)
    parameters[0] = _class(jvm, "org.apache.hadoop.conf.Configuration")
    kind = jvm.static(
        f"{_INVOKE}.MethodType", "methodType", file_system, _class(jvm, "java.net.URI"), parameters
    )
    lookup = jvm.static(f"{_INVOKE}.MethodHandles", "publicLookup")
    method = jvm.call(lookup, "findStatic", file_system, "newInstance", kind)
    arguments = jvm.array("java.lang.Object", 2)
    arguments[0], arguments[1] = uri, conf
    bound = jvm.static(f"{_INVOKE}.MethodHandles", "insertArguments", method, 0, arguments)
    action = _class(jvm, "java.security.PrivilegedExceptionAction")
    return jvm.static(f"{_INVOKE}.MethodHandleProxies", "asInterfaceInstance", action, bound)


def _class(jvm: Jvm, name: str) -> Any:
    return jvm.static("java.lang.Class", "forName", name)
