"""The exceptions of fsspec's classes, and what `Storage` raises for them."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from cpreplicate.errors import Refused, UsageError
from cpreplicate.storage.base import NoAnswer, Transient

_SILENT = ("ReadTimeoutError", "ConnectTimeoutError", "TimeoutError", "FSTimeoutError")
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


@contextlib.contextmanager
def translated_errors(uri: str) -> Iterator[None]:
    """Translate the exceptions of fsspec's classes into those of `Storage`.

    A failure that is not known to last is `Transient`.
    """
    try:
        yield
    # the last two are mistakes in this program
    except (Refused, UsageError, Transient, TypeError, AttributeError):
        raise
    except _PERMANENT as error:
        if error.filename is not None:
            raise
        raise type(error)(error.errno or errno.EIO, _text(error), uri) from error
    # these classes let their client libraries' own exceptions through, which have no common root
    except Exception as error:
        if any(sign in f"{error}{error.__cause__}" for sign in _TAKEN):
            raise FileExistsError(errno.EEXIST, "is there already", uri) from error
        if type(error).__name__ == _NEVER_SENT:
            reason = str(error).partition("\n")[2].partition(": ")[0]
            raise UsageError(f"{uri}: {reason or _text(error)}. Correct the URI") from error
        if "Credentials" in type(error).__name__:
            raise PermissionError(
                errno.EACCES, f"no usable credentials: {_text(error)}", uri
            ) from error
        if type(error).__name__ in _SILENT:
            raise NoAnswer(errno.ETIMEDOUT, f"no answer in time: {_text(error)}", uri) from error
        raise Transient(errno.EIO, f"{type(error).__name__}: {_text(error)}", uri) from error


def _text(error: BaseException) -> str:
    return (str(error).partition("\n")[0] or type(error).__name__)[:400]
