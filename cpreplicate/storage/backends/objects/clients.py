"""The fsspec classes of object stores: their packages, their options, and clients made of them."""

from __future__ import annotations

import inspect
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, cast
from urllib.parse import urlsplit

from cpreplicate.errors import UsageError
from cpreplicate.storage.backends.objects import s3_options
from cpreplicate.storage.backends.objects.attempts import (
    CONNECT_SECONDS,
    bound,
    with_checksums_in_headers,
)

PROTOCOLS = {
    **dict.fromkeys(("s3", "s3a", "s3n", "s3p"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gs"),
    **dict.fromkeys(("abfs", "abfss"), "abfs"),
    "oss": "oss",
}
PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "abfs": "adlfs", "oss": "ossfs"}
_CONNECTION = "connection_string"
OPTIONS = {  # that are known without the class; the constructor of s3fs has more
    "s3": [
        "key",
        "secret",
        "token",
        "endpoint_url",
        "region",
        "anon",
        "use_ssl",
        s3_options.ADDITIONAL,
        *s3_options.OWN,
    ],
    "gs": ["token", "project", "requester_pays", "endpoint_url", "hierarchical"],
    "abfs": [
        "account_name",
        "account_key",
        "account_host",
        "sas_token",
        _CONNECTION,
        "tenant_id",
        "client_id",
        "client_secret",
        "anon",
    ],
    "oss": ["key", "secret", "token", "endpoint"],
}
# parameters of constructors that are no text, and those of s3fs that nothing here uses
_NO_OPTIONS = ("self", "asynchronous", "loop", "session", "credential")
_UNUSED = ("max_concurrency", "default_block_size", "default_fill_cache", "default_cache_type")
# of gs:, an option of this module
_HIERARCHICAL = "hierarchical"


def _filesystem_class(protocol: str) -> Any:
    import fsspec

    if protocol == "gs":
        # Else the class asks by gRPC whether each bucket is hierarchical, for up to a minute.
        os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    try:
        return fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        raise UsageError(
            f"{protocol}: needs `pip install {PACKAGES[protocol]}`, here and on every executor"
        ) from error


def constructor_options(protocol: str) -> dict[str, Any]:
    """Return the parameters of the constructor of a protocol's class that are given as text.

    They are name to default. Raises `UsageError` if the package of the class is not installed.
    """
    own = [each for each in _filesystem_class(protocol).__mro__ if each.__module__[:7] != "fsspec."]
    found: dict[str, Any] = {}
    for each in reversed(own[:-1]):  # the last is `object`
        for name, parameter in inspect.signature(each.__init__).parameters.items():
            is_named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            is_unused = protocol == "s3" and name in _UNUSED
            is_option = name not in _NO_OPTIONS and not name.endswith("_kwargs")
            if is_named and is_option and not is_unused:
                found[name] = parameter.default
    return found | ({_HIERARCHICAL: False} if protocol == "gs" else {})


def own_options(protocol: str, options: Mapping[str, str], authority: str) -> dict[str, str]:
    """Return the options that are for a class, by its names, of those of a storage.

    `authority` is that of its URIs: a bucket, or a container and its account. Raises `UsageError`.
    """
    if protocol == "s3":
        return s3_options.own_options(options, authority.partition("@")[0])
    own = {key: value for key, value in options.items() if "." not in key}
    if protocol == "abfs":
        return _of_azure(own, authority)
    pays = own.get("requester_pays", "false").lower() != "false"
    if protocol == "gs" and "project" in own and not pays:
        raise UsageError("gs: the option project has no effect without requester_pays=true")
    return own


def _of_azure(own: Mapping[str, str], authority: str) -> dict[str, str]:
    """Return the options of a container, whose account may be in its URI, as Flink writes it."""
    if _CONNECTION in own:
        for other in sorted(own.keys() & set(OPTIONS["abfs"]) - {_CONNECTION}):
            raise UsageError(f"abfs: the option {other} has no effect beside {_CONNECTION}")
    written = authority.partition("@")[2].lower().replace(".dfs.", ".blob.", 1)
    if not written:
        return dict(own)
    account, is_whole = written.partition(".")[0], "." in written
    if not own.keys() & {_CONNECTION, "account_name", "account_host"}:
        return {"account_name": account, **own} | ({"account_host": written} if is_whole else {})
    reached = _blob_server(own)
    of_account = account in (reached.partition(".")[0], reached.rpartition("/")[2])
    if not of_account or (is_whole and "account_host" not in own and reached != written):
        raise UsageError(
            f"abfs://{authority}: the options lead to another account, {reached}. Give those of"
            f' {account} under [storage."abfs://{authority}"], and none of an account for the whole'
            " side, which win over them"
        )
    return {"account_name": account, **own} if _CONNECTION not in own else dict(own)


def _blob_server(own: Mapping[str, str]) -> str:
    """Return the address of the Blob service that options lead to, empty if they name none."""
    parts = own.get(_CONNECTION, "").split(";")
    text = {
        name.strip().lower(): value for name, _, value in (each.partition("=") for each in parts)
    }
    if "blobendpoint" in text:
        endpoint = urlsplit(text["blobendpoint"])
        return f"{endpoint.netloc}{endpoint.path}".rstrip("/").lower()
    name = text.get("accountname") or own.get("account_name", "")
    suffix = text.get("endpointsuffix", "core.windows.net")
    return (own.get("account_host") or (name and f"{name}.blob.{suffix}")).lower()


def account_of(authority: str, options: Mapping[str, str]) -> str:
    """Return the address of the account of Azure that has a container, empty if it is not known.

    Raises `UsageError`.
    """
    return _blob_server(own_options("abfs", options, authority))


def _refuse_environment(own: Mapping[str, str]) -> None:
    """Raise `UsageError` for a variable by which adlfs would reach another account.

    It would decide for both sides, or on one executor.
    """
    for option in (_CONNECTION, "account_name"):
        variable = f"AZURE_STORAGE_{option.upper()}"
        if not own.keys() & {_CONNECTION, option} and os.environ.get(variable):
            raise UsageError(
                f"abfs: {variable} is set, which would decide for every account. Unset it on"
                f" {socket.gethostname()}, and give the option {option} instead"
            )


def client(protocol: str, own: Mapping[str, str], deadline: float) -> Any:
    """Return the fsspec object of a protocol, whose calls end at a deadline in seconds.

    `own` are its options as `own_options` returns them. Raises `UsageError`.
    """
    cls = _filesystem_class(protocol)
    defaults = constructor_options(protocol)
    given = {
        name: _typed(name, value, defaults.get(name))
        for name, value in own.items()
        if protocol != "s3" or name not in (s3_options.ADDITIONAL, *s3_options.OWN)
    }
    if protocol == "s3":
        is_known = given.keys() <= {"region", *defaults}  # s3fs gives any other to its session
        session = {"session": _session()} if is_known else {}
        given = _s3_options(given, own, deadline) | session
    if protocol == "abfs":
        _refuse_environment(own)
    if protocol == "gs" and given.pop(_HIERARCHICAL, False):
        cls = _hierarchical_class()
    try:
        filesystem = cls(skip_instance_cache=True, use_listings_cache=False, **given)
    except (ValueError, OSError) as error:  # of gcsfs and adlfs: what cannot be credentials
        reason = str(error).partition("\n")[0]
        raise UsageError(
            f"{protocol}: the options of the storage do not suffice: {reason}"
        ) from error
    bound(filesystem, protocol, deadline)
    if protocol == "s3" and s3_options.has_checksums_in_headers(own):
        with_checksums_in_headers(filesystem)
    if protocol == "abfs":
        # adlfs reads a path as a URL: `a?b#c` became `a#c?b`. All paths here are literal.
        filesystem._strip_protocol = lambda path: path
    return filesystem


def _hierarchical_class() -> Any:
    from gcsfs.extended_gcsfs import ExtendedGcsFileSystem

    return ExtendedGcsFileSystem


def _typed(name: str, value: str, default: Any) -> Any:
    """Return the value of an option in the type of its default. Raises `UsageError`.

    "false" as text would count as true.
    """
    if isinstance(default, bool):
        if value.lower() not in ("true", "false"):
            raise UsageError(f"the option {name} of a storage must be true or false")
        return value.lower() == "true"
    return value


def _s3_options(given: dict[str, Any], own: Mapping[str, str], deadline: float) -> dict[str, Any]:
    """Return the arguments of s3fs for the options that were given. It makes no retries."""
    region = given.pop("region", None)
    endpoint = given.get("endpoint_url")
    if endpoint is not None and not _is_server(endpoint):
        raise UsageError(
            "the option endpoint_url of a storage is no URL of a server: write it as in"
            " https://s3.example.com:9000"
        )
    if region is not None:
        given["client_kwargs"] = {"region_name": region}
    config, given[s3_options.ADDITIONAL] = s3_options.arguments(own)
    # `Retrying` retries
    given["config_kwargs"] = config | {
        "retries": {"max_attempts": 0},
        "connect_timeout": min(CONNECT_SECONDS, deadline),
        "read_timeout": deadline,
    }
    return given


def _session() -> Any:
    """Return a session as s3fs makes one, that reads the times of listings by `moment`.

    botocore takes more CPU for the time of an object than for all else that a listing has of it.
    """
    from aiobotocore.session import AioSession

    session = AioSession()
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=moment)
    return session


def moment(text: Any) -> datetime:
    """Return the time that a service wrote as text or number, as botocore does."""
    with suppress(TypeError, AttributeError, ValueError):
        if text.endswith("Z"):
            return datetime.fromisoformat(f"{text[:-1]}+00:00")
    from botocore.utils import parse_timestamp

    return cast(datetime, parse_timestamp(text))


def _is_server(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port that is none
        return False
