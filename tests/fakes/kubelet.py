#!/usr/bin/python3
"""A small stand-in for a kubelet: real pulls on a real containerd, no containers.

It watches the pods bound to its node, pulls their images over CRI with the kubelet's back-off,
marks them Running (and, with restartPolicy Never, Succeeded after a while), and enforces the
kubelet's eviction rules on the real filesystem (eviction.py). /configz is served over plain HTTP.

Like the real one it does not stop a pull when its pod is deleted: the pod stays Terminating until
the pull ends, and its container even starts late. Two annotations on a pod steer the play:
`fake-kubelet/usage` (bytes its volumes hold, such as 968Ki) and `fake-kubelet/run-seconds`.
"""

import argparse
import contextlib
import os
import platform
import shutil
import threading
import time
from dataclasses import dataclass, field

import eviction
import http_base
from api_client import ApiFailure, Client as ApiClient, pod_path
from containerd_client import Client as Containerd, Error as ContainerdError
from controllers import now

USAGE = "fake-kubelet/usage"
RUN_SECONDS = "fake-kubelet/run-seconds"
DEFAULT_RUN_SECONDS = 5.0
IMAGES_LIMIT = 50


@dataclass
class Timings:
    """The real kubelet's seconds; tests shorten some."""
    eviction_pass: float = 10.0
    pressure_transition: float = 300.0
    backoff_first: float = 10.0
    backoff_limit: float = 300.0
    sandbox: float = 0.15  # from binding to the first call for the image: 0.13 to 0.46 measured
    heartbeat: float = 10.0
    image_gc: float = 300.0
    image_minimum_age: float = 120.0


@dataclass
class Config:
    """The parts of KubeletConfiguration that matter here; /configz shows them."""
    eviction_hard: dict | None = None
    eviction_minimum_reclaim: dict | None = None
    image_gc_high_percent: int = 85
    image_gc_low_percent: int = 80
    serialize_image_pulls: bool = False
    max_parallel_image_pulls: int | None = None
    credentials: dict = field(default_factory=dict)  # registry host: (user, password)

    def configz(self, timings):
        return {"kubeletconfig": {
            "evictionHard": eviction.DEFAULT_HARD if self.eviction_hard is None
            else self.eviction_hard,
            **({"evictionMinimumReclaim": self.eviction_minimum_reclaim}
               if self.eviction_minimum_reclaim else {}),
            "evictionPressureTransitionPeriod": f"{timings.pressure_transition:g}s",
            "imageGCHighThresholdPercent": self.image_gc_high_percent,
            "imageGCLowThresholdPercent": self.image_gc_low_percent,
            "imageMinimumGCAge": f"{timings.image_minimum_age:g}s",
            "serializeImagePulls": self.serialize_image_pulls,
            "maxParallelImagePulls": self.max_parallel_image_pulls}}


@dataclass
class Place:
    """Where this kubelet runs."""
    node: str
    containerd_socket: str
    image_path: str
    kubelet_path: str


