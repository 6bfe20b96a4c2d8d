"""The result of `verify`, and that of the verification in `promote`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from cpreplicate.core import uri
from cpreplicate.core.placement import is_derived
from cpreplicate.core.sizes import counted, size
from cpreplicate.operations.verify.verify import Verification, Verifications
from cpreplicate.output.json import array, document, timestamp
from cpreplicate.output.log import is_verbose
from cpreplicate.output.results import Forms
from cpreplicate.output.text import columns, lines

_SHOWN_FAULTS = 20  # of each kind


def _text(verifications: Verifications) -> str:
    return "\n\n".join(map(text_of, verifications.checkpoints))


def text_of(result: Verification) -> str:
    """Return whether a replica can be restored, and what is wrong if not."""
    what = "presence, extents, locations" if is_verbose() else "names and lengths"
    if result.content:
        content = f", content of {counted(result.compared, 'file')} (CRC32C)"
    else:
        content = "; not the content (--content)"
    facts = [
        ("replica", result.replica),
        (
            "checkpoint",
            f"{title_of(result)}, {counted(result.files, 'file')}, {size(result.bytes)}",
        ),
        ("checked", f"{what}{content}"),
        ("restorable", "yes" if result.restorable else "NO"),
    ]
    faults = [
        *_first("missing", result.missing),
        *_first("short", result.short),
        *_first("corrupt", result.corrupt),
        *_first("outside the replica", result.outside),
        *_first("not compared, no CRC32C was recorded", result.uncompared),
    ]
    if result.outside:
        faults.append(
            "If the replica was moved by other means than cpreplicate, repair its paths with"
            " `cpreplicate relocate`"
        )
    if result.repair is not None:
        faults.append(f"Repair the replica with the options of its syncs: {result.repair}")
    elif is_derived(result.checkpoint) and not (result.restorable or result.outside):
        faults.append(
            f"No sync repairs {result.checkpoint}, which is derived: no other checkpoint here has"
            f" these files. If no job needs it, remove it: {_forgetting(result)}"
        )
    if result.refused is not None:
        faults.append(f"warning: promote would refuse the replica: {result.refused}")
    return columns(facts) + ("\n" + lines(faults) if faults else "")


def _forgetting(result: Verification) -> str:
    name = uri.name(result.checkpoint)
    return shlex.join(["cpreplicate", "rebase", result.replica, "--forget", name])


def title_of(result: Verification) -> str:
    """Return the name of a checkpoint, and whether `rebase` derived it."""
    return f"{result.checkpoint}{' (derived)' if is_derived(result.checkpoint) else ''}"


def _first(fault: str, paths: Sequence[str]) -> list[str]:
    shown = [f"{fault}: {path}" for path in paths[:_SHOWN_FAULTS]]
    hidden = len(paths) - len(shown)
    return [*shown, f"{fault}: … {hidden} more, see --output json"] if hidden else shown


def _documents(verifications: Verifications) -> Iterator[str]:
    return (document(fields(verification)) for verification in verifications.checkpoints)


def _json(verifications: Verifications) -> str:
    """Return an object for one checkpoint, an array for several."""
    documents = list(_documents(verifications))
    return array(documents) if len(documents) > 1 else "".join(documents)


def _ndjson(verifications: Verifications) -> str:
    return "\n".join(_documents(verifications))


def fields(verification: Verification) -> dict[str, Any]:
    """Return the fields of a verification in JSON."""
    result = asdict(verification)
    del result["metadata"]
    return {
        "replica": result.pop("replica"),
        "checkpoint_id": result.pop("checkpoint_id"),
        "derived": is_derived(verification.checkpoint),
        "checkpoint_completed": timestamp(result.pop("completed")),
        "restorable": verification.restorable,
        **result,
    }


def _when_quiet(verifications: Verifications) -> tuple[str, ...] | None:
    is_shown = any(
        each.refused is not None or not each.restorable for each in verifications.checkpoints
    )
    return None if is_shown else ()


FORMS = Forms(_text, _json, _ndjson, when_quiet=_when_quiet)
