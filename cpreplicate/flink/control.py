"""What a JobManager is asked to do with a job: take a checkpoint, stop it, run it.

Each answer is checked. The paths and fields are those of Flink 1.13 to 2.3, which differ: newer
versions ignore a field that they do not know, older ones refuse it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from cpreplicate.core import uri
from cpreplicate.errors import FlinkRefused
from cpreplicate.flink.answers import JOB_ID, items, of, parsed, text, whole
from cpreplicate.flink.rest import FlinkRest
from cpreplicate.storage import Transient

SavepointFormat = Literal["NATIVE", "CANONICAL"]
Version = tuple[int, int]
TRIGGER_ID_SINCE: Version = (1, 15)
"""From here on, a savepoint is known by an id that the caller chooses."""

_CLAIM_MODE_SINCE: Version = (1, 20)
_RESTORE_MODE_SINCE: Version = (1, 15)
_TRIGGER_SINCE: Version = (1, 17)
_NOT_FOUND = 404
_FIRST_OTHER = 300  # status that is not of a success
# 502 to 504 come from a proxy that does not wait any longer, or before a leader is elected
_LAST_OF_FLINK = 500
# `POST /jars/:id/run` runs the program's main method: the first use of a cluster took 25 s
_RUN_SECONDS = 300.0
_UPLOAD_SECONDS = 600.0
_MOST_REASON = 300  # characters
_MOST_SLOTS = 1 << 31
_AVAILABILITY = ("high-availability.type", "high-availability")
_OF_AVAILABLE = (
    "high-availability.cluster-id",
    "high-availability.storageDir",
    "high-availability.zookeeper.quorum",
)
# Flink makes the first two for each process of a JobManager (`ClusterEntrypoint`)
_OF_PROCESS = ("web.tmpdir", "web.upload.dir", "jobmanager.rpc.address", "jobmanager.rpc.port")


class Cluster(NamedTuple):
    """What a JobManager reports of itself.

    `refresh`: seconds for which its answers about a job may be old. `can_submit`: it takes jars.
    """

    version: Version
    version_text: str
    can_submit: bool
    refresh: float

    @property
    def can_trigger(self) -> bool:
        """Whether it takes a checkpoint when asked."""
        return self.version >= _TRIGGER_SINCE


class Slots(NamedTuple):
    """The task slots of a cluster."""

    total: int
    free: int


class Checkpointing(NamedTuple):
    """How a job takes checkpoints: each `interval` seconds, and whether they outlive a cancel."""

    interval: float
    is_retained: bool


class Jar(NamedTuple):
    """A jar that a cluster has; its `name` is that of the file that was uploaded."""

    jar_id: str
    name: str
    uploaded: float


class Operation(NamedTuple):
    """What became of a checkpoint or a savepoint that was asked for.

    `is_known` is False if the JobManager does not know of it. `path` is that of a savepoint.
    """

    is_known: bool = True
    is_done: bool = False
    checkpoint_id: int | None = None
    path: str | None = None
    failure: str | None = None


class Run(NamedTuple):
    """How the program of a jar is run: as the job `job_id`, from the checkpoint at `path`.

    `claim_mode` is None for Flink's default.
    """

    job_id: str
    path: str
    claim_mode: str | None = None
    entry_class: str | None = None
    arguments: tuple[str, ...] = ()
    parallelism: int | None = None


class Restored(NamedTuple):
    """From what a job was restored: `path` is None if it began with empty state.

    `checkpoints` is how many it has completed since.
    """

    path: str | None
    checkpoints: int


class FlinkControl(FlinkRest):
    """A client of one JobManager that may change what runs there.

    Each method raises as `FlinkRest.jobs`, and `FlinkRefused` if the JobManager answers that it
    does not do it. After `Transient`, whether it was done is not known.
    """

    def cluster(self) -> Cluster:
        """Return the version of the cluster, and whether jobs can be submitted."""
        return self._read("config", lambda: _cluster(self._get("config")))

    def configuration(self) -> Mapping[str, str]:
        """Return the configuration of the JobManager, in which Flink hides secrets."""
        answer = self._get("jobmanager/config")
        return self._read("jobmanager/config", lambda: _configuration(answer))

    def identity(self) -> str | None:
        """Return what this cluster has and no other one, None if that is not known.

        Without high availability, it is that of the JobManager's process: its jobs end with it.
        """
        return _identity(self.configuration())

    def slots(self) -> Slots:
        """Return how many task slots there are."""
        answer = self._get("overview")
        names = ("slots-total", "slots-available")
        return self._read(
            "overview", lambda: Slots(*(whole(answer, name, _MOST_SLOTS) for name in names))
        )

    def state(self, job_id: str) -> str | None:
        """Return the state of a job, None if the JobManager does not know it.

        That one is not known proves nothing: a cluster that lost its JobManager has another one.
        """
        return next((job.state for job in self.jobs().jobs if job.job_id == job_id), None)

    def has_all_tasks(self, job_id: str) -> bool:
        """Return whether each task of a job runs: then it processes records."""
        path = f"jobs/{job_id}"
        answer = self._get(path, may_be_absent=True)
        return answer is not None and self._read(path, lambda: _has_all_tasks(answer))

    def slots_needed(self, job_id: str) -> int:
        """Return how many slots a job uses: the parallelism of its widest vertex, as by default."""
        path = f"jobs/{job_id}"
        answer = self._get(path)
        return self._read(path, lambda: _slots_needed(answer))

    def checkpointing(self, job_id: str) -> Checkpointing | None:
        """Return how a job takes checkpoints, None if it takes none, or is not known."""
        path = f"jobs/{job_id}/checkpoints/config"
        answer = self._get(path, may_be_absent=True)
        return None if answer is None else self._read(path, lambda: _checkpointing(answer))

    def restored(self, job_id: str) -> Restored | None:
        """Return from what a job was restored, None if that is not known (yet)."""
        path = f"jobs/{job_id}/checkpoints"
        answer = self._get(path, may_be_absent=True)
        return None if answer is None else self._read(path, lambda: _restored(answer))

    def trigger_checkpoint(self, job_id: str, trigger_id: str) -> bool:
        """Have a job take a checkpoint as it is configured to; asked again, it takes no second one.

        Returns False if this Flink cannot be asked: before 1.17.
        """
        body = {"triggerId": trigger_id, "checkpointType": "CONFIGURED"}
        try:
            self._post(f"jobs/{job_id}/checkpoints", body)
        except FlinkRefused as error:
            if error.status == _NOT_FOUND:
                return False
            raise
        return True

    def checkpoint_result(self, job_id: str, trigger_id: str) -> Operation:
        """Return what became of a checkpoint that was triggered."""
        return self._result(f"jobs/{job_id}/checkpoints/{trigger_id}")

    def is_stopping(self, job_id: str) -> bool:
        """Return whether a job takes the savepoint with which it ends, whoever asked for it."""
        path = f"jobs/{job_id}/checkpoints"
        answer = self._get(path, may_be_absent=True)
        return answer is not None and self._read(path, lambda: _is_stopping(answer))

    def mark(self, no_job: str, mark: str) -> bool:
        """Have a JobManager remember a mark under the id of a job that does not exist.

        A checkpoint of it fails, and Flink remembers that for `rest.async.store-duration`, five
        minutes by default (`DispatcherCachedOperationsHandler`). Returns False before 1.17.
        """
        return self.trigger_checkpoint(no_job, mark)

    def is_marked(self, no_job: str, mark: str) -> bool:
        """Return whether a JobManager remembers a mark. It logs a line if it does not."""
        return self.checkpoint_result(no_job, mark).is_known

    def cancel(self, job_id: str) -> None:
        """Have a job cancelled. What is cancelled already is no error."""
        path = f"jobs/{job_id}?mode=cancel"
        self._asked(path, "PATCH")

    def stop_with_savepoint(
        self,
        job_id: str,
        trigger_id: str,
        version: Version,
        directory: str | None = None,
        format_type: SavepointFormat = "NATIVE",
    ) -> str:
        """Have a job take a savepoint and end. Returns the id by which to ask what became of it.

        From Flink 1.15 on that is `trigger_id`, and asked again, it takes no second one. Before,
        Flink chooses one. `directory` None is that of the cluster's configuration.
        """
        body: dict[str, Any] = {"drain": False}
        if directory is not None:
            body["targetDirectory"] = directory
        if version >= TRIGGER_ID_SINCE:
            body |= {"formatType": format_type, "triggerId": trigger_id}
        path = f"jobs/{job_id}/stop"
        answer = self._post(path, body)
        return self._read(path, lambda: _id_of(answer, "request-id"))

    def savepoint_result(self, job_id: str, trigger_id: str) -> Operation:
        """Return what became of a savepoint that was asked for."""
        return self._result(f"jobs/{job_id}/savepoints/{trigger_id}")

    def jars(self) -> tuple[Jar, ...]:
        """Return the jars of the cluster, the newest first."""
        answer = self._get("jars")
        jars = self._read("jars", lambda: [_jar(each) for each in items(of(answer, "files"))])
        return tuple(sorted(jars, key=lambda jar: -jar.uploaded))

    def upload(self, jar: str) -> str:
        """Upload the jar at a local path, and return its id."""
        answer = self._asked("jars/upload", "POST", jar=jar, seconds=_UPLOAD_SECONDS)
        return self._read("jars/upload", lambda: text(answer, "filename").rpartition("/")[2])

    def run(self, jar_id: str, run: Run, version: Version) -> str:
        """Run the program of a jar, and return the id of its job.

        Asked again with the same `job_id`, Flink refuses: one cluster never has it twice.
        """
        path = f"jars/{jar_id}/run"
        answer = self._post(path, _run_body(run, version), _RUN_SECONDS)
        return self._read(path, lambda: _id_of(answer, "jobid"))

    def _result(self, path: str) -> Operation:
        answer = self._get(path, may_be_absent=True)
        if answer is None:
            return Operation(is_known=False)
        return self._read(path, lambda: _operation(answer))

    def _post(self, path: str, body: Mapping[str, Any], seconds: float | None = None) -> Any:
        return self._asked(path, "POST", body=json.dumps(body).encode(), seconds=seconds)

    def _asked(self, path: str, method: str, **question: Any) -> Any:
        """Return what a JobManager answers to what it is asked to do."""
        from cpreplicate.flink.client import Question

        answer = self._answer(path, Question(method, **question))
        if answer.status < _FIRST_OTHER:
            return self._read(path, lambda: parsed(answer.body))
        if answer.status > _LAST_OF_FLINK:
            raise Transient(
                f"{method} {self.url}/{path} was answered with status {answer.status}, as by a"
                " proxy before the JobManager: it is not known whether it was done"
            )
        raise FlinkRefused(
            f"{method} {self.url}/{path} was refused with status {answer.status}:"
            f" {_reason(answer.body)}",
            answer.status,
        )


def claim_field(version: Version) -> str | None:
    """Return the field of the claim mode of `/jars/:jarid/run`, None where there is none."""
    if version >= _CLAIM_MODE_SINCE:
        return "claimMode"
    return "restoreMode" if version >= _RESTORE_MODE_SINCE else None


def is_same_place(one: str, other: str) -> bool:
    """Return whether two paths of checkpoints that Flink prints are one: `file:/x` is `file:///x`."""
    return uri.absolute(one, "/").rstrip("/") == uri.absolute(other, "/").rstrip("/")


def _run_body(run: Run, version: Version) -> dict[str, Any]:
    body: dict[str, Any] = {"jobId": run.job_id, "savepointPath": run.path}
    field = claim_field(version)
    if run.claim_mode is not None and field is not None:
        body[field] = run.claim_mode
    if run.entry_class is not None:
        body["entryClass"] = run.entry_class
    if run.arguments:
        body["programArgsList"] = list(run.arguments)
    if run.parallelism is not None:
        body["parallelism"] = run.parallelism
    return body


def _cluster(answer: Any) -> Cluster:
    version = text(answer, "flink-version")
    features = of(answer, "features")
    can_submit = isinstance(features, dict) and features.get("web-submit") is True
    refresh = whole(answer, "refresh-interval") / 1000
    return Cluster(_version(version), version[:_MOST_REASON], can_submit, refresh)


def _version(version: str) -> Version:
    found = re.match(r"(\d{1,4})\.(\d{1,4})", version)
    if found is None:
        raise ValueError("'flink-version' is no version")
    return int(found[1]), int(found[2])


def _configuration(answer: Any) -> Mapping[str, str]:
    return {text(each, "key"): text(each, "value") for each in items(answer)}


def _identity(configuration: Mapping[str, str]) -> str | None:
    types = [configuration[name] for name in _AVAILABILITY if configuration.get(name)]
    is_available = any(each.upper() != "NONE" for each in types)
    names = _OF_AVAILABLE if is_available else _OF_PROCESS
    known = [f"{name}={configuration[name]}" for name in names if configuration.get(name)]
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:32] if known else None


def _slots_needed(answer: Any) -> int:
    vertices = items(of(answer, "vertices"))
    return max((whole(each, "parallelism", _MOST_SLOTS) for each in vertices), default=1)


def _has_all_tasks(answer: Any) -> bool:
    vertices = items(of(answer, "vertices"))
    return bool(vertices) and all(text(each, "status") in _AT_WORK for each in vertices)


def _checkpointing(answer: Any) -> Checkpointing:
    kept = of(answer, "externalization")
    flags = [of(kept, name) is wanted for name, wanted in _RETAINED.items()]
    return Checkpointing(whole(answer, "interval") / 1000, all(flags))


_AT_WORK = ("RUNNING", "FINISHED")  # a bounded source ends before the job does
_ENDING = ("IN_PROGRESS", "SYNC_SAVEPOINT")
_RETAINED = {"enabled": True, "delete_on_cancellation": False}


def _restored(answer: Any) -> Restored:
    latest = of(of(answer, "latest"), "restored")
    completed = whole(of(answer, "counts"), "completed")
    return Restored(None if latest is None else text(latest, "external_path"), completed)


def _is_stopping(answer: Any) -> bool:
    history = items(of(answer, "history"))
    return any((of(each, "status"), of(each, "checkpoint_type")) == _ENDING for each in history)


def _jar(entry: Any) -> Jar:
    jar_id = text(entry, "id")
    if "/" in jar_id or not jar_id.isprintable():
        raise ValueError("the id of a jar is none")
    return Jar(jar_id, text(entry, "name"), whole(entry, "uploaded") / 1000)


def _operation(answer: Any) -> Operation:
    is_done = text(of(answer, "status"), "id") == "COMPLETED"
    outcome = answer.get("operation")
    if not is_done or not isinstance(outcome, dict):
        return Operation(is_done=is_done, failure="Flink gives no result" if is_done else None)
    failure = outcome.get("failureCause") or outcome.get("failure-cause")
    if failure is not None:
        return Operation(is_done=True, failure=_cause(failure))
    number = whole(outcome, "checkpointId") if "checkpointId" in outcome else None
    place = outcome.get("location")
    path = uri.absolute(text(outcome, "location"), "/") if place is not None else None
    return Operation(is_done=True, checkpoint_id=number, path=path)


def _id_of(answer: Any, name: str) -> str:
    found = text(answer, name)
    if not JOB_ID.fullmatch(found):
        raise ValueError(f"{name!r} has not 32 hexadecimal digits")
    return found


def _cause(failure: Any) -> str:
    trace = failure.get("stack-trace") if isinstance(failure, dict) else failure
    return _shortest(str(trace))


def _reason(body: bytes) -> str:
    """Return in one line why a JobManager refuses."""
    try:
        errors = items(of(parsed(body), "errors"))
    except ValueError:
        return "its answer gives no reason"
    return _shortest("\n".join(map(str, errors)))


def _shortest(trace: str) -> str:
    """Return the innermost cause of a stack trace."""
    lines = [line.strip() for line in trace.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    named = [line for line in lines if re.match(r"(<Exception|[\w.$]+(Exception|Error))\b", line)]
    line = (causes or named[:1] or lines[:1] or ["no reason"])[-1]
    shown = "".join(each if each.isprintable() else " " for each in line)
    return shown.removeprefix("Caused by: ")[:_MOST_REASON]