class Kubelet:
    """Runs until stop(). `evictions` lists (time.monotonic(), pod name) of what it did."""

    def __init__(self, api, place, config=None, timings=None):
        self.api = api
        self.place = place
        self.config = config or Config()
        self.timings = timings or Timings()
        self.containerd = Containerd(place.containerd_socket)
        self.evictions = []
        self.late_starts = []
        self.disk_pressure = False
        self.stopping = threading.Event()
        parallel = 1 if self.config.serialize_image_pulls else \
            self.config.max_parallel_image_pulls or 1000
        self.pull_slots = threading.Semaphore(parallel)
        self._workers = {}
        self._lock = threading.Lock()
        self._met = {}
        self._pressure_seen_at = None
        self._image_seen_at = {}
        self._server = _configz_server(self)

    @property
    def url(self):
        return self._server.url

    def start(self):
        os.makedirs(os.path.join(self.place.kubelet_path, "pods"), exist_ok=True)
        self._register()
        self._server.start()
        threading.Thread(target=self._heartbeat_loop, daemon=True).start()
        threading.Thread(target=self._eviction_loop, daemon=True).start()
        threading.Thread(target=self._image_gc_loop, daemon=True).start()
        self.api.start_following("/api/v1/pods", self._on_pod, self.stopping,
                                 {"fieldSelector": f"spec.nodeName={self.place.node}"})

    def stop(self):
        self.stopping.set()
        self._server.stop()
        with self._lock:
            workers = list(self._workers.values())
        for worker in workers:
            worker.wake.set()

    def close_configz(self):
        """From now on nobody answers for its configuration."""
        self._server.stop()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def _on_pod(self, kind, pod):
        uid = pod["metadata"]["uid"]
        with self._lock:
            worker = self._workers.get(uid)
            if worker is None and kind != "DELETED" and \
                    pod.get("status", {}).get("phase") in (None, "Pending", "Running"):
                worker = self._workers[uid] = PodWorker(self, pod)
                worker.start()
        if worker is not None and (kind == "DELETED" or
                                   pod["metadata"].get("deletionTimestamp")):
            worker.terminate()

    def forget(self, uid):
        with self._lock:
            self._workers.pop(uid, None)

    # The Node object.

    def _register(self):
        name = self.place.node
        stat = os.statvfs(self.place.kubelet_path)
        runtime = "://".join(self.containerd.version())
        architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(),
                                                                   platform.machine())
        capacity = {"cpu": str(os.cpu_count()), "memory": "8Gi", "pods": "110",
                    "ephemeral-storage": f"{stat.f_frsize * stat.f_blocks >> 10}Ki"}
        node = {"apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": {
                    "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
                    "kubernetes.io/arch": architecture}},
                "spec": {},
                "status": {"capacity": capacity, "allocatable": capacity,
                           "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                           "nodeInfo": {"kubeletVersion": "v1.34.0-fake", "operatingSystem":
                                        "linux", "architecture": architecture,
                                        "containerRuntimeVersion": runtime},
                           "conditions": self._conditions()}}
        with contextlib.suppress(ApiFailure):  # registered before
            self.api.create("/api/v1/nodes", node)

    def _conditions(self):
        pressure = self.disk_pressure
        rows = [("Ready", True, "KubeletReady", "KubeletNotReady"),
                ("DiskPressure", pressure, "KubeletHasDiskPressure",
                 "KubeletHasNoDiskPressure")]
        return [{"type": kind, "status": str(value), "reason": yes if value else no,
                 "message": "", "lastHeartbeatTime": now(), "lastTransitionTime": now()}
                for kind, value, yes, no in rows]

    def publish(self):
        """Writes conditions and images to the Node's status."""
        images = sorted(self.containerd.list_images(), key=lambda image: -image["size_bytes"])
        self.api.patch(f"/api/v1/nodes/{self.place.node}/status", {"status": {
            "conditions": self._conditions(),
            "images": [{"names": image["repo_digests"] + image["repo_tags"],
                        "sizeBytes": image["size_bytes"]} for image in images[:IMAGES_LIMIT]]}})

    def _heartbeat_loop(self):
        while not self.stopping.wait(self.timings.heartbeat):
            with contextlib.suppress(OSError, ApiFailure, ContainerdError):
                self.publish()

    # Eviction: at most one pod a pass.

    def stats(self):
        """{signal: (available, capacity)} from statvfs, as the kubelet counts."""
        stats = {}
        for signal, path in (("nodefs", self.place.kubelet_path),
                             ("imagefs", self.place.image_path)):
            found = os.statvfs(path)
            stats[f"{signal}.available"] = (found.f_frsize * found.f_bavail,
                                            found.f_frsize * found.f_blocks)
            stats[f"{signal}.inodesFree"] = (found.f_ffree, found.f_files)
        return stats

    def _eviction_loop(self):
        while not self.stopping.wait(self.timings.eviction_pass):
            with contextlib.suppress(OSError, ApiFailure, ContainerdError):
                self._eviction_pass()

    def _observe(self):
        self._met = eviction.met_thresholds(self.config.eviction_hard, self.stats(), self._met,
                                            self.config.eviction_minimum_reclaim)
        if self._met:
            self._pressure_seen_at = time.monotonic()
        pressure = self._pressure_seen_at is not None and \
            time.monotonic() - self._pressure_seen_at < self.timings.pressure_transition
        if pressure != self.disk_pressure:
            self.disk_pressure = pressure
            self.publish()
        return self._met

    def _eviction_pass(self):
        if not self._observe():
            return
        self._remove_unused_images(1 << 62)  # one filesystem: all that is unused
        met = self._observe()
        if not met:
            return
        with self._lock:
            workers = {uid: worker for uid, worker in self._workers.items()
                       if not worker.terminated}
        usage = {uid: worker.usage_bytes for uid, worker in workers.items() if worker.started}
        order = eviction.rank([worker.pod for worker in workers.values()], usage)
        if not order:
            return
        signal, quantity = sorted(met.items())[0]
        available = self.stats()[signal][0]
        worker = workers[order[0]["metadata"]["uid"]]
        self.evictions.append((time.monotonic(), worker.pod["metadata"]["name"]))
        worker.evict("The node was low on resource: ephemeral-storage. Threshold quantity: "
                     f"{quantity}, available: {available >> 10}Ki. ")
        # A pod that pulls can't be stopped: the pass hangs here for up to 40 s, scaled.
        worker.thread.join(4 * self.timings.eviction_pass)

    # The kubelet's own garbage collection of images.

    def _image_gc_loop(self):
        while not self.stopping.wait(self.timings.image_gc):
            with contextlib.suppress(OSError, ContainerdError):
                available, capacity = self.stats()["imagefs.available"]
                target = eviction.image_gc_target(
                    available, capacity, self.config.image_gc_high_percent,
                    self.config.image_gc_low_percent)
                if target > 0:
                    self._remove_unused_images(target)

    def _remove_unused_images(self, target_bytes):
        """Oldest first; what came less than imageMinimumGCAge ago stays, here as well."""
        with self._lock:
            pods = [worker.pod for worker in self._workers.values()]
        used = {container["image"] for pod in pods for container in pod["spec"]["containers"]}
        for image in self.containerd.list_images():
            age = time.monotonic() - self._image_seen_at.setdefault(image["id"],
                                                                    time.monotonic())
            if target_bytes <= 0 or image["pinned"] or age < self.timings.image_minimum_age or \
                    used & {*image["repo_tags"], *image["repo_digests"], image["id"]}:
                continue
            self.containerd.remove_image(image["id"])
            target_bytes -= image["size_bytes"]


