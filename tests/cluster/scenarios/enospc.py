"""The same image on a fuller disk with a low floor: the pull does not even end.

Kubelet alone: the filesystem fills to its last byte, the pull fails, its bytes are freed, and the
next try fills it again.
"""

import time

from images import MIB
from node import PAUSE, NodeSpec
from processes import let_pass
from scenario import FLOW_IMAGE, Scenario
from scenarios import bystanders

FILLER_MIB = 900
PLAY_SECONDS = 45  # enough for the second try, which comes 10 s after the first one failed
FULL_BYTES = 1 * MIB


class Enospc(Scenario):
    name = "enospc"
    images = (PAUSE, FLOW_IMAGE)
    node = NodeSpec(
        eviction_hard=(
            ("memory.available", "100Mi"),
            ("nodefs.available", "10%"),
            ("nodefs.inodesFree", "5%"),
            ("imagefs.available", "15%"),
        )
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
        run.add_job("flow", FLOW_IMAGE, ["sleep", "5"])
        pod = run.wait_bound("flow")
        held = run.wait_held(pod) if run.guarded else None
        let_pass(pod.bound + PLAY_SECONDS - time.monotonic())
        if held:
            run.count_held_bytes(held)
        bystanders.note_evictions(run, pod.bound)
        run.results["job"] = run.job_state("flow")

    def expect_alone(self, run):
        run.expect(
            run.results["lowest_free_bytes"] <= FULL_BYTES,
            "The disk should have filled up without the agent; "
            f"{run.results['lowest_free_bytes'] // MIB} MiB were left: it does not bite.",
        )
        run.expect(
            run.results["job"] != "Complete", "The Job completed on a disk that is too small."
        )

    def expect_guarded(self, run):
        run.expect(
            run.results["lowest_free_bytes"] >= run.results["floor_bytes"],
            f"Free space fell to {run.results['lowest_free_bytes']} bytes, "
            f"under the floor of {run.results['floor_bytes']}.",
        )
        run.expect(
            run.results["held_layer_bytes"] == 0,
            f"{run.results['held_layer_bytes']} layer bytes were written while the pull was held.",
        )
        run.expect(
            run.results["protected_evicted"] == 0,
            f"{run.results['protected_evicted']} protected pods were evicted.",
        )
        run.expect(not run.observer.had_disk_pressure(), "The node had DiskPressure.")
        run.expect(
            run.results["job"] == "Pending",
            f"The Job should still wait (Pending); it is {run.results['job']}.",
        )
