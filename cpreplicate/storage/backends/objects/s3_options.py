"""The options of S3, by our names and those of Hadoop and Flink, and what each sets in s3fs.

A property of `fs.s3a.` that decides where objects are, who asks for them or how they are stored has
an effect or is refused by name. The others are about how Hadoop's client works, such as its threads
and buffers.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from cpreplicate.errors import UsageError

ENCRYPTION, ENCRYPTION_KEY = "encryption", "encryption_key"
ADDRESSING = "addressing_style"
PAYER = "requester_pays"
REQUEST_CHECKSUM = "request_checksum_calculation"
RESPONSE_CHECKSUM = "response_checksum_validation"
ADDITIONAL = "s3_additional_kwargs"
OWN = (ENCRYPTION, ENCRYPTION_KEY, ADDRESSING, PAYER, REQUEST_CHECKSUM, RESPONSE_CHECKSUM)
"""The options that are not parameters of s3fs, with `requester_pays`."""

_ENCRYPTIONS = {  # by the names of Hadoop, and what S3 calls them
    "SSE-S3": "AES256",
    "SSE-KMS": "aws:kms",
    "DSSE-KMS": "aws:kms:dsse",
    "SSE-C": None,
}
_STYLES = ("path", "virtual", "auto")
_MODES = ("when_supported", "when_required")
_KEY_BYTES = 32
_A3 = "fs.s3a."
_HADOOP = {
    "access.key": "key",
    "secret.key": "secret",
    "session.token": "token",
    "endpoint": "endpoint_url",
    "endpoint.region": "region",
    "encryption.algorithm": ENCRYPTION,
    "encryption.key": ENCRYPTION_KEY,
    "server-side-encryption-algorithm": ENCRYPTION,  # the names before Hadoop 3.3.2
    "server-side-encryption.key": ENCRYPTION_KEY,
    "requester.pays.enabled": PAYER,
}
_STYLE, _SSL, _PROVIDER = (
    "path.style.access",
    "connection.ssl.enabled",
    "aws.credentials.provider",
)
_BY_KWARGS = "Give what it means as the option s3_additional_kwargs, such as"
_REFUSED = {  # what they mean instead
    "encryption.context": f'{_BY_KWARGS} {{"SSEKMSEncryptionContext": "…"}}',
    "acl.default": f'{_BY_KWARGS} {{"ACL": "bucket-owner-full-control"}}',
    "create.storage.class": f'{_BY_KWARGS} {{"StorageClass": "STANDARD_IA"}}',
    "proxy.host": "Set the variable HTTPS_PROXY, here and on every executor",
    "security.credential.provider.path": "Give the options key and secret in the file of options",
    "assumed.role.arn": "Name the role in a profile of ~/.aws/config, and set AWS_PROFILE",
    "accesspoint.arn": "Give the ARN of the access point in place of the bucket's name",
    "endpoint.fips": "Give the address as endpoint_url",
    "signing-algorithm": "S3 is asked with signatures of version 4",
    "s3.signing-algorithm": "S3 is asked with signatures of version 4",
}
_PROVIDERS = (  # botocore looks in the same places
    "SimpleAWSCredentialsProvider",
    "TemporaryAWSCredentialsProvider",
    "EnvironmentVariableCredentialsProvider",
    "SystemPropertyCredentialsProvider",
    "ProfileCredentialsProvider",
    "ProfileAWSCredentialsProvider",
    "WebIdentityTokenCredentialsProvider",
    "WebIdentityTokenFileCredentialsProvider",
    "IAMInstanceCredentialsProvider",
    "InstanceProfileCredentialsProvider",
    "EC2ContainerCredentialsProviderWrapper",
    "ContainerCredentialsProvider",
    "DefaultAWSCredentialsProviderChain",
    "DefaultCredentialsProvider",
)
_ANONYMOUS = ("AnonymousAWSCredentialsProvider", "AnonymousCredentialsProvider")
_NEAR = 0.9  # of a name that is most likely misspelled


def own_options(options: Mapping[str, str], bucket: str) -> dict[str, str]:
    """Return the options of a bucket by our names. Raises `UsageError`."""
    own = {name: value for name, value in options.items() if "." not in name}
    properties = _of_hadoop(options, bucket)
    for name, value in properties.items():
        if name in _HADOOP:
            own[_HADOOP[name]] = value
        else:
            _refuse(name, value)
    if _STYLE in properties:
        own[ADDRESSING] = "path" if _is_true(_STYLE, properties[_STYLE]) else "virtual"
    if _SSL in properties and not _is_true(_SSL, properties[_SSL]):
        own["use_ssl"] = "false"
    if _PROVIDER in properties and "key" not in own:
        own |= _by_provider(properties[_PROVIDER])
    return _with_scheme(own)


def described(own: Mapping[str, str]) -> str:
    """Return the options that decide how objects are stored and asked for, without secrets."""
    shown = [name for name in (*OWN, "use_ssl", ADDITIONAL) if name in own]
    return ", ".join(
        f"{name} {'***' if name == ENCRYPTION_KEY else own[name]}".replace("_", " ")
        for name in shown
    )


def arguments(own: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what botocore's configuration and what each request gets by the options of `OWN`.

    Raises `UsageError`.
    """
    config: dict[str, Any] = {}
    if ADDRESSING in own:
        config["s3"] = {"addressing_style": _one_of(ADDRESSING, own[ADDRESSING], _STYLES)}
    for name in (REQUEST_CHECKSUM, RESPONSE_CHECKSUM):
        if name in own:
            config[name] = _one_of(name, own[name], _MODES)
    requests = {**_additional(own), **_encrypted(own)}
    if own.get(PAYER, "").lower() == "true":
        requests["RequestPayer"] = "requester"
    return config, requests


