"""Planted bugs: each removes a check of ownership, or a step of the commit protocol, from a copy of
the package. `scripts/planted.py` plays the simulations against them.

A bug is an edit of source text within one function. If the code moves, `plant` raises
`SiteNotFound`: give the bug the new module and function.
"""

from __future__ import annotations

import ast
import shutil
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parent.parent.parent / "cpreplicate"


class SiteNotFound(Exception):
    """The code that a bug changes is not where its table names it, or is there several times."""


class Edit(NamedTuple):
    """In `function`, or a method `Class.function`, of `module`, `old` is replaced by `new`."""

    module: str
    function: str
    old: str
    new: str


class Bug(NamedTuple):
    """A bug: the rule of the protocol that it breaks, and the edits that plant it.

    `by` are the kinds of simulations that are most likely to find it, which are played first.
    """

    name: str
    rule: str
    edits: tuple[Edit, ...]
    by: tuple[str, ...] = ()


def plant(bug: Bug, directory: Path) -> None:
    """Write a copy of the package with this bug into a directory."""
    copy = directory / PACKAGE.name
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for path, text in planted(bug).items():
        (copy / path).write_text(text)


def planted(bug: Bug) -> dict[str, str]:
    """Return the text of each module that the bug changes, by its path in the package."""
    texts: dict[str, str] = {}
    for edit in bug.edits:
        path = f"{edit.module.replace('.', '/')}.py"
        if not (PACKAGE / path).is_file():
            raise SiteNotFound(f"{bug.name}: there is no module {edit.module}")
        texts[path] = _edited(texts.get(path) or (PACKAGE / path).read_text(), edit, bug.name)
    for path, text in texts.items():
        compile(text, path, "exec")
    return texts


def _edited(text: str, edit: Edit, bug: str) -> str:
    first, last = _lines_of(text, edit, bug)
    lines = text.splitlines(keepends=True)
    function = "".join(lines[first:last])
    if (count := function.count(edit.old)) != 1:
        raise SiteNotFound(
            f"{bug}: {edit.module}.{edit.function} has {count} times, not once: {edit.old!r}"
        )
    return "".join([*lines[:first], function.replace(edit.old, edit.new), *lines[last:]])


def _lines_of(text: str, edit: Edit, bug: str) -> tuple[int, int]:
    """Return the lines of the function, counted from 0, the last one excluded."""
    body: list[ast.stmt] = ast.parse(text).body
    for name in edit.function.split("."):
        found = [each for each in body if getattr(each, "name", None) == name]
        if len(found) != 1 or not isinstance(found[0], (ast.ClassDef, ast.FunctionDef)):
            raise SiteNotFound(f"{bug}: there is no {edit.function} in {edit.module}")
        node, body = found[0], found[0].body
    return node.lineno - 1, node.end_lineno or node.lineno


def _bug(name: str, rule: str, *edits: tuple[str, str, str, str], by: str = "history") -> Bug:
    return Bug(name, rule, tuple(Edit(*edit) for edit in edits), tuple(by.split(", ")))


_OWNERSHIP = "protocol.ownership"
_PUBLICATION = "protocol.publication"
_SYNC = "operations.sync"
_LACKING = f"{_SYNC}.source.lacking"
_UPKEEP = "operations.upkeep"

