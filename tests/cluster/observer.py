"""Watches one node from outside, in every mode alike: free bytes, layer bytes, pods, the Node."""

import glob
import os
import threading
import time

import agent as agent_module
from kube import Watch, condition_of

SAMPLE_SECONDS = 0.02
APP_LABEL = "imagefs-guard-test/app"
NEVER = float("inf")


class DiskSampler:
    """Reads the free bytes of a filesystem and the layer bytes of one image, 50 times a second."""

    def __init__(self, node):
        self.node = node
        self.samples = []  # (time, available bytes, layer bytes)
        self.layers = []  # the hex digests to count
        self.refs = {}  # ingest folder: its ref
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.follow, daemon=True, name="disk sampler")
        stat = os.statvfs(node.disk)
        self.capacity_bytes = stat.f_frsize * stat.f_blocks

    def start(self):
        self.thread.start()
        return self

    def stop(self):
        self.stopped.set()
        self.thread.join()

    def follow(self):
        while not self.stopped.is_set():
            now = time.monotonic()
            stat = os.statvfs(self.node.disk)
            self.samples.append((now, stat.f_frsize * stat.f_bavail, self.layer_bytes()))
            self.stopped.wait(max(0.0, SAMPLE_SECONDS - (time.monotonic() - now)))

    def layer_bytes(self):
        """Bytes of the watched layers in the content store: committed or still coming in."""
        store = os.path.join(self.node.containerd_root, "io.containerd.content.v1.content")
        blobs = os.path.join(store, "blobs", "sha256")
        total = sum(size_of(os.path.join(blobs, layer)) for layer in self.layers)
        for folder in glob.glob(os.path.join(store, "ingest", "*")):
            if self.ref_of(folder).rpartition("sha256:")[2] in self.layers:
                total += size_of(os.path.join(folder, "data"))
        return total

    def ref_of(self, folder):
        """For instance `k8s.io/17/layer-sha256:<hex>`; read once per ingest."""
        ref = self.refs.get(folder) or read(os.path.join(folder, "ref"))
        if ref:
            self.refs[folder] = ref
        return ref

    def lowest_free_bytes(self, since=0.0):
        return min(free for when, free, _ in self.samples if when >= since)

    def free_bytes(self):
        stat = os.statvfs(self.node.disk)
        return stat.f_frsize * stat.f_bavail

    def most_layer_bytes(self, since, until=NEVER):
        return max(
            (layer for when, _, layer in list(self.samples) if since <= when <= until), default=0
        )

    def first_layer_byte(self, since):
        return next(
            (when for when, _, layer in list(self.samples) if when >= since and layer > 0), None
        )

    def slowest_sample_seconds(self):
        times = [when for when, _, _ in self.samples]
        return max((b - a for a, b in zip(times, times[1:])), default=0.0)


def size_of(path):
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def read(path):
    try:
        with open(path, encoding="utf-8") as f:
            return f.read()
    except OSError:
        return ""


class PodHistory:
    """When a pod was bound, ran, was evicted, went away; by the harness's own clock."""

    def __init__(self, pod):
        self.uid = pod["metadata"]["uid"]
        self.name = pod["metadata"]["name"]
        self.labels = pod["metadata"].get("labels", {})
        self.bound = self.running = self.evicted = self.gone = None
        self.pod = pod

    @property
    def app(self):
        return self.labels.get(APP_LABEL, self.name)

    def update(self, when, kind, pod):
        self.pod = pod
        status = pod.get("status", {})
        if self.bound is None and pod["spec"].get("nodeName"):
            self.bound = when
        if self.running is None and status.get("phase") in ("Running", "Succeeded"):
            self.running = when
        if self.evicted is None and is_evicted(pod):
            self.evicted = when
        if kind == "DELETED":
            self.gone = when

    def started(self):
        """Whether a container of it ever started."""
        states = [
            state
            for status in self.pod.get("status", {}).get("containerStatuses") or []
            for state in (status.get("state", {}), status.get("lastState", {}))
        ]
        return self.running is not None or any(
            "running" in state or state.get("terminated", {}).get("startedAt") for state in states
        )


def is_evicted(pod):
    """A running pod that the kubelet put out. One that ends orderly for it is Succeeded, without
    the reason Evicted; pods that the kubelet refuses at admission have that, but no condition."""
    return any(
        condition["type"] == "DisruptionTarget"
        and condition["status"] == "True"
        and condition.get("reason") == "TerminationByKubelet"
        for condition in pod.get("status", {}).get("conditions") or []
    )


class Observer:
    """start() before the scenario acts, stop() at its end; all it saw stays readable."""

    def __init__(self, node, namespace):
        self.node, self.namespace = node, namespace
        self.disk = DiskSampler(node)
        self.pods = {}  # uid: PodHistory
        self.node_states = []  # (time, disk pressure, stage, taint effects, risk)
        kube = node.lab.kube
        self.watches = [
            Watch(kube, f"/api/v1/namespaces/{namespace}/pods", self.on_pod),
            Watch(kube, "/api/v1/nodes", self.on_node, f"metadata.name={node.name}"),
        ]

    def start(self):
        self.disk.start()
        for watch in self.watches:
            watch.start()
        return self

    def stop(self):
        for watch in self.watches:
            watch.stop()
        if self.disk.thread.is_alive():
            self.disk.stop()

    def on_pod(self, when, kind, pod):
        uid = pod["metadata"]["uid"]
        if uid not in self.pods:
            self.pods[uid] = PodHistory(pod)
        self.pods[uid].update(when, kind, pod)

    def on_node(self, when, kind, node):
        taints = tuple(
            taint["effect"]
            for taint in node["spec"].get("taints") or []
            if taint["key"] == agent_module.TAINT_KEY
        )
        labels = node["metadata"].get("labels", {})
        self.node_states.append(
            (
                when,
                condition_of(node, "DiskPressure"),
                labels.get(agent_module.STAGE_LABEL),
                taints,
                condition_of(node, agent_module.CONDITION),
            )
        )

    def of_app(self, app):
        return [pod for pod in list(self.pods.values()) if pod.app == app]

    def evicted_apps(self, apps):
        """The apps of which at least one pod was evicted, in the order of their first eviction."""
        first = {}
        for pod in list(self.pods.values()):
            if pod.evicted is not None and pod.app in apps:
                first[pod.app] = min(pod.evicted, first.get(pod.app, NEVER))
        return sorted(first, key=first.get)

    def first_eviction(self, apps):
        return min(
            (
                pod.evicted
                for pod in list(self.pods.values())
                if pod.evicted is not None and pod.app in apps
            ),
            default=None,
        )

    def had_disk_pressure(self):
        return any(state[1] == "True" for state in self.node_states)
