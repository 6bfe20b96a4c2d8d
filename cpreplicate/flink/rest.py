"""The REST API of a JobManager: which jobs run, and which checkpoint each completed last.

An answer is not trusted: each of its fields is checked, and one job's concern that job only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from cpreplicate.core import uri
from cpreplicate.errors import MetadataError
from cpreplicate.flink import address
from cpreplicate.flink.answers import JOB_ID, items, of, parsed, seconds, text, whole
from cpreplicate.storage import Transient

if TYPE_CHECKING:
    from cpreplicate.flink.client import Answer, Question, RequestLimits

# `JobStatus.isGloballyTerminalState` of Flink, and SUSPENDED: another JobManager takes over
_ENDED = frozenset({"FINISHED", "CANCELED", "FAILED", "SUSPENDED"})
# how Flink reports a checkpoint that is not retained, or is in the memory of the JobManager
# (`NonPersistentMetadataCheckpointStorageLocation`)
_NOT_ADDRESSABLE = "<checkpoint-not-externally-addressable>"
_RUNNING = "RUNNING"
_NOT_FOUND = 404
_FIRST_ERROR = 400
T = TypeVar("T")


class RunningJob(NamedTuple):
    """A job of a JobManager; `state` is a `JobStatus` of Flink.

    `began` is when it was started there, in seconds since the epoch; 0 if that is not known.
    """

    job_id: str
    name: str
    has_ended: bool
    state: str = _RUNNING
    began: float = 0.0


class Overview(NamedTuple):
    """What a JobManager reports of its jobs.

    `unclear` is what is wrong with the report of a job, by the id of the job; without an id it is
    in `problems`. `guessed` are these jobs as far as they can be read: without a name, the id is
    their name, and without a state they run.
    """

    jobs: tuple[RunningJob, ...]
    unclear: Mapping[str, str] = {}
    problems: tuple[str, ...] = ()
    guessed: tuple[RunningJob, ...] = ()


class CompletedCheckpoint(NamedTuple):
    """The checkpoint that a job completed last, at `path`.

    `completed`: when its last subtask acknowledged it, in seconds since the epoch.
    """

    checkpoint_id: int
    path: str
    completed: float


class Checkpoints(NamedTuple):
    """What a JobManager reports of the checkpoints of a job.

    `restored` is the path of the one that the job was restored from, if it is no savepoint.
    `savepoint` is the last savepoint, if it is newer than the checkpoint completed last.
    """

    completed: CompletedCheckpoint | None = None
    restored: str | None = None
    savepoint: CompletedCheckpoint | None = None


class FlinkRest:
    """A client of one JobManager.

    A user and a password in the URL are used, and `url` is without them. Neither they nor `headers`
    are sent to another host, not after a redirect either. `certificate` is the path of a PEM file
    with the client's certificate and key; `authority` that of the certificates to trust, None for
    the system's. `limits` are those of a request, None for the usual ones. Raises `UsageError` for
    what is no URL.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        certificate: str | None = None,
        authority: str | None = None,
        limits: RequestLimits | None = None,
    ) -> None:
        from cpreplicate.flink.client import Client, RequestLimits

        place = address.parse(url)
        self.url = place.url
        self._client = Client(
            place, headers or {}, certificate, authority, limits or RequestLimits()
        )

    def jobs(self) -> Overview:
        """Return the jobs that the JobManager knows, also those that ended a while ago.

        Raises `Transient` if it cannot be reached, or does not answer in time, and `MetadataError`
        if the answer is not Flink's.
        """
        answer = self._get("jobs/overview")
        entries = self._read("jobs/overview", lambda: items(of(answer, "jobs")))
        jobs: dict[str, RunningJob] = {}
        unclear: dict[str, str] = {}
        guessed: dict[str, RunningJob] = {}
        problems: list[str] = []
        for entry in entries:
            try:
                job_id = _job_id(entry)
            except ValueError as error:
                problems.append(str(self._not_flink("jobs/overview", error)))
                continue
            try:
                jobs[job_id] = _running_job(job_id, entry)
            except ValueError as error:
                unclear[job_id] = str(self._not_flink("jobs/overview", error))
                guessed[job_id] = _guessed_job(job_id, entry)
        return Overview(tuple(jobs.values()), unclear, tuple(problems), tuple(guessed.values()))

    def newest_checkpoint(self, job_id: str) -> CompletedCheckpoint | None:
        """Return the checkpoint that a job completed last, None before the first one.

        A savepoint is none. Also None for a job without checkpointing, or one that has just gone:
        Flink answers both with 404 (`AbstractCheckpointStatsHandler`). Raises as `jobs`, and
        `MetadataError` if the job does not keep its checkpoints in a directory.
        """
        return self.checkpoints(job_id).completed

    def checkpoints(self, job_id: str) -> Checkpoints:
        """Return as `newest_checkpoint`, and from what the job was restored."""
        path = f"jobs/{job_id}/checkpoints"
        answer = self._get(path, may_be_absent=True)
        if answer is None:
            return Checkpoints()
        checkpoint = self._read(path, lambda: _completed(answer))
        if checkpoint is not None and checkpoint.path == _NOT_ADDRESSABLE:
            raise MetadataError(
                f"the job {job_id} at {self.url} keeps its checkpoints in memory. Set"
                " execution.checkpointing.storage: filesystem and execution.checkpointing.dir"
            )
        savepoint = _savepoint(answer, checkpoint)
        if checkpoint is None:
            return Checkpoints(restored=_restored(answer), savepoint=savepoint)
        checkpoint = checkpoint._replace(path=uri.absolute(checkpoint.path, "/"))
        return Checkpoints(checkpoint, savepoint=savepoint)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _get(self, path: str, may_be_absent: bool = False) -> Any:
        answer = self._answer(path)
        if may_be_absent and answer.status == _NOT_FOUND:
            return None
        if answer.status >= _FIRST_ERROR:
            place = self._client.redirected_to
            who = f"it redirects to {place}, which" if place else "it"
            raise Transient(
                f"{self.url}/{path} cannot be read: {who} answers with status {answer.status}."
                " Check the URL of the JobManager, --header and --client-certificate"
            )
        return self._read(path, lambda: parsed(answer.body))

    def _answer(self, path: str, question: Question | None = None) -> Answer:
        from cpreplicate.flink.client import GET, Untrusted

        url = f"{self.url}/{path}"
        try:
            return self._client.ask(url, question or GET)
        except Untrusted as error:
            remedy = "Check --client-certificate and --certificate-authority"
            raise Transient(self._unread(url, error, remedy)) from error
        except Transient as error:
            remedy = "Check the URL, and whether the JobManager runs"
            raise type(error)(self._unread(url, error, remedy)) from error

    def _unread(self, url: str, error: Transient, remedy: str) -> str:
        """Return why a URL cannot be read: the host to blame may be one that it redirects to."""
        place = self._client.redirected_to
        if place is None:
            return f"{url} cannot be read: {error}. {remedy}"
        return (
            f"{url} cannot be read: it redirects to {place}, which failed: {error}. Check"
            f" {place}, and why the JobManager redirects there"
        )

    def _read(self, path: str, read: Callable[[], T]) -> T:
        try:
            return read()
        except ValueError as error:
            raise self._not_flink(path, error) from error

    def _not_flink(self, path: str, error: Exception) -> MetadataError:
        return MetadataError(
            f"{self.url}/{path} does not answer as Flink's REST API does: {error}. Check the URL of"
            " the JobManager"
        )


