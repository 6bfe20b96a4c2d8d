"""What a failure of Kerberos means and what to change, by the texts of MIT's library and Java."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from cpreplicate.storage.base import NotAuthenticated, Transient

_OR_KEYTAB = "or give --source-keytab or --target-keytab"
_PRINCIPALS = re.compile(r"invalid Kerberos principal: ([^\s,\]]+), expecting: ([^\s,\]]+)")
_NAMED = re.compile(r"(?:Server|Client) '?([^\s']+@[^\s']+)'? not found")


class _Reason(NamedTuple):
    """`signs` in a text, what they mean, and what to do."""

    signs: tuple[str, ...]
    meaning: str
    remedy: str


_UNREACHED = ("Cannot contact any KDC", "(Mechanism level: Connection refused)", "ICMP Port")
_REASONS = (
    _Reason(
        ("Failed to load libgssapi",),
        "the library libgssapi_krb5.so.2 cannot be loaded",
        "Install libgssapi-krb5-2 (Debian, Ubuntu) or krb5-libs (RHEL), here and on every executor,"
        " or use --hdfs-client hadoop",
    ),
    _Reason(
        ("Ticket expired", "ticket expired", "Ticket not yet valid"),
        "the Kerberos ticket has expired",
        f"Run kinit again, {_OR_KEYTAB}",
    ),
    _Reason(
        ("Clock skew",),
        "the clocks of this host and of the KDC or the cluster differ by more than Kerberos allows",
        "Synchronise them with NTP",
    ),
    _Reason(
        ("Client '", "Client not found", "CLIENT_NOT_FOUND", "database (6)"),
        "the KDC does not know the user's principal",
        "Correct --source-principal or --target-principal",
    ),
    _Reason(
        ("not found in Kerberos database", "Server not found", "LOOKING_UP_SERVER"),
        "the KDC does not know the server's principal",
        "Correct the realm of the cluster's hosts under [domain_realm] of krb5.conf, or"
        " dfs.namenode.kerberos.principal",
    ),
    _Reason(
        ("Cannot find KDC", "Cannot locate KDC", "Cannot locate default realm"),
        "krb5.conf does not name a KDC of the realm",
        "Add it under [realms] of krb5.conf (KRB5_CONFIG; for Java JDK_JAVA_OPTIONS="
        "-Djava.security.krb5.conf=FILE)",
    ),
    _Reason(
        ("Preauthentication failed", "Checksum failed", "Pre-authentication information was"),
        "the key in the keytab is not that of the KDC",
        "Get a new keytab: the password or the keys of the principal were changed",
    ),
    _Reason(
        ("No rules applied to", "Illegal principal name"),
        "the principal has no user name by hadoop.security.auth_to_local",
        "Set that property as on the cluster, and for Java JDK_JAVA_OPTIONS="
        "-Djava.security.krb5.conf=FILE",
    ),
    _Reason(
        ("SIMPLE authentication is not enabled",),
        "the cluster uses Kerberos, and the configuration does not",
        "Set hadoop.security.authentication=kerberos in --source-conf or --target-conf",
    ),
    _Reason(
        ("Server asks us to fall back to SIMPLE auth",),
        "this cluster does not use Kerberos, and the client may use it without only if allowed",
        "Set ipc.client.fallback-to-simple-auth-allowed=true for both sides:"
        " --source-conf and --target-conf",
    ),
    _Reason(
        ("is not allowed to impersonate", "not authorized to impersonate"),
        "the cluster does not let this principal act for HADOOP_PROXY_USER or proxy_to",
        "Set hadoop.proxyuser.NAME.users and .hosts on the NameNode, or unset HADOOP_PROXY_USER or"
        " proxy_to",
    ),
    _Reason(
        ("Failed to obtain user group information",),
        "the HTTP server does not accept the delegation token or the user",
        "Correct the option token, user or proxy_to",
    ),
)
_NO_TICKET = (
    "No Kerberos credentials",
    "No credentials cache",
    "No valid credentials provided",
    "Failed to find any Kerberos",
    "Client cannot authenticate via",
    "GSS_S_NO_CRED",
)


_PROXY_USER = "HADOOP_PROXY_USER"
_NO_DATA = ("DataNodes", "No live nodes", "minReplication", "are bad")
_NO_PROTECTION = (
    "; if the DataNodes of this secure cluster run and can be reached, set"
    " dfs.data.transfer.protection as on the cluster"
)


def hint_about(text: str, options: Mapping[str, str]) -> str:
    """Return what to look at if a failure, which may pass, can be one of Kerberos; maybe nothing.

    A server that demands what a client does not do ends the connection, as one that goes down.
    """
    if options.get("hadoop.security.authentication") != "kerberos":
        return ""
    if any(sign in text for sign in _NO_DATA):
        return "" if "dfs.data.transfer.protection" in options else _NO_PROTECTION
    if "disconnected" in text and _PROXY_USER in os.environ:
        return (
            f"; if the NameNode runs, it does not let this principal act for {_PROXY_USER}: set"
            " hadoop.proxyuser.NAME.users and .hosts there, or unset the variable"
        )
    return ""


def raised_for_kerberos(text: str, uri: str) -> OSError:
    """Return what is raised for a failure to authenticate.

    It is `Transient` if the KDC could not be reached, else `NotAuthenticated`.
    """
    if any(sign in text for sign in _UNREACHED):
        where = "check [realms] of krb5.conf, the network and the KDC"
        return Transient(errno.EIO, f"no KDC can be reached; {where}", uri)
    return NotAuthenticated(errno.EACCES, _explained(text), uri)


def no_such_server(expected: str, found: str) -> str:
    """Return the message for a NameNode that has another principal than the configured one."""
    return (
        f"the NameNode's principal is {found}, and the configuration expects {expected}. Correct"
        " dfs.namenode.kerberos.principal, or the realm of the host under [domain_realm] of"
        " krb5.conf (KRB5_CONFIG; for Java JDK_JAVA_OPTIONS=-Djava.security.krb5.conf=FILE)"
    )


def _explained(text: str) -> str:
    """Return what a text of Kerberos means, and what helps."""
    principals = _PRINCIPALS.search(text)
    if principals:
        return no_such_server(expected=principals[2], found=principals[1])
    reason = next((each for each in _REASONS if any(sign in text for sign in each.signs)), None)
    if reason is not None:
        named = _NAMED.search(text)
        return f"{reason.meaning}{f' ({named[1]})' if named else ''}. {reason.remedy}"
    if any(sign in text for sign in _NO_TICKET):
        cache = os.environ.get("KRB5CCNAME", f"FILE:/tmp/krb5cc_{os.getuid()}")
        return (
            f"there is no valid Kerberos ticket in {cache}. Run kinit, set KRB5CCNAME, {_OR_KEYTAB}"
        )
    return f"{text[:300]}. See docs/kerberos.md"
