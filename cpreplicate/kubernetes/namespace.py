"""The `FlinkStateSnapshot`s of a namespace, by the official client of Kubernetes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from cpreplicate.errors import CpreplicateError, Refused, Unanswered, UsageError

_GROUP, _VERSION, _PLURAL = "flink.apache.org", "v1beta1", "flinkstatesnapshots"
_SECONDS = (5.0, 20.0)  # to connect, and for an answer
_PAGE = 500  # objects of an answer to a list
_MOST_PAGES = 1000
_NOT_FOUND = 404
_IN_A_POD = "KUBERNETES_SERVICE_HOST"


class _Gone(CpreplicateError):
    """The object, or the resource, is not there."""


class _Conflict(Refused):
    """There is another object of this name."""


# What else is answered concerns one object: a policy or a webhook may refuse it with any status.
_KINDS: Mapping[int | None, type[CpreplicateError]] = {
    401: CpreplicateError,
    _NOT_FOUND: _Gone,
    409: _Conflict,
}


class Namespace:
    """The `FlinkStateSnapshot`s of one namespace. Its methods raise `CpreplicateError`."""

    def __init__(self, name: str, custom_objects: Any) -> None:
        self.name, self._api = name, custom_objects

    def listed(self, selector: str) -> list[dict[str, Any]]:
        """Return the objects with these labels."""
        found: list[dict[str, Any]] = []
        more = ""
        for _ in range(_MOST_PAGES):
            page = self._call(
                "list_namespaced_custom_object",
                label_selector=selector,
                limit=_PAGE,
                _continue=more,
            )
            try:
                found += list(page["items"])
                more = page["metadata"].get("continue") or ""
            except (TypeError, KeyError, AttributeError) as error:
                raise _odd("a list") from error
            if not more:
                return found
        raise _odd(f"a list of more than {_MOST_PAGES} pages")

    def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object, and return it.

        Raises `Refused` if it is this object that the server refuses: there is another one of its
        name, a field is invalid, or a policy denies it. Raises `Unanswered` as the other methods.
        """
        created = self._call("create_namespaced_custom_object", body=dict(manifest))
        if not isinstance(created, dict):
            raise Refused(str(_odd("an object that was created")))
        return created

    def delete(self, name: str, uid: str) -> None:
        """Delete the object of this name, if it is still the one with this uid."""
        with suppress(_Gone, _Conflict):  # the latter: another one has its name by now
            self._call(
                "delete_namespaced_custom_object", name=name, body={"preconditions": {"uid": uid}}
            )

    def _call(self, verb: str, **values: Any) -> Any:
        """Return what the API server answers to a verb on the snapshots of this namespace.

        Raises a `CpreplicateError` that explains the answer.
        """
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        call = getattr(self._api, verb)
        try:
            return call(_GROUP, _VERSION, self.name, _PLURAL, _request_timeout=_SECONDS, **values)
        except ApiException as error:
            kind = _KINDS.get(error.status, Refused)
            raise kind(self._explained(error.status, error.body, error.reason)) from error
        except HTTPError as error:
            cause = getattr(error, "reason", None) or error
            raise Unanswered(
                f"the API server of Kubernetes does not answer: {type(cause).__name__}"
            ) from error

    def _explained(self, status: int | None, body: object, reason: object) -> str:
        if status == _NOT_FOUND:
            return (
                f"the cluster of Kubernetes has no namespace {self.name}, or no {_PLURAL}.{_GROUP}."
                " Install the CRDs of the Flink Kubernetes Operator, 1.10 or later"
            )
        return f"the API server of Kubernetes answered {status}: {_message(body) or reason}"


def connect(namespace: str) -> Namespace:
    """Return a namespace of the cluster that this process runs in, or of its kubeconfig.

    Nothing is asked yet. Raises `UsageError` without the extra `kubernetes`, and without access.
    """
    try:
        import kubernetes
    except ImportError as error:
        raise UsageError(
            "--kubernetes-snapshots needs the extra `kubernetes`: pip install kubernetes"
        ) from error
    config: Any = kubernetes.config
    try:
        # its own `load_config` prints to stdout
        if "KUBECONFIG" not in os.environ and _IN_A_POD in os.environ:
            config.load_incluster_config()
        else:
            config.load_kube_config(os.environ.get("KUBECONFIG") or None)
    except (config.ConfigException, OSError) as error:
        raise UsageError(
            f"--kubernetes-snapshots: no access to a cluster of Kubernetes: {error}. Run in a pod"
            " with a service account, or set KUBECONFIG"
        ) from error
    return Namespace(namespace, kubernetes.client.CustomObjectsApi())


def _odd(what: str) -> CpreplicateError:
    return CpreplicateError(
        f"what answers as the API server of Kubernetes returned no such thing as {what}. Check what"
        " is between it and this process"
    )


def _message(body: object) -> str:
    """Return the message of a `Status`, the answer of an API server that refuses."""
    try:
        return str(json.loads(str(body))["message"])
    except (ValueError, KeyError, TypeError):
        return ""
