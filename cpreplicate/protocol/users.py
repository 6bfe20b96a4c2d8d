"""The name of the user who runs this process."""

from __future__ import annotations

import getpass
import os
import pwd


def user_name() -> str:
    """Return the user's name, or `uid-<n>` for a user id without a name, as OpenShift assigns them.

    `LOGNAME` and `USER` win over the passwd database, and that over `HADOOP_USER_NAME`.
    """
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # KeyError until Python 3.12, OSError since 3.13
        return os.environ.get("HADOOP_USER_NAME") or f"uid-{os.getuid()}"


def has_passwd_entry() -> bool:
    """Return whether the passwd database knows the user id.

    Hadoop's login in Spark's JVM fails without an entry.
    """
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return True
