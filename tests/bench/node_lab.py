"""A node of tests/fakes for a benchmark: real containerd and registry, a stand-in API server."""

import json
import os
import sys

import one_bench

sys.path[:0] = [os.path.join(one_bench.ROOT, "tests", part) for part in ("fakes", "integration")]

import lab as lab_module  # noqa: E402
from fake_cluster import NODE, FakeCluster  # noqa: E402
from harness import Agent  # noqa: E402
from kubelet import Config, Timings  # noqa: E402

DEBUG = ("--log-level", "debug")


class BenchNode:
    """In a Lab: a disk, a registry, containerd, the cluster; starts agents on it."""

    def __init__(self, lab, binary, disk_bytes, bytes_per_second=0):
        os.environ["IMAGEFS_GUARD"] = binary
        self.lab = lab
        self.disk = lab.image_filesystem(disk_bytes)
        self.registry = lab.registry(None, bytes_per_second)
        self.runtime = lab.containerd(self.disk, [self.registry])
        self.cluster = lab.enter(FakeCluster(
            self.runtime, Config(eviction_hard={"imagefs.available": "10%"}), Timings()))

    def start_agent(self, *more, **policy):
        path = self.lab.path(self.lab.unique("policy"))
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"plainHttpRegistries": [self.registry.host], **policy}, f)
        return Agent(self.lab, [
            "--node", NODE, "--policy", path, "--kubernetes-api", self.cluster.server.url,
            "--kubelet", self.cluster.kubelet.url, "--containerd-socket", self.runtime.socket,
            "--image-path", self.disk.path, "--kubelet-path", self.cluster.kubelet_path,
            "--listen", "127.0.0.1:0", *more])


def new_lab():
    lab_module.require(["containerd", "docker-registry", "skopeo"])
    return lab_module.Lab()
