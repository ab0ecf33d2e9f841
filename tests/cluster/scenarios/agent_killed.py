"""The agent dies by kill -9 while it holds a pull: it must fail open.

Alone, the same Job shows how soon a pull begins by itself.
"""

import time

from node import PAUSE
from processes import let_pass, wait_until
from scenario import CAREFUL_POLICY, FLOW_IMAGE, Scenario

FILLER_MIB = 600
HELD_SECONDS = 5
RESUME_SECONDS = 3.0
START_SECONDS = 15.0


class AgentKilled(Scenario):
    name = "agent-killed"
    images = (PAUSE, FLOW_IMAGE)
    policy = CAREFUL_POLICY

    def play(self, run):
        run.node.fill(FILLER_MIB)
        run.start_agent()
        run.watch_layers(FLOW_IMAGE)
        run.add_job("flow", FLOW_IMAGE, ["sleep", "1"])
        pod = run.wait_bound("flow")
        since = pod.bound
        if run.guarded:
            held = run.wait_held(pod)
            let_pass(HELD_SECONDS)
            since = time.monotonic()
            run.count_held_bytes(held, until=since)
            run.agent.kill()
        first = wait_until(
            lambda: run.observer.disk.first_layer_byte(since),
            START_SECONDS,
            "the first layer byte",
            pause=0.02,
        )
        run.seen.seconds = first - since
        run.note(
            f"first layer byte {run.seen.seconds:.2f} s after "
            + ("the agent's death" if run.guarded else "the binding")
        )
        run.results["job"] = run.wait_job("flow", ("Complete", "Failed"), 90)

    def expect_alone(self, run):
        run.expect(
            run.results["job"] == "Complete",
            f"The Job should complete by itself; it is {run.results['job']}.",
        )

    def expect_guarded(self, run):
        run.expect(
            run.results["held_layer_bytes"] == 0,
            f"{run.results['held_layer_bytes']} layer bytes were written while the pull was held.",
        )
        run.expect(
            run.seen.seconds <= RESUME_SECONDS,
            f"The pull went on {run.seen.seconds:.1f} s after the agent's death; "
            f"{RESUME_SECONDS:g} s are allowed.",
        )
        run.expect(
            run.results["job"] == "Complete",
            f"The Job should complete after the agent's death; it is {run.results['job']}.",
        )
