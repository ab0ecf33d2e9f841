#!/usr/bin/python3
"""The agent without one of its neighbours: it starts, says what it can't see, and recovers."""

import json
import os
import time

from harness import CONDITION, LAYERS, MIB, SLACK_BYTES, NodeTest, run_tests


class OutageTest(NodeTest):
    @classmethod
    def prepare(cls):
        cls.image, cls.name = cls.push("etl", LAYERS)

    def assert_complains_about(self, agent, *words):
        self.until(lambda: any(word in text for text in agent.complaints() for word in words), 10,
                   f"a complaint about one of {words}")

    def assert_held_in_the_end(self, agent, job="flow"):
        """Blind for a moment, the agent may find the pull under way: then it is cancelled, its
        bytes come back, and the next try is held."""
        self.leave_too_little()
        before = self.disk.available_bytes()
        self.cluster.create_job(job, self.name, run_seconds=0.5)
        agent.wait_for("pull_held", 30)
        self.assert_bytes_come_back(before)

    def assert_bytes_come_back(self, before):
        self.until(lambda: self.cluster.ingest_bytes() == 0
                   and self.disk.available_bytes() > before - SLACK_BYTES, 30, "all bytes back")
        self.assert_no_layer_bytes(3, before)

    def test_no_containerd_at_first(self):
        self.runtime.stop()
        self.addCleanup(self.restart_runtime)
        agent = self.start_agent()
        self.assert_complains_about(agent, "containerd")
        self.assertTrue(agent.process.running())
        self.runtime.start()
        self.assert_held_in_the_end(agent)

    def restart_runtime(self):
        if not self.runtime.process.running():
            self.runtime.start()

    def test_containerd_restarts_under_a_hold(self):
        agent = self.start_agent()
        before, _ = self.start_pull_that_is_held(agent, self.name)
        self.addCleanup(self.restart_runtime)
        self.runtime.stop()
        time.sleep(1)
        self.runtime.start()
        self.assert_no_layer_bytes(8, before)
        self.disk.remove_filler()
        self.until(lambda: self.cluster.job_result("flow") == "Complete", 40, "the Job")

    def test_containerds_socket_is_taken_away_under_a_hold(self):
        """Blind, it holds for 30 s more and then lets go; with the socket back it works again."""
        agent = self.start_agent()
        self.start_pull_that_is_held(agent, self.name)
        self.until(lambda: agent.get("/readyz")[0] == 200, 10, "readiness")
        hidden = self.runtime.socket + ".hidden"
        os.rename(self.runtime.socket, hidden)
        self.addCleanup(lambda: os.path.exists(hidden) and os.rename(hidden, self.runtime.socket))
        self.until(lambda: agent.get("/readyz")[0] == 503, 30, "not ready")
        self.assertEqual(agent.get("/livez")[0], 200)
        self.assert_complains_about(agent, "can't see runtime")
        agent.wait_for("pull_released", 60)
        condition = self.until(
            lambda: next((row for row in [self.cluster.condition(CONDITION)]
                          if row.get("status") == "Unknown"), None), 10, "an unknown condition")
        self.assertEqual(condition["reason"], "PredictionUnavailable")
        self.assertIn("runtime: ", condition["message"])
        self.disk.remove_filler()
        os.rename(hidden, self.runtime.socket)
        self.until(lambda: agent.get("/readyz")[0] == 200, 40, "ready again")
        self.until(lambda: self.cluster.job_result("flow") == "Complete", 40, "the Job")

    def test_no_api_server_at_first(self):
        self.cluster.server.stop()
        agent = self.start_agent(wait=False)
        self.assert_complains_about(agent, "API", "kubernetes", "127.0.0.1")
        self.assertTrue(agent.process.running())
        self.cluster.server.start()
        self.assert_held_in_the_end(agent)

    def test_api_server_goes_away_under_a_hold(self):
        agent = self.start_agent()
        before, _ = self.start_pull_that_is_held(agent, self.name)
        self.cluster.server.stop()
        self.assert_no_layer_bytes(6, before)
        self.cluster.server.start()
        self.assert_no_layer_bytes(2, before)
        self.disk.remove_filler()
        self.until(lambda: self.cluster.job_result("flow") == "Complete", 40, "the Job")

    def test_watches_are_dropped_and_history_expires(self):
        agent = self.start_agent()
        for control in ("drop-watches", "expire-history", "drop-watches"):
            self.cluster.client.create(f"/fake/{control}", {})
            time.sleep(0.5)
        time.sleep(5)  # it backs off between its attempts to watch
        self.assert_held_in_the_end(agent)

    def test_api_server_refuses_for_a_while(self):
        for status in (500, 429, 409):
            self.cluster.server.faults.add({"status": status, "next": 2, "method": "PATCH",
                                            "path": "/api/v1/nodes"})
        agent = self.start_agent()
        self.start_pull_that_is_held(agent, self.name)
        self.until(lambda: "PullHeld" in [event["reason"] for event in self.cluster.events()], 30,
                   "the Event")
        self.until(lambda: any("imagefs-guard" in key for key in self.cluster.taints()), 60,
                   "the taint, in the end")

    def test_no_registry(self):
        """Nothing can be judged, so nothing is held; once the registry is back, it is.

        containerd asks again and again on its own, and may be the first whom the registry answers:
        then the pull is cancelled under way, and its retry is held.
        """
        self.registry.stop()
        self.addCleanup(lambda: self.registry.process.running() or self.registry.start())
        agent = self.start_agent()
        self.leave_too_little()
        before = self.disk.available_bytes()
        self.cluster.create_job("flow", self.name, run_seconds=0.5)
        self.assert_complains_about(agent, self.registry.host, "manifest", "registry")
        self.assertEqual(agent.records("pull_held"), [])
        self.until(lambda: self.cluster.events("PullSizeUnknown"), 10, "the Event")
        # The kubelet has tried: else its first try would meet a registry that is back, unheld.
        self.until(lambda: "ErrImagePull" in json.dumps(self.cluster.job_pod("flow")), 15,
                   "the kubelet's first failure")
        self.registry.start()
        agent.wait_for("pull_held", 40)
        self.assert_bytes_come_back(before)

    def test_no_kubelet(self):
        """Without /configz the agent's own floor holds: 10 % instead of the kubelet's 40 %."""
        self.cluster.kubelet.config.eviction_hard = {}
        self.cluster.kubelet.close_configz()
        agent = self.start_agent()
        self.assert_complains_about(agent, "kubelet", "configz")
        self.disk.fill_to(int(self.disk.capacity_bytes() * 0.1) + 50 * MIB)
        self.cluster.create_job("flow", self.name, run_seconds=0.5)
        agent.wait_for("pull_held")


if __name__ == "__main__":
    run_tests()
