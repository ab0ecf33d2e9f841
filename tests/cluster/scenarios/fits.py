"""Images that fit: nobody may notice that there is an agent.

Pods start one after the other, each with an image of its own, on a node with plenty of room. What
the agent costs them is how much later the pull's first layer byte comes, alone and guarded, and
the longest hold in its log. (The container's start is told as well; it varies by more than what is
to be measured.)
"""

import statistics

from images import ImageSpec, Layer
from node import PAUSE
from processes import let_pass
from scenario import ALONE, GUARDED, Scenario

PODS = 15
HELD_LIMIT_MS = 100
DELAY_LIMIT_MS = 100
IMAGES = tuple(
    ImageSpec(f"small-{i}", (Layer("random", 8), Layer("random", 4))) for i in range(PODS)
)


class Fits(Scenario):
    name = "fits"
    images = (PAUSE, *IMAGES)

    def __init__(self):
        self.median_ms = {}  # by mode: the guarded half is compared with the one before it

    def play(self, run):
        run.start_agent()
        begun, started = [], []
        for i, spec in enumerate(IMAGES):
            run.watch_layers(spec)
            run.add_pod(f"small-{i}", spec)
            run.wait_running(f"small-{i}")
            pod = run.observer.of_app(f"small-{i}")[0]
            begun.append((run.observer.disk.first_layer_byte(pod.bound) - pod.bound) * 1000)
            # The sandbox is a task, too, and starts before the container.
            started.append((run.node.task_starts(pod.bound, pod.running)[-1] - pod.bound) * 1000)
        self.median_ms[run.mode] = statistics.median(begun)
        for what, times in (("first layer byte", begun), ("container's start", started)):
            run.note(
                f"bound to {what}, ms: "
                + " ".join(f"{t:.0f}" for t in times)
                + f"; median {statistics.median(times):.0f}"
            )
        if run.guarded:
            self.read_log(run)

    def read_log(self, run):
        let_pass(0.5)  # the last release may be written a moment after the pod runs
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
        run.expect(run.seen.open_holds == 0, f"{run.seen.open_holds} holds were not released.")
        if ALONE in self.median_ms:
            delay = self.median_ms[GUARDED] - self.median_ms[ALONE]
            run.note(f"the median pull began {delay:.0f} ms later than without the agent")
            run.expect(
                delay <= DELAY_LIMIT_MS,
                f"The median pull began {delay:.0f} ms later than without the agent; "
                f"{DELAY_LIMIT_MS} ms are allowed.",
            )
        stages = {state[2] for state in run.observer.node_states} - {None, "clear"}
        run.expect(not stages, f"The node's stage went to {', '.join(sorted(stages))}.")
