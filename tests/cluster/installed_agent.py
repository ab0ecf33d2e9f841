"""The agent as it is installed: its image in the registry, the shipped manifests, its own pod.

The manifests are applied as they are, through a kustomization that says what this machine has to:
the image's name, the node's folders (its /run/containerd and /var/lib are not the machine's), the
policy of the scenario. It builds on overlays/host-network, because the registry of the lab is at
127.0.0.1 of the node.
"""

import contextlib
import glob
import io
import json
import os
import signal
import time

import lab as lab_module
from agent import NAMESPACE, Agent
from errors import Broken
from processes import run, wait_until

BASE = os.path.join(lab_module.ROOT, "daemonset", "base")
OVERLAY = os.path.join(lab_module.ROOT, "daemonset", "overlays", "host-network")
CHART = os.path.join(lab_module.ROOT, "daemonset", "helm", "imagefs-guard")
BUILD = os.path.join(lab_module.ROOT, "daemonset", "image", "build")
REPOSITORY = "imagefs-guard"
READY_SECONDS = 30
DAEMONSET = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/imagefs-guard"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


def push_image(lab, binary):
    """Builds the image and pushes it; returns its reference by digest."""
    layout = os.path.join(lab.folder, "agent-image")
    run(BUILD, "--binary", binary, "--output", layout, env=dict(os.environ, SOURCE_DATE_EPOCH="0"))
    with open(os.path.join(layout, "index.json"), encoding="utf-8") as f:
        digest = json.load(f)["manifests"][0]["digest"]

    def read(item):
        with open(os.path.join(layout, "blobs", *item.split(":")), "rb") as f:
            return f.read()

    text = read(digest)
    manifest = json.loads(text)
    for blob in (manifest["config"], *manifest["layers"]):
        lab.registry.put_blob(REPOSITORY, blob["digest"], io.BytesIO(read(blob["digest"])),
                              blob["size"])
    status, _ = lab.registry.request(
        "PUT", f"/v2/{REPOSITORY}/manifests/{digest}", text,
        {"Content-Type": manifest["mediaType"]},
    )
    if status != 201:
        raise Broken(f"the registry answered {status} to the agent's image")
    return digest


def index_of_argument(argument):
    """Where it stands among the arguments of the shipped DaemonSet."""
    with open(os.path.join(BASE, "daemonset.yaml"), encoding="utf-8") as f:
        lines = [line.strip() for line in f]
    arguments = lines[lines.index("args:") + 1:lines.index("ports:")]
    return arguments.index(f"- {argument}")


