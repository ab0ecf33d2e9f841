"""A Prefect flow run whose image doesn't fit the node that it was bound to, but another one.

Two real nodes, an agent on each. Guarded, its Job is suspended and resumed (S, Prefect's own base
job template), or its pod is marked and deleted (P, the template of daemonset/prefect); either way
the run is PENDING throughout and is executed once, on the larger node. `prefect-naive` is what a
plain delete of the pod does.
"""

import time

import prefect_lab
from node import PAUSE, NodeSpec
from processes import let_pass, wait_until
from scenario import ALONE, GUARDED, Scenario
from scenarios.placement import DRAIN, LARGE, SMALL, node_of, prefer
from scenarios.prefect_hold import expect_one_execution

ENDS = ("COMPLETED", "CRASHED", "FAILED", "CANCELLED")
GONE_SECONDS = 3.0
MOVED_SECONDS = 20.0
CRASHED_SECONDS = 90


def pods_of(run, flow_run):
    """The pods of a flow run, in the order of their making."""
    pods = [pod for pod in list(run.observer.pods.values())
            if pod.labels.get("prefect.io/flow-run-id") == flow_run]
    return sorted(pods, key=lambda pod: (pod.pod["metadata"]["creationTimestamp"], pod.bound or 0))


class PrefectDrainS(Scenario):
    name = "prefect-drain-S"
    images = (PAUSE,)
    tools = (prefect_lab.NAME,)
    node = SMALL
    modes = (GUARDED,)
    policy = DRAIN
    template, variables = None, {}

    def play(self, run):
        run.seen.large = run.add_node("large", LARGE)
        pool = prefect_lab.Pool(run, self.template, **self.variables).start(prefer(run.node))
        run.start_agent()
        run.start_agent(run.seen.large)
        run.watch_layers(prefect_lab.flow_image())
        self.drain(run, pool)

    def drain(self, run, pool):
        flow_run = pool.start_run()
        first = wait_until(lambda: next(iter(pods_of(run, flow_run)), None), 30, "the run's pod")
        wait_until(lambda: first.bound, 10, "the binding of the run's pod", pause=0.01)
        run.wait_held(first)
        wait_until(lambda: first.gone, 40, "the end of the drained pod", pause=0.02)
        run.seen.while_drained = pool.state(flow_run)
        second = wait_until(lambda: next((pod for pod in pods_of(run, flow_run)
                                          if pod.uid != first.uid and pod.running), None),
                            90, "the run's second pod Running")
        pool.wait_state(flow_run, ENDS, 60)
        run.count_held_bytes({"at": first.bound})
        run.seen.first, run.seen.second = first, second
        run.seen.history = pool.history(flow_run)
        run.seen.executions = pool.executions(flow_run)
        run.seen.jobs = run.lab.kube.items(f"/apis/batch/v1/namespaces/{run.namespace}/jobs")
        run.results["job"] = pool.state(flow_run)
        run.note(
            f"bound to gone {first.gone - first.bound:.1f} s, to bound elsewhere "
            f"{second.bound - first.bound:.1f} s, to Running {second.running - first.bound:.1f} s"
        )
        run.note(f"states: {', '.join(run.seen.history)}; executed {run.seen.executions} times")
        cancelled = run.agent.records("pull_cancelled")
        if cancelled:
            run.note(f"cancel to pod gone: {first.gone - cancelled[0]['at']:.1f} s")

    def expect_guarded(self, run):
        first, second = run.seen.first, run.seen.second
        run.expect(
            run.seen.while_drained == "PENDING",
            f"When its pod was gone the run should be PENDING; it was {run.seen.while_drained}.",
        )
        expect_one_execution(run)
        run.expect(not first.started(), "The drained pod had started.")
        run.expect(
            node_of(first) == run.node.name and node_of(second) == run.seen.large.name,
            f"The pods ran on {node_of(first)}, then {node_of(second)}.",
        )
        run.expect(
            second.bound - first.bound <= MOVED_SECONDS,
            f"The pod was moved in {second.bound - first.bound:.1f} s; {MOVED_SECONDS:g} s are "
            "allowed.",
        )
        run.expect(
            run.results["held_layer_bytes"] == 0,
            f"{run.results['held_layer_bytes']} layer bytes were written to the small disk.",
        )
        for job in run.seen.jobs:
            run.expect(not job["spec"].get("suspend"), "A Job was left suspended.")
            run.expect(
                "imagefs-guard.io/hold" not in job["metadata"].get("labels", {}),
                "A Job still carries the label of a hold.",
            )
        self.expect_protocol(run)

    def expect_protocol(self, run):
        for event in ("job_suspended", "job_resumed"):
            run.expect(run.agent.records(event), f"The agent's log has no {event}.")


class PrefectDrainP(PrefectDrainS):
    name = "prefect-drain-P"
    template = prefect_lab.SHIPPED_TEMPLATE
    variables = {"ephemeral_storage": "50Mi"}  # with the 1 GiB of the template it would never come

    def expect_protocol(self, run):
        run.expect(not run.agent.records("job_suspended"), "The Job was suspended.")
        for event in ("pod_marked", "pod_deleted"):
            run.expect(run.agent.records(event), f"The agent's log has no {event}.")
        for job in run.seen.jobs:
            run.expect(
                not job.get("status", {}).get("failed"), "The Job counted the drain as a failure."
            )


class PrefectNaive(Scenario):
    """What everybody does by hand: the pod is deleted while its image is pulled.

    A pull that ends within the pod's grace period would not show it: the container starts late, and
    the run may even complete. So the registry is slow: the pull takes a minute, as 9 GB do.
    """

    name = "prefect-naive"
    images = (PAUSE,)
    node = NodeSpec(registry_mbit=15)
    tools = (prefect_lab.NAME,)
    modes = (ALONE,)

    def play(self, run):
        pool = prefect_lab.Pool(run).start()
        run.watch_layers(prefect_lab.flow_image())
        flow_run = pool.start_run()
        pod = run.wait_bound("flow")
        wait_until(
            lambda: run.observer.disk.first_layer_byte(pod.bound), 20, "the pull's start", 0.02
        )
        let_pass(0.5)
        deleted = time.monotonic()
        run.lab.kube.delete(f"/api/v1/namespaces/{run.namespace}/pods/{pod.name}")
        run.results["job"] = pool.wait_state(flow_run, ENDS, CRASHED_SECONDS)
        run.note(f"{run.results['job']} {time.monotonic() - deleted:.0f} s after the delete")
        run.seen.history = pool.history(flow_run)
        run.note(f"states: {', '.join(run.seen.history)}; "
                 f"executed {pool.executions(flow_run)} times")

    def expect_alone(self, run):
        run.expect(
            "CRASHED" in run.seen.history,
            f"A plain delete should crash the run; its states: {', '.join(run.seen.history)}.",
        )
