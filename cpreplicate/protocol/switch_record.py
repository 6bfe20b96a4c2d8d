"""The record of a switch: which ids were chosen for it, and how far it came.

`.cpreplicate/switch.json` in the replica is written before each call that cannot be undone, so that
a switch that died is continued or taken back. A lease of its own keeps two switches apart: that of
the replica is taken and given back by each round of copies.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, get_args

from cpreplicate.core import uri
from cpreplicate.core.notify import Notify, silent
from cpreplicate.core.placement import OWN
from cpreplicate.errors import Refused
from cpreplicate.protocol import json_files
from cpreplicate.protocol.lease import Lease, acquire
from cpreplicate.storage import Side

NAME = "switch.json"
LEASED = "switch"
_FORMAT = 1
_MARKS = 24  # of which a switch has the half: 1 in 2,704,156 has the same ones as another

Stop = Literal["checkpoint", "savepoint"]
Step = Literal[
    "copying", "stopping", "ended", "promoted", "starting", "started", "restarting", "taken back"
]
"""How far a switch came: nothing was stopped; the job may have been stopped; its end was seen; the
replica is sealed; it may have been started at the target; it runs there; it may have been started
again at the origin; it was, or that was left to the operator."""
_OPEN: tuple[Step, ...] = ("stopping", "ended", "promoted", "starting", "restarting")


class SwitchRecord(NamedTuple):
    """A switch of the job `name` from the JobManager at `origin` to the one at `target`.

    `directory` is that of the job, as its JobManager names it. `stop_id` is the id by which Flink
    knows the last checkpoint or savepoint, `new_job` that of the job at `target`, and `back_job`
    that of a job that is started again at `origin`. `point` is where the last point is at the
    source, `replica` and `checkpoint` what was promoted. `stopped` is when the end of the job was
    asked for, in seconds since the epoch; `least` the number that its last checkpoint has at least.
    `origin_cluster` and `target_cluster` are what the clusters have and no other one. `standstill`
    are the seconds of a switch that one run brought to its end, `copying` those of its last copy.
    `switch_id` is that of this switch: others of the same life of a job have the same `new_job`.
    `claim` is an id of what switches into this replica do, from which their `marks` follow. `ended`
    is the state in which the job was seen to have ended, if its last point was not found then.
    """

    name: str
    job_id: str
    directory: str
    origin: str
    target: str
    stop: Stop
    stop_id: str
    new_job: str
    back_job: str
    step: Step = "copying"
    point: str | None = None
    replica: str | None = None
    checkpoint: str | None = None
    stopped: float | None = None
    least: int = 0
    origin_cluster: str | None = None
    target_cluster: str | None = None
    standstill: float | None = None
    copying: float | None = None
    switch_id: str = ""
    claim: str = ""
    ended: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is something to continue or to take back."""
        return self.step in _OPEN

    @property
    def is_left_to_operator(self) -> bool:
        """Whether it ended with the promotion, because no target was given."""
        return self.step == "promoted" and not self.target


class Marks(NamedTuple):
    """What a JobManager is asked to remember of a claim, for a job id that follows from a life.

    `own` are the marks of this switch; `others` those that it does not make. All are in Flink's
    form of ids.
    """

    job_id: str
    own: tuple[str, ...]
    others: tuple[str, ...]


def new_id() -> str:
    """Return a new id of a job, or of what Flink is asked for, in Flink's form."""
    return uuid.uuid4().hex


def id_of_next(job_id: str, name: str, began: float, where: Literal["target", "origin"]) -> str:
    """Return the id under which a job that was stopped is started, in Flink's form.

    It follows from the life of the job that ends: of two switches of that into two TARGET_ROOTs,
    the second one to start it is refused by Flink, which has no id twice. `where` is whether it is
    started at the target, or again at the origin. `began` is in seconds since the epoch.
    """
    return _digest(f"{where}\n{job_id}\n{name}\n{began:.3f}")


