"""A Kubernetes of one node on this machine: etcd, API server, containerd and kubelet, with pods on
a bridge of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyspark

from scripts.kube import names
from scripts.kube.api import API, DRIVER, TOKEN, asked, delete, pods, wait_until
from scripts.kube.build import BUILT, PLUGINS, image

IMAGE = "docker.io/cpreplicate/executor:1"
_NODE_ADDRESS, _BRIDGE, _PODS = "10.9.9.1", "cpreplicate0", "10.77.0.0/24"
_SOCKET = "/run/cpreplicate-containerd.sock"
_CTR = ("ctr", "-a", _SOCKET, "-n", "k8s.io")

# As the entrypoint of Spark's own image does for a driver and for an executor.
_ENTRYPOINT = b"""#!/bin/sh
if [ "$1" = driver ]; then
    shift
    exec tini -s -- "$SPARK_HOME/bin/spark-submit" \\
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \\
        --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \\
        --deploy-mode client "$@"
fi
env | grep '^SPARK_JAVA_OPT_' | sort -t_ -k4 -n | sed 's/[^=]*=//' > /tmp/java_opts
exec java $(cat /tmp/java_opts) -Xmx"$SPARK_EXECUTOR_MEMORY" -cp "$SPARK_HOME/jars/*" \\
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \\
    --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" \\
    --cores "$SPARK_EXECUTOR_CORES" --app-id "$SPARK_APPLICATION_ID" \\
    --hostname "$SPARK_EXECUTOR_POD_IP" --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \\
    --podName "$SPARK_EXECUTOR_POD_NAME"
