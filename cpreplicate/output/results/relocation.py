"""The result of `relocate`."""

from __future__ import annotations

from cpreplicate.core.sizes import counted, size
from cpreplicate.operations.upkeep.relocate import Relocation
from cpreplicate.operations.upkeep.unpack import Unpacked
from cpreplicate.output.json import document, timestamp
from cpreplicate.output.parts import restore_fields, restore_text, warning_lines
from cpreplicate.output.results import Forms
from cpreplicate.output.text import columns


def _text(relocation: Relocation) -> str:
    """Return what was done with each checkpoint, and how to restore the newest."""
    facts = [
        ("replica", relocation.replica),
        *(("moved from", location) for location in relocation.moved_from),
    ]
    if relocation.root != relocation.replica:
        facts.append(("for Flink at", relocation.root))
    if relocation.unpacked.files or relocation.unpacked.packs:
        facts.append(("unpacked", _unpacked(relocation.unpacked)))
    for checkpoint in relocation.checkpoints:
        outcome = "rewritten" if checkpoint.rewritten else "left as it is"
        facts.append((checkpoint.checkpoint, f"{outcome}; {checkpoint.paths}: {checkpoint.reason}"))
    newest = relocation.checkpoints[0]
    how = restore_text(newest.restore, f"restore {newest.checkpoint} with")
    return "\n\n".join([columns(facts), *warning_lines(relocation.warnings), how])


def _unpacked(unpacked: Unpacked) -> str:
    return (
        f"{counted(unpacked.files, 'file')}, {size(unpacked.bytes)};"
        f" {counted(unpacked.packs, 'pack')} deleted"
    )


def _json(relocation: Relocation) -> str:
    """Return the result of `relocate --output json`."""
    checkpoints = [
        {
            "checkpoint": checkpoint.checkpoint,
            "checkpoint_completed": timestamp(checkpoint.completed),
            "rewritten": checkpoint.rewritten,
            "paths": checkpoint.paths,
            "restore": restore_fields(checkpoint.restore),
        }
        for checkpoint in relocation.checkpoints
    ]
    return document(
        {
            "replica": relocation.replica,
            "root": relocation.root,
            "moved_from": list(relocation.moved_from),
            "checkpoints": checkpoints,
            "unpacked": {
                "files": relocation.unpacked.files,
                "bytes": relocation.unpacked.bytes,
                "packs": relocation.unpacked.packs,
            },
            "warnings": list(relocation.warnings),
        }
    )


def _when_quiet(relocation: Relocation) -> tuple[str, ...]:
    return relocation.warnings


FORMS = Forms(_text, _json, ndjson=_json, when_quiet=_when_quiet)