def _running_job(job_id: str, entry: Any) -> RunningJob:
    state = text(entry, "state")
    began = 0.0
    with suppress(ValueError):
        began = seconds(entry, "start-time")
    return RunningJob(job_id, text(entry, "name"), state in _ENDED, state, began)


def _guessed_job(job_id: str, entry: Any) -> RunningJob:
    """Return a job of whose report something is wrong."""
    fields = {}
    for name in ("name", "state"):
        with suppress(ValueError):
            fields[name] = text(entry, name)
    state = fields.get("state", _RUNNING)
    return RunningJob(job_id, fields.get("name", job_id), state in _ENDED, state)


def _restored(answer: Any) -> str | None:
    """Return the path of the checkpoint that a job was restored from. What is odd is left out."""
    try:
        restored = of(of(answer, "latest"), "restored")
        if restored is None or restored.get("is_savepoint"):
            return None
        path = text(restored, "external_path")
    except (ValueError, AttributeError):
        return None
    return None if path in ("", _NOT_ADDRESSABLE) else uri.absolute(path, "/")


def _savepoint(answer: Any, completed: CompletedCheckpoint | None) -> CompletedCheckpoint | None:
    """Return the last savepoint of a job, unless a checkpoint is newer. What is odd is left out."""
    try:
        found = _completed(answer, "savepoint")
    except ValueError:
        return None
    if found is None or found.path == _NOT_ADDRESSABLE:
        return None
    if completed is not None and found.checkpoint_id < completed.checkpoint_id:
        return None
    return found._replace(path=uri.absolute(found.path, "/"))


def _completed(answer: Any, kind: str = "completed") -> CompletedCheckpoint | None:
    newest = of(of(answer, "latest"), kind)
    if newest is None:
        return None
    place = newest.get("external_path") if isinstance(newest, dict) else None
    path = _NOT_ADDRESSABLE if place is None else text(newest, "external_path")
    number = whole(newest, "id")
    acknowledged = seconds(newest, "latest_ack_timestamp")
    return CompletedCheckpoint(number, path or _NOT_ADDRESSABLE, acknowledged)


def _job_id(entry: Any) -> str:
    job_id = text(entry, "jid").lower()  # as Flink writes it, which reads both
    if not JOB_ID.fullmatch(job_id):
        raise ValueError("the id of a job has not 32 hexadecimal digits")
    return job_id
