#!/usr/bin/python3
"""The fake kubelet does to real pulls and a real filesystem what the real one was seen to do."""

import time
import unittest

import images
import lab
from api_client import Client
from fake_cluster import FakeCluster
from images import MIB, Layer
from kubelet import Config, Timings

HUB, TRAEFIK, SCHEDULER = "hub", "traefik", "user-scheduler"


class KubeletTest(unittest.TestCase):
    def setUp(self):
        self.lab = lab.Lab()
        self.lab.__enter__()
        self.addCleanup(self.lab.__exit__, None, None, None)
        self.disk = self.lab.image_filesystem(256 * MIB)
        self.registry = self.lab.registry(bytes_per_second=8 * MIB)
        self.runtime = self.lab.containerd(self.disk, [self.registry])
        self.small = self.push("small", [Layer(4096)])

    def push(self, name, layers):
        image = images.build(self.lab.path(name), name, layers)
        return images.push(image, self.registry, f"lab/{name}:v1")

    def cluster(self, floor="10%", **timings):
        timings = {"eviction_pass": 0.5, "pressure_transition": 3.0, "backoff_first": 1.0,
                   "heartbeat": 1.0, **timings}
        return self.lab.enter(FakeCluster(
            self.runtime, Config(eviction_hard={"imagefs.available": floor}), Timings(**timings)))

    def test_pods_and_jobs_run(self):
        cluster = self.cluster()
        cluster.create_pod("a", self.small)
        cluster.wait_running("a")
        status = cluster.pod("a")["status"]["containerStatuses"][0]
        self.assertTrue(status["ready"])
        self.assertIn("lab/small@sha256:", status["imageID"])
        cluster.create_job("etl", self.push("job", [Layer(MIB)]), run_seconds=0.5)
        lab.wait_until(lambda: cluster.job_result("etl") == "Complete", 10, what="the Job")
        lab.wait_until(lambda: cluster.node()["status"].get("images"), 5, what="node images")

    def test_configz_and_node(self):
        cluster = self.cluster(floor="40%")
        config = Client(cluster.kubelet.url).get("/configz")["kubeletconfig"]
        self.assertEqual(config["evictionHard"], {"imagefs.available": "40%"})
        self.assertIs(config["serializeImagePulls"], False)
        self.assertEqual(cluster.condition("Ready")["status"], "True")
        self.assertIn("containerd://", cluster.node()["status"]["nodeInfo"]
                      ["containerRuntimeVersion"])

    def test_delete_does_not_stop_the_pull(self):
        cluster = self.cluster()
        cluster.create_pod("doomed", self.push("big", [Layer(16 * MIB)]))
        lab.wait_until(lambda: cluster.ingest_bytes() > 0, 10, what="the first layer byte")
        cluster.client.delete("/api/v1/namespaces/default/pods/doomed",
                              {"gracePeriodSeconds": 1})
        time.sleep(1)
        self.assertTrue(cluster.pod("doomed")["metadata"]["deletionTimestamp"])
        lab.wait_until(lambda: cluster.phase("doomed") == "Gone", 15, what="the pod's end")
        self.assertEqual(cluster.kubelet.late_starts, ["doomed"])

    def test_back_off(self):
        cluster = self.cluster()
        missing = self.small.replace("lab/small", "lab/late")
        cluster.create_pod("waits", missing)

        def waiting():
            status = cluster.pod("waits")["status"].get("containerStatuses") or [{}]
            return status[0].get("state", {}).get("waiting", {}).get("reason")
        lab.wait_until(lambda: waiting() == "ErrImagePull", 5, what="ErrImagePull")
        lab.wait_until(lambda: waiting() == "ImagePullBackOff", 5, what="ImagePullBackOff")
        images.push(images.build(self.lab.path("late"), "late", [Layer(4096)]), self.registry,
                    "lab/late:v1")
        cluster.wait_running("waits")

    def test_suspend_and_resume(self):
        cluster = self.cluster()
        path = "/apis/batch/v1/namespaces/default/jobs/flow"
        cluster.create_job("flow", self.small, run_seconds=60)
        lab.wait_until(lambda: (cluster.job_pod("flow") or {}).get("status", {}).get("phase")
                       == "Running", 10, what="the Job's pod")
        cluster.client.patch(path, {"spec": {"suspend": True}})
        lab.wait_until(lambda: cluster.job_pod("flow") is None, 10, what="the pod's end")
        self.assertEqual(cluster.job_result("flow"), "Suspended")
        cluster.client.patch(path, {"spec": {"suspend": False}})
        lab.wait_until(lambda: cluster.job_pod("flow"), 10, what="a new pod")
        lab.wait_until(lambda: cluster.job_result("flow") == "Pending", 5, what="a live Job")

    def test_the_storm_bites(self):
        """Nobody but the kubelet looks after the disk: the hub goes, and the others after it."""
        cluster = self.cluster(floor="40%")
        for name, usage in ((HUB, "968Ki"), (TRAEFIK, "200Ki"), (SCHEDULER, "100Ki")):
            cluster.create_pod(name, self.small, usage=usage)
        cluster.wait_running(HUB, TRAEFIK, SCHEDULER)
        big = self.push("storm", [Layer(20 * MIB), Layer(120 * MIB, "zero"), Layer(4096)])
        cluster.create_job("flow", big, run_seconds=30)
        lab.wait_until(lambda: cluster.job_result("flow") == "Failed", 30, what="the Job's end")
        lab.wait_until(lambda: {HUB, TRAEFIK, SCHEDULER} <= set(cluster.evicted()), 15,
                       what="three evictions")
        order = [name for name in cluster.evicted() if not name.startswith("flow")]
        self.assertEqual(order, [HUB, TRAEFIK, SCHEDULER])
        hub = cluster.pod(HUB)["status"]
        self.assertEqual((hub["phase"], hub["reason"]), ("Failed", "Evicted"))
        self.assertEqual(cluster.condition("DiskPressure")["status"], "True")
        self.assertIn("node.kubernetes.io/disk-pressure", cluster.taints())
        cluster.create_pod("refused", self.small)
        lab.wait_until(lambda: cluster.phase("refused") == "Failed", 5, what="the refusal")
        for image in self.runtime.client().list_images():
            self.runtime.client().remove_image(image["id"])
        lab.wait_until(lambda: not cluster.taints(), 10, what="the taint's end")


if __name__ == "__main__":
    lab.run_tests()
