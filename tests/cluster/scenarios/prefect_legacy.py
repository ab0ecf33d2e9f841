"""A worker of the time of PrefectHQ/prefect#16429: it gives up on a pod that does not start.

Kubelet alone, the incident: the pull takes longer than the worker waits, the run is CRASHED, its
Job is left behind, and when the pull has ended the crashed run is executed. Guarded: the pull is
held, the worker gives up on it just so; but the run never starts, whether there is room or not.
"""

import prefect_lab
from node import PAUSE, NodeSpec
from processes import let_pass, wait_until
from scenario import CAREFUL_POLICY, Scenario

WATCH_SECONDS = 10  # pod_watch_timeout_seconds; 60 by default
FILLER_MIB = 1400
ROOM_SECONDS = 15  # a pull of this image takes less
CRASHED_SECONDS = 60
RESURRECTED_SECONDS = 120


class PrefectLegacy(Scenario):
    name = "prefect-legacy"
    images = (PAUSE,)
    tools = (prefect_lab.LEGACY,)
    node = NodeSpec(registry_mbit=30)  # half a minute for 110 MiB
    policy = {**CAREFUL_POLICY, "legacyPrefect": {"podWatch": f"{WATCH_SECONDS}s"}}

    def play(self, run):
        pool = prefect_lab.Pool(
            run, tool=prefect_lab.LEGACY, pod_watch_timeout_seconds=WATCH_SECONDS
        ).start()
        if run.guarded:
            run.node.fill(FILLER_MIB)
        run.start_agent()
        run.watch_layers(prefect_lab.flow_image(prefect_lab.LEGACY))
        flow_run = pool.start_run()
        # Its worker gives the labels to the Job alone; there is no other pod.
        pod = wait_until(lambda: next((p for p in list(run.observer.pods.values()) if p.bound),
                                      None), 30, "the binding of the run's pod", pause=0.01)
        held = run.wait_held(pod) if run.guarded else None
        pool.wait_state(flow_run, ("CRASHED",), CRASHED_SECONDS)
        if run.guarded:
            self.give_room(run, pod)
            run.count_held_bytes(held)
        else:
            wait_until(lambda: pool.executions(flow_run), RESURRECTED_SECONDS,
                       "the execution of the crashed run")
            pool.wait_state(flow_run, ("COMPLETED",), 60)
        run.seen.history = pool.history(flow_run)
        run.seen.executions = pool.executions(flow_run)
        run.results["job"] = pool.state(flow_run)
        run.note(f"states: {', '.join(run.seen.history)}; executed {run.seen.executions} times")

    def give_room(self, run, pod):
        run.node.unfill()
        let_pass(ROOM_SECONDS)
        run.seen.told = [event["message"] for event in run.pod_events(pod.name)
                         if event["reason"] == "LegacyRunLost"]
        run.seen.started = pod.started()

    def expect_alone(self, run):
        after = run.seen.history[run.seen.history.index("CRASHED"):]
        run.expect(
            after == ["CRASHED", "RUNNING", "COMPLETED"] and run.seen.executions == 1,
            "The crashed run should have been executed all the same; its states: "
            f"{', '.join(run.seen.history)}.",
        )

    def expect_guarded(self, run):
        run.expect(
            run.results["job"] == "CRASHED" and run.seen.executions == 0 and not run.seen.started,
            f"The run is {run.results['job']}, executed {run.seen.executions} times.",
        )
        run.expect(run.seen.told, "The pod has no Event LegacyRunLost.")
        run.expect(
            run.results["held_layer_bytes"] == 0,
            f"{run.results['held_layer_bytes']} layer bytes were written.",
        )
