"""Translate the exceptions of hdfs-native into those of `Storage`."""

from __future__ import annotations

import errno
import functools
import re
from collections.abc import Mapping, Sequence
from types import TracebackType

from cpreplicate.storage.backends.hdfs.damage import Arrivals
from cpreplicate.storage.backends.hdfs.errors import Unread, translated
from cpreplicate.storage.backends.hdfs.kerberos_errors import hint_about, raised_for_kerberos
from cpreplicate.storage.backends.native.sasl_methods import methods_of
from cpreplicate.storage.base import NoAnswer, Transient

_RPC_ERROR = re.compile(r'(?:Fatal)?RPCError\("([^"]*)", "(.*)"\)', re.DOTALL)
_MAY_PASS = (
    "DataTransferError",
    "ChecksumError",
    "BlocksNotFound",
    "ErasureCodingError",
    "InternalError",
    "OperationFailed",
    "InvalidRPCResponse",
)
_ENCRYPTED = "in an HDFS encryption zone"
_NODES = re.compile(r":? ?\[DatanodeInfoProto.*", re.DOTALL)
_NODE = re.compile(
    r'ip_addr: \\?"([^"\\]*)\\?", host_name: \\?"([^"\\]*)\\?".*?xfer_port: (\d+)', re.DOTALL
)
_ALL_FAILED = 'DataTransferError("All DataNodes failed'
_BY_NAME = "dfs.client.use.datanode.hostname"
_NO_DATANODE = "the NameNode knows no DataNode that has a block of it"
_SECURITY = ("SASLError", "GSSAPIError", "NoSASLMechanism")
_NO_LIBRARY = "Failed to load libgssapi"
_GSS_TEXT = re.compile(r'"([^"]*)"\)$')
_AUTHENTICATION = "hadoop.security.authentication"


class NativeErrors:
    """The errors of a client: what they mean depends on how it is configured."""

    def __init__(
        self,
        options: Mapping[str, str],
        namenodes: Sequence[str],
        arrivals: Arrivals | None = None,
    ) -> None:
        self._is_secure = options.get(_AUTHENTICATION) == "kerberos"
        self._options, self._namenodes = options, namenodes
        self._arrivals = arrivals

    def at(self, uri: str) -> ErrorsAt:
        """Return a context that translates the exceptions of calls about a URI."""
        return ErrorsAt(self, uri)

    def translated(self, error: BaseException, uri: str) -> OSError | None:
        """Return what is raised in place of an exception; None if it is raised as it is."""
        if isinstance(error, (FileNotFoundError, FileExistsError, IsADirectoryError)):
            return type(error)(error.errno or errno.ENOENT, str(error), uri)
        if isinstance(error, NotImplementedError) or _ENCRYPTED in str(error):
            return OSError(
                errno.ENOTSUP,
                f"hdfs-native cannot do this ({error}). Use --hdfs-client hadoop",
                uri,
            )
        if isinstance(error, NoAnswer):
            return NoAnswer(error.errno, error.strerror, uri)
        if isinstance(error, OSError):
            return None if error.filename is not None else self._lost(str(error), uri)
        return self._of_text(str(error), uri) if isinstance(error, RuntimeError) else None

    def _lost(self, text: str, uri: str) -> OSError:
        """A secure NameNode ends the connection of a client that does not authenticate."""
        if not self._is_secure and self._demand_kerberos():
            return raised_for_kerberos("SIMPLE authentication is not enabled", uri)
        return Transient(errno.EIO, text + hint_about(text, self._options), uri)

    def _demand_kerberos(self) -> bool:
        names = [{each.name for each in methods_of(address)} for address in self._namenodes]
        return any("KERBEROS" in each and "SIMPLE" not in each for each in names)

    def _of_text(self, text: str, uri: str) -> OSError:
        rpc = _RPC_ERROR.fullmatch(text)
        if rpc:
            return translated(rpc[1], rpc[2], uri)
        if text.startswith(_SECURITY) or _NO_LIBRARY in text:
            reason = _GSS_TEXT.search(text)
            return raised_for_kerberos(reason[1] if reason else text, uri)
        if text.startswith(_ALL_FAILED):
            return self._unread(text, uri)
        kind = Transient if text.startswith(_MAY_PASS) else OSError
        hint = hint_about(text, self._options)
        return kind(errno.EIO, _NODES.sub("", text)[:400] + hint, uri)

    def _unread(self, text: str, uri: str) -> Unread:
        """Return the error of a block that no DataNode returned.

        hdfs-native does not report what was wrong with each.
        """
        by_name = self._options.get(_BY_NAME) == "true"
        nodes = [(name if by_name else ip, int(port)) for ip, name, port in _NODE.findall(text)]
        named = ", ".join(f"{host}:{port}" for host, port in nodes)
        asked = f"no DataNode returned a block of it: {named}" if nodes else _NO_DATANODE
        error = Unread(errno.EIO, asked + hint_about(text, self._options), uri)
        if self._arrivals is not None:
            error.is_damaged = functools.partial(self._arrivals.prove_damage, uri, nodes)
        return error


class ErrorsAt:
    """A context that translates the exceptions of hdfs-native.

    It can be entered again. A generator as context would cost some percent of the CPU of a copy,
    because each packet of 64 KiB enters one.
    """

    def __init__(self, errors: NativeErrors, uri: str) -> None:
        self._errors, self._uri = errors, uri

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        translated = self._errors.translated(error, self._uri) if error is not None else None
        try:
            if translated is not None:
                raise translated from error
        finally:
            del translated  # its traceback refers to this frame: a cycle
