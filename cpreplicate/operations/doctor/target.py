"""Checks of the target. They write only below a directory of their own, which they remove again."""

from __future__ import annotations

import contextlib
import errno
import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

from cpreplicate import errors
from cpreplicate.core import uri
from cpreplicate.core.placement import OWN
from cpreplicate.core.plan import total
from cpreplicate.core.retention import Policy
from cpreplicate.core.sizes import counted, size
from cpreplicate.errors import LeaseHeld, NoSpace, Refused, UsageError, exit_code_of
from cpreplicate.operations.change.probe import Probe
from cpreplicate.operations.change.space import left, shortage
from cpreplicate.operations.change.target_root import refuse_replica_as_root
from cpreplicate.operations.doctor.case import Case, CaseSide, target_of
from cpreplicate.operations.doctor.findings import (
    Result,
    failure,
    in_two,
    skipped,
    warning,
)
from cpreplicate.operations.doctor.source import compared_clocks
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.report import named
from cpreplicate.operations.sync.source.state import target_replica, warnings_of_name
from cpreplicate.protocol import lease, lease_safety, same_place, seal
from cpreplicate.protocol.marker import read_marker
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.retention_record import described
from cpreplicate.storage import FileStatus, Side, Storage, questions

PROBE = ".cpreplicate-doctor-"
_FREED = "the space of deleted files is free at once"
_LATER = "Nothing need be done: sync names them, and changes nothing before the copies are complete"
_OTHER_NAMES = "Decide that before the first sync: it begins the new replica, and warns so"
_REFUSED = 6
_HELD = 11
_REMEDIES = {
    errno.EACCES: "Grant the user of this run the right to write there, or run as another user",
    errno.EPERM: "Grant the user of this run the right to write there, or run as another user",
    errno.EROFS: "Mount the filesystem for writing, or give another TARGET_ROOT",
    errno.ENOSPC: "Free space, or give another TARGET_ROOT",
    errno.EDQUOT: "Raise the quota or free space, or give another TARGET_ROOT",
    errno.ENOTDIR: "Give a TARGET_ROOT that is a directory: a file is in its place",
    errno.ENOTSUP: "Give a TARGET_ROOT on another filesystem, or reach a bucket by its own scheme",
    errno.EEXIST: "Give a TARGET_ROOT that is a directory: a file is in its place",
}


def check_places(subject: Case) -> Result:
    """Check that source and target are two places, and TARGET_ROOT is not a replica itself."""
    if subject.source_state is not None:
        target_replica(subject.source_state)
    else:
        _refuse_overlap(subject)
    case_side = target_of(subject)
    refuse_replica_as_root(case_side.uri, subject.job, case_side.storage)
    existing = _existing(case_side)
    if existing is not None and not existing.is_directory:
        return failure(f"{existing.uri} is a file", _REMEDIES[errno.ENOTDIR], _REFUSED)
    return Result(f"the replica is {subject.replica().root}")


def _refuse_overlap(subject: Case) -> None:
    """Raise `Refused` if source and replica overlap, as far as it is known without a checkpoint."""
    sides, replica = subject.request.sides, subject.replica()
    if sides.overlap(subject.job_root, replica.root):
        raise Refused(
            f"the replica {replica.root} would be in its own source {subject.job_root}. Give"
            " another TARGET_ROOT"
        )
    with contextlib.suppress(OSError, UsageError):  # the source has checks of its own
        same_place.refuse_nested(replica, sides.source, subject.job_root)


def check_plan(subject: Case) -> Result:
    """Check what `sync` would refuse, and keep its plan."""
    report = diff(subject.request)
    if report.refusal is not None and not isinstance(report.refusal, (LeaseHeld, NoSpace)):
        raise report.refusal
    subject.plan = plan = report.plan
    kept = _kept(plan.policy)
    if plan.empty:
        return Result(f"nothing to do: the replica holds {plan.checkpoint}{kept}")
    copies = f"copies {counted(len(plan.copies), 'file')}, {size(total(plan.copies))}"
    planned = f"a sync of {plan.checkpoint} {copies}, and deletes {len(plan.deletes)}{kept}"
    if plan.withdrawals:
        planned = f"withdraws {named(plan.withdrawals)}: {planned}"
    if names := _of_name(subject):
        return warning(f"{planned}; {names[0]}", _OTHER_NAMES)
    unknown = report.warnings[len(plan.warnings) :]
    if unknown:
        return warning(f"{planned}; {'; '.join(unknown)}", _LATER)
    return Result(planned)