class PodWorker:
    """One pod on this node, in a thread of its own."""

    def __init__(self, kubelet, pod):
        self.pod = pod
        self.started = False
        self.terminated = False
        self.usage_bytes = 0
        self.wake = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self._kubelet = kubelet
        self._evicted_message = None
        self._directory = os.path.join(kubelet.place.kubelet_path, "pods",
                                       pod["metadata"]["uid"])

    def start(self):
        self.thread.start()

    def terminate(self):
        self.terminated = True
        self.wake.set()

    def evict(self, message):
        self._evicted_message = message
        self.terminate()

    def _run(self):
        try:
            self._live()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._kubelet.forget(self.pod["metadata"]["uid"])

    def _live(self):
        kubelet = self._kubelet
        if kubelet.disk_pressure and eviction.may_be_evicted(self.pod):
            self._write(phase="Failed", reason="Evicted", message="The node had condition: "
                        "[DiskPressure]. ")
            return
        self._write(containers=self._waiting("ContainerCreating"))
        kubelet.stopping.wait(kubelet.timings.sandbox)
        if all(self._ensure_image(container) for container in self._containers()):
            if self.terminated:
                kubelet.late_starts.append(self.pod["metadata"]["name"])
            self._start_containers()
            self._wait_for_end()
        self._end()

    def _containers(self):
        return self.pod["spec"]["containers"]

    def _ensure_image(self, container):
        """True once the image is here; False when the pod has to go first."""
        kubelet, image = self._kubelet, container["image"]
        timings = kubelet.timings
        delay = timings.backoff_first
        policy = container.get("imagePullPolicy") or (
            "Always" if image.endswith(":latest") else "IfNotPresent")
        while not kubelet.stopping.is_set():
            try:
                if policy != "IfNotPresent" or kubelet.containerd.image_status(image) is None:
                    with kubelet.pull_slots:
                        kubelet.containerd.pull_image(
                            image, *kubelet.config.credentials.get(image.partition("/")[0], ()))
                return True
            except ContainerdError as error:
                reason, message = "ErrImagePull", str(error)
            if self.terminated:
                return False
            self._write(containers=self._waiting(reason, message))
            self.wake.wait(min(1.0, delay / 2))
            self._write(containers=self._waiting(
                "ImagePullBackOff", f'Back-off pulling image "{image}": {reason}: {message}'))
            self.wake.wait(delay)
            delay = min(2 * delay, timings.backoff_limit)
            if self.terminated:
                return False
        return False

    def _start_containers(self):
        self.usage_bytes = eviction.parse_quantity(
            (self.pod["metadata"].get("annotations") or {}).get(USAGE, "0"))
        os.makedirs(self._directory, exist_ok=True)
        with contextlib.suppress(OSError):  # a full disk is a part of the play
            with open(os.path.join(self._directory, "volume"), "wb") as volume:
                if self.usage_bytes:
                    os.posix_fallocate(volume.fileno(), 0, self.usage_bytes)
        self.started = True
        self._write(phase="Running", ready=True, containers=self._statuses(
            {"running": {"startedAt": now()}}, ready=True))

    def _wait_for_end(self):
        if self.pod["spec"].get("restartPolicy") == "Always":
            self.wake.wait()
        else:
            annotations = self.pod["metadata"].get("annotations") or {}
            self.wake.wait(float(annotations.get(RUN_SECONDS, DEFAULT_RUN_SECONDS)))

    def _end(self):
        if self._kubelet.stopping.is_set():
            return
        state = {"terminated": {"exitCode": 137 if self.terminated else 0, "finishedAt": now(),
                                "reason": "Error" if self.terminated else "Completed"}}
        if self._evicted_message:
            self._write(phase="Failed", reason="Evicted", message=self._evicted_message,
                        disrupted=True, containers=self._statuses(state))
        elif self.terminated:
            with contextlib.suppress(ApiFailure):
                self._kubelet.api.delete(pod_path(self.pod), {
                    "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0,
                    "preconditions": {"uid": self.pod["metadata"]["uid"]}})
        else:
            self._write(phase="Succeeded", containers=self._statuses(state))

    def _waiting(self, reason, message=""):
        return self._statuses({"waiting": {"reason": reason, **(
            {"message": message} if message else {})}})

    def _statuses(self, state, ready=False):
        statuses = []
        for container in self._containers():
            found = None
            if ready:
                with contextlib.suppress(ContainerdError):
                    found = self._kubelet.containerd.image_status(container["image"])
            statuses.append({
                "name": container["name"], "image": container["image"], "ready": ready,
                "started": ready, "restartCount": 0, "state": state,
                "imageID": (found["repo_digests"] or [found["id"]])[0] if found else ""})
        return statuses

    def _write(self, phase="Pending", reason=None, message=None, ready=False, containers=(),
               disrupted=False):
        """Writes the pod's status; a pod that is gone is no error, a busy server is retried."""
        conditions = [("PodScheduled", True), ("Initialized", True), ("Ready", ready),
                      ("ContainersReady", ready)]
        rows = [{"type": kind, "status": str(value), "lastTransitionTime": now()}
                for kind, value in conditions]
        if disrupted:
            rows.append({"type": "DisruptionTarget", "status": "True",
                         "reason": "TerminationByKubelet", "message": message,
                         "lastTransitionTime": now()})
        body = {"metadata": {"uid": self.pod["metadata"]["uid"]},
                "status": {"phase": phase, "reason": reason, "message": message,
                           "hostIP": "127.0.0.1", "startTime": now(), "conditions": rows,
                           "containerStatuses": list(containers)}}
        while not self._kubelet.stopping.is_set():
            try:
                self._kubelet.api.patch(pod_path(self.pod, "status"), body)
                return
            except ApiFailure as error:
                if error.code in (404, 409):
                    return
            except OSError:
                pass
            self._kubelet.stopping.wait(0.2)


def _configz_server(kubelet):
    class ConfigzHandler(http_base.Handler):
        def do_GET(self):
            known = {"/configz": lambda: kubelet.config.configz(kubelet.timings),
                     "/healthz": lambda: "ok"}
            answer = known.get(self.path.partition("?")[0])
            self.reply(200 if answer else 404, answer() if answer else "404 page not found\n")

    return http_base.Server(ConfigzHandler)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--api", required=True, help="URL of the API server")
    parser.add_argument("--node", default="node-a")
    parser.add_argument("--containerd-socket", required=True)
    parser.add_argument("--image-path", required=True)
    parser.add_argument("--kubelet-path", required=True)
    parser.add_argument("--eviction-hard", default="imagefs.available=15%,nodefs.available=10%")
    options = parser.parse_args()
    hard = dict(part.split("=") for part in options.eviction_hard.split(","))
    place = Place(options.node, options.containerd_socket, options.image_path,
                  options.kubelet_path)
    with Kubelet(ApiClient(options.api), place, Config(eviction_hard=hard)) as kubelet:
        print(kubelet.url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