class InstalledAgent(Agent):
    """Like Agent, for scenarios; the process is the kubelet's."""

    def __init__(self, node, binary, policy=None):
        super().__init__(node, binary, policy)
        self.lab, self.kube = node.lab, node.lab.kube
        self.log = os.path.join(node.disk, "pod-logs", f"{NAMESPACE}_*", "agent", "*.log")
        self.folder = os.path.join(node.folder, "install")
        self.image_folder = os.path.join(node.containerd_root, "tmpmounts")
        self.ready_seconds = None
        self.read = {}  # path of a log: its lines

    def start(self):
        self.write_install(push_image(self.lab, self.binary))
        started = time.monotonic()
        self.apply()
        wait_until(self.is_ready, READY_SECONDS, "the agent's pod getting Ready")
        self.ready_seconds = time.monotonic() - started
        wait_until(self.stage, 20, "the first stage label of the agent")
        return self

    def apply(self):
        self.lab.kubectl("apply", "-k", self.folder)

    def write_install(self, digest):
        node = self.node
        os.makedirs(self.folder, exist_ok=True)
        patch = [
            {"op": "replace", "path": f"/spec/template/spec/volumes/{i}/hostPath/path", "value": v}
            for i, v in enumerate((node.runtime_folder, self.image_folder))
        ]
        level = f"/spec/template/spec/containers/0/args/{index_of_argument('--log-level=info')}"
        patch += [
            {"op": "test", "path": level, "value": "--log-level=info"},
            {"op": "replace", "path": level, "value": "--log-level=debug"},
            {"op": "add", "path": "/spec/template/spec/nodeSelector/kubernetes.io~1hostname",
             "value": node.name},
        ]
        config = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "imagefs-guard-policy", "namespace": NAMESPACE},
            "data": {"config.yaml": json.dumps(self.policy, indent=1)},
        }
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [os.path.relpath(OVERLAY, os.path.realpath(self.folder))],
            "images": [
                {
                    "name": "registry.example.com/imagefs-guard",
                    "newName": f"{lab_module.REGISTRY}/{REPOSITORY}",
                    "digest": digest,
                }
            ],
            "patches": [
                {"target": {"kind": "DaemonSet"}, "patch": json.dumps(patch)},
                {"patch": json.dumps(config)},
            ],
        }
        with open(os.path.join(self.folder, "kustomization.yaml"), "w", encoding="utf-8") as f:
            json.dump(kustomization, f, indent=1)

    def is_ready(self):
        status = self.kube.get(DAEMONSET).get("status", {})
        return (
            status.get("observedGeneration", 0) > 0
            and status.get("desiredNumberScheduled", 0) > 0
            and status.get("numberReady") == status["desiredNumberScheduled"]
            and status.get("updatedNumberScheduled") == status["desiredNumberScheduled"]
        )

    def selectors(self):
        """The agent's pods on its node: the coordinator's may be there too."""
        return {"fieldSelector": f"spec.nodeName={self.node.name}",
                "labelSelector": "app.kubernetes.io/component=agent"}

    def pods(self):
        pods = self.kube.items(PODS, **self.selectors())
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def last_words(self):
        return (self.lines() or ["no log"])[-1].strip()

    def lines(self):
        """The records of all pods, in the pods' order, without what the runtime puts before each.

        The kubelet removes a pod's log with the pod, so what was read once is kept.
        """
        for path in glob.glob(self.log):
            with contextlib.suppress(FileNotFoundError):
                with open(path, encoding="utf-8", errors="replace") as f:
                    self.read[path] = [line.split(" ", 3)[-1] for line in f]
        return [line for lines in self.read.values() for line in lines]

    def require_alive(self):
        for pod in self.pods():
            for status in pod["status"].get("containerStatuses") or []:
                ended = status.get("lastState", {}).get("terminated") or status["state"].get(
                    "terminated"
                )
                if ended:
                    raise Broken(
                        f"the agent ended with code {ended['exitCode']}: "
                        f"{ended.get('message') or self.last_words()}"
                    )
        return True

    def kill(self):
        """kill -9, for good: stopped first, so that neither SIGTERM nor the kubelet's restart of
        its container comes in between."""
        self.save_logs()
        pids = [self.pid_of(pod) for pod in self.pods()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        self.kube.delete(DAEMONSET)
        wait_until(lambda: not self.pods(), 10, "the deletion of the agent's pod", pause=0.02)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    def pid_of(self, pod):
        container = pod["status"]["containerStatuses"][0]["containerID"].split("//")[1]
        tasks = os.path.join(self.node.folder, "state", "io.containerd.runtime.v2.task", "k8s.io")
        with open(os.path.join(tasks, container, "init.pid"), encoding="utf-8") as f:
            return int(f.read())

    def stop(self):
        """Takes the DaemonSet away and waits for its pod's orderly end."""
        self.require_alive()
        self.save_logs()
        self.kube.delete(DAEMONSET)
        wait_until(
            lambda: not self.kube.items(PODS, **self.selectors()),
            20,
            "the end of the agent's pod",
        )

    def save_logs(self):
        with open(os.path.join(self.node.logs, "agent.log"), "w", encoding="utf-8") as f:
            f.writelines(self.lines())

    def end(self):
        self.save_logs()
        self.kube.delete(DAEMONSET)
        for pod in self.kube.items(PODS):
            self.kube.delete(f"{PODS}/{pod['metadata']['name']}", gracePeriodSeconds=0)


class HelmAgent(InstalledAgent):
    """The same by the chart; it takes over what kubectl has applied for other scenarios."""

    def helm(self, *arguments):
        env = dict(os.environ, KUBECONFIG=self.lab.kubeconfig, HELM_CACHE_HOME=self.folder,
                   HELM_CONFIG_HOME=self.folder, HELM_DATA_HOME=self.folder)
        return run(self.lab.binaries["helm"], *arguments, "--namespace", NAMESPACE, env=env)

    def write_install(self, digest):
        os.makedirs(self.folder, exist_ok=True)
        values = {
            "image": {"repository": f"{lab_module.REGISTRY}/{REPOSITORY}", "digest": digest},
            "hostNetwork": True,
            "logLevel": "debug",
            "runtimeDirectory": self.node.runtime_folder,
            "imageDirectory": self.image_folder,
            "policy": self.policy,
        }
        with open(os.path.join(self.folder, "values.yaml"), "w", encoding="utf-8") as f:
            json.dump(values, f, indent=1)

    def apply(self):
        self.helm("upgrade", "--install", "imagefs-guard", CHART, "--take-ownership",
                  "--values", os.path.join(self.folder, "values.yaml"))
