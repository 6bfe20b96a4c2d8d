"""How a job is started from a checkpoint: for Flink's CLI, its REST API, and on Kubernetes. Pure.

The fields are those of Flink's `JarRunRequestBody`, and of the custom resources of the Flink
Kubernetes Operator: `JobSpec`, and `FlinkStateSnapshotSpec` from its version 1.10 on.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cpreplicate.core import uri
from cpreplicate.core.metadata import Metadata
from cpreplicate.core.placement import REBASED
from cpreplicate.core.restore import Restore, claim_mode_names, knows_claim_modes, restore

CLASS = "CLASS"  # stands for that of the user's job in a command
NEVER_SEALED = 0
"""The nonce of a checkpoint whose replica is not sealed: it was not promoted."""
_API_VERSION = "flink.apache.org/v1beta1"
_NO_NAME = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 63  # characters of a DNS label: each object of Kubernetes may have such a name
_LONGEST_NUMBER = 20  # characters: of a checkpoint that `rebase` wrote, it may be any text
# what JSON may hold as it is, and YAML only escaped
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


@dataclass(frozen=True)
class Starting:
    """How a job is started from a checkpoint of a replica.

    `restore` is for Flink's CLI, `rest` the body for `/jars/:jarid/run` of its REST API.
    `configuration` are options for a job whose claim mode no other place sets. `nonce` is a number
    that no earlier promotion had: the Kubernetes operator restores a job anew when it changes.
    """

    checkpoint: str
    restore: Restore
    rest: Mapping[str, str]
    configuration: Mapping[str, str]
    nonce: int

    @property
    def application(self) -> str:
        """The command that starts it as an application of a standalone cluster.

        `standalone-job.sh` has no option for the claim mode, and would take one for the program's.
        """
        dynamic = [f"-D{name}={value}" for name, value in self.configuration.items()]
        options = [*dynamic, "-s", self.checkpoint, "-j", CLASS]
        return shlex.join(["standalone-job.sh", "start", *options])

    @property
    def deployment(self) -> dict[str, Any]:
        """The part of a `FlinkDeployment` or `FlinkSessionJob` that starts it from the checkpoint.

        It is a merge patch for one that is there. The operator ignores the path of a job that ran
        before unless the nonce is another one.
        """
        job = {"initialSavepointPath": self.checkpoint, "savepointRedeployNonce": self.nonce}
        spec: dict[str, Any] = {"job": job}
        if self.configuration:
            spec["flinkConfiguration"] = dict(self.configuration)
        return {"spec": spec}

    @property
    def snapshot(self) -> dict[str, Any]:
        """The manifest of a `FlinkStateSnapshot` that names the checkpoint.

        The operator takes it as it is, and deletes no file when the resource is deleted: its
        default would be to dispose of them.
        """
        return {
            "apiVersion": _API_VERSION,
            "kind": "FlinkStateSnapshot",
            "metadata": {"name": snapshot_name(self.checkpoint)},
            "spec": {
                "savepoint": {
                    "path": self.checkpoint,
                    "alreadyExists": True,
                    "disposeOnDelete": False,
                }
            },
        }


def starting(metadata: Metadata, checkpoint: str, nonce: int, mode: str = "absolute") -> Starting:
    """Return how a job is started from a checkpoint whose paths are spelled in `mode`.

    The claim mode has another name in the REST API and in the configuration of a Flink before 1.20.
    """
    safe = restore(metadata, mode, checkpoint)
    if not knows_claim_modes(metadata) or safe.claim_mode is None:
        return Starting(checkpoint, safe, {"savepointPath": checkpoint}, {}, nonce)
    field, option = claim_mode_names(metadata)
    return Starting(
        checkpoint,
        safe,
        {"savepointPath": checkpoint, field: safe.claim_mode},
        {option: safe.claim_mode},
        nonce,
    )


def snapshot_name(checkpoint: str) -> str:
    """Return the name of the `FlinkStateSnapshot` of a checkpoint.

    It has its job, its number, and a digest: the id of the job may be that of others. It is a valid
    DNS label.
    """
    digest = hashlib.sha256(uri.without_password(checkpoint).encode(errors="surrogatepass"))
    directory, number = uri.parent(checkpoint), uri.name(checkpoint)
    if uri.name(directory) == REBASED:
        directory, number = uri.parent(directory), f"{REBASED}-{number}"
    short = _NO_NAME.sub("-", number.lower())[:_LONGEST_NUMBER].strip("-")
    end = f"-{short}-{digest.hexdigest()[:8]}"
    job = _NO_NAME.sub("-", f"cpreplicate-{uri.name(directory).lower()}")
    return f"{job[: _LONGEST_NAME - len(end)].rstrip('-')}{end}"


def yaml(fields: Mapping[str, Any]) -> str:
    """Return nested mappings of texts, numbers and booleans as a YAML document."""
    return "".join(f"{line}\n" for line in _yaml_lines(fields))


def _yaml_lines(fields: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    for key, value in fields.items():
        if isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _yaml_lines(value, f"{indent}  ")
        else:
            yield f"{indent}{key}: {_scalar(value)}"


def _scalar(value: str | int | bool) -> str:
    """Return a scalar as JSON, which YAML reads as the same, but for some characters."""
    text = json.dumps(value, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
