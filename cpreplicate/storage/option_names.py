"""Which options each storage has: a misspelled one is refused instead of being passed on.

Names with a dot are properties of Hadoop, which has thousands, and are not checked. A value can be
given as text only, so what a client library takes as an object is no option.
"""

from __future__ import annotations

import difflib
from collections.abc import Container, Iterable, Mapping

from cpreplicate.errors import UsageError
from cpreplicate.storage.backends.objects.clients import OPTIONS, PROTOCOLS, constructor_options
from cpreplicate.storage.waiting import deadlines

HDFS_SCHEMES = ("hdfs", "viewfs")
WEBHDFS_SCHEMES = ("webhdfs", "swebhdfs")
EVERY = {deadlines.OPTION}  # options that every storage has
_SHOWN = 12  # names in a message

_OF_WEBHDFS = ("user", "password", "token", "proxy_to", "session_cert")
NAMES: dict[str, frozenset[str]] = {
    **dict.fromkeys(("file", *HDFS_SCHEMES), frozenset()),
    **dict.fromkeys(WEBHDFS_SCHEMES, frozenset(_OF_WEBHDFS)),
    **{scheme: frozenset(OPTIONS[protocol]) for scheme, protocol in PROTOCOLS.items()},
}
"""The options of the storages of each scheme, but for those that only a client library knows."""


def accepted(
    filesystem: str, options: Mapping[str, str], general: Container[str]
) -> dict[str, str]:
    """Return the options that hold for a filesystem, without those for other storages of its side.

    `general` are the names of those that were given for all filesystems of the side. Raises
    `UsageError` for an option that no storage has, or that was given for this filesystem and that
    its storage does not have.
    """
    scheme = filesystem.partition(":")[0]
    unknown = unknown_options(scheme, options)
    for name in unknown:
        is_of_others = name in general and any(name in names for names in NAMES.values())
        if not is_of_others:
            raise UsageError(unknown_option(scheme, name))
    return {name: value for name, value in options.items() if name not in unknown}


def unknown_options(scheme: str, options: Iterable[str]) -> list[str]:
    """Return the options that the storages of a scheme do not have."""
    known = NAMES[scheme] | EVERY
    unknown = [name for name in options if "." not in name and name not in known]
    if unknown and PROTOCOLS.get(scheme) == "s3":  # which imports the client library
        known |= frozenset(constructor_options("s3"))
    return [name for name in unknown if name not in known]


def unknown_option(scheme: str, name: str, also: Iterable[str] = ()) -> str:
    """Return the message for an option that the storages of a scheme do not have.

    `also` are other names that it may be a misspelling of.
    """
    valid = sorted((NAMES[scheme] | EVERY).union(also))
    similar = difflib.get_close_matches(name, valid, 1)
    of_others = difflib.get_close_matches(name, sorted(set().union(*NAMES.values())), 1, 0.8)
    if similar:
        hint = f"Did you mean {similar[0]!r}?"
    elif of_others:
        hint = f"Other storages have {of_others[0]!r}"
    elif valid:
        hint = f"It has {', '.join(valid[:_SHOWN])}, and Hadoop's properties, which have dots"
    else:
        hint = "It has no options but Hadoop's properties, which have dots"
    return f"unknown option {name!r} of the storages of {scheme}. {hint}"
