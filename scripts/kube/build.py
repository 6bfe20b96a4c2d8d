"""Build Kubernetes' servers from their Go modules, and container images without a registry."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

BUILT = Path(__file__).resolve().parent.parent.parent / ".kubernetes"
PLUGINS = "/usr/lib/cni"
_RELEASE = "31.4"
_MODULES = (
    "api",
    "apiextensions-apiserver",
    "apimachinery",
    "apiserver",
    "cli-runtime",
    "client-go",
    "cloud-provider",
    "cluster-bootstrap",
    "code-generator",
    "component-base",
    "component-helpers",
    "controller-manager",
    "cri-api",
    "cri-client",
    "csi-translation-lib",
    "dynamic-resource-allocation",
    "endpointslice",
    "kms",
    "kube-aggregator",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "metrics",
    "mount-utils",
    "pod-security-admission",
    "sample-apiserver",
    "sample-cli-plugin",
    "sample-controller",
)
_COMMANDS = (
    "k8s.io/kubernetes/cmd/kube-apiserver",
    "k8s.io/kubernetes/cmd/kube-controller-manager",
    "k8s.io/kubernetes/cmd/kube-scheduler",
    "k8s.io/kubernetes/cmd/kubelet",
)
_PACKAGES = {
    "etcd": "etcd-server",
    "containerd": "containerd",
    "runc": "runc",
    "tini": "tini",
    f"{PLUGINS}/bridge": "containernetworking-plugins",
}
_PAUSE = """package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	<-ended
}
"""


def build() -> None:
    """Kubernetes' servers, and the program that holds a pod's namespaces."""
    missing = [package for command, package in _PACKAGES.items() if shutil.which(command) is None]
    if missing:
        subprocess.run(["apt-get", "update", "-q"], check=True)
        subprocess.run(
            ["apt-get", "install", "-qy", "--no-install-recommends", *missing], check=True
        )
    (BUILT / "pause").mkdir(parents=True, exist_ok=True)
    replaced = "".join(
        f"replace k8s.io/{name} => k8s.io/{name} v0.{_RELEASE}\n" for name in _MODULES
    )
    (BUILT / "go.mod").write_text(
        f"module kube\n\ngo 1.22.0\n\nrequire k8s.io/kubernetes v1.{_RELEASE}\n\n{replaced}"
    )
    imports = "".join(f'import _ "{command}"\n' for command in _COMMANDS)
    (BUILT / "tools.go").write_text(f"//go:build tools\n\npackage kube\n\n{imports}")
    (BUILT / "pause" / "main.go").write_text(_PAUSE)
    version = f"-s -w -X k8s.io/component-base/version.gitVersion=v1.{_RELEASE}"
    subprocess.run(["go", "mod", "tidy", "-e"], cwd=BUILT, check=True)
    subprocess.run(
        ["go", "build", "-ldflags", version, "-o", f"{BUILT}/bin/", *_COMMANDS],
        cwd=BUILT,
        check=True,
    )
    static = {**os.environ, "CGO_ENABLED": "0"}
    subprocess.run(
        ["go", "build", "-o", f"{BUILT}/bin/pause", "pause/main.go"],
        cwd=BUILT,
        check=True,
        env=static,
    )


def image(name: str, files: dict[str, bytes], links: dict[str, str], entrypoint: str) -> bytes:
    """A container image of one layer, as `docker save` writes it."""
    layer = _tarred(files, links)
    described = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Entrypoint": [entrypoint],
            "Env": ["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    config = json.dumps(described).encode()
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    return _tarred(
        {"config.json": config, "layer.tar": layer, "manifest.json": json.dumps(manifest).encode()},
        {},
    )


def _tarred(files: dict[str, bytes], links: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, target in links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()