def of_obstore(own: Mapping[str, str]) -> dict[str, Any] | None:
    """Return what obstore takes for the options of `OWN`, None if it cannot do the same."""
    if own.get(ADDRESSING, "path") != "path" or own.get(REQUEST_CHECKSUM) == _MODES[0]:
        return None
    config: dict[str, Any] = {}
    if own.get(PAYER, "").lower() == "true":
        config["request_payer"] = True
    if ENCRYPTION in own:
        name = encryption(own)
        config["server_side_encryption"] = _ENCRYPTIONS[name] or "sse-c"
        if ENCRYPTION_KEY in own:
            is_customers = _ENCRYPTIONS[name] is None
            field = "sse_customer_key_base64" if is_customers else "sse_kms_key_id"
            config[field] = own[ENCRYPTION_KEY]
    return config


def encryption(own: Mapping[str, str]) -> str:
    """Return how objects are encrypted, by Hadoop's name. Raises `UsageError`."""
    given = own[ENCRYPTION].strip()
    by_value = {value.lower(): name for name, value in _ENCRYPTIONS.items() if value}
    name = by_value.get(given.lower(), given.upper())
    if name not in _ENCRYPTIONS:
        raise UsageError(
            f"the option {ENCRYPTION} of a storage (fs.s3a.encryption.algorithm) is {given!r}:"
            f" {', '.join(_ENCRYPTIONS)} are supported. Nothing is encrypted by cpreplicate itself"
        )
    return name


def _encrypted(own: Mapping[str, str]) -> dict[str, Any]:
    key = own.get(ENCRYPTION_KEY)
    if ENCRYPTION not in own:
        if key:
            raise UsageError(f"{ENCRYPTION_KEY} of a storage is given without {ENCRYPTION}")
        return {}
    name = encryption(own)
    if name == "SSE-C":
        customer = _customer_key(key)
        return {
            f"{prefix}SSECustomer{field}": value
            for prefix in ("", "CopySource")
            for field, value in (("Algorithm", "AES256"), ("Key", customer))
        }
    if name == "SSE-S3" and key:
        raise UsageError(f"{ENCRYPTION_KEY} of a storage has no effect with {ENCRYPTION} SSE-S3")
    by_key = {"SSEKMSKeyId": key} if key else {}
    return {"ServerSideEncryption": _ENCRYPTIONS[name], **by_key}


