"""Whether the configuration of a side and its NameNodes agree about Kerberos."""

from __future__ import annotations

from cpreplicate.core import uri
from cpreplicate.operations.doctor.case import CaseSide
from cpreplicate.operations.doctor.findings import Result, failure, warning
from cpreplicate.storage import NotAuthenticated
from cpreplicate.storage.backends.hdfs.kerberos_errors import no_such_server
from cpreplicate.storage.backends.native.sasl_methods import methods_of

_AUTHENTICATION = "hadoop.security.authentication"
_PRINCIPAL = "dfs.namenode.kerberos.principal"
_UNREACHABLE = NotAuthenticated.exit_code


def disagreement(case_side: CaseSide, addresses: tuple[str, ...]) -> Result | None:
    """Return what a NameNode demands and the configuration lacks, None if nothing is known."""
    options = case_side.side.options_for(uri.filesystem(case_side.uri))
    is_secure = options.get(_AUTHENTICATION) == "kerberos"
    for address in addresses:
        servers = {method.name: method.server for method in methods_of(address)}
        if not is_secure and "KERBEROS" in servers and "SIMPLE" not in servers:
            return failure(
                f"{address} demands Kerberos, and the configuration does not have it",
                f"Set {_AUTHENTICATION}=kerberos in --{case_side.name}-conf",
                _UNREACHABLE,
            )
        if is_secure and "KERBEROS" in servers:
            other = _other_principal(options.get(_PRINCIPAL, ""), servers["KERBEROS"])
            if other is not None:
                return _of_principal(case_side, other)
    return None


def _other_principal(configured: str, server: str) -> str | None:
    """Return the message if a NameNode has another principal than the configured one.

    The host that `_HOST` stands for depends on the DNS of each client, so it is not compared.
    """
    expected = configured.partition("@")[0]
    primary, _, host = expected.partition("/")
    agree = server.partition("/")[0] == primary if host == "_HOST" else server == expected
    return None if agree or not expected else no_such_server(expected, server)


def _of_principal(case_side: CaseSide, text: str) -> Result:
    message, _, remedy = text.partition(". ")
    if case_side.side.hdfs_client == "hadoop":
        return failure(message, remedy, _UNREACHABLE)
    return warning(f"{message}. hdfs-native does not check it, Hadoop's client refuses it", remedy)