def marks(record: SwitchRecord) -> Marks:
    """Return the marks by which a switch claims a job before it stops it.

    Switches of it into several TARGET_ROOTs, from which it may be started in several clusters, have
    only its JobManager in common. No set of them contains that of another claim, so each shows.
    """
    life = _digest(f"claim\n{record.new_job}")
    ids = sorted(
        (_digest(f"{life}\n{number}") for number in range(_MARKS)),
        key=lambda mark: _digest(f"{record.claim}\n{mark}"),
    )
    return Marks(life, tuple(ids[: _MARKS // 2]), tuple(ids[_MARKS // 2 :]))


def read_switch(side: Side, root: str) -> SwitchRecord | None:
    """Return the record of the replica at `root`, None if there is none.

    Raises `Refused` if it is damaged: then it is not known what was started.
    """
    place = uri.join(root, f"{OWN}/{NAME}")
    fields = json_files.parse(json_files.read(side.storage(place), place))
    if fields is None:
        return None
    try:
        return _record(fields)
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(
            f"{place} is damaged, or of another version of cpreplicate. Nothing was done. Look in"
            " both data centres whether the job runs there, and delete the file then"
        ) from error


class SwitchLog:
    """Writes the record of a switch as long as its lease is held; `record` is the last one.

    `root` is the replica that it is in.
    """

    def __init__(self, root: str, side: Side, lease: Lease, record: SwitchRecord) -> None:
        self.root = root
        self._place = uri.join(root, f"{OWN}/{NAME}")
        self._storage, self._lease = side.storage(root, root), lease
        self.record = record

    def write(self, **changes: Any) -> SwitchRecord:
        """Record changes. Raises `LeaseHeld` if another run took the switch over."""
        self.check()
        record = self.record._replace(**changes)
        fields = {"format": _FORMAT, **record._asdict(), **json_files.signature()}
        self._storage.put(self._place, lambda: [json_files.encoded(fields)])
        self.record = record
        return record

    def check(self) -> None:
        """Raise `LeaseHeld` unless this run holds the lease of the switch now."""
        self._lease.check()


@contextmanager
def switching(
    root: str, side: Side, record: SwitchRecord, notify: Notify = silent
) -> Iterator[SwitchLog]:
    """Hold the lease of a switch while the block runs. Raises `LeaseHeld`, which names the holder.

    A record that is open is used instead of this one: another run left it meanwhile. So is a later
    one of the same switch, which another run has ended meanwhile. Else this one has the claim of
    the one that was there.
    """
    with acquire(uri.join(root, f"{OWN}/{LEASED}"), side, notify=notify) as lease:
        found = read_switch(side, root)
        is_used = found is not None and (found.is_open or found.switch_id == record.switch_id)
        if found is not None:
            record = found if is_used else record._replace(claim=found.claim)
        yield SwitchLog(root, side, lease, record)


def _digest(words: str) -> str:
    """Return an id, in Flink's form, that follows from words."""
    return hashlib.sha256(words.encode(errors="surrogatepass")).hexdigest()[:32]


def _record(fields: dict[str, Any]) -> SwitchRecord:
    if fields["format"] != _FORMAT:
        raise ValueError("another version")
    defaults = SwitchRecord._field_defaults
    known = {name: fields.get(name, defaults[name]) for name in defaults}
    needed = {name: fields[name] for name in SwitchRecord._fields if name not in defaults}
    record = SwitchRecord(**{**needed, **known})
    texts = (record.name, record.job_id, record.directory, record.origin, record.target)
    ids = (record.stop_id, record.new_job, record.back_job, record.switch_id, record.claim)
    places = (record.point, record.replica, record.checkpoint)
    clusters = (record.origin_cluster, record.target_cluster)
    optional = [each for each in (*places, *clusters, record.ended) if each]
    if not all(isinstance(each, str) for each in (*texts, *ids, *optional)):
        raise TypeError("a field is no text")
    if type(record.least) is not int:
        raise TypeError("a number is none")
    if record.step not in get_args(Step) or record.stop not in get_args(Stop):
        raise ValueError("an unknown step")
    return record._replace(
        stopped=json_files.seconds(fields, "stopped"),
        standstill=json_files.seconds(fields, "standstill"),
        copying=json_files.seconds(fields, "copying"),
    )
