"""What a service answers to `GET /jobs` and `GET /jobs/NAME/restore`: docs/json.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, unquote

from cpreplicate.core import uri
from cpreplicate.operations.jobs.restore_point import RestorePoint
from cpreplicate.output.http import Page
from cpreplicate.output.json import document, timestamp
from cpreplicate.output.parts import starting_fields
from cpreplicate.output.streams import printable

RestorePoints = Callable[[str | None], Sequence[RestorePoint]]
"""Returns those of all jobs, or of those that a text means."""
_JSON = "application/json"
_UNUSABLE = ("", ".", "..")  # as a part of a path, which clients resolve or leave out


def page_of(path: str, points: RestorePoints) -> Page | None:
    """Return the page of a path as it was sent, still percent-encoded; None if it is not here.

    It is split before it is decoded: a name may hold a slash, written as `%2F`.
    """
    parts = path.split("/")[1:]
    if parts[:1] != ["jobs"]:
        return None
    if len(parts) == 1:
        return _page(HTTPStatus.OK, _jobs(points(None)))
    if len(parts) == 3 and parts[2] == "restore":
        return _restore(unquote(parts[1], errors="surrogateescape"), points)
    return _failure(HTTPStatus.NOT_FOUND, "see /jobs and /jobs/NAME/restore")


def _jobs(points: Sequence[RestorePoint]) -> dict[str, Any]:
    return {"jobs": list(_listed(points, points))}


def _restore(job: str, points: RestorePoints) -> Page:
    found = points(job)
    if not found:
        return _failure(
            HTTPStatus.NOT_FOUND, f"no job is followed whose name or id is {printable(job)}"
        )
    if len(found) > 1:
        text = f"{len(found)} jobs have this name or id: ask for one of them by its `url`"
        return _failure(HTTPStatus.CONFLICT, text, jobs=list(_listed(found, points(None))))
    return _page(HTTPStatus.OK, _point(found[0]))


def _point(point: RestorePoint) -> dict[str, Any]:
    start, sealed = point.starting, point.restore_state.sealed
    restore = None if start is None else starting_fields(start)
    if restore is not None and sealed is None:
        # who applied them would start the job anew with each checkpoint, from files that go
        restore = {**restore, "deployment": None, "snapshot": None}
    return {
        **_summary(point),
        "claim_mode": None if start is None else start.restore.claim_mode,
        "reason": None if start is None else start.restore.reason,
        "restore": restore,
        "sealed_at": None if sealed is None else timestamp(sealed.modified),
        "error": point.error,
    }


def _listed(
    points: Sequence[RestorePoint], among: Sequence[RestorePoint]
) -> Iterator[dict[str, Any]]:
    """Yield what is listed of jobs, with a URL that means each one `among` all."""
    names = Counter(each.name for each in among)
    ids = Counter(each for point in among for each in {point.job, point.source_name})
    replicas = {each.replica for each in among}
    for point in points:
        word = point.replica
        if ids[point.job] == 1 and point.job not in replicas:
            word = point.job
        own = {point.job, point.source_name}
        is_other = point.name in replicas or ids[point.name] > (point.name in own)
        if names[point.name] == 1 and not is_other and _is_usable(point.name):
            word = point.name
        yield {**_summary(point), "url": f"/jobs/{quote(word, safe='')}/restore"}


def _is_usable(name: str) -> bool:
    """Return whether a name can be a part of a path: Flink takes any text."""
    is_text = name.encode(errors="replace").decode() == name
    return is_text and name not in _UNUSABLE


def _summary(point: RestorePoint) -> dict[str, Any]:
    start = point.starting
    return {
        "name": point.name,
        "job": point.job,
        "replica": point.replica,
        "path": None if start is None else start.checkpoint,
        "checkpoint": None if start is None else uri.name(start.checkpoint),
        "checkpoint_completed": timestamp(point.restore_state.completed),
        "sealed": None if point.observed is None else point.restore_state.sealed is not None,
        "ready": point.unready is None,
        "not_ready_because": point.unready,
        "observed": timestamp(point.observed),
        "lag_seconds": None if point.lag is None else round(point.lag, 3),
        "source_unseen": point.is_unseen,
    }


def _failure(status: HTTPStatus, error: str, **fields: Any) -> Page:
    return _page(status, {"error": error, **fields})


def _page(status: HTTPStatus, fields: dict[str, Any]) -> Page:
    return Page(status, f"{document(_shown(fields), 0.0)}\n", _JSON)


def _shown(value: Any) -> Any:
    """Return a value without the passwords of URIs, wherever they are in it."""
    if isinstance(value, str):
        return uri.without_password(value)
    if isinstance(value, Mapping):
        return {key: _shown(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shown(each) for each in value]
    return value