def _of_name(subject: Case) -> list[str]:
    """Return the warnings of a new replica that another one may be that of the same source."""
    replica = subject.replica()
    if subject.source_state is None or read_marker(replica.side, replica.root) is not None:
        return []
    return list(warnings_of_name(subject.source_state, replica))


def _kept(policy: Policy) -> str:
    """Return which points the replica keeps, if somebody stated that."""
    if policy.is_to_be_recorded:
        return f"; it keeps by {policy.retention}, which it records"
    return "" if policy.recorded is None else f"; it keeps by {described(policy.recorded)}"


def check_write(subject: Case) -> Result:
    """Check every verb that a sync needs at the target, in a directory of this check's own."""
    case_side = target_of(subject)
    probe = _Probe(case_side.side, _own_directory(subject))
    with probe.removed():
        for step, act in probe.steps():
            try:
                act()
            except OSError as error:
                return _denied(step, case_side, error)
        subject.offset = probe.offset
        if ignored := probe.ignored_conditions():
            return _unsafe(subject, ignored)
        lacking = probe.lacking()
        same = _same_place(subject, probe)
        if same is not None:
            return same
    if lacking:
        return warning(
            f"lists, writes, reads and deletes below {probe.within}, whose filesystem has no"
            f" {' and no '.join(lacking)}",
            "Nothing need be done: a rename that leaves what is there takes the place of a hard"
            " link. Without fsync of directories, what a power loss leaves is up to the filesystem",
        )
    return probe.left_over() or Result(f"lists, writes, reads and deletes below {probe.within}")


def _unsafe(subject: Case, ignored: Sequence[str]) -> Result:
    message = lease_safety.described(subject.replica(), ignored)
    if target_of(subject).side.unsafe_lease:
        return warning(message, "--unsafe-lease accepts that: run one command at a time")
    remedy = (
        "Use a store with conditional puts, or give --unsafe-lease and run one command at a time"
    )
    return failure(message, remedy, _REFUSED)


def _denied(step: str, case_side: CaseSide, error: OSError) -> Result:
    remedy = _REMEDIES.get(error.errno or 0, "Make the target accept writes, and run again")
    user = case_side.side.options_for(uri.filesystem(case_side.uri)).get("hadoop.user.name")
    as_user = f" as {user}" if user and not case_side.uri.startswith("file:") else ""
    return failure(
        f"cannot {step}{as_user}: {error.strerror or error}", remedy, exit_code_of(error)
    )


def _own_directory(subject: Case) -> str:
    """Return a directory for the probe: in the replica if a sync may write there, else beside it.

    Another user may own the replica than TARGET_ROOT.
    """
    replica, name = subject.replica(), uuid.uuid4().hex
    with contextlib.suppress(Refused):  # a damaged marker
        if read_marker(replica.side, replica.root) is not None and not seal.is_sealed(replica):
            return replica.uri_of(f"{OWN}/doctor-{name}")
    return uri.join(subject.request.target_root, f"{PROBE}{name}")


