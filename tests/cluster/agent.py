"""The agent under test: the real binary, as a plain process in the node's network namespace."""

import datetime
import json
import os
import signal
import time

import host
import lab as lab_module
from errors import Broken
from processes import Process, wait_until

NAMESPACE = ACCOUNT = "imagefs-guard"
TAINT_KEY = "status-taint.cluster-autoscaler.kubernetes.io/imagefs-guard"
STAGE_LABEL = "imagefs-guard.io/stage"
HEADROOM_LABEL = "imagefs-guard.io/headroom-gib"
STATUS_ANNOTATION = "imagefs-guard.io/status"
CONDITION = "ImageFilesystemRisk"
GIB = 1 << 30
# Hysteresis short enough for a test; the rest are the agent's own defaults.
POLICY = {
    "mode": "enforce",
    "taintKey": TAINT_KEY,
    "clearMargin": "64Mi",
    "clearAfter": "5s",
    "plainHttpRegistries": [lab_module.REGISTRY],
    "discardUnpackedLayers": True,
}


class Agent:
    """Starts the agent on a node and reads its log."""

    def __init__(self, node, binary, policy=None):
        self.node = node
        self.binary = binary
        self.policy = {
            **POLICY,
            "discardUnpackedLayers": node.spec.discard_unpacked_layers,
            **(policy or {}),
        }
        self.log = os.path.join(node.logs, "agent.log")
        self.process = None

    def start(self):
        node, lab = self.node, self.node.lab
        authority = lab.authority.certificate
        policy = node.path("policy.yaml", json.dumps(self.policy, indent=1))  # JSON is YAML
        self.process = Process(
            "agent",
            [
                self.binary,
                "run",
                "--node",
                node.name,
                "--policy",
                policy,
                "--kubernetes-api",
                lab_module.API,
                "--kubernetes-token",
                self.token_file(),
                "--kubernetes-ca",
                authority,
                "--kubelet",
                f"https://{node.address}:10250",
                "--kubelet-ca",
                authority,
                "--containerd-socket",
                node.socket,
                "--image-path",
                node.containerd_root,
                "--kubelet-path",
                node.kubelet_root,
                "--log-level",
                "debug",
            ],
            self.log,
            netns=node.netns,
            cgroups=host.make_group(f"{node.group}-daemons"),
        )
        self.process.start()
        wait_until(
            lambda: self.process.require_alive() and self.stage(),
            20,
            f"the first stage label of the agent (log: {self.log})",
        )
        return self

    def token_file(self):
        """A token as the kubelet would give it to the agent's pod: bound, with the node's name."""
        lab, name = self.node.lab, self.node.name
        node = lab.kube.get(f"/api/v1/nodes/{name}")
        answer = lab.kube.create(
            f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {
                    "expirationSeconds": 3607,
                    "boundObjectRef": {
                        "apiVersion": "v1",
                        "kind": "Node",
                        "name": name,
                        "uid": node["metadata"]["uid"],
                    },
                },
            },
        )
        return self.node.path("token", answer["status"]["token"])

    def stage(self):
        node = self.node.lab.kube.get(f"/api/v1/nodes/{self.node.name}")
        return node["metadata"].get("labels", {}).get(STAGE_LABEL)

    def lines(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.readlines()

    def records(self, event=None, **fields):
        """The log's records of one event, each with `at`: its time on the monotonic clock."""
        offset = time.time() - time.monotonic()
        found = []
        for line in self.lines():
            try:
                record = json.loads(line)
                when = datetime.datetime.fromisoformat(record["time"].replace("Z", "+00:00"))
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
            if event is not None and record.get("event") != event:
                continue
            if any(record.get(key) != value for key, value in fields.items()):
                continue
            found.append(dict(record, at=when.timestamp() - offset))
        return found

    def require_alive(self):
        return self.process.require_alive()

    def wait_record(self, event, seconds, **fields):
        def first():
            self.require_alive()
            return next(iter(self.records(event, **fields)), None)

        named = "".join(f", {key} {value}" for key, value in fields.items())
        return wait_until(first, seconds, f"`{event}`{named} in the agent's log", pause=0.05)

    def kill(self):
        self.process.kill()

    def end(self):
        """Whatever state it is in."""
        if self.process is not None:
            self.process.kill()

    def stop(self):
        """SIGTERM; the agent promises to exit 0."""
        if self.process is None or self.process.child.poll() == -signal.SIGKILL:
            return
        self.process.require_alive()
        code = self.process.stop(grace=10)
        if code != 0:
            raise Broken(f"the agent ended with code {code} after SIGTERM; its log: {self.log}")
