"""From `kubectl apply -k` to nothing left: the agent in its pod, updated and removed under a hold.

The pull that is held when the update begins must be held again by the new agent, without a layer
byte in between. Taking the agent off lets the pull go and leaves no mark on node, Job or cluster.
"""

import os
import subprocess
import time

import agent as agent_module
import lab as lab_module
from errors import Broken
from installed_agent import DAEMONSET, HelmAgent, InstalledAgent
from node import PAUSE
from processes import let_pass, wait_until
from scenario import CAREFUL_POLICY, FLOW_IMAGE, GUARDED, Scenario
from scenarios import bystanders

FILLER_MIB = 600
READY_SECONDS = 30
HELD_SECONDS = 5
UPDATE_SECONDS = 60
AGAIN_SECONDS = 40  # the kubelet waits 10 s before it pulls again, then 20 s
KINDS = (
    "clusterroles,clusterrolebindings,validatingadmissionpolicies,"
    "validatingadmissionpolicybindings,flowschemas,namespaces"
)


class Installed(Scenario):
    name = "installed"
    images = (PAUSE, FLOW_IMAGE)
    policy = CAREFUL_POLICY
    modes = (GUARDED,)
    agent_class = InstalledAgent
    uninstall_flags = ()

    def play(self, run):
        bystanders.start(run)
        run.node.fill(FILLER_MIB)
        run.agent = self.agent_class(run.node, run.agent_binary, self.policy)
        run.agent.start()
        run.note(f"installed and Ready: {run.agent.ready_seconds:.1f} s")
        self.restart_containerd(run)
        run.watch_layers(FLOW_IMAGE)
        run.add_job("flow", FLOW_IMAGE, ["sleep", "1"])
        pod = run.wait_bound("flow")
        held = run.wait_held(pod)
        let_pass(HELD_SECONDS)
        self.update(run, held)
        run.count_held_bytes(held)
        run.seen.evicted_while_held = run.observer.evicted_apps(bystanders.NAMES)
        self.uninstall(run)
        run.results["job"] = run.wait_job("flow", ("Complete", "Failed"), 120)
        bystanders.note_evictions(run, pod.bound)

    def restart_containerd(self, run):
        """It makes a new socket; the hold that follows shows that the pod finds that one."""
        # Not by its inode number: a filesystem may give the new one the old one's.
        before = os.stat(run.node.socket).st_ctime_ns
        run.node.containerd.stop()
        run.node.containerd.start()

        def is_new():
            socket = run.node.socket
            return os.path.exists(socket) and os.stat(socket).st_ctime_ns != before

        wait_until(is_new, 20, "containerd's new socket")
        wait_until(lambda: run.lab.node_is_ready(run.node.name), 60, "the node getting Ready again")

    def update(self, run, held):
        """A new pod template; the old pod goes when the new one is there."""
        before = {pod["metadata"]["uid"] for pod in run.agent.pods()}
        started = time.monotonic()
        body = {"spec": {"template": {"metadata": {"annotations": {"update": "1"}}}}}
        run.lab.kube.patch(DAEMONSET, body)

        def updated():
            after = {pod["metadata"]["uid"] for pod in run.agent.pods()}
            return run.agent.is_ready() and after and not after & before

        wait_until(updated, UPDATE_SECONDS, "the end of the rolling update")
        run.note(f"rolling update: {time.monotonic() - started:.1f} s")

        def again():
            run.agent.require_alive()
            return [r for r in run.agent.records("pull_held", digest=held["digest"])
                    if r["at"] > started]

        wait_until(again, AGAIN_SECONDS, "the new agent holding the pull")
        let_pass(HELD_SECONDS)

    def uninstall(self, run):
        run.agent.save_logs()
        binaries = run.lab.binaries
        folders = [os.path.dirname(binaries[name]) for name in ("kubectl", "helm")]
        path = ":".join([*folders, os.environ.get("PATH", "/usr/bin:/bin")])
        env = dict(os.environ, KUBECONFIG=run.lab.kubeconfig, PATH=path)
        started = time.monotonic()
        done = subprocess.run(
            [os.path.join(lab_module.ROOT, "daemonset", "uninstall"), *self.uninstall_flags],
            env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
        )
        run.agent = None
        if done.returncode != 0:
            raise Broken(f"daemonset/uninstall ended with {done.returncode}: {done.stderr}")
        run.note(f"daemonset/uninstall: {time.monotonic() - started:.1f} s")
        run.seen.left = [
            name for name in run.lab.kubectl("get", KINDS, "-o", "name").split()
            if "imagefs-guard" in name
        ]
        run.seen.node = run.lab.kube.get(f"/api/v1/nodes/{run.node.name}")
        run.lab.apply_agent_manifests()  # for the scenarios that follow

    def expect_guarded(self, run):
        run.expect(
            run.results["held_layer_bytes"] == 0,
            f"{run.results['held_layer_bytes']} layer bytes were written before the uninstall.",
        )
        run.expect(not run.seen.evicted_while_held, "Pods were evicted while the agent was there.")
        run.expect(run.results["job"] == "Complete", "The Job is not Complete after the uninstall.")
        run.expect(not run.seen.left, f"The uninstall left {', '.join(run.seen.left)}.")
        meta, node = run.seen.node["metadata"], run.seen.node
        marks = [
            key for key in {**meta.get("labels", {}), **meta.get("annotations", {})}
            if "imagefs-guard.io" in key
        ]
        marks += [
            taint["key"] for taint in node["spec"].get("taints") or []
            if taint["key"] == agent_module.TAINT_KEY
        ]
        marks += [
            c["type"] for c in node["status"]["conditions"] if c["type"] == agent_module.CONDITION
        ]
        run.expect(not marks, f"The uninstall left marks on the node: {', '.join(marks)}.")


class InstalledByHelm(Installed):
    name = "installed-helm"
    agent_class = HelmAgent
    uninstall_flags = ("--helm",)
