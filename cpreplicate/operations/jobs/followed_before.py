"""What a service remembers in replicas of the jobs that JobManagers reported, beyond its own end.

A sync records which JobManager reported the job. Once the job has ended, that is recorded, too. So
a service that starts knows which jobs should be there: one that a JobManager does not report any
more, and that nobody knows to have ended, is lost from sight.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.notify import Notify, silent
from cpreplicate.core.placement import JOB_ID
from cpreplicate.errors import CpreplicateError, LeaseHeld, NotThere, Sealed, described
from cpreplicate.operations.change.change import opened
from cpreplicate.operations.jobs.job import Job, JobKey
from cpreplicate.operations.sync.place import replica_root
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.upkeep import orphans
from cpreplicate.protocol import seal
from cpreplicate.protocol.job_record import read_job_record, record_end
from cpreplicate.protocol.marker import read_marker
from cpreplicate.protocol.replica import Replica
from cpreplicate.runners.inline import InlineRunner
from cpreplicate.storage import Side, Sides, Transient


class FollowedBefore(NamedTuple):
    """A job that a service followed, and whose end nobody recorded: `url` reported it."""

    url: str
    name: str
    source: str

    @property
    def job_id(self) -> str:
        """The id of the job."""
        return uri.name(self.source)


class Remembered:
    """Reads once which jobs were followed before, and records the ends of those that end now.

    A TARGET_ROOT that cannot be read is asked again each time.
    """

    def __init__(self, template: SyncRequest, notify: Notify) -> None:
        self._template, self._notify = template, notify
        self._lock = threading.Lock()
        self._found: tuple[FollowedBefore, ...] = ()
        self._is_read = False
        self._ends: dict[JobKey, Job] = {}
        self._recorded: set[JobKey] = set()

    def questions(self) -> Mapping[str, Callable[[], None]]:
        """Return what is to be asked of TARGET_ROOT now, by what it is about. None of it raises."""
        reads = {} if self._is_read else {f"jobs in {self._template.target_root}": self._read}
        with self._lock:
            ends = dict(self._ends)
        return reads | {
            f"end of {key.source}": partial(self._record, key, job) for key, job in ends.items()
        }

    def take(self, urls: Collection[str], asked: Collection[str]) -> list[FollowedBefore]:
        """Return, once, the jobs of JobManagers that were `asked`; only those of `urls` count."""
        taken = [each for each in self._found if each.url in asked]
        self._found = tuple(each for each in self._found if each.url in set(urls) - set(asked))
        return taken

    def runs(self, job: Job) -> None:
        """Note that a job is reported that has not ended: its next sync records that."""
        with self._lock:
            self._ends.pop(job.key, None)
            self._recorded.discard(job.key)

    def ended(self, job: Job) -> None:
        """Note that a job has ended, so that its replica gets to know it."""
        with self._lock:
            if job.key not in self._recorded:
                self._ends[job.key] = job

    def keep(self, keys: Collection[JobKey]) -> None:
        """Forget which ends were recorded but for those of these jobs, which are still reported."""
        with self._lock:
            self._recorded &= set(keys)

    def _read(self) -> None:
        try:
            self._found = tuple(_followed_before(self._template))
        except (NotADirectoryError, NotThere):
            self._is_read = True
        except Exception as error:  # noqa: BLE001  # it concerns jobs of before only
            self._notify(
                f"{described(error)}. Jobs that were followed before, and are not reported any"
                " more, are missed until it can be read"
            )
        else:
            self._is_read = True

    def _record(self, key: JobKey, job: Job) -> None:
        try:
            _record_end(job.request)
        except (LeaseHeld, Transient):
            return  # the next time
        except (Sealed, NotThere):
            pass  # it was promoted or removed, by somebody who knows
        except Exception as error:  # noqa: BLE001  # it concerns this job only
            self._notify(f"{job.name}: that it has ended was not recorded: {described(error)}")
        with self._lock:
            if self._ends.get(key) is job:
                del self._ends[key]
            self._recorded.add(key)


def _followed_before(template: SyncRequest) -> list[FollowedBefore]:
    """Return the jobs that replicas below a TARGET_ROOT record as followed.

    Costs a listing, and a small read of each replica.
    """
    root, side = template.target_root, template.sides.target
    places = [
        uri.join(root, each.name)
        for each in side.storage(root).list(root)
        if each.is_directory and each.name[:1] != "."
    ]
    with InlineRunner(Sides(side, side)) as runner:
        found = runner.map(partial(_read_one, side), places, places)
    return [each for each in found if each is not None]


def _read_one(side: Side, root: str) -> FollowedBefore | None:
    try:
        record = read_job_record(side, root)
        if record is None or record.reported_by is None or not record.is_followed:
            return None
        marker = read_marker(side, root)
        if marker is None or seal.describe(Replica(root, side)) is not None:
            return None  # its job was started elsewhere, by somebody who knows
    except Transient:
        raise
    except (CpreplicateError, OSError):
        return None
    source = marker.sources[-1].given
    is_job = JOB_ID.fullmatch(uri.name(source)) is not None
    return FollowedBefore(record.reported_by, record.name, source) if is_job else None


def _record_end(request: SyncRequest) -> None:
    """Record in the replica of a job that it has ended, if a service followed it.

    Raises `LeaseHeld` while another run works there, `Sealed`, `NotThere`, and `Refused`.
    """
    replica = Replica(replica_root(request), request.sides.target)
    record = read_job_record(replica.side, replica.root)
    if record is not None and record.is_followed:
        with opened(replica, orphans.examine_unsealed, notify=silent) as change:
            record_end(change.replica)
