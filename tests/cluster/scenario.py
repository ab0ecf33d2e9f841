"""What a scenario is, and one run of it in one mode."""

import contextlib
import http.client
import os
import struct
import time
import traceback
import types

import agent as agent_module
import host
from errors import Broken
from images import ImageSpec, Layer, MIB
from kube import ApiError, condition_of
from node import PAUSE, Node, NodeSpec
from observer import APP_LABEL, Observer
from processes import wait_until

RUN_LABEL = "imagefs-guard-test/run"  # on the nodes of a run, so that its pods go nowhere else
ALONE, GUARDED = "alone", "guarded"
KEYS = (
    "protected_evicted",
    "first_eviction_s",
    "lowest_free_bytes",
    "floor_bytes",
    "held_layer_bytes",
    "bind_to_hold_ms",
    "job",
)
# 463 MiB compressed, 1061 MiB unpacked: at its peak a pull of it needs 1.5 GiB.
FLOW_IMAGE = ImageSpec(
    "flow",
    (
        Layer("random", 200),
        Layer("zero", 300),
        Layer("random", 200),
        Layer("zero", 300),
        Layer("random", 60),
    ),
)
# The kubelet's own floor leaves room for the pull; the agent is told to be more careful and holds
# it. So a scenario can let a held pull go on without the kubelet taking part.
CAREFUL_POLICY = {"floorMargin": "512Mi"}


class Scenario:
    """Derive from it, set the attributes, write play() and the two expect_…() functions.

    play() acts and fills run.results with those of KEYS that apply; the expect functions call
    run.expect(truth, sentence). A new scenario is added to scenarios/__init__.py.
    """

    name = ""
    node = NodeSpec()
    images = (PAUSE,)
    policy = {}
    modes = (ALONE, GUARDED)
    tools = ()  # of python_tools: what must be installed beforehand

    def play(self, run):
        raise NotImplementedError

    def expect_alone(self, run):
        """The scenario must bite: what the kubelet alone does wrong."""

    def expect_guarded(self, run):
        """What the agent makes of it."""


