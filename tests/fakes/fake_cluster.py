#!/usr/bin/python3
"""One node with everything around it that a story needs: API server, kubelet, controllers.

    with Lab() as lab:
        disk = lab.image_filesystem(640 << 20)
        registry = lab.registry()
        cluster = lab.enter(FakeCluster(lab.containerd(disk, [registry]), config, timings))
        cluster.create_job("flow", image)

The methods talk to the API server as a user would; `kubelet` and `server` are there for faults.
"""

import os

from api_client import Client
from api_server import ApiServer
from controllers import Controllers
from kubelet import RUN_SECONDS, USAGE, Kubelet, Place
from lab import wait_until

NODE = "node-a"
PODS = "/api/v1/namespaces/{}/pods"
JOBS = "/apis/batch/v1/namespaces/{}/jobs"


class FakeCluster:
    """A context manager; see the module's text."""

    def __init__(self, runtime, config=None, timings=None, node=NODE):
        self.runtime = runtime
        self.node_name = node
        self.kubelet_path = os.path.join(runtime.filesystem.path, "kubelet")
        self._config, self._timings = config, timings
        self.server = ApiServer()
        self.client = self.controllers = self.kubelet = None

    def __enter__(self):
        os.makedirs(self.kubelet_path, exist_ok=True)
        self.server.start()
        self.client = Client(self.server.url)
        self.controllers = Controllers(self.client)
        self.controllers.start()
        self.kubelet = Kubelet(self.client, Place(
            self.node_name, self.runtime.socket, self.runtime.filesystem.path,
            self.kubelet_path), self._config, self._timings)
        self.kubelet.start()
        return self

    def __exit__(self, *_):
        self.kubelet.stop()
        self.controllers.stop()
        self.server.stop()

    def create_pod(self, name, image, *, namespace="default", labels=None, usage="0", bind=True,
                   priority=0, restart_policy="Always", run_seconds=None):
        """A pod of one container, bound to the node at once unless bind is False."""
        annotations = {USAGE: usage}
        if run_seconds is not None:
            annotations[RUN_SECONDS] = str(run_seconds)
        spec = {"restartPolicy": restart_policy, "priority": priority,
                "containers": [{"name": "main", "image": image}]}
        if bind:
            spec["nodeName"] = self.node_name
        return self.client.create(PODS.format(namespace), {
            "apiVersion": "v1", "kind": "Pod", "spec": spec,
            "metadata": {"name": name, "labels": labels or {}, "annotations": annotations}})

    def create_job(self, name, image, *, namespace="default", labels=None, usage="0",
                   run_seconds=5, backoff_limit=0):
        """A Job of one pod that runs for so many seconds; the scheduler finds its node."""
        return self.client.create(JOBS.format(namespace), {
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {"backoffLimit": backoff_limit, "template": {
                "metadata": {"labels": labels or {},
                             "annotations": {USAGE: usage, RUN_SECONDS: str(run_seconds)}},
                "spec": {"restartPolicy": "Never",
                         "containers": [{"name": "flow", "image": image}]}}}})

    def pods(self):
        return self.client.get("/api/v1/pods")["items"]

    def pod(self, name, namespace="default"):
        """The pod, or None."""
        return self.client.find(f"{PODS.format(namespace)}/{name}")

    def phase(self, name, namespace="default"):
        pod = self.pod(name, namespace)
        return pod["status"]["phase"] if pod else "Gone"

    def job_pod(self, job, namespace="default"):
        """The newest pod of a Job, or None."""
        label = f"labelSelector=batch.kubernetes.io%2Fjob-name%3D{job}"
        pods = self.client.get(f"{PODS.format(namespace)}?{label}")["items"]
        return max(pods, key=lambda pod: int(pod["metadata"]["resourceVersion"]), default=None)

    def job_result(self, name, namespace="default"):
        """Complete, Failed, Suspended or Pending."""
        job = self.client.get(f"{JOBS.format(namespace)}/{name}")
        for condition in job["status"].get("conditions") or []:
            if condition["status"] == "True" and \
                    condition["type"] in ("Complete", "Failed", "Suspended"):
                return condition["type"]
        return "Pending"

    def node(self):
        return self.client.get(f"/api/v1/nodes/{self.node_name}")

    def taints(self):
        """{key: effect} on the node."""
        return {taint["key"]: taint["effect"]
                for taint in self.node()["spec"].get("taints") or []}

    def condition(self, kind):
        """The Node condition of that type, or {}."""
        return next((row for row in self.node()["status"].get("conditions") or []
                     if row["type"] == kind), {})

    def events(self, reason=None):
        found = self.client.get("/apis/events.k8s.io/v1/events")["items"]
        return [event for event in found if reason in (None, event["reason"])]

    def evicted(self):
        """Names of the pods that the kubelet evicted, in its order."""
        return [name for _, name in self.kubelet.evictions]

    def wait_running(self, *names, seconds=30):
        wait_until(lambda: all(self.phase(name) == "Running" for name in names), seconds,
                   what=f"{', '.join(names)} Running")

    def ingest_bytes(self):
        """Bytes of layers that live downloads have written so far."""
        return sum(ingest["offset"] for ingest in self.runtime.client().ingests()
                   if ingest["ref"].startswith("layer-"))
