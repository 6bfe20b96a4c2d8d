"""Fences of object stores: a late put or delete does not undo what another run did.

A run looks at its lease just before it publishes or withdraws. The tag of what it will replace or
delete is read before that. If another run took the lease over since, and changed the object, the
tag is another one, and the service refuses.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator

from cpreplicate.storage.backends.objects.conditions import Conditions
from cpreplicate.storage.backends.objects.errors import translated_errors
from cpreplicate.storage.base import NoBucket


def tag_of(conditions: Conditions, uri: str, path: str) -> str | None:
    """Return the tag of an object, None if there is none or the service has no conditions."""
    if not conditions.can_replace:
        return None
    try:
        with translated_errors(uri):
            return conditions.tag(path)
    except NoBucket:
        raise
    except FileNotFoundError:
        return None


def withdrawn(conditions: Conditions, uri: str, path: str, check: Callable[[], None]) -> bool:
    """Delete the object that was there before `check`; return False if there was none."""
    tag = tag_of(conditions, uri, path)
    check()
    if tag is None:
        return False
    with raised_if_overtaken(uri, check):
        try:
            _delete(conditions, uri, path, tag)
        except NoBucket:
            raise
        except FileNotFoundError:
            return False
    return True


def _delete(conditions: Conditions, uri: str, path: str, tag: str) -> None:
    try:
        with translated_errors(uri):
            conditions.delete(path, tag)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # a service of S3's kind that refuses a condition here, as AWS itself did until 2025
        with translated_errors(uri):
            conditions.delete(path, None)


@contextlib.contextmanager
def raised_if_overtaken(uri: str, check: Callable[[], None]) -> Iterator[None]:
    """Raise what `check` raises if the condition of the block is not met, else who is to blame."""
    try:
        yield
    except FileNotFoundError:  # of an upload whose condition is that of an object that is gone
        check()
        raise
    except FileExistsError as error:
        check()
        raise FileExistsError(
            errno.EEXIST, "another program replaced or removed it during the run", uri
        ) from error
