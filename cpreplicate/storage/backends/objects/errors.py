"""The exceptions of fsspec's classes, and what `Storage` raises for them."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from typing import Any, NamedTuple

from cpreplicate.errors import Refused, UsageError
from cpreplicate.storage.base import NoAnswer, NoBucket, Transient

_SILENT = ("ReadTimeoutError", "ConnectTimeoutError", "TimeoutError", "FSTimeoutError")
_SILENT_OF_AZURE = ("ServiceResponseTimeoutError", "ServiceRequestTimeoutError")
_PERMANENT = (
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
)
_NEVER_SENT = "ParamValidationError"  # of botocore: no service could have such a bucket
_TAKEN = (
    "PreconditionFailed",
    "ConditionalRequestConflict",
    "FileAlreadyExists",
    "BlobAlreadyExists",
    "ConditionNotMet",
)
_NO_BUCKET = (
    "NoSuchBucket",
    "ContainerNotFound",
    "The specified bucket does not exist",
    "No such container",
)
# of versitygw, which answers 404 for a key that it does not know
_UNKNOWN_KEY = ("XAdminUserNotFound", "InvalidAccessKeyId")
# classes of the libraries for credentials that no further try makes better
_CREDENTIALS = (
    "Credentials",
    "CredentialUnavailable",
    "ClientAuthenticationError",
    "RefreshError",
    "MalformedError",
)
_TOO_MANY = ("rateLimitExceeded", "RateLimitExceeded")  # Google answers 403 for it
NO_UPLOAD = "NoSuchUpload"  # a multipart upload that was aborted: the file begins anew
_DENIED, _NOT_FOUND = (401, 403), 404
# Of these statuses the request itself is wrong, but for the codes below.
_WRONG = (301, 307, 400, 405, 411, 413, 414, 501)
_CUT = ("RequestTimeout", "IncompleteBody", "BadDigest", "InvalidDigest", "Md5Mismatch")


class _Answer(NamedTuple):
    """The HTTP status and the code that a service answered, None where an exception has none."""

    status: int | None
    code: str | None


@contextlib.contextmanager
def translated_errors(uri: str, is_write: bool = False) -> Iterator[None]:
    """Translate the exceptions of fsspec's classes into those of `Storage`.

    A failure that is not known to last is `Transient`. If the block `is_write`, and creates an
    object, what is missing is its bucket.
    """
    try:
        yield
    # the last two are mistakes in this program
    except (Refused, UsageError, Transient, NoBucket, TypeError, AttributeError):
        raise
    # these classes let their client libraries' own exceptions through, which have no common root
    except Exception as error:
        has_name = isinstance(error, _PERMANENT) and error.filename is not None
        if has_name and not is_write and not _lacks_bucket(error):
            raise
        raise _translated(error, uri, is_write) from error


def code_of(error: Exception) -> str | None:
    """Return the code that the service answered, None where an exception has none."""
    return _answer(error).code


def _translated(error: Exception, uri: str, is_write: bool) -> Exception:
    """Return an error of a client's library as the one that the storage's verbs document."""
    text, answer = _text(error), _answer(error)
    whole = f"{error}{error.__cause__}{answer.code}"
    name = type(error).__name__
    if any(sign in whole for sign in _TAKEN):
        return FileExistsError(errno.EEXIST, "is there already", uri)
    if name == _NEVER_SENT:
        reason = str(error).partition("\n")[2].partition(": ")[0]
        return UsageError(f"{uri}: {reason or text}. Correct the URI")
    if answer.code == NO_UPLOAD:
        return Transient(errno.EIO, text, uri)
    if _is_denied(error, answer, whole):
        return PermissionError(errno.EACCES, f"the service refuses the credentials: {text}", uri)
    if _lacks_bucket(error) or (is_write and _is_missing(error, answer)):
        return NoBucket(errno.ENOENT, "the bucket does not exist", uri)
    if any(sign in name for sign in _CREDENTIALS):
        return PermissionError(errno.EACCES, f"no usable credentials: {text}", uri)
    if _is_missing(error, answer):
        return FileNotFoundError(errno.ENOENT, text, uri)
    if isinstance(error, _PERMANENT):
        return type(error)(error.errno or errno.EIO, text, uri)
    if name in (*_SILENT, *_SILENT_OF_AZURE):
        return NoAnswer(errno.ETIMEDOUT, f"no answer in time: {text}", uri)
    if answer.status in _WRONG and not any(sign in whole for sign in _CUT):
        return OSError(errno.EINVAL, f"the service refuses the request: {text}", uri)
    return Transient(errno.EIO, f"{name}: {text}", uri)


def _is_missing(error: Exception, answer: _Answer) -> bool:
    return isinstance(error, FileNotFoundError) or answer.status == _NOT_FOUND


def _lacks_bucket(error: BaseException | None) -> bool:
    """Return whether the service answered that there is no such bucket."""
    while error is not None:
        if any(sign in str(error) for sign in _NO_BUCKET):
            return True
        error = error.__cause__ or error.__context__  # adlfs raises without a cause
    return False


def _is_denied(error: Exception, answer: _Answer, whole: str) -> bool:
    """Return whether the service answered that these credentials may not do this."""
    is_denied = (
        isinstance(error, PermissionError)
        or answer.status in _DENIED
        or any(sign in whole for sign in _UNKNOWN_KEY)
        or str(error).startswith("Forbidden: ")  # of gcsfs
    )
    return is_denied and not any(sign in whole for sign in _TOO_MANY)


def _answer(error: BaseException | None) -> _Answer:
    """Return what the service answered, by an exception or its cause."""
    while error is not None:
        response: Any = getattr(error, "response", None)
        if isinstance(response, dict):  # botocore
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return _Answer(status, response.get("Error", {}).get("Code"))
        # aiohttp's own exceptions have a code, too: 400 for an answer that was cut
        name = "code" if type(error).__name__ == "HttpError" else "status_code"
        status = getattr(error, name, None)
        if status is not None and str(status).isdigit():  # azure; gcsfs
            code = getattr(error, "error_code", None)
            return _Answer(int(status), None if code is None else str(code))
        error = error.__cause__
    return _Answer(None, None)


def _text(error: BaseException) -> str:
    return (str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__)[:400]
