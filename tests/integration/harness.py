#!/usr/bin/python3
"""What the integration tests share: a node from tests/fakes and the real agent on it."""

import json
import os
import signal
import subprocess
import sys
import time
import unittest
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "fakes"))

import images  # noqa: E402
import lab  # noqa: E402
from fake_cluster import NODE, FakeCluster  # noqa: E402
from images import MIB, Layer  # noqa: E402
from kubelet import Config, Timings  # noqa: E402

TAINT = "status-taint.cluster-autoscaler.kubernetes.io/imagefs-guard"
STAGE = "imagefs-guard.io/stage"
HEADROOM = "imagefs-guard.io/headroom-gib"
STATUS = "imagefs-guard.io/status"
CONDITION = "ImageFilesystemRisk"
DISK_BYTES = 512 * MIB
FLOOR = "40%"
REGISTRY_BYTES_PER_SECOND = 24 * MIB
# 40 MiB compressed, 100 MiB unpacked: 140 MiB at the peak.
LAYERS = [Layer(20 * MIB), Layer(60 * MIB, "zero"), Layer(20 * MIB)]
PEAK_BYTES = 140 * MIB
# So long the agent waits for the registry's word on layer sizes before it judges without.
SIZES_WAIT_MS = 3000
SLACK_BYTES = 2 * MIB  # journal, metadata, log files


def binary():
    """The agent to test: $IMAGEFS_GUARD, else the release build, else the usual one."""
    candidates = [os.environ.get("IMAGEFS_GUARD"),
                  os.path.join(ROOT, "build", "release", "imagefs-guard"),
                  os.path.join(ROOT, "build", "imagefs-guard")]
    return next((path for path in candidates if path and os.access(path, os.X_OK)), None)


def run_tests(needs_lab=True):
    """unittest.main(), or exit 77 ("skipped") where this machine can't."""
    if binary() is None:
        print("skipped: there is no imagefs-guard binary; build it or set IMAGEFS_GUARD")
        sys.exit(77)
    if needs_lab:
        lab.run_tests()
    unittest.main()


class Agent:
    """The real binary as a child process, and what it logs."""

    def __init__(self, owner, arguments, environment=None):
        self.process = owner.spawn("agent", [binary(), "run", *arguments], environment)

    def records(self, event=None, **fields):
        """The log's records so far, all or those of one event with these fields."""
        found = []
        for line in self.process.log().splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue  # the last line may be half written
            if isinstance(record, dict) and event in (None, record.get("event")) and \
                    all(record.get(key) == value for key, value in fields.items()):
                found.append(record)
        return found

    def wait_for(self, event, seconds=15.0, **fields):
        """The first record of an event; fails with the end of the log."""
        def first():
            if not self.process.running():
                raise lab.Failed(f"the agent ended: {self.process.log_end(20)}")
            return next(iter(self.records(event, **fields)), None)
        try:
            return lab.wait_until(first, seconds, what=f"event {event} {fields or ''}")
        except lab.Failed as error:
            raise AssertionError(f"{error}\n{self.process.log_end(20)}") from None

    def complaints(self):
        """Messages of level warn and error."""
        return [f"{record.get('msg', '')} {record.get('err', '')}" for record in self.records()
                if record.get("level") in ("warn", "error")]

    def get(self, path, headers=None):
        """(status, body) of one of the agent's pages."""
        port = self.wait_for("listening")["port"]
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=5) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metrics(self):
        """Each sample's value by its name with labels, as in the text."""
        lines = self.get("/metrics")[1].splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def kill_9(self):
        self.process.signal(signal.SIGKILL)
        self.process.wait(5)

    def terminate(self, seconds=10.0):
        """SIGTERM; the exit code, None where it did not end in time."""
        self.process.signal(signal.SIGTERM)
        return self.process.wait(seconds)