class Run:
    """One scenario in one mode, on a node of its own, in a namespace of its own."""

    def __init__(self, lab, scenario, mode, agent_binary, say, agent_class=agent_module.Agent):
        self.lab, self.scenario, self.mode = lab, scenario, mode
        self.label = f"{scenario.name} {mode}"
        self.namespace = f"{scenario.name}-{mode}".lower()  # as Kubernetes wants its names
        self.logs = os.path.join(lab.logs, self.namespace)
        self.say = lambda text: say(f"{self.label}: {text}")
        self.node = self.new_node(self.namespace, scenario.node, self.logs)
        self.more_nodes = []
        self.agent_binary, self.agent_class = agent_binary, agent_class
        self.agent = self.observer = None
        self.more_agents, self.at_end = [], []  # at_end: what else must be stopped
        self.results, self.failures, self.notes = {}, [], []
        self.seen = types.SimpleNamespace()  # what play() leaves for the expect functions
        self.guarded = mode == GUARDED

    def execute(self):
        """Plays the scenario and checks it; returns whether every expectation held."""
        check = self.scenario.expect_guarded if self.guarded else self.scenario.expect_alone
        if self.attempt(self.prepare):
            played = self.attempt(self.scenario.play, self)
            self.attempt(self.finish)  # a play that broke off still has figures
            if played:
                self.attempt(check, self)
        return not self.failures

    def prepare(self):
        for spec in self.scenario.images:
            self.lab.push(spec)
        started = time.monotonic()
        self.node.up()
        self.lab.make_namespace(self.namespace)
        self.observer = Observer(self.node, self.namespace).start()
        self.say(f"node up in {time.monotonic() - started:.0f} s")

    def attempt(self, step, *arguments):
        """Does a step; what goes wrong becomes a failure in words. Returns whether it was done."""
        try:
            step(*arguments)
            return True
        except Broken as error:
            self.failures.append(str(error)[0].upper() + str(error)[1:] + ".")
        except Exception as error:  # a fault of the harness itself must not end the other runs
            trace = os.path.join(self.logs, "harness-error.txt")
            os.makedirs(self.logs, exist_ok=True)
            host.write(trace, traceback.format_exc())
            self.failures.append(f"The harness failed: {error!r}; see {trace}.")
        return False

    def finish(self):
        """The figures that every scenario has, and the agent's orderly end."""
        self.observer.stop()
        self.results["lowest_free_bytes"] = self.observer.disk.lowest_free_bytes()
        self.results["floor_bytes"] = self.floor_bytes()
        slowest = self.observer.disk.slowest_sample_seconds()
        self.note(
            f"disk sampled {len(self.observer.disk.samples)} times, "
            f"longest gap {slowest * 1000:.0f} ms"
        )
        for agent in self.agents():
            agent.stop()

    def agents(self):
        return [agent for agent in (self.agent, *self.more_agents) if agent is not None]

    def down(self):
        """Removes the node, whatever state it is in; the logs stay."""
        if self.observer is not None:
            self.observer.stop()
        for agent in self.agents():
            agent.end()
        for stop in self.at_end:
            stop()
        self.save_objects()
        for node in [*self.more_nodes, self.node]:
            node.down()
        with contextlib.suppress(OSError, http.client.HTTPException, ApiError):
            self.delete_objects()

    def delete_objects(self):
        """The node is gone, so nobody but us can confirm that its pods are."""
        kube, namespace = self.lab.kube, f"/api/v1/namespaces/{self.namespace}"
        for node in [*self.more_nodes, self.node]:
            kube.delete(f"/api/v1/nodes/{node.name}")
        kube.delete(namespace)
        for pod in kube.items(f"{namespace}/pods"):
            kube.delete(f"{namespace}/pods/{pod['metadata']['name']}", gracePeriodSeconds=0)

    def save_objects(self):
        """Keeps the Node, pods, Jobs and Events beside the logs, for whoever looks for a cause."""
        os.makedirs(self.logs, exist_ok=True)
        for name, arguments in {
            "node": ["get", "node", self.node.name],
            "objects": ["get", "pods,jobs,deployments", "-n", self.namespace],
            "events": ["get", "events", "-n", self.namespace],
        }.items():
            try:
                text = self.lab.kubectl(*arguments, "-o", "yaml")
            except Broken as error:
                text = f"# {error}\n"
            host.write(os.path.join(self.logs, f"{name}.yaml"), text)

    # What scenarios use.

    def start_agent(self, node=None):
        """On the first node, or another one. Only in guarded mode; alone, the same call does
        nothing, so play() reads the same."""
        if not self.guarded:
            return None
        agent = self.agent_class(node or self.node, self.agent_binary, self.scenario.policy)
        if node is None:
            self.agent = agent
        else:
            self.more_agents.append(agent)
        return agent.start()

    def add_node(self, suffix, spec=None):
        """One more node beside the first, for instance to see where pods go instead."""
        name = f"{self.namespace}-{suffix}"
        logs = os.path.join(self.logs, suffix)
        self.more_nodes.append(self.new_node(name, spec or self.scenario.node, logs))
        return self.more_nodes[-1].up()

    def new_node(self, name, spec, logs):
        return Node(self.lab, name, spec, logs, {RUN_LABEL: self.namespace})

    def expect(self, truth, sentence):
        if not truth:
            self.failures.append(sentence)

    def note(self, text):
        self.notes.append(text)

    def image(self, spec):
        return self.lab.push(spec)

    def watch_layers(self, spec):
        """Lets the disk sampler count this image's layers, but for the program that all share."""
        digests = self.image(spec).layer_digests[:-1]
        self.observer.disk.layers = [digest.removeprefix("sha256:") for digest in digests]

    def floor_bytes(self):
        """As the kubelet computes it: the largest threshold of bytes on this one device."""
        capacity = self.observer.disk.capacity_bytes
        return max(
            (
                quantity_bytes(value, capacity)
                for signal, value in self.node.spec.eviction_hard
                if signal in ("nodefs.available", "imagefs.available")
            ),
            default=0,
        )

    def selector(self):
        """The nodes of this run, and no other's."""
        return {RUN_LABEL: self.namespace}

    def pod_spec(self, spec, arguments=(), restart="Always"):
        return {
            "nodeSelector": self.selector(),
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "restartPolicy": restart,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "main",
                    "image": self.image(spec).reference,
                    "args": list(arguments),
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
        }

    def add_deployment(self, app, labels, arguments=()):
        labels = {APP_LABEL: app, **labels}
        self.lab.kube.apply_all(
            [
                {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "metadata": {"name": app, "namespace": self.namespace},
                    "spec": {
                        "replicas": 1,
                        "selector": {"matchLabels": {APP_LABEL: app}},
                        "template": {
                            "metadata": {"labels": labels},
                            "spec": self.pod_spec(PAUSE, arguments),
                        },
                    },
                }
            ]
        )

    def add_job(self, app, spec, arguments=()):
        self.lab.kube.apply_all(
            [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "metadata": {"name": app, "namespace": self.namespace},
                    "spec": {
                        "backoffLimit": 0,
                        "template": {
                            "metadata": {"labels": {APP_LABEL: app}},
                            "spec": self.pod_spec(spec, arguments, restart="Never"),
                        },
                    },
                }
            ]
        )

    def add_pod(self, app, spec, arguments=()):
        self.lab.kube.apply_all(
            [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {
                        "name": app,
                        "namespace": self.namespace,
                        "labels": {APP_LABEL: app},
                    },
                    "spec": self.pod_spec(spec, arguments),
                }
            ]
        )

    def suspend_job(self, app):
        self.lab.kube.patch(
            f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{app}", {"spec": {"suspend": True}}
        )

    def wait_bound(self, app, seconds=30):
        """The first pod of an app that is bound to the node."""
        return wait_until(
            lambda: next((pod for pod in self.observer.of_app(app) if pod.bound), None),
            seconds,
            f"the binding of {app}",
            pause=0.01,
        )

    def wait_running(self, *apps, seconds=60):
        for app in apps:
            wait_until(
                lambda: any(pod.running and not pod.gone for pod in self.observer.of_app(app)),
                seconds,
                f"{app} Running",
                pause=0.02,
            )

    def job_state(self, app):
        job = self.lab.kube.find(f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{app}")
        if job is None:
            return "Absent"
        for kind, state in (
            ("Complete", "Complete"),
            ("Failed", "Failed"),
            ("FailureTarget", "Failed"),
            ("Suspended", "Suspended"),
        ):
            if condition_of(job, kind) == "True":
                return state
        return "Running" if any(pod.running for pod in self.observer.of_app(app)) else "Pending"

    def wait_job(self, app, states, seconds):
        return wait_until(
            lambda: self.job_state(app) in states and self.job_state(app),
            seconds,
            f"Job {app} getting {' or '.join(states)}",
            pause=0.2,
        )

    def pod_events(self, pod_name):
        return self.lab.kube.items(
            f"/api/v1/namespaces/{self.namespace}/events",
            fieldSelector=f"involvedObject.name={pod_name}",
        )

    def wait_held(self, pod, seconds=15):
        """Waits for the agent's hold on a pod's image; notes how long it took since the binding."""
        held = self.agent.wait_record("pull_held", seconds, pod=pod.name)
        self.results["bind_to_hold_ms"] = round((held["at"] - pod.bound) * 1000, 1)
        if "bind_to_hold_ms" in held:
            self.note(f"bound to held by the agent's own clock: {held['bind_to_hold_ms']} ms")
        return held

    def count_held_bytes(self, held, until=None):
        self.results["held_layer_bytes"] = self.observer.disk.most_layer_bytes(
            held["at"], until if until is not None else time.monotonic()
        )


def quantity_bytes(text, capacity):
    """`10%` by the kubelet's own arithmetic (single precision), or an absolute quantity."""
    if text.endswith("%"):
        return int(capacity * single_precision(float(text[:-1]) / 100))
    units = {"Ki": 1 << 10, "Mi": MIB, "Gi": 1 << 30}
    for unit, factor in units.items():
        if text.endswith(unit):
            return int(float(text[:-2]) * factor)
    return int(text)


def single_precision(value):
    return struct.unpack("f", struct.pack("f", value))[0]
