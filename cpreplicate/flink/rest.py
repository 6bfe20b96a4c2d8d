"""The REST API of a JobManager: which jobs run, and which checkpoint each completed last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from cpreplicate.core import uri
from cpreplicate.errors import MetadataError
from cpreplicate.storage import Transient

_TIMEOUTS = (5.0, 20.0)  # seconds to connect, and between two bytes
# `JobStatus.isGloballyTerminalState` of Flink, and SUSPENDED: another JobManager takes over
_ENDED = frozenset({"FINISHED", "CANCELED", "FAILED", "SUSPENDED"})
# how Flink reports a checkpoint that is not retained, or is in the memory of the JobManager
# (`NonPersistentMetadataCheckpointStorageLocation`)
_NOT_ADDRESSABLE = "<checkpoint-not-externally-addressable>"


class RunningJob(NamedTuple):
    """A job of a JobManager; `started` in seconds since the epoch."""

    job_id: str
    name: str
    started: float
    has_ended: bool


class CompletedCheckpoint(NamedTuple):
    """The checkpoint that a job completed last, at `path`.

    `completed`: when its last subtask acknowledged it, in seconds since the epoch.
    """

    checkpoint_id: int
    path: str
    completed: float


class FlinkRest:
    """A client of one JobManager.

    A user and a password in the URL are used, and `url` is without them.
    `certificate` is the path of a PEM file with the client's certificate and key; `authority` that
    of the certificates to trust, None for the system's.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        certificate: str | None = None,
        authority: str | None = None,
    ) -> None:
        import requests

        self.url = _without_password(url.rstrip("/"))
        self._session = requests.Session()
        # kept out of the URL, which is reported
        self._session.auth = requests.utils.get_auth_from_url(url) if "@" in url else None
        self._session.headers.update(headers or {})
        self._session.cert = certificate
        self._session.verify = authority or True

    def jobs(self) -> list[RunningJob]:
        """Return the jobs that the JobManager knows, also those that ended a while ago.

        Raises `Transient` if it cannot be reached, and `MetadataError` if the answer is not
        Flink's.
        """
        answer = self._get("jobs/overview")
        try:
            return [
                RunningJob(
                    str(job["jid"]),
                    str(job["name"]),
                    float(job["start-time"]) / 1000,
                    job["state"] in _ENDED,
                )
                for job in answer["jobs"]
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise self._not_flink("jobs/overview", error) from error

    def newest_checkpoint(self, job_id: str) -> CompletedCheckpoint | None:
        """Return the checkpoint that a job completed last, None before the first one.

        A savepoint is none. Also None for a job without checkpointing, or one that has just gone:
        Flink answers both with 404 (`AbstractCheckpointStatsHandler`). Raises as `jobs`, and
        `MetadataError` if the job does not keep its checkpoints in a directory.
        """
        path = f"jobs/{job_id}/checkpoints"
        answer = self._get(path, may_be_absent=True)
        if answer is None:
            return None
        try:
            newest = answer["latest"]["completed"]
            if newest is None:
                return None
            place = newest.get("external_path") or _NOT_ADDRESSABLE
            acknowledged = float(newest["latest_ack_timestamp"]) / 1000
            checkpoint = CompletedCheckpoint(int(newest["id"]), str(place), acknowledged)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self._not_flink(path, error) from error
        if checkpoint.path == _NOT_ADDRESSABLE:
            raise MetadataError(
                f"the job {job_id} at {self.url} keeps its checkpoints in memory. Set"
                " execution.checkpointing.storage: filesystem and execution.checkpointing.dir"
            )
        return checkpoint._replace(path=uri.absolute(checkpoint.path, "/"))

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _get(self, path: str, may_be_absent: bool = False) -> Any:
        import requests

        url = f"{self.url}/{path}"
        try:
            response = self._session.get(url, timeout=_TIMEOUTS)
            if may_be_absent and response.status_code == requests.codes.not_found:
                return None
            response.raise_for_status()
            return response.json()
        except requests.exceptions.JSONDecodeError as error:
            raise self._not_flink(path, error) from error
        except requests.exceptions.RequestException as error:
            raise Transient(f"{url} cannot be read: {_reason(error)}. {_remedy(error)}") from error

    def _not_flink(self, path: str, error: Exception) -> MetadataError:
        return MetadataError(
            f"{self.url}/{path} does not answer as Flink's REST API does"
            f" ({type(error).__name__}: {error}). Check the URL of the JobManager"
        )


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _remedy(error: Exception) -> str:
    import requests

    if isinstance(error, requests.exceptions.SSLError):
        return "Check --client-certificate and --certificate-authority"
    if isinstance(error, requests.exceptions.HTTPError):
        return "Check the URL of the JobManager, --header and --client-certificate"
    return "Check the URL, and whether the JobManager runs"


def _reason(error: Exception) -> str:
    """Return the innermost reason: the others repeat the URL."""
    while error.__cause__ is not None or error.__context__ is not None:
        inner = error.__cause__ or error.__context__
        if not isinstance(inner, Exception):
            break
        error = inner
    return " ".join(str(error).split())