class NodeTest(unittest.TestCase):
    """A lab for the class; an API server, a kubelet and an empty disk for each test."""

    auth = None
    start_runtime = True
    image_minimum_age = 120.0  # the kubelet's imageMinimumGCAge, seconds

    @classmethod
    def setUpClass(cls):
        cls.lab = lab.Lab()
        cls.lab.__enter__()
        cls.addClassCleanup(cls.lab.__exit__, None, None, None)
        cls.disk = cls.lab.image_filesystem(DISK_BYTES)
        cls.registry = cls.lab.registry(cls.auth, REGISTRY_BYTES_PER_SECOND)
        cls.prepare()
        cls.runtime = cls.make_runtime()

    @classmethod
    def prepare(cls):
        """For more registries and images, before containerd starts."""

    @classmethod
    def make_runtime(cls):
        return cls.lab.containerd(cls.disk, [cls.registry])

    @classmethod
    def push(cls, name, layers, **options):
        image = images.build(cls.lab.path(cls.lab.unique("image")), name, layers, **options)
        return image, images.push(image, cls.registry, f"flows/{name}:v1")

    def setUp(self):
        # Nothing of the last test may be mistaken for this one's, not even a pull in its last turn.
        self.disk.remove_filler()
        self.runtime.reset()
        self.cluster = FakeCluster(
            self.runtime, Config(eviction_hard={"imagefs.available": FLOOR}),
            # The first back-off is half of the real one: time to hold a retry.
            Timings(eviction_pass=1.0, pressure_transition=3.0, backoff_first=5.0,
                    heartbeat=2.0, image_minimum_age=self.image_minimum_age))
        self.cluster.__enter__()
        self.addCleanup(self.cluster.__exit__, None, None, None)

    def floor_bytes(self):
        return int(self.disk.capacity_bytes() * 0.4)

    def leave_too_little(self):
        """Room above the floor for half of what the image needs at its peak."""
        self.disk.fill_to(self.floor_bytes() + PEAK_BYTES // 2)

    def policy(self, **changes):
        """A policy file with hysteresis short enough for a test."""
        policy = {"tickInterval": "1s", "guardMargin": "8Mi", "clearMargin": "16Mi",
                  "clearAfter": "2s", "plainHttpRegistries": [self.registry.host], **changes}
        path = self.lab.path(self.lab.unique("policy"))
        with open(path, "w", encoding="utf-8") as file:
            json.dump(policy, file)  # JSON is YAML
        return path

    def start_agent(self, policy=None, environment=None, wait=True, arguments=(), api=None,
                    kubelet=None):
        """`api` and `kubelet` are URLs of those who answer in their place."""
        agent = Agent(self.lab, [
            "--node", NODE, "--policy", policy or self.policy(),
            "--kubernetes-api", api or self.cluster.server.url,
            "--kubelet", kubelet or self.cluster.kubelet.url,
            "--containerd-socket", self.runtime.socket, "--image-path", self.disk.path,
            "--kubelet-path", self.cluster.kubelet_path, "--listen", "127.0.0.1:0",
            "--log-level", "debug", *arguments], environment)
        self.addCleanup(agent.process.stop)
        if wait:
            agent.wait_for("agent_started")
        return agent

    def until(self, condition, seconds=15.0, what="the condition"):
        try:
            return lab.wait_until(condition, seconds, what=what)
        except lab.Failed as error:
            self.fail(str(error))

    def assert_no_layer_bytes(self, seconds, before):
        """For so long nothing of a layer arrives: no ingest, no snapshot, no byte less free."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.assertEqual(self.cluster.ingest_bytes(), 0)
            self.assertGreater(self.disk.available_bytes(), before - SLACK_BYTES)
            time.sleep(0.2)

    def start_pull_that_is_held(self, agent, name, job="flow"):
        """Creates a Job whose image doesn't fit; returns the free bytes before and the record."""
        self.leave_too_little()
        before = self.disk.available_bytes()
        self.cluster.create_job(job, name, run_seconds=0.5)
        return before, agent.wait_for("pull_held")


def exit_of(arguments, seconds=20):
    """(exit code, stderr) of the agent with these arguments."""
    done = subprocess.run([binary(), *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=seconds, check=False)
    return done.returncode, done.stderr