class _Probe(Probe):
    """A directory of its own at the target, in which each verb of a sync is tried."""

    def __init__(self, side: Side, directory: str) -> None:
        file, within = uri.join(directory, "file"), uri.parent(directory)
        super().__init__(side.storage(directory), file, within)
        self.directory, self._side = directory, side
        self._remains = False

    def steps(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yield the verbs, each with what it is called in a message."""
        yield f"list {self.within}", lambda: self._storage.list(self.within)
        yield from super().steps()

    def ignored_conditions(self) -> Sequence[str]:
        """Return the conditions of puts that the service ignores, on which a lease relies."""
        return self._storage.ignored_conditions(self.directory)

    def lacking(self) -> Sequence[str]:
        """Return what the filesystem lacks on which a replica on `file:` relies."""
        return questions.lacking(self._storage, self.directory)

    @contextlib.contextmanager
    def removed(self) -> Iterator[None]:
        """Remove the directory, and those that it was made in, when the block ends in any way."""
        missing = self._missing()
        try:
            yield
        finally:
            try:
                _remove(self._storage, self.directory)
                all(self._storage.rmdir(directory) for directory in missing)
            except OSError:
                self._remains = True

    def _missing(self) -> list[str]:
        """Return the directories that the probe makes, the deepest first."""
        if not self._storage.has_directories:
            return []
        directories = uri.upwards(self.directory)
        return list(takewhile(lambda path: self._storage.stat(path) is None, directories))

    def lease(self) -> contextlib.AbstractContextManager[lease.Lease]:
        """Hold a lease in the directory, which nothing else looks for."""
        return lease.acquire(self.directory, self._side)

    def left_over(self) -> Result | None:
        """Return a warning if the directory could not be removed."""
        if not self._remains:
            return None
        remedy = f"Remove {self.directory}: nothing needs it"
        return warning(f"{self.directory} could not be removed", remedy)


def _remove(storage: Storage, directory: str) -> None:
    """Remove a directory with all that this check wrote below it."""
    for child in storage.list(directory):
        if child.is_directory:
            _remove(storage, child.uri)
            storage.rmdir(child.uri)
        else:
            storage.delete(child.uri)


def _same_place(subject: Case, probe: _Probe) -> Result | None:
    """Return a failure if the probe can be read through the source's connection.

    Then the replica would be its own source, or be in it, under another name.
    """
    state, side = subject.source_state, subject.request.sides.source
    if state is None:
        return None
    beside = uri.join(uri.parent(state.source.root), uri.name(probe.directory))
    replica = Replica(probe.directory, subject.request.sides.target)
    try:
        with probe.lease() as held:
            same_place.refuse_same_place(replica, held.token, side, beside, False)
            same_place.refuse_same_place(replica, held.token, side, state.source.root, True)
    except Refused:
        return failure(
            f"{subject.request.target_root} can be read at the source, under another name: the"
            f" replica would be {state.source.root} itself, or be in it",
            "Give another TARGET_ROOT",
            _REFUSED,
        )
    return None


def check_clock(subject: Case) -> Result:
    """Compare the time of the file that was written with this machine's clock."""
    if subject.offset is None:
        return skipped("no file was written, so the clock of the target is not known")
    return compared_clocks(subject.offset)


def check_space(subject: Case) -> Result:
    """Compare what the target may still hold with what a sync would copy."""
    storage, replica = target_of(subject).storage, subject.replica()
    try:
        spaces = storage.space(replica.root, briefly=False)
    except OSError as error:
        return skipped(f"the space cannot be asked for: {errors.described(error)}")
    if not spaces:
        return skipped("no quota, and the storage does not show its free space")
    if (short := shortage(subject.plan, spaces)) is not None:
        return failure(short.message, short.remedy, NoSpace.exit_code)
    return Result("; ".join(map(left, spaces)))


def _existing(case_side: CaseSide) -> FileStatus | None:
    """Return what is at TARGET_ROOT, else at the deepest place above it where something does.

    An object store has no places above.
    """
    storage = case_side.storage
    places = takewhile(
        lambda path: storage.has_directories or path == case_side.uri, uri.upwards(case_side.uri)
    )
    statuses = map(storage.stat, places)
    return next(filter(None, statuses), None)


def check_retention(subject: Case) -> Result:
    """Check whether files that cpreplicate deletes go on using space."""
    case_side = target_of(subject)
    try:
        settings = questions.delete_policies(case_side.storage, case_side.uri)
    except OSError as error:
        return skipped(f"the settings cannot be asked for: {errors.described(error)}")
    if settings is None:
        return skipped("the storage does not show what it keeps")
    keeping = [setting.text for setting in settings if setting.keeps]
    if keeping:
        return warning(
            f"deleted files go on using space: {'; '.join(keeping)}",
            "Delete old snapshots, or have old versions expire, or plan space for them",
        )
    return Result("; ".join([_FREED, *(setting.text for setting in settings)]))


def check_lease(subject: Case) -> Result:
    """Check whether another run holds the lease of the replica."""
    replica, wait = subject.replica(), subject.request.lock_wait
    refusal = lease.Lease(replica.root, replica.side).refusal()
    if refusal is None:
        return Result("no run holds it")
    message, remedy = in_two(refusal)
    if subject.plan is not None and subject.plan.empty:
        return Result(f"not needed, since there is nothing to do; {message}")
    if wait:
        return warning(message, f"A sync would wait {wait:g} s for it, as --lock-wait allows")
    return failure(message, remedy or "Wait for that run to end", _HELD)
