"""Whether a sync may change the replica's directory. Nothing is changed here."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from cpreplicate.core import uri
from cpreplicate.core.placement import METADATA
from cpreplicate.core.sizes import counted
from cpreplicate.errors import NotNewer, Obstacle, Obstructed, Refused, Sealed
from cpreplicate.operations.change.target_root import refuse_replica_as_root
from cpreplicate.operations.sync.source.state import SourceState, is_followed
from cpreplicate.protocol import needed, ownership, replica_state, seal
from cpreplicate.protocol.readiness import held, unready
from cpreplicate.protocol.replica import CommittedCheckpoint, Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.protocol.source import Source


def examined(source_state: SourceState, replica: Replica, former: State | None = None) -> State:
    """Return the state of the replica's directory. Raise `Refused` if a sync must not change it."""
    state = replica_state.examine(replica, former, is_brief=True)
    if state.marker is None:
        refuse_replica_as_root(
            source_state.request.target_root, source_state.source.job, replica.storage
        )
    for text in reasons_against(source_state, replica, state):
        obstacle = _obstacle(replica, state)
        raise Refused(text) if obstacle is None else Obstructed(text, obstacle)
    if seal.NAME in state.own:  # else a lease would be written first
        try:
            seal.refuse_sealed(replica)
        except Sealed as error:
            error.obstacle = _obstacle(replica, state)
            raise
    return state


def _obstacle(replica: Replica, state: State) -> Obstacle | None:
    """Return what is in the way of `promote`, too: what a job writes into a sealed one is not."""
    reason = unready(replica, held(replica, state))
    return None if reason is None else reason.obstacle


def reasons_against(source_state: SourceState, replica: Replica, state: State) -> Iterator[str]:
    """Yield why a sync must not change anything in the replica's directory."""
    request = source_state.request
    may_adopt = request.adopt and (state.marker is None or state.marker.adopted)
    yield from ownership.foreign(state, replica, may_adopt)
    if may_adopt:
        yield from needed.unreadable(replica, state)
    yield from ownership.same_replica(state, replica, source_state.marker, source_state.name)
    if not request.same_source:
        yield from ownership.other_source(state, replica, source_state.name)
    name = source_state.placement.name
    if name in (*state.adopted, *state.unrecorded):
        yield (
            f"{replica.uri_of(name)}/{METADATA} is another program's and would be replaced. Nothing"
            " was done. Sync another checkpoint, or into another TARGET_ROOT"
        )


def refuse_to_go_back(
    state: State,
    source_state: SourceState,
    replica: Replica,
    former: CommittedCheckpoint | None,
    keeps_newest: bool,
) -> None:
    """Raise `NotNewer` if the replica holds a newer checkpoint, unless the request allows that.

    So it does if its newest one is the `former` one of this number, as of `of_former_life`, and its
    policy keeps that beside a newer one: else it goes by the policy. A run that follows a job never
    publishes a checkpoint that was completed before the replica's newest one: the job was not
    started from scratch since then. An operator may name one.
    """
    asked = source_state.file.metadata.checkpoint_id
    if not state.committed or state.committed[0].checkpoint_id < asked:
        return
    newest, source = state.committed[0].name, source_state.source
    is_same_number = state.committed[0].checkpoint_id == asked
    after = seconds_after(newest, state, source)
    is_earlier = is_followed(source_state.request, source) and after is not None and after < 0
    if is_same_number and (former is None or not (keeps_newest or is_earlier)):
        return
    is_what = f"another {newest} than" if is_same_number else f"{newest}, newer than"
    held = f"{replica.root} holds {is_what} {source.checkpoint} (checkpoint {asked}"
    if is_earlier:
        raise NotNewer(
            f"{held}, which was completed before it). A replica never goes back, also with"
            " --allow-older, which follows the checkpoint that was completed last. Nothing was"
            " done. Let the job complete a newer one, or give another TARGET_ROOT. To publish"
            f" {uri.name(source.checkpoint)}, name it as SOURCE of `cpreplicate sync"
            " --allow-older`"
        )
    if not source_state.request.allow_older:
        raise NotNewer(
            f"{held}). A replica never goes back. Nothing was done. Sync a newer checkpoint, or"
            " give another TARGET_ROOT. If the job was started from scratch, its numbers restart:"
            f" {_to_allow_older(source_state)}, which publishes chk-{asked} and withdraws"
            f" {_former(state, asked, former)}"
        )