BUGS = (
    # The checks of ownership
    _bug(
        "a directory needs no marker",
        "a directory that is not empty and has no marker is refused",
        (
            _OWNERSHIP,
            "foreign",
            "state.marker is None and not state.is_empty and not may_adopt",
            "False",
        ),
        by="shared, history",
    ),
    _bug(
        "any source may be replicated",
        "a marker that names another source is a reason to refuse",
        (_OWNERSHIP, "other_source", "not state.marker.names(source)", "False"),
        ("protocol.replica_name", "claims", "marker.names(source) or", "True or"),
    ),
    _bug(
        "a checkpoint needs no record",
        "a `_metadata` without a matching record is another program's",
        (_OWNERSHIP, "foreign", "elif state.unrecorded and not may_adopt", "elif False"),
    ),
    _bug(
        "unseal does not look at the job",
        "a seal stays while a checkpoint of the job references the replica",
        ("operations.handover.unseal", "_checked", "if request.job is not None", "if False"),
    ),
    _bug(
        "unseal accepts what nobody recorded",
        "unrecorded files below a replica keep it sealed",
        (f"{_UPKEEP}.orphans", "refuse_unrecorded_files", "raise Refused", "str"),
    ),
    _bug(
        "the lease is not looked for at the source",
        "a source at which the lease just taken can be read is the replica itself",
        (
            "protocol.same_place",
            "refuse_same_place",
            'if fields and fields.get("token") == token.token',
            "if False",
        ),
    ),
    _bug(
        "a copy of the replica is a source",
        "a source with the replica's id is the replica or a copy of it",
        (
            _OWNERSHIP,
            "same_replica",
            "source_marker.replica_id == state.marker.replica_id",
            "False",
        ),
    ),
    _bug(
        "linked directories are followed",
        "a directory of a replica that is a symbolic link is refused",
        (_OWNERSHIP, "foreign", "if state.links", "if False"),
        (
            "operations.change.change",
            "refuse_links",
            "if storage.real",
            "if False and storage.real",
        ),
    ),
    _bug(
        "nothing is looked at under the lease",
        "every check is repeated under the lease",
        (
            f"{_SYNC}.sync",
            "_checked_again",
            "return examined(source_state, replica, former)",
            "return former",
        ),
        by="held up, overtaken, history",
    ),
    _bug(
        "any checkpoint is withdrawn",
        "the record is looked at before each withdrawal of a `_metadata`",
        (
            _PUBLICATION,
            "withdraw",
            "observed.record is None or observed.record.adopted",
            "False",
        ),
        by="history, adopting",
    ),
    _bug(
        "a commit replaces what is there",
        "a checkpoint that is not there yet is published by create-if-absent",
        (_PUBLICATION, "Publication.__init__", "replace=self._replaces", "replace=True"),
        by="history, adopting",
    ),
    _bug(
        "a fleet replicates replicas",
        "discovery skips replicas that no job writes to",
        (
            "operations.jobs.job",
            "is_standby",
            "if not is_replica(replica)",
            "if True",
        ),
    ),
    _bug(
        "what others need is not asked",
        "a file is needed while any checkpoint in the directory references it",
        ("protocol.needed", "needed", "*own, *others]", "*own]"),
        by="shared",
    ),
    _bug(
        "put-off deletes do not ask again",
        "what is needed is asked before each delete",
        (
            f"{_SYNC}.put_off",
            "Backlog.work_off",
            "without(texts(self.targets), needed_now)",
            "texts(self.targets)",
        ),
        by="shared",
    ),
    _bug(
        "what is present is done",
        "a file counts as present only with its recorded length",
        (
            "core.plan",
            "copies_and_keeps",
            "(lengths == recorded.bytes)",
            "(lengths > 0)",
        ),
    ),
    _bug(
        "every file at the path of a copy is ours",
        "a file that nothing names is another program's and is never overwritten",
        ("protocol.ledger", "Ledger.of_others", "~is_ours", "~is_ours & False"),
        by="history, shared",
    ),
    _bug(
        "files of one length are equal",
        "a file of another program is kept only if its content equals the source's",
        (
            f"{_SYNC}.content",
            "_Pair.is_equal",
            "self.at_target in (self.at_source, self.beginning)",
            "self.at_source is not None and self.at_target.bytes == self.at_source.bytes",
        ),
        by="shared, history",
    ),
    _bug(
        "what was planned was written",
        "a plan of a run that died does not prove who wrote a file",
        (
            "protocol.ledger",
            "Ledger.of_others",
            "self.files.at(paths).is_written",
            "self.files.at(paths).is_written | (rows_of(paths, texts(self._planned())) >= 0)",
        ),
        by="history, shared",
    ),
    _bug(
        "a sweep takes what was planned",
        "a file is deleted only if a record proves that cpreplicate wrote it",
        (
            f"{_UPKEEP}.orphans",
            "why_unproven",
            "~ledger.are_proven(recorded)",
            "~ledger.are_proven(recorded) & False",
        ),
        by="history, shared",
    ),
    _bug(
        "files of others are recorded as written",
        "a file that was there before is never deleted",
        (
            f"{_SYNC}.content",
            "keeping_what_is_equal",
            "written=pair.target in planned",
            "written=True",
        ),
        by="shared, adopting",
    ),
    _bug(
        "the highest number is the newest",
        "the newest checkpoint is the one that was completed last",
        ("protocol.source", "newest", "found.last", "found.highest"),
    ),
    _bug(
        "every lease is stale",
        "a lease is taken over only from a process that is provably dead, or once it expired",
        ("protocol.lease", "Lease._is_stale", "return is_expired or", "return True or"),
        by="overtaken, race",
    ),
    _bug(
        "forged manifests are believed",
        "the paths of every record are checked where they are read",
        ("protocol.manifest", "_checked", "if members and not", "if False and not"),
        by="shared",
    ),
    # The steps of the commit protocol
    _bug(
        "the lease is not checked again",
        "step 1: a run that lost its lease publishes and deletes nothing",
        ("protocol.lease", "Lease.check", "if json_files.now() > self.until()", "if False"),
        ("protocol.lease", "LeaseToken.check", "if _token_of(holder) == self.token", "if True"),
        by="held up, overtaken",
    ),
    _bug(
        "what is written is not planned",
        "step 2: every path is recorded before a file appears there",
        (
            f"{_SYNC}.commit",
            "_changed_paths",
            "without(targets(plan.copies), texts(plan.packed))",
            "texts(())",
        ),
        by="history, shared",
    ),
    _bug(
        "a file appears before it is complete",
        "step 2: a file appears under its final name only when it is complete",
        (
            "storage.backends.rename_commit",
            "RenamingStorage.put",
            "with self.temporary(uri) as temporary:",
            "with contextlib.nullcontext(uri) as temporary:",
        ),
        (
            "storage.backends.rename_commit",
            "RenamingStorage.put",
            "self._let_appear(temporary, uri, replace)",
            "pass",
        ),
        by="race, overtaken",
    ),
    _bug(
        "a copy that failed counts",
        "step 3: each file of the closure is there before the commit",
        (_LACKING, "refuse_lacking", "if not (missing or short)", "if True"),
        (
            f"{_SYNC}.copy",
            "_without_failures",
            "if failed or len(outcomes) != len(tasks)",
            "if False",
        ),
        by="churn, history",
    ),
    _bug(
        "a source that moved on is incomplete",
        "step 4: a checkpoint that was subsumed meanwhile ends the run with `SourceMovedOn`",
        (
            f"{_SYNC}.source.lacking",
            "refuse_lacking",
            "if _is_subsumed(",
            "if False and _is_subsumed(",
        ),
        by="churn",
    ),
    _bug(
        "the record follows the commit",
        "step 5: the record of a checkpoint is in place before its `_metadata`",
        (_PUBLICATION, "Publication.let_record_appear", "self._record.let_appear()", "pass"),
        (_PUBLICATION, "Publication.publish", "self._record.wait_until_there()", "pass"),
        (
            _PUBLICATION,
            "Publication.publish",
            "self._publish(check)",
            "self._publish(check); self._record.appear()",
        ),
        by="death, history",
    ),
    _bug(
        "files are deleted before the commit",
        "step 6: nothing is deleted before the commit",
        (
            f"{_SYNC}.sync",
            "_committed",
            "executed = copy_missing(work, following, commit.copied)",
            "change = work.change; change.delete([each.target for each in work.plan.deletes]);"
            " executed = copy_missing(work, following, commit.copied)",
        ),
        by="race, overtaken",
    ),
    _bug(
        "files are deleted before their `_metadata`",
        "step 6: a `_metadata` is withdrawn before any of its files is deleted",
        (
            f"{_SYNC}.clean_up",
            "_deleted",
            "for name in plan.dropped:",
            "for name in (_delete(work, targets, (), []), plan.dropped)[1]:",
        ),
        by="race, overtaken",
    ),
    _bug(
        "a sweep takes what nobody recorded",
        "only what records list as written is deleted",
        (
            f"{_UPKEEP}.orphans",
            "why_orphan",
            "if is_written(path, written) else None",
            "if True else None",
        ),
        by="shared, adopting",
    ),
    # The summary of the points
    _bug(
        "no record vouches for a summary",
        "a summary counts only if a record that is read has its SHA-256",
        (
            "protocol.replica_state",
            "_briefly",
            "if not (is_vouched_for and turn in seen.checkpoints):",
            "if turn not in seen.checkpoints:",
        ),
        by="points",
    ),
    _bug(
        "a replaced _metadata of an object store goes unseen",
        "where directories have no times, a point is recognised by its _metadata, too",
        (
            "protocol.point_summary",
            "mark_of",
            "return Mark(_look(record), _look(listed), _look(metadata))",
            "return Mark(_look(record), _look(listed), 1.0)",
        ),
        by="points",
    ),
    _bug(
        "another content of the same second goes unseen",
        "on an object store, a file of a point is recognised by its tag, too",
        (
            "protocol.point_summary",
            "_look",
            "return seen if file.tag is None else (*seen, file.tag)",
            "return seen",
        ),
        by="points",
    ),
    _bug(
        "a new summary forgets files",
        "a summary has what the records of its points state",
        (
            "protocol.point_summary",
            "_at_places",
            "last=before[rows.last + 1] - 1",
            "last=before[rows.first + 1] - 1",
        ),
        by="points",
    ),
)
