"""A flow's image is pulled onto the node of the hub: nebari-dev/nebari#707.

Kubelet alone: the pull succeeds and leaves less than the floor, so the kubelet evicts one pod after
the other, the hub first. None of that gives any space back, for the space is in the image.
"""

import re
import time

import agent as agent_module
from images import MIB
from node import PAUSE, NodeSpec
from processes import let_pass, wait_until
from scenario import FLOW_IMAGE, Scenario
from scenarios import bystanders

# The disk is so large that without the filler even a careful forecast of the pull's peak (up to a
# fifth more than its tars) stays above the floor, else the pull could not be let go at the end;
# with the filler the pull does not end in ENOSPC, but what it leaves is well under the floor.
DISK_MIB = 3072
FILLER_MIB = 1100
EVICTION_SECONDS = 90
# Two passes of the kubelet's eviction loop, and longer than the pull itself takes.
HELD_SECONDS = 25
CLEAR_SECONDS = 40


class Storm(Scenario):
    name = "storm"
    images = (PAUSE, FLOW_IMAGE)
    node = NodeSpec(
        disk_mib=DISK_MIB,
        eviction_hard=(
            ("memory.available", "100Mi"),
            ("nodefs.available", "10%"),
            ("nodefs.inodesFree", "5%"),
            ("imagefs.available", "36%"),
        ),
    )

    def play(self, run):
        bystanders.start(run)
        run.node.fill(FILLER_MIB)
        run.start_agent()
        run.watch_layers(FLOW_IMAGE)
        run.say(
            f"{run.observer.disk.free_bytes() // MIB} MiB free, "
            f"floor {run.floor_bytes() // MIB} MiB; the flow starts"
        )
        run.add_job("flow", FLOW_IMAGE, ["sleep", "20"])
        pod = run.wait_bound("flow")
        if run.guarded:
            self.play_guarded(run, pod)
        else:
            self.wait_for_evictions(run, pod)
        bystanders.note_evictions(run, pod.bound)
        run.results["job"] = run.job_state("flow")

    def wait_for_evictions(self, run, pod):
        """Until all are gone, or no more are to be expected."""
        deadline = pod.bound + EVICTION_SECONDS
        while time.monotonic() < deadline:
            if len(run.observer.evicted_apps(bystanders.NAMES)) == len(bystanders.NAMES):
                return
            let_pass(0.2)

    def play_guarded(self, run, pod):
        held = run.wait_held(pod)
        run.say(f"held; watching it for {HELD_SECONDS} s")
        let_pass(HELD_SECONDS)
        run.count_held_bytes(held)
        self.check_while_held(run, pod)
        run.node.unfill()
        run.say("filler removed; the pull may go on")
        run.agent.wait_record("pull_released", 30, digest=held["digest"])
        run.wait_job("flow", ("Complete", "Failed"), 120)
        self.wait_for_clear(run)

    def check_while_held(self, run, pod):
        """Event, taint, label, condition and status, as people and autoscalers see them."""
        events = [event for event in run.pod_events(pod.name) if event["reason"] == "PullHeld"]
        run.expect(events, "The Job's pod has no Event PullHeld.")
        if events:
            text = events[-1]["message"]
            run.note(f"Event: {text}")
            figures = re.findall(r"(\d+\.\d+) GiB", text)
            run.expect(
                len(figures) >= 3
                and re.search(r"needs .*GiB", text)
                and re.search(r"GiB free", text)
                and re.search(r"floor .*GiB", text),
                f"The Event does not say needed, free and floor in GiB: {text!r}.",
            )
        node = run.lab.kube.get(f"/api/v1/nodes/{run.node.name}")
        taints = [
            t["effect"]
            for t in node["spec"].get("taints") or []
            if t["key"] == agent_module.TAINT_KEY
        ]
        run.expect(
            taints == ["NoSchedule"],
            f"The node should carry the agent's taint NoSchedule while it holds; it has {taints}.",
        )
        labels, annotations = node["metadata"]["labels"], node["metadata"].get("annotations", {})
        run.expect(
            labels.get(agent_module.STAGE_LABEL) == "guard",
            f"The stage label should be guard; it is {labels.get(agent_module.STAGE_LABEL)}.",
        )
        run.expect(
            labels.get(agent_module.HEADROOM_LABEL, "").isdigit(),
            "The node has no label that tells its headroom in whole GiB.",
        )
        run.expect(
            agent_module.STATUS_ANNOTATION in annotations,
            "The node has no annotation with the agent's status.",
        )
        risk = next(
            (c for c in node["status"]["conditions"] if c["type"] == agent_module.CONDITION), {}
        )
        run.expect(
            risk.get("status") == "True" and risk.get("reason") == "PredictedPullExceedsHeadroom",
            "The condition ImageFilesystemRisk should be True with the reason "
            f"PredictedPullExceedsHeadroom; it is {risk.get('status')}, {risk.get('reason')}.",
        )

    def wait_for_clear(self, run):
        """After the pull the node is good again: no taint, risk False, stage clear."""

        def clear():
            *_, stage, taints, risk = run.observer.node_states[-1]
            return not taints and risk == "False" and stage == "clear"

        wait_until(clear, CLEAR_SECONDS, "the node getting clear of taint, risk and stage")

    def expect_alone(self, run):
        evicted = run.observer.evicted_apps(bystanders.NAMES)
        run.expect(
            "hub" in evicted and len(evicted) >= 3,
            "The kubelet alone should have evicted the hub and two more; "
            f"it evicted {', '.join(evicted) or 'nobody'}: the scenario does not bite.",
        )
        run.expect(
            run.results["lowest_free_bytes"] < run.results["floor_bytes"],
            "Free space should have fallen under the floor without the agent.",
        )

    def expect_guarded(self, run):
        run.expect(
            run.results["protected_evicted"] == 0,
            f"{run.results['protected_evicted']} protected pods were evicted.",
        )
        run.expect(not run.observer.had_disk_pressure(), "The node had DiskPressure.")
        run.expect(
            run.results["held_layer_bytes"] == 0,
            f"{run.results['held_layer_bytes']} layer bytes were written while the pull was held.",
        )
        run.expect(
            run.results["job"] == "Complete",
            f"The Job should be Complete after the filler was removed; it is {run.results['job']}.",
        )
        run.expect(
            run.results["lowest_free_bytes"] >= run.results["floor_bytes"],
            "Free space fell under the floor.",
        )
