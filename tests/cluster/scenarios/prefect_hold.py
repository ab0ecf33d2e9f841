"""A Prefect flow run whose image doesn't fit: real server, worker and flow.

Kubelet alone: the pull leaves less than the floor, and the hub is evicted for it. Guarded: the run
waits, PENDING, for as long as there is no room, then runs once; it is never called CRASHED.
"""

import time

import prefect_lab
from node import PAUSE, NodeSpec
from processes import let_pass
from scenario import Scenario
from scenarios import bystanders

# 2435 MiB of ext4, floor 974: with the filler the pull (110 MiB compressed, 350 unpacked) does not
# end in ENOSPC, but what it leaves is under the floor; without it even its peak stays above.
FILLER_MIB = 1150
HELD_SECONDS = 20
EVICTION_SECONDS = 60
FLOW_SECONDS = 2


class PrefectHold(Scenario):
    name = "prefect-hold"
    images = (PAUSE,)
    tools = (prefect_lab.NAME,)
    node = NodeSpec(
        eviction_hard=(
            ("memory.available", "100Mi"),
            ("nodefs.available", "10%"),
            ("nodefs.inodesFree", "5%"),
            ("imagefs.available", "40%"),
        ),
    )

    def play(self, run):
        pool = prefect_lab.Pool(run).start()
        bystanders.start(run)
        run.node.fill(FILLER_MIB)
        run.start_agent()
        run.watch_layers(prefect_lab.flow_image())
        flow_run = pool.start_run(seconds=FLOW_SECONDS)
        pod = run.wait_bound("flow")
        if run.guarded:
            self.play_guarded(run, pool, flow_run, pod)
        else:
            deadline = pod.bound + EVICTION_SECONDS
            while time.monotonic() < deadline and not run.observer.evicted_apps(bystanders.NAMES):
                let_pass(0.2)
        bystanders.note_evictions(run, pod.bound)
        run.seen.history = pool.history(flow_run)
        run.seen.executions = pool.executions(flow_run)
        run.results["job"] = pool.state(flow_run)
        run.note(f"states: {', '.join(run.seen.history)}; executed {run.seen.executions} times")

    def play_guarded(self, run, pool, flow_run, pod):
        held = run.wait_held(pod)
        let_pass(HELD_SECONDS)
        run.count_held_bytes(held)
        run.seen.while_held = pool.state(flow_run)
        released = time.monotonic()
        run.node.unfill()
        pool.wait_state(flow_run, ("COMPLETED", "CRASHED", "FAILED"), 90)
        run.note(f"room to COMPLETED: {time.monotonic() - released:.1f} s")

    def expect_alone(self, run):
        run.expect(
            run.results["protected_evicted"] > 0,
            "The kubelet alone should have evicted the hub: the scenario does not bite.",
        )

    def expect_guarded(self, run):
        run.expect(
            run.seen.while_held == "PENDING",
            f"While it was held the flow run should be PENDING; it was {run.seen.while_held}.",
        )
        expect_one_execution(run)
        run.expect(
            run.results["protected_evicted"] == 0,
            f"{run.results['protected_evicted']} protected pods were evicted.",
        )
        run.expect(
            run.results["held_layer_bytes"] == 0,
            f"{run.results['held_layer_bytes']} layer bytes were written while the pull was held.",
        )
        run.expect(not run.observer.had_disk_pressure(), "The node had DiskPressure.")


def expect_one_execution(run):
    """COMPLETED, without a detour, and executed exactly once."""
    run.expect(
        run.seen.history == ["SCHEDULED", "PENDING", "RUNNING", "COMPLETED"],
        f"The flow run's states were {', '.join(run.seen.history)}.",
    )
    run.expect(
        run.seen.executions == 1,
        f"The flow was executed {run.seen.executions} times instead of once.",
    )
