"""The agent dies by kill -9 in the middle of protocol S, once at each of its steps.

Each time a Prefect flow run's Job is left suspended. The coordinator, or the next agent, resumes it
once its pod is gone: the run is never CRASHED and is executed once.
"""

import time

import prefect_lab
from coordinator import Coordinator
from node import PAUSE
from processes import wait_until
from scenario import GUARDED, Scenario
from scenarios.placement import LARGE, SMALL, node_of, prefer
from scenarios.prefect_drain import ENDS, pods_of

RESUMED_SECONDS = 100  # the coordinator looks every 30 s; the pull has to fail first


class PrefectAgentDies(Scenario):
    name = "prefect-agent-dies"
    images = (PAUSE,)
    tools = (prefect_lab.NAME,)
    node = LARGE
    modes = (GUARDED,)
    # The coordinator looks every 30 s: the taint outlasts it, as the 10 min do that are default.
    policy = {"drain": {"enabled": True}, "clearAfter": "60s"}

    def play(self, run):
        steps = {
            "suspended": self.die_when_suspended,
            "leaving": self.die_when_leaving,
            "gone": self.die_when_gone,
        }
        names = [f"{run.namespace}-{step}" for step in steps]
        pool = prefect_lab.Pool(run).start(prefer(*names))
        coordinator = Coordinator(run, run.agent_binary)
        run.at_end.append(coordinator.end)
        coordinator.start()
        run.start_agent()
        run.seen.runs = []
        for step, die in steps.items():
            # A new small node each: those before are full of taints, or closed.
            small = run.add_node(step, SMALL)
            self.drain(run, pool, small, step, die)
            run.lab.kube.patch(f"/api/v1/nodes/{small.name}", {"spec": {"unschedulable": True}})
        coordinator.require_alive()
        run.seen.resumed = len(coordinator.records("job_resumed"))
        run.note(f"resumed by the coordinator: {run.seen.resumed} of {len(steps)}")
        run.seen.jobs = run.lab.kube.items(f"/apis/batch/v1/namespaces/{run.namespace}/jobs")

    def drain(self, run, pool, small, step, die):
        agent = run.start_agent(small)
        flow_run = pool.start_run()
        first = wait_until(lambda: next(iter(pods_of(run, flow_run)), None), 30, "the run's pod")
        wait_until(lambda: first.bound, 10, "the binding of the run's pod", pause=0.005)
        died = die(run, agent, first)
        state = pool.wait_state(flow_run, ENDS, RESUMED_SECONDS)
        pods = pods_of(run, flow_run)
        run.note(
            f"killed when {step}: pod gone {first.gone - died:.1f} s later, "
            f"next pod bound {pods[-1].bound - died:.1f} s later, {state}"
        )
        run.seen.runs.append((step, pool.history(flow_run), pool.executions(flow_run),
                              [node_of(pod) for pod in pods], small.name))
        if not agent.process.alive():
            agent.start()

    def wait_suspended(self, run, first):
        name = first.labels["batch.kubernetes.io/job-name"]
        path = f"/apis/batch/v1/namespaces/{run.namespace}/jobs/{name}"
        wait_until(lambda: run.lab.kube.get(path)["spec"].get("suspend"), 20,
                   "the suspend of the run's Job", pause=0.005)

    def die_when_suspended(self, run, agent, first):
        """Before the pull is cancelled: it goes on, nobody holds it. No agent comes back yet."""
        self.wait_suspended(run, first)
        agent.kill()
        return time.monotonic()

    def die_when_leaving(self, run, agent, first):
        """The next agent is there at once and finds a pod that is going."""
        wait_until(lambda: "deletionTimestamp" in first.pod["metadata"] or first.gone, 20,
                   "the deletion of the drained pod", pause=0.005)
        return self.change_agents(agent)

    def die_when_gone(self, run, agent, first):
        """Just before the resume, or just after it: that is a matter of milliseconds."""
        wait_until(lambda: first.gone, 30, "the end of the drained pod", pause=0.001)
        return self.change_agents(agent)

    def change_agents(self, agent):
        agent.kill()
        died = time.monotonic()
        agent.start()
        return died

    def expect_guarded(self, run):
        for step, history, executions, nodes, small in run.seen.runs:
            run.expect(
                history == ["SCHEDULED", "PENDING", "RUNNING", "COMPLETED"] and executions == 1,
                f"Killed when {step}: states {', '.join(history)}, executed {executions} times.",
            )
            run.expect(
                nodes == [small, run.node.name],
                f"Killed when {step}: the pods were on {', '.join(map(str, nodes))}.",
            )
        run.expect(run.seen.resumed > 0, "The coordinator has resumed nothing.")
        for job in run.seen.jobs:
            run.expect(not job["spec"].get("suspend"), "A Job was left suspended.")