def _to_allow_older(source_state: SourceState) -> str:
    """Return how to allow it: of a job that is followed by a run of it alone.

    The option of a fleet or a service is for all of its jobs.
    """
    request, source = source_state.request, source_state.source
    if not is_followed(request, source):
        return "give --allow-older"
    places = f"{shlex.quote(source.root)} {shlex.quote(request.target_root)}"
    return f"run `cpreplicate sync --allow-older {places}` with the other options of this run"


def _former(state: State, asked: int, former: CommittedCheckpoint | None) -> str:
    """Return what goes with `--allow-older`."""
    held = sorted(each.checkpoint_id for each in state.committed if each.checkpoint_id > asked)
    higher = ", ".join(f"chk-{number}" for number in held)
    return " and ".join(
        [
            *([] if former is None else [f"the former {former.name}"]),
            *([f"the checkpoints with higher numbers: {higher}"] if held else []),
        ]
    )


def seconds_after(name: str, state: State, source: Source) -> float | None:
    """Return how long after one of the replica's the source's was completed, None if not known."""
    completed = state.records[name].completed
    if source.completed is None or completed is None:
        return None
    return source.completed - completed


def refuse_same_number(state: State, source_state: SourceState, replica: Replica) -> None:
    """Raise `Refused` if a savepoint would replace another checkpoint that has its number.

    A job never uses a number twice: one of the two is another job's, or of a former life.
    """
    name, savepoint = source_state.placement.name, source_state.source.savepoint
    record = state.records.get(name)
    if source_state.own_job is None or savepoint is None or record is None:
        return
    held = record.savepoint
    if held is None or uri.name(held) != uri.name(savepoint):
        raise Refused(
            f"{replica.root} holds {name}, which is another checkpoint than {savepoint}, though it"
            " has its number: it is a savepoint of another job, or the job was started from"
            " scratch. Nothing was done. Give another --job, or another TARGET_ROOT"
        )


def newer_savepoint(state: State, source_state: SourceState) -> CommittedCheckpoint | None:
    """Return the savepoint that the replica holds if the job's newest checkpoint is older.

    Then a sync that follows the job has nothing to do before the next checkpoint. A lower number
    that was completed later is of a job that was started from scratch. `allow_older` changes
    nothing: it is for every job of a fleet, and most of these were not started from scratch.
    """
    source = source_state.source
    if not state.committed or not is_followed(source_state.request, source):
        return None
    newest, asked = state.committed[0], source_state.file.metadata.checkpoint_id
    if state.records[newest.name].savepoint is None or asked >= newest.checkpoint_id:
        return None
    after = seconds_after(newest.name, state, source)
    return newest if after is not None and after <= 0 else None


def refuse_outside(committed: Sequence[CommittedCheckpoint], replica: Replica) -> None:
    """Raise `Refused` if a committed checkpoint references files outside the replica."""
    for checkpoint in committed:
        if checkpoint.outside:
            raise Refused(
                f"{replica.uri_of(checkpoint.name)} references"
                f" {counted(len(checkpoint.outside), 'file')} outside the replica, such as"
                f" {checkpoint.outside[0]}: it was moved, or is reached under another name, or is"
                " damaged. Nothing was copied or deleted. Give the TARGET_ROOT under which it was"
                " created, rewrite its paths with `cpreplicate relocate"
                f" {shlex.quote(replica.root)}` if no job was started from it, or sync into another"
                " TARGET_ROOT"
            )