def _customer_key(key: str | None) -> bytes:
    try:
        decoded = base64.b64decode(key or "", validate=True)
    except binascii.Error:
        decoded = b""
    if len(decoded) != _KEY_BYTES:
        raise UsageError(
            f"{ENCRYPTION} SSE-C of a storage needs {ENCRYPTION_KEY}: {_KEY_BYTES} bytes in base64"
        )
    return decoded


def _additional(own: Mapping[str, str]) -> dict[str, Any]:
    """Return what is given as JSON for each request."""
    if ADDITIONAL not in own:
        return {}
    try:
        given = json.loads(own[ADDITIONAL])
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise UsageError(
            f"the option {ADDITIONAL} of a storage must be a JSON object, such as"
            ' {"StorageClass": "STANDARD_IA"}'
        )
    return given


def _of_hadoop(options: Mapping[str, str], bucket: str) -> dict[str, str]:
    """Return the properties of s3a for a bucket, without their prefix; an empty one sets nothing.

    Flink takes them with `s3.` and `s3a.`, too. Those of the bucket win.
    """
    found: dict[str, str] = {}
    for prefix in ("s3.", "s3a.", _A3, f"{_A3}bucket.{bucket}."):
        for name, value in options.items():
            if name.startswith(prefix):
                found[_spelled(name.removeprefix(prefix))] = value.strip()
    return {name: value for name, value in found.items() if value}


def _spelled(name: str) -> str:
    """Return Hadoop's spelling of a name that Flink's documentation has with hyphens."""
    dotted = name.replace("-", ".")
    return dotted if dotted in (*_HADOOP, _STYLE) else name


def _refuse(name: str, value: str) -> None:
    """Raise `UsageError` for a property that would have no effect, but decides what is stored."""
    if name in _REFUSED and value.lower() != "false":
        raise UsageError(f"{_A3}{name} has no effect here. {_REFUSED[name]}")
    known = [*_HADOOP, *_REFUSED, _STYLE, _SSL, _PROVIDER]
    near = difflib.get_close_matches(name, known, 1, _NEAR)
    if name in known or not (near or name.startswith(("encryption.", "server-side-encryption"))):
        return
    hint = f". Did you mean {_A3}{near[0]}?" if near else ""
    raise UsageError(f"{_A3}{name} has no effect here{hint}")


def _by_provider(value: str) -> dict[str, str]:
    """Return the options for classes of credentials that botocore has, too."""
    classes = [each.strip().rpartition(".")[2] for each in value.split(",") if each.strip()]
    if classes and all(each in _ANONYMOUS for each in classes):
        return {"anon": "true"}
    unknown = [each for each in classes if each not in (*_PROVIDERS, *_ANONYMOUS)]
    if unknown:
        raise UsageError(
            f"{_A3}{_PROVIDER} names {unknown[0]}, a class of Java that has no effect here. Give"
            " the options key and secret, or let botocore find a profile or a role"
        )
    return {}


def _with_scheme(own: dict[str, str]) -> dict[str, str]:
    """Return the options with an endpoint that has a scheme."""
    endpoint = own.get("endpoint_url")
    if endpoint is None:
        return own
    is_plain = own.get("use_ssl", "").lower() == "false"
    if "://" not in endpoint:
        endpoint = f"{'http' if is_plain else 'https'}://{endpoint}"
    # the scheme decides, of which `use_ssl` was a part
    return {k: v for k, v in own.items() if k != "use_ssl"} | {"endpoint_url": endpoint}


def has_checksums_in_headers(own: Mapping[str, str]) -> bool:
    """Return whether puts carry their checksum in front, and not behind the content.

    By HTTPS botocore sends it behind, which many services refuse that are not Amazon's.
    """
    parts = urlsplit(own.get("endpoint_url", ""))
    is_amazons = (parts.hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn"))
    return parts.scheme == "https" and not is_amazons and REQUEST_CHECKSUM not in own


def _is_true(name: str, value: str) -> bool:
    return _one_of(f"{_A3}{name}", value, ("true", "false")) == "true"


def _one_of(name: str, value: str, values: tuple[str, ...]) -> str:
    if value.lower() not in values:
        raise UsageError(f"the option {name} of a storage must be {' or '.join(values)}")
    return value.lower()
