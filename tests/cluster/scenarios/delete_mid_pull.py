"""A Job is suspended one second into its pull, as an operator does who sees the disk fill.

Kubelet alone: the pod gets deleted, but the pull goes on to its last byte, and the pod stays
Terminating all the while. With the agent the pull was held: it is cancelled, and the pod is gone
with not one layer byte written.
"""

import time

from images import MIB
from node import PAUSE
from processes import let_pass, wait_until
from scenario import CAREFUL_POLICY, FLOW_IMAGE, Scenario

FILLER_MIB = 600
SUSPEND_AFTER_SECONDS = 1.0
GONE_SECONDS = 3.0  # with the agent
GONE_LIMIT_SECONDS = 90.0
ALONE_LAYER_BYTES = 400 * MIB  # of 460 MiB


class DeleteMidPull(Scenario):
    name = "delete-mid-pull"
    images = (PAUSE, FLOW_IMAGE)
    policy = CAREFUL_POLICY

    def play(self, run):
        run.node.fill(FILLER_MIB)
        run.start_agent()
        run.watch_layers(FLOW_IMAGE)
        run.add_job("flow", FLOW_IMAGE, ["sleep", "5"])
        pod = run.wait_bound("flow")
        if run.guarded:
            held = run.wait_held(pod)
            let_pass(SUSPEND_AFTER_SECONDS)
        else:
            wait_until(
                lambda: run.observer.disk.first_layer_byte(pod.bound),
                15,
                "the pull's start",
                pause=0.02,
            )
            let_pass(SUSPEND_AFTER_SECONDS)
        suspended = time.monotonic()
        run.suspend_job("flow")
        wait_until(
            lambda: pod.gone, GONE_LIMIT_SECONDS, "the end of the suspended Job's pod", pause=0.02
        )
        run.seen.gone_seconds = pod.gone - suspended
        run.note(f"pod gone {run.seen.gone_seconds:.1f} s after the Job was suspended")
        let_pass(2)  # whatever still writes after the pod's end is seen, too
        run.seen.layer_bytes = run.observer.disk.most_layer_bytes(pod.bound)
        run.note(f"{run.seen.layer_bytes // MIB} MiB of layers written")
        run.seen.started = pod.started() or any(
            event["reason"] == "Started" for event in run.pod_events(pod.name)
        )
        run.note(
            "its container " + ("was started all the same" if run.seen.started else "never started")
        )
        if run.guarded:
            run.count_held_bytes(held)
        run.results["job"] = run.wait_job("flow", ("Suspended",), 10)

    def expect_alone(self, run):
        run.expect(
            run.seen.layer_bytes >= ALONE_LAYER_BYTES,
            "Without the agent the pull should go on to its end; only "
            f"{run.seen.layer_bytes // MIB} MiB were written: the scenario does not bite.",
        )

    def expect_guarded(self, run):
        run.expect(
            run.seen.gone_seconds <= GONE_SECONDS,
            f"The pod was gone in {run.seen.gone_seconds:.1f} s, allowed are {GONE_SECONDS:g} s.",
        )
        run.expect(run.seen.layer_bytes == 0, f"{run.seen.layer_bytes} layer bytes were written.")
        run.expect(not run.seen.started, "The deleted pod's container was started.")
        run.expect(run.agent.records("pull_cancelled"), "The agent's log has no pull_cancelled.")
        run.expect(run.results["job"] == "Suspended", f"The Job is {run.results['job']}.")
