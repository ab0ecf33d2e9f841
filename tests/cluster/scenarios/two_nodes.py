"""Two nodes, one with a small disk, one with a large one: the scheduler takes the small one first.

Kubelet alone: the pull fills the small disk again and again, and nobody runs. Guarded: a Job's pod
and a Deployment's pod are drained and run on the large node, in under 20 s from the binding.
"""

import time

from images import ImageSpec, Layer
from node import PAUSE, NodeSpec
from observer import APP_LABEL
from processes import let_pass, wait_until
from scenario import Scenario
from scenarios.placement import DRAIN, node_of, prefer

# 100 MiB compressed and 300 unpacked each: not on 230 MiB, with ease on the larger one.
IMAGES = {
    "job": ImageSpec("two-job", (Layer("random", 100), Layer("zero", 200))),
    "web": ImageSpec("two-web", (Layer("random", 100), Layer("zero", 200))),
}
RUNNING_SECONDS = 20.0
ALONE_SECONDS = 30


class TwoNodes(Scenario):
    name = "two-nodes"
    images = (PAUSE, *IMAGES.values())
    node = NodeSpec(disk_mib=256)
    policy = DRAIN

    def play(self, run):
        run.seen.large = run.add_node("large", NodeSpec())
        run.start_agent()
        run.start_agent(run.seen.large)
        self.add(run)
        bound = {app: run.wait_bound(app) for app in IMAGES}
        run.seen.bound = bound
        if run.guarded:
            for app, first in bound.items():
                self.follow(run, app, first)
            run.results["job"] = run.wait_job("job", ("Complete", "Failed"), 30)
        else:
            let_pass(bound["web"].bound + ALONE_SECONDS - time.monotonic())
            run.results["job"] = run.job_state("job")

    def add(self, run):
        """Both at once: from the first drain on, the taint keeps others away."""
        specs = {
            app: dict(run.pod_spec(image, ["sleep", "3"] if app == "job" else (),
                                   restart="Never" if app == "job" else "Always"),
                      affinity=prefer(run.node))
            for app, image in IMAGES.items()
        }
        templates = {app: {"metadata": {"labels": {APP_LABEL: app}}, "spec": spec}
                     for app, spec in specs.items()}
        run.lab.kube.apply_all([
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "job", "namespace": run.namespace},
                "spec": {"backoffLimit": 0, "template": templates["job"]},
            },
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "web", "namespace": run.namespace},
                "spec": {"replicas": 1, "selector": {"matchLabels": {APP_LABEL: "web"}},
                         "template": templates["web"]},
            },
        ])

    def follow(self, run, app, first):
        second = wait_until(
            lambda: next((pod for pod in run.observer.of_app(app)
                          if pod.uid != first.uid and pod.running), None),
            60, f"{app} Running elsewhere", pause=0.02,
        )
        run.note(f"{app}: bound to gone {first.gone - first.bound:.1f} s, "
                 f"to bound elsewhere {second.bound - first.bound:.1f} s, "
                 f"to Running {second.running - first.bound:.1f} s")
        run.expect(
            node_of(first) == run.node.name and node_of(second) == run.seen.large.name,
            f"The pods of {app} were on {node_of(first)}, then {node_of(second)}.",
        )
        run.expect(
            second.running - first.bound <= RUNNING_SECONDS,
            f"{app} ran {second.running - first.bound:.1f} s after the binding; "
            f"{RUNNING_SECONDS:g} s are allowed.",
        )
        run.expect(not first.started(), f"The drained pod of {app} had started.")

    def expect_alone(self, run):
        for app, first in run.seen.bound.items():
            run.expect(node_of(first) == run.node.name, f"{app} was not bound to the small node.")
        run.expect(
            run.results["job"] != "Complete",
            "The Job completed without the agent: the scenario does not bite.",
        )

    def expect_guarded(self, run):
        run.expect(
            run.results["job"] == "Complete", f"The Job is {run.results['job']}, not Complete."
        )
        run.expect(
            run.results["lowest_free_bytes"] >= run.results["floor_bytes"],
            "Free space of the small disk fell under the floor.",
        )
        run.expect(not run.observer.had_disk_pressure(), "The small node had DiskPressure.")
