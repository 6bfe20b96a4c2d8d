"""Whether the storage can hold a lease: some object stores ignore or refuse conditions of a put.

There, each of two runs would get the lease. Each replica is probed once, which its marker notes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cpreplicate.core import uri
from cpreplicate.core.notify import Notify
from cpreplicate.core.placement import OWN
from cpreplicate.errors import Refused
from cpreplicate.protocol.held import HeldReplica
from cpreplicate.protocol.marker import note_conditional_puts
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State


def proven(replica: HeldReplica, state: State, notify: Notify) -> State:
    """Return the state with what is known of conditional puts; probe them if nothing is known.

    The caller holds the lease. Raises `Refused` if the service ignores conditions, unless the side
    has `unsafe_lease`; then `notify` gets a warning.
    """
    marker = state.marker
    if not has_conditions(replica, state, notify):
        return state
    if marker is not None:
        marker = note_conditional_puts(replica, marker)
    return replace(state, marker=marker, has_conditional_puts=True)


def has_conditions(replica: Replica, state: State, notify: Notify) -> bool:
    """Probe conditional puts if nothing is known of them. Return whether they were found now.

    Nothing is noted. Raises `Refused` and warns as `proven` does.
    """
    marker, storage = state.marker, replica.side.storage(replica.root)
    if not storage.needs_conditions or (marker is not None and marker.conditional_puts):
        return False
    ignored = storage.ignored_conditions(replica.uri_of(OWN))
    if ignored and not replica.side.unsafe_lease:
        raise Refused(
            f"{described(replica, ignored)}. Nothing was changed. Use a store with conditional"
            " puts, or give --unsafe-lease if only one run at a time ever changes this replica"
        )
    if ignored:
        notify(f"warning: {described(replica, ignored)}: --unsafe-lease accepts that")
    return not ignored


def described(replica: Replica, ignored: Sequence[str]) -> str:
    """Return what it means that a service ignores conditions."""
    return (
        f"{uri.filesystem(replica.root)} does not honour {' and '.join(ignored)}: two runs at the"
        " same time could each hold the lease, and delete what the other has written"
    )
