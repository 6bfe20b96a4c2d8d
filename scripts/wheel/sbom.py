"""The bill of materials (SBOM) of the wheel: what it bundles and requires, in CycloneDX 1.6.

What NOTICE lists is bundled, with its version. A package that is required has none: pip chooses it
at the installation. Its properties are the requirement of the wheel, and the version of
requirements.lock, with which the release is tested.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_REQUIREMENT = "cpreplicate:requirement"
_TESTED = "cpreplicate:tested-version"
_EXTRA = "cpreplicate:extra"
_PINNED = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+)")
# a name, a version and an address, up to the line that names the licence
_BUNDLED = re.compile(
    r"^(\S+) (\d[\w.]*) \((https://[^\s)]+)\).*\n(?:.+\n)*?(\S+) License", re.MULTILINE
)
_NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # of URLs


def pinned(lock: str) -> dict[str, str]:
    """Return the version of each package that the text of a lock file pins."""
    matches = map(_PINNED.match, lock.splitlines())
    return {canonicalize_name(match[1]): match[2] for match in matches if match is not None}


def bundled(notice: str) -> list[dict[str, Any]]:
    """Return the components that the text of NOTICE lists: packages of npm."""
    return [
        {
            "type": "library",
            "bom-ref": f"{name}@{version}",
            "name": name,
            "version": version,
            "purl": f"pkg:npm/{name.lower().replace('@', '%40')}@{version}",
            "scope": "required",
            "licenses": [{"license": {"id": licence}}],
            "externalReferences": [{"type": "website", "url": url}],
        }
        for name, version, url, licence in _BUNDLED.findall(notice)
    ]


def bill(
    name: str,
    version: str,
    licence: str,
    required: Iterable[str],
    extras: Mapping[str, Sequence[str]],
    tested: Mapping[str, str],
    time: float,
    contained: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Return the bill of materials of a version.

    `required` and `extras` are requirements as in pyproject.toml, `tested` the versions of
    packages, `time` that of the release, in seconds since the epoch, and `contained` the components
    that the wheel bundles.
    """
    components = list(contained)
    components += [_component(each, None, tested) for each in required]
    components += [_component(each, extra, tested) for extra in extras for each in extras[extra]]
    components.sort(key=lambda component: str(component["bom-ref"]))
    references = [component["bom-ref"] for component in components]
    own = {
        "type": "application",
        "bom-ref": name,
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
        "licenses": [{"license": {"id": licence}}],
    }
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, str([own, components]))}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "lifecycles": [{"phase": "build"}],
            "component": own,
        },
        "components": components,
        "dependencies": [
            {"ref": name, "dependsOn": references},
            *({"ref": reference} for reference in references),
        ],
    }


def _component(text: str, extra: str | None, tested: Mapping[str, str]) -> dict[str, Any]:
    requirement = Requirement(text)
    name = canonicalize_name(requirement.name)
    properties = {_REQUIREMENT: text, _TESTED: tested.get(name), _EXTRA: extra}
    return {
        "type": "library",
        "bom-ref": name if extra is None else f"{name}[{extra}]",
        "name": requirement.name,
        "purl": f"pkg:pypi/{name}",
        "scope": "required" if extra is None else "optional",
        "properties": [
            {"name": key, "value": value} for key, value in properties.items() if value is not None
        ],
    }
