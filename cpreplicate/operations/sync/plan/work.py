"""What a sync carries out: a plan, once it is made, and what it was made from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from cpreplicate.core.ledger import MemberTable
from cpreplicate.core.path_columns import Texts, texts, without
from cpreplicate.core.plan import Plan, targets, without_targets
from cpreplicate.operations.change.change import Change
from cpreplicate.operations.sync.plan.earlier_replicas import with_earlier_replicas
from cpreplicate.operations.sync.plan.plan import Copied, make_plan
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.source.state import SourceState
from cpreplicate.protocol.held import HeldReplica
from cpreplicate.runners import Outcome


class Before(NamedTuple):
    """What a run did for checkpoints from which it turned, by the path in the replica.

    `copied` are the outcomes of the copies that the next checkpoint needs, `begun` the paths to
    which files were copied or begun to be, and `packs` where the packs end that were written.
    """

    copied: Mapping[str, Outcome] = {}
    begun: Texts = texts(())
    packs: Mapping[str, int] = {}


NOTHING = Before()


@dataclass(frozen=True)
class Work:
    """A plan that is carried out by a change of the replica. No step of it changes the plan: each
    returns what it did. `before` is what the run did for former checkpoints.
    """

    change: Change
    source_state: SourceState
    plan: Plan
    before: Before = NOTHING

    @classmethod
    def of(cls, change: Change, source_state: SourceState, before: Before = NOTHING) -> Work:
        """Return the work that the source and the replica need. Raises as `make_plan`.

        Files come from replicas of earlier jobs where these hold them.
        """
        copied = before.copied
        packed = frozenset(path for path, outcome in copied.items() if outcome.pack is not None)
        known = Copied(frozenset(copied) - packed, packed, before.begun)
        plan = make_plan(source_state, change.replica, change.state, change.ledger, known)
        plan = with_earlier_replicas(plan, source_state, change.notify)
        return cls(change, source_state, plan, before)

    @property
    def remaining(self) -> Plan:
        """The plan, without the copies that the run has made already."""
        plan, copied = self.plan, self.before.copied
        copies = without_targets(plan.copies, copied.keys())
        return replace(plan, copies=copies, packed=plan.packed.difference(copied))

    @property
    def request(self) -> SyncRequest:
        """What was asked for."""
        return self.source_state.request

    @property
    def replica(self) -> HeldReplica:
        """The replica that is changed."""
        return self.change.replica

    def kept_beside(self) -> list[str]:
        """Return the names of the checkpoints that stay committed beside the one of the plan."""
        replaced = {*self.plan.dropped, self.plan.checkpoint}
        names = (committed.name for committed in self.change.state.ours)
        return [name for name in names if name not in replaced]

    def left_over(self, members: MemberTable) -> set[str]:
        """Return the written paths that neither a manifest nor the plan will name.

        These are left by runs that died. `members` are the packed files that the checkpoint has.
        """
        left = self.change.ledger.left_over(self.kept_beside())
        return set(self.unnamed(left, members).to_pylist())

    def unnamed(self, paths: Texts, members: MemberTable) -> Texts:
        """Return those of these paths that the checkpoint does not need, nor the plan deletes."""
        return without(paths, *_named_paths(self.plan, members))


def _named_paths(plan: Plan, members: MemberTable) -> Iterator[Texts]:
    """Yield the paths of the files that the plan copies, keeps and deletes, and of kept packs."""
    yield without(targets(plan.copies), texts(plan.packed), members.paths)
    yield plan.keeps.without(members.paths).files.paths
    yield texts(members.used_packs)
    yield targets(plan.deletes)