"""


@contextlib.contextmanager
def kubernetes(place: Path, *images: Path) -> Iterator[None]:
    """One node that is ready; nothing of it is left after the block.

    `images` are further container images, as `docker save` writes them.
    """
    with contextlib.ExitStack() as stack:
        configure(place)
        subprocess.run(["ip", "link", "add", _BRIDGE, "type", "bridge"], check=True)
        stack.callback(subprocess.run, ["ip", "link", "delete", _BRIDGE], check=False)
        # there before the first pod is
        subprocess.run(["ip", "address", "add", f"{DRIVER}/24", "dev", _BRIDGE], check=True)
        subprocess.run(["ip", "link", "set", _BRIDGE, "up"], check=True)
        subprocess.run(["ip", "address", "add", f"{_NODE_ADDRESS}/32", "dev", "lo"], check=True)
        stack.callback(
            subprocess.run,
            ["ip", "address", "delete", f"{_NODE_ADDRESS}/32", "dev", "lo"],
            check=False,
        )
        _start_servers(stack, place)
        stack.enter_context(names.served(DRIVER))
        start(stack, place, "containerd", "-c", f"{place}/containerd.toml")
        wait_until(lambda: Path(_SOCKET).exists(), "containerd listens")
        for tar in (place / "pause.tar", place / "executor.tar", *images):
            subprocess.run(
                [*_CTR, "images", "import", "--snapshotter", "native", tar],
                stdout=subprocess.DEVNULL,
                check=True,
            )
        # the kubelet mounts it upon itself
        stack.callback(lambda: subprocess.run(["umount", place / "kubelet"], check=False))
        start(
            stack,
            place,
            f"{BUILT}/bin/kubelet",
            "--config",
            f"{place}/kubelet.json",
            "--kubeconfig",
            f"{place}/kubeconfig",
            "--root-dir",
            f"{place}/kubelet",
            "--hostname-override",
            "node1",
            "--node-ip",
            _NODE_ADDRESS,
            "--cert-dir",
            f"{place}/kubelet-pki",
        )
        stack.callback(remove_pods)
        wait_until(is_ready, "the node is ready")
        yield


def _start_servers(stack: contextlib.ExitStack, place: Path) -> None:
    etcd = "http://127.0.0.1:2379"
    clients = (
        "--listen-client-urls",
        etcd,
        "--advertise-client-urls",
        etcd,
        "--listen-peer-urls",
        "http://127.0.0.1:2380",
    )
    start(stack, place, "etcd", "--data-dir", f"{place}/etcd", *clients)
    start(
        stack,
        place,
        f"{BUILT}/bin/kube-apiserver",
        "--etcd-servers",
        etcd,
        "--bind-address=0.0.0.0",  # pods connect to it, too
        "--secure-port=6443",
        f"--cert-dir={place}/certs",
        f"--token-auth-file={place}/tokens.csv",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={place}/sa.key",
        f"--service-account-signing-key-file={place}/sa.key",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--endpoint-reconciler-type=none",
        "--kubelet-preferred-address-types=InternalIP",  # for the logs of pods
        f"--advertise-address={DRIVER}",
    )
    wait_until(lambda: asked("GET", "/version"), "the API server answers")
    access = ("--kubeconfig", f"{place}/kubeconfig", "--leader-elect=false")
    start(
        stack,
        place,
        f"{BUILT}/bin/kube-controller-manager",
        *access,
        f"--service-account-private-key-file={place}/sa.key",
        f"--root-ca-file={place}/certs/apiserver.crt",
    )
    start(stack, place, f"{BUILT}/bin/kube-scheduler", *access)
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    wait_until(lambda: asked("GET", account), "the controllers run")


def is_ready() -> bool:
    """Whether the node is."""
    conditions = asked("GET", "/api/v1/nodes/node1")["status"]["conditions"]
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def remove_pods() -> None:
    """All of them; the kubelet then ends their processes and unmounts their volumes."""
    for pod in pods():
        delete(pod)
    listed = [*_CTR, "tasks", "list", "-q"]
    wait_until(
        lambda: not subprocess.run(listed, capture_output=True, check=True).stdout,
        "the pods' processes end",
    )


def start(stack: contextlib.ExitStack, place: Path, *command: str) -> None:
    """A server that ends with the stack; its log is in the directory."""
    with (place / f"{Path(command[0]).name}.log").open("wb") as log:
        server = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=place, start_new_session=True
        )
    stack.callback(end, server)


def end(server: subprocess.Popen[bytes]) -> None:
    """Ask, then kill."""
    server.terminate()
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def configure(place: Path) -> None:
    """What the servers read."""
    (place / "tokens.csv").write_text(f'{TOKEN},admin,1,"system:masters"\n')
    subprocess.run(
        ["openssl", "genrsa", "-out", place / "sa.key", "2048"], capture_output=True, check=True
    )
    (place / "pod.json").write_text(json.dumps(pod(place)))
    _images(place)
    _container_runtime(place)
    _kubelet(place)


def _images(place: Path) -> None:
    pause = image(
        "registry.k8s.io/pause:3.6", {"pause": (BUILT / "bin/pause").read_bytes()}, {}, "/pause"
    )
    (place / "pause.tar").write_bytes(pause)
    files = {
        "opt/entrypoint.sh": _ENTRYPOINT,
        "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\n",
        "tmp/.keep": b"",
    }
    links = {name: f"usr/{name}" for name in ("bin", "sbin", "lib", "lib64")}
    (place / "executor.tar").write_bytes(image(IMAGE, files, links, "/opt/entrypoint.sh"))


def _container_runtime(place: Path) -> None:
    addresses = {"type": "host-local", "ranges": [[{"subnet": _PODS}]]}
    bridge = {"type": "bridge", "bridge": _BRIDGE, "isGateway": True, "ipam": addresses}
    (place / "cni").mkdir()
    (place / "cni" / "10-bridge.conflist").write_text(
        json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]})
    )
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    (place / "containerd.toml").write_text(
        f'version = 2\nroot = "{place}/containerd"\nstate = "{place}/containerd-state"\n[grpc]\n '
        f' address = "{_SOCKET}"\n[{cri}]\n  sandbox_image = "registry.k8s.io/pause:3.6"\n '
        f" disable_apparmor = true\n  restrict_oom_score_adj = true\n[{cri}.containerd]\n "
        f' snapshotter = "native"\n[{cri}.cni]\n  bin_dir = "{PLUGINS}"\n  conf_dir ='
        f' "{place}/cni"\n'
    )


def _kubelet(place: Path) -> None:
    never = {
        "memory.available": "1Mi",
        "nodefs.available": "0%",
        "imagefs.available": "0%",
        "nodefs.inodesFree": "0%",
    }
    kubelet = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "containerRuntimeEndpoint": f"unix://{_SOCKET}",
        "failSwapOn": False,
        "address": _NODE_ADDRESS,
        "clusterDNS": [DRIVER],
        "clusterDomain": names.DOMAIN,
        "evictionHard": never,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    }
    (place / "kubelet.json").write_text(json.dumps(kubelet))
    access = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": API, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    }
    (place / "kubeconfig").write_text(json.dumps(access))


def pod(place: Path, packages: Sequence[Path] = (), *, has_token: bool = False) -> dict[str, Any]:
    """A pod that has this machine's programs, Java, Python and Spark, and the directory of the
    data; and Python packages, as an image with them has, and the token of its service account.
    """
    spark = Path(pyspark.__file__).parent
    java = Path(os.path.realpath(str(shutil.which("java")))).parent.parent
    seen = {
        "/usr": Path("/usr"),
        sys.base_prefix: Path(sys.base_prefix),
        "/etc/alternatives": Path("/etc/alternatives"),
        "/opt/spark/jars": spark / "jars",
        "/opt/spark/python": spark / "python",
        "/opt/spark/bin": spark / "bin",
    }
    seen.update(
        {
            str(each): each
            for each in [java, *Path("/etc").glob("java-*")]
            if not str(each).startswith("/usr/")
        }
    )
    seen.update({str(each): each for each in packages})
    seen[str(place / "data")] = place / "data"
    volumes = [
        {"name": f"v{at}", "hostPath": {"path": str(there)}}
        for at, there in enumerate(seen.values())
    ]
    mounts = [
        {"name": f"v{at}", "mountPath": here, "readOnly": not here.endswith("data")}
        for at, here in enumerate(seen)
    ]
    executor = {
        "name": "executor",
        "volumeMounts": mounts,
        "env": [{"name": "SPARK_HOME", "value": "/opt/spark"}],
    }
    spec = {
        "nodeName": "node1",
        "automountServiceAccountToken": has_token,
        "volumes": volumes,
        "containers": [executor],
    }
    return {"apiVersion": "v1", "kind": "Pod", "spec": spec}
