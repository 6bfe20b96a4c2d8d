"""The record of a replica's job: its name, since when, and the ids of earlier jobs that it follows.

`.cpreplicate/job.json` is written by a sync that knows the name, under the lease and after the
marker, and only if that changes it. It is for people who look for a job: it proves nothing, and
without it, or if it is damaged, only the name is not known. A service that follows the job records
which JobManager reported it, and once that the job has ended: the next one misses it else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.placement import JOB_ID, OWN
from cpreplicate.protocol import json_files
from cpreplicate.protocol.held import HeldReplica
from cpreplicate.storage import Side, Transient

NAME = "job.json"
_FORMAT = 1
_MOST_NAME = 300  # characters
_MOST_FOLLOWED = 64  # ids


class JobRecord(NamedTuple):
    """What is recorded of the job of a replica.

    `since` is when the first checkpoint was completed at the source that was replicated under this
    name, in seconds since the epoch. `follows` are the ids of earlier jobs whose files its
    checkpoints referenced. `reported_by` is the JobManager that reported it to the service that
    replicated it last, None if none did. `ended` is when its end was recorded, None if it was not.
    """

    name: str
    since: float
    follows: tuple[str, ...] = ()
    reported_by: str | None = None
    ended: float | None = None

    @property
    def is_followed(self) -> bool:
        """Whether a service followed the job, and nobody recorded its end."""
        return self.reported_by is not None and self.ended is None


def recorded_name(name: str) -> str:
    """Return the name of a job as it is recorded: of bounded length, in characters that print."""
    return "".join(each if each.isprintable() else "?" for each in name[:_MOST_NAME]).strip()


def read_job_record(side: Side, root: str) -> JobRecord | None:
    """Return the record of the replica at `root`, None if there is none or it is damaged.

    Raises `Transient` if the storage cannot be reached.
    """
    record_uri = uri.join(root, f"{OWN}/{NAME}")
    try:
        fields = json_files.parse(json_files.read(side.storage(record_uri), record_uri))
    except Transient:
        raise
    except OSError:  # a directory, for instance
        return None
    name = fields.get("name") if fields else None
    if fields is None or not isinstance(name, str) or not recorded_name(name):
        return None
    since = json_files.seconds(fields, "since") or 0.0  # damaged: the name counts for all times
    url, ended = fields.get("reported_by"), json_files.seconds(fields, "ended")
    reported_by = url if isinstance(url, str) else None
    follows = tuple(_ids(fields.get("follows")))
    return JobRecord(recorded_name(name), since, follows, reported_by, ended)


def is_job_recorded(
    side: Side, root: str, own: Collection[str], name: str | None, reported_by: str | None = None
) -> bool:
    """Return whether the name of a job is recorded, and who reported it, as far as they are given.

    `own` are the names of the files in `.cpreplicate/`.
    """
    if name is None or not recorded_name(name):
        return True
    known = read_job_record(side, root) if NAME in own else None
    if known is None or known.name != recorded_name(name):
        return False
    return reported_by is None or (known.reported_by == reported_by and known.ended is None)


def record_job(replica: HeldReplica, own: Collection[str], new: JobRecord) -> None:
    """Record a job under the lease, unless that is recorded already.

    The ids that were recorded before stay, and so does `since` under the same name. So does the
    end, unless a JobManager reports the job.
    """
    name = recorded_name(new.name)
    if not name:
        return
    known = read_job_record(replica.side, replica.root) if NAME in own else None
    follows = dict.fromkeys((*(known.follows if known else ()), *_ids(list(new.follows))))
    since = known.since if known is not None and known.name == name else new.since
    record = JobRecord(name, since, tuple(follows)[:_MOST_FOLLOWED], new.reported_by)
    if new.reported_by is None and known is not None:
        record = record._replace(reported_by=known.reported_by, ended=known.ended)
    if record != known:
        _write(replica, record)


def record_end(replica: HeldReplica) -> None:
    """Record under the lease that a job has ended which a service followed, unless it is."""
    known = read_job_record(replica.side, replica.root)
    if known is not None and known.is_followed:
        _write(replica, known._replace(ended=json_files.now()))


def _write(replica: HeldReplica, record: JobRecord) -> None:
    fields = {name: value for name, value in record._asdict().items() if value is not None}
    content = json_files.encoded({"format": _FORMAT, **fields, **json_files.signature()})
    replica.storage.put(replica.uri_of(f"{OWN}/{NAME}"), lambda: [content])


def _ids(values: Any) -> Iterator[str]:
    texts: Iterable[object] = values if isinstance(values, list) else ()
    ids = [text for text in texts if isinstance(text, str) and JOB_ID.fullmatch(text)]
    yield from ids[:_MOST_FOLLOWED]
