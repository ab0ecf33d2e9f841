#!/usr/bin/python3
"""The lab's own promises: real pulls of exact sizes, and nothing left behind, however it ends."""

import os
import signal
import subprocess
import sys
import threading
import time
import unittest

import images
import lab
from containerd_client import Error
from images import MIB, Layer
from registry import Basic, Bearer

HERE = os.path.dirname(os.path.abspath(__file__))
LAYERS = [Layer(2 * MIB), Layer(4 * MIB, "zero"), Layer(MIB, "random", "zstd"),
          Layer(MIB, "zero", "none")]


class Pulls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = lab.Lab()
        cls.lab.__enter__()
        cls.addClassCleanup(cls.lab.__exit__, None, None, None)
        cls.disk = cls.lab.image_filesystem(256 * MIB)
        cls.image = images.build(cls.lab.path("image"), "a", LAYERS)

    def pull(self, auth, *credentials):
        registry = self.lab.registry(auth)
        name = images.push(self.image, registry, "team/a:v1")
        runtime = self.lab.containerd(self.disk, [registry])
        self.addCleanup(runtime.stop)
        client = runtime.client()
        before = self.disk.available_bytes()
        self.assertEqual(client.pull_image(name, *credentials), self.image.config_digest)
        self.addCleanup(client.remove_image, name)
        taken = before - self.disk.available_bytes()
        self.assertGreater(taken, self.image.unpacked_bytes)
        self.assertIn(self.image.digest, client.blobs())
        return client, name

    def test_open_registry(self):
        client, _ = self.pull(None)
        self.assertEqual(client.ingests(), [])
        self.assertEqual(client.image_status("127.0.0.1:1/not/here:v1"), None)

    def test_basic(self):
        client, name = self.pull(Basic(), "AWS", "secret")
        client.remove_image(name)
        with self.assertRaises(Error):
            client.pull_image(name, "AWS", "wrong")
        client.pull_image(name, "AWS", "secret")

    def test_bearer(self):
        auth = Bearer()
        self.pull(auth)
        self.assertIn(("", ["repository:team/a:pull"]), auth.requests)

    def test_bearer_without_anonymous_pulls(self):
        client, name = self.pull(Bearer(anonymous_pull=False), "pusher", "secret")
        client.remove_image(name)
        with self.assertRaises(Error):
            client.pull_image(name)
        client.pull_image(name, "pusher", "secret")

    def test_same_input_same_digests(self):
        again = images.build(self.lab.path("again"), "a", LAYERS)
        self.assertEqual(again.digest, self.image.digest)
        self.assertEqual(again.unpacked_bytes, 8 * MIB)

    def test_index(self):
        index = images.build(self.lab.path("index"), "multi", [Layer(4096)],
                             platforms=("linux/arm64", "linux/amd64"))
        registry = self.lab.registry()
        name = images.push(index, registry, "team/multi:v1")
        runtime = self.lab.containerd(self.disk, [registry])
        self.addCleanup(runtime.stop)
        runtime.client().pull_image(name)
        self.assertIn(index.digest, runtime.client().blobs())
        runtime.client().remove_image(name)

    def test_hold(self):
        """What the whole project rests on: an open Write on the config ref keeps a pull at 0."""
        registry = self.lab.registry()
        name = images.push(self.image, registry, "team/held:v1")
        runtime = self.lab.containerd(self.disk, [registry])
        self.addCleanup(runtime.stop)
        client = runtime.client()
        digest = self.image.config_digest
        hold = client.open_hold(f"config-{digest}", digest)
        self.assertEqual([ingest["ref"] for ingest in client.ingests()], [f"config-{digest}"])
        with self.assertRaises(Error) as caught:
            client.pull_image(name, timeout=3)
        self.assertEqual(caught.exception.code, "DEADLINE_EXCEEDED")
        self.assertEqual(sum(ingest["offset"] for ingest in client.ingests()), 0)
        hold.close()
        client.pull_image(name)
        with self.assertRaises(Error) as caught:
            client.open_hold(f"config-{digest}", digest)
        self.assertEqual(caught.exception.code, "ALREADY_EXISTS")
        client.remove_image(name)

    def test_cancel(self):
        """And its other half: without its lease a held pull fails at once, at 0 bytes."""
        registry = self.lab.registry()
        name = images.push(self.image, registry, "team/cancelled:v1")
        runtime = self.lab.containerd(self.disk, [registry])
        self.addCleanup(runtime.stop)
        client = runtime.client()
        digest = self.image.config_digest
        hold = client.open_hold(f"config-{digest}", digest)
        self.addCleanup(hold.close)
        ended = []

        def pull():
            try:
                ended.append(client.pull_image(name))
            except Error as error:
                ended.append(str(error))
        thread = threading.Thread(target=pull)
        thread.start()

        def leases():
            return [lease["id"] for lease in client.leases() if
                    ("content", self.image.digest) in client.lease_resources(lease["id"])]
        for lease in lab.wait_until(leases, 5, what="the pull's lease"):
            client.delete_lease(lease)
        thread.join(3)
        self.assertEqual(len(ended), 1)
        self.assertIn("lease does not exist", ended[0])
        self.assertNotIn(self.image.layer_digests[0], client.blobs())

    def test_slow_registry(self):
        registry = self.lab.registry(bytes_per_second=2 * MIB)
        name = images.push(self.image, registry, "team/slow:v1")
        runtime = self.lab.containerd(self.disk, [registry])
        self.addCleanup(runtime.stop)
        started = time.monotonic()
        runtime.client().pull_image(name)
        self.assertGreater(time.monotonic() - started,
                           0.8 * self.image.compressed_bytes / (2 * MIB))
        runtime.client().remove_image(name)

    def test_xfs(self):
        disk = self.lab.image_filesystem(320 * MIB, "xfs")
        disk.fill_to(100 * MIB)
        self.assertLess(abs(disk.available_bytes() - 100 * MIB), 2 * MIB)


class Endings(unittest.TestCase):
    """A child process opens a lab, tells its parts, and is ended in some way."""

    PROGRAM = """
import sys, time
from lab import Lab
with Lab() as lab:
    disk = lab.image_filesystem(256 << 20)
    registry = lab.registry()
    runtime = lab.containerd(disk, [registry])
    print(lab.directory, registry.process.pid, runtime.process.pid, flush=True)
    if sys.argv[1] == "raise":
        raise RuntimeError("as asked")
    time.sleep(60)
"""

    def end(self, how):
        child = subprocess.Popen([sys.executable, "-c", self.PROGRAM, str(how)], cwd=HERE,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        directory, *pids = child.stdout.readline().split()
        if how != "raise":
            child.send_signal(how)
        child.wait(30)
        child.stdout.close()
        lab.wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), 10,
                       what="the end of all children")
        devices = subprocess.run(["losetup", "-a"], capture_output=True, text=True,
                                 check=True).stdout
        return directory, directory in devices

    def test_nothing_stays(self):
        for how in ("raise", signal.SIGINT, signal.SIGTERM):
            with self.subTest(how):
                directory, loop = self.end(how)
                self.assertFalse(os.path.exists(directory))
                self.assertFalse(loop)

    def test_after_kill_9_only_the_directory_stays(self):
        directory, _ = self.end(signal.SIGKILL)
        lab.wait_until(lambda: directory not in subprocess.run(
            ["losetup", "-a"], capture_output=True, text=True, check=True).stdout, 10,
            what="the loop device")
        self.assertTrue(directory.startswith("/tmp/imagefs-guard-"))
        lab.run(["rm", "-rf", "--one-file-system", directory])


if __name__ == "__main__":
    lab.run_tests()
