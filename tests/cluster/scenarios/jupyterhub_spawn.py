"""A user of a real JupyterHub starts a server whose image doesn't fit the hub's node.

Kubelet alone: the image is pulled and the hub is evicted, from under all its users. Guarded: the
pull is held, the user reads why in the progress of the spawn; the hub stays up, and another user's
small server starts meanwhile on a node that joins.
"""

import time

import jupyterhub_lab
from node import PAUSE, NodeSpec
from processes import let_pass, wait_until
from scenario import FLOW_IMAGE, Scenario

# As in storm: the pull does not end in ENOSPC, but what it leaves is under the floor.
FILLER_MIB = 850
EVICTION_SECONDS = 90
PROGRESS_SECONDS = 5
READY_SECONDS = 90


class JupyterHubSpawn(Scenario):
    name = "jupyterhub-spawn"
    images = (PAUSE, FLOW_IMAGE)
    tools = (jupyterhub_lab.NAME,)
    node = NodeSpec(
        disk_mib=3072,
        eviction_hard=(
            ("memory.available", "100Mi"),
            ("nodefs.available", "10%"),
            ("nodefs.inodesFree", "5%"),
            ("imagefs.available", "36%"),
        ),
    )

    def play(self, run):
        users = {"ada": FLOW_IMAGE, "ben": jupyterhub_lab.image("user", extra_mib=5)}
        hub = jupyterhub_lab.Hub(run, users).start()
        run.node.fill(FILLER_MIB)
        run.start_agent()
        run.watch_layers(FLOW_IMAGE)
        hub.spawn("ada")
        pod = run.wait_bound("jupyter-ada")
        if run.guarded:
            self.play_guarded(run, hub, pod)
        else:
            deadline = pod.bound + EVICTION_SECONDS
            while time.monotonic() < deadline and not run.observer.evicted_apps(["hub"]):
                let_pass(0.2)
        run.results["protected_evicted"] = len(run.observer.evicted_apps(["hub"]))
        first = run.observer.first_eviction(["hub"])
        if first is not None:
            run.results["first_eviction_s"] = round(first - pod.bound, 1)
        run.seen.hubs = len(run.observer.of_app("hub"))

    def play_guarded(self, run, hub, pod):
        held = run.wait_held(pod)
        run.seen.messages = hub.progress("ada", PROGRESS_SECONDS)
        second = run.add_node("second", NodeSpec())
        run.start_agent(second)
        started = time.monotonic()
        hub.spawn("ben")
        wait_until(lambda: hub.is_ready("ben"), READY_SECONDS, "the small server getting ready")
        run.note(f"small server ready after {time.monotonic() - started:.1f} s")
        run.count_held_bytes(held)
        run.seen.answers = hub.answers()
        run.seen.restarts = hub.pod.pod["status"]["containerStatuses"][0]["restartCount"]
        run.seen.kept = pod.gone is None

    def expect_alone(self, run):
        run.expect(
            run.results["protected_evicted"] > 0,
            "The kubelet alone should have evicted the hub: the scenario does not bite.",
        )

    def expect_guarded(self, run):
        told = [text for text in run.seen.messages if "PullHeld" in text or "GiB free" in text]
        run.note(f"the user reads: {told[0] if told else run.seen.messages}")
        run.expect(told, "The progress of the spawn does not say that and why the pull is held.")
        run.expect(
            run.seen.answers and run.seen.restarts == 0 and run.seen.hubs == 1,
            "The hub was restarted, or does not answer.",
        )
        run.expect(run.seen.kept, "The user's pod was deleted; it has no controller.")
        run.expect(
            run.results["held_layer_bytes"] == 0,
            f"{run.results['held_layer_bytes']} layer bytes were written while the pull was held.",
        )
        run.expect(run.results["protected_evicted"] == 0, "The hub was evicted.")
        run.expect(not run.observer.had_disk_pressure(), "The node had DiskPressure.")
