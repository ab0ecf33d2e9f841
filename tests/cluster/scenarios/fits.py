"""Images that fit: nobody may notice that there is an agent.

Pods start one after the other, each with an image of its own, on a node with plenty of room. What
the agent costs them is the difference of the medians from binding to Running, alone and guarded,
and the longest hold in its log.
"""

import statistics
import time

from images import ImageSpec, Layer
from node import PAUSE
from scenario import GUARDED, Scenario

PODS = 9
HELD_LIMIT_MS = 100
DELAY_LIMIT_MS = 100
IMAGES = tuple(ImageSpec(f"small-{i}", (Layer("random", 8), Layer("zero", 8))) for i in range(PODS))


class Fits(Scenario):
    name = "fits"
    images = (PAUSE, *IMAGES)

    def __init__(self):
        self.median_ms = {}

    def play(self, run):
        run.start_agent()
        times = []
        for i, spec in enumerate(IMAGES):
            app = f"small-{i}"
            run.add_pod(app, spec)
            run.wait_running(app)
            pod = run.observer.of_app(app)[0]
            times.append((pod.running - pod.bound) * 1000)
        self.median_ms[run.mode] = statistics.median(times)
        run.note(
            "bound to Running, ms: "
            + " ".join(f"{t:.0f}" for t in times)
            + f"; median {self.median_ms[run.mode]:.0f}"
        )
        if run.guarded:
            self.read_log(run)

    def read_log(self, run):
        time.sleep(0.5)  # the last release may be written a moment after the pod runs
        held = run.agent.records("pull_held")
        released = run.agent.records("pull_released")
        run.seen.held_ms = [record["held_ms"] for record in released]
        bound = {pod.name: pod.bound for pod in run.observer.pods.values()}
        delays = [(r["at"] - bound[r["pod"]]) * 1000 for r in held if r.get("pod") in bound]
        if delays:
            run.results["bind_to_hold_ms"] = round(statistics.median(delays), 1)
        run.seen.open_holds = len(held) - len(released)
        run.note(f"{len(held)} holds, released after ms: " + " ".join(map(str, run.seen.held_ms)))

    def expect_alone(self, run):
        run.expect(
            not run.observer.had_disk_pressure(), "The node had DiskPressure with plenty of room."
        )

    def expect_guarded(self, run):
        longest = max(run.seen.held_ms, default=0)
        run.expect(
            longest <= HELD_LIMIT_MS,
            f"A pull that fits was held for {longest} ms; {HELD_LIMIT_MS} ms are allowed.",
        )
        run.expect(run.seen.open_holds == 0, f"{run.seen.open_holds} holds were never released.")
        if "alone" in self.median_ms:
            delay = self.median_ms[GUARDED] - self.median_ms["alone"]
            run.note(f"median delay by the agent: {delay:.0f} ms")
            run.expect(
                delay <= DELAY_LIMIT_MS,
                f"The median pod started {delay:.0f} ms later than without the agent; "
                f"{DELAY_LIMIT_MS} ms are allowed.",
            )
        wanted = [state[2] for state in run.observer.node_states if state[2] not in (None, "clear")]
        run.expect(not wanted, f"The node's stage went to {', '.join(sorted(set(wanted)))}.")
