"""The container images: built without a registry, and run as a user id without a passwd entry."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from scripts.deployment.tools import BUILT, DEPLOY, PROJECT, packages, run
from tests.support import checker
from tests.support.jobs import JOB, write_checkpoint

NAME = "docker.io/library/cpreplicate"
USER = 12345
_BASE = "localhost/debian-python"
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def _buildah(*words: str | Path) -> str:
    configuration = BUILT / "storage.conf"
    configuration.parent.mkdir(exist_ok=True)
    places = f'graphroot = "{BUILT}/storage"\nrunroot = "{BUILT}/storage-run"'
    configuration.write_text(f'[storage]\ndriver = "vfs"\n{places}\n')
    env = {"CONTAINERS_STORAGE_CONF": str(configuration), "BUILDAH_ISOLATION": "chroot"}
    return run("buildah", *words, env=env)


def _build_base() -> None:
    """Debian with Python, in place of the image that the Dockerfile names: no registry is asked."""
    packages(buildah="buildah", debootstrap="debootstrap", runc="runc")
    if _BASE in _buildah("images", "--format", "{{.Name}}"):
        return
    root = BUILT / "rootfs"
    included = "--include=python3-minimal,python3-venv,ca-certificates"
    run("debootstrap", "--variant=minbase", included, "bookworm", root)
    left_out = [f"--exclude=./{name}/*" for name in ("proc", "sys", "dev", "var/cache/apt")]
    run("tar", "-C", root, "-cf", BUILT / "rootfs.tar", *left_out, ".")
    (BUILT / "Dockerfile").write_text("FROM scratch\nADD rootfs.tar /\n")
    _buildah("bud", "-q", "-f", BUILT / "Dockerfile", "-t", _BASE, BUILT)


def build(target: str) -> Path:
    """Build a target of the Dockerfile, and return it as `docker save` writes it."""
    _build_base()
    (BUILT / "pip.conf").write_text("[global]\ncert = /run/certificates.crt\n")
    container = DEPLOY / "container"
    volumes = (
        f"--volume={_CERTIFICATES}:/run/certificates.crt:ro",
        f"--volume={BUILT}/pip.conf:/etc/pip.conf:ro",
    )
    ignored = f"--ignorefile={container}/Dockerfile.dockerignore"
    base = f"--build-arg=BASE={_BASE}"
    file = f"--file={container}/Dockerfile"
    name = f"{NAME}:{target}"
    words = ("--layers", *volumes, ignored, base, file, f"--target={target}", f"--tag={name}")
    _buildah("bud", "-q", *words, PROJECT)
    archive = BUILT / f"{target}.tar"
    archive.unlink(missing_ok=True)
    _buildah("push", "-q", name, f"docker-archive:{archive}:{name}")
    print(f"image {target}: built, {archive.stat().st_size / 1e6:.0f} MB", flush=True)
    return archive


def check(target: str, runner: str) -> None:
    """Replicate in a container: a read-only file system, no capability, and an unknown user id."""
    build(target)
    with tempfile.TemporaryDirectory(prefix="cpreplicate-container-") as directory:
        data = Path(directory) / "data"
        write_checkpoint(data / "dcA", 1, {f"shared/{each}": 10_000 for each in range(20)})
        for path in [Path(directory), data]:
            path.chmod(0o777)
        words = ["sync", f"{data}/dcA/{JOB}", f"{data}/dcB", "--runner", runner]
        _run_container(Path(directory), data, f"{NAME}:{target}", words)
        replica = data / "dcB" / JOB
        assert checker.faults(replica) == []
        assert replica.stat().st_uid == USER
    print(f"image {target}: replicated by {runner} as user {USER}, read-only", flush=True)


def _run_container(directory: Path, data: Path, image: str, words: list[str]) -> None:
    container = _buildah("from", image).strip()
    try:
        root = _buildah("mount", container).strip()
        run("runc", "spec", "--bundle", directory)
        file = directory / "config.json"
        described = json.loads(_buildah("inspect", "--type", "image", image))["OCIv1"]["config"]
        spec = _specified(json.loads(file.read_text()), root, data, described, words)
        file.write_text(json.dumps(spec))
        run("runc", "run", "--bundle", directory, f"cpreplicate-{os.getpid()}")
    finally:
        _buildah("rm", container)


def _specified(
    spec: dict[str, Any], root: str, data: Path, image: dict[str, Any], words: list[str]
) -> dict[str, Any]:
    """Return the OCI runtime specification of the container."""
    process = spec["process"]
    process.update(
        terminal=False,
        user={"uid": USER, "gid": 0},
        args=[*image["Entrypoint"], *words],
        env=image["Env"],
        cwd=image["WorkingDir"],
        capabilities={},
        noNewPrivileges=True,
    )
    spec["root"] = {"path": root, "readonly": True}
    tmp = {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777"]}
    bind = {"destination": str(data), "type": "bind", "source": str(data), "options": ["rbind"]}
    hosts = data.with_name("hosts")  # every container runtime writes one
    hosts.write_text("127.0.0.1 localhost cpreplicate\n")
    options = ["rbind", "ro"]
    named = {"destination": "/etc/hosts", "type": "bind", "source": str(hosts), "options": options}
    spec["mounts"] += [tmp, bind, named]
    spec["hostname"] = "cpreplicate"
    spaces = spec["linux"]["namespaces"]
    spec["linux"]["namespaces"] = [each for each in spaces if each["type"] != "network"]
    spec["linux"].pop("resources", None)
    return spec
