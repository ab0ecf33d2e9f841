#!/usr/bin/python3
"""The policy file changes while the agent runs, as the kubelet swaps a mounted ConfigMap."""

import json
import os

from harness import LAYERS, TAINT, NodeTest, run_tests


class MountedConfigMap:
    """config.yaml -> ..data/config.yaml, ..data -> a directory that is swapped as a whole."""

    def __init__(self, folder):
        self.folder, self.versions = folder, 0
        os.mkdir(folder)
        os.symlink("..data/config.yaml", self.path())

    def path(self):
        return os.path.join(self.folder, "config.yaml")

    def put(self, text):
        self.versions += 1
        version = f"..version_{self.versions}"
        os.mkdir(os.path.join(self.folder, version))
        with open(os.path.join(self.folder, version, "config.yaml"), "w", encoding="utf-8") as f:
            f.write(text)
        os.symlink(version, os.path.join(self.folder, "..data_tmp"))
        os.rename(os.path.join(self.folder, "..data_tmp"), os.path.join(self.folder, "..data"))


class PolicyTest(NodeTest):
    @classmethod
    def prepare(cls):
        cls.image, cls.name = cls.push("etl", LAYERS)

    def setUp(self):
        super().setUp()
        self.map = MountedConfigMap(self.lab.path(self.lab.unique("policy-map")))

    def put(self, **changes):
        with open(self.policy(**changes), encoding="utf-8") as file:
            self.map.put(file.read())

    def start(self, **changes):
        self.put(**changes)
        return self.start_agent(policy=self.map.path())

    def reasons(self):
        return [event["reason"] for event in self.cluster.events()]

    def test_a_bad_one_keeps_the_old_one_and_says_so(self):
        agent = self.start()
        self.until(lambda: agent.get("/readyz")[0] == 200, 10, "readiness")
        self.map.put("mode: enforce\ntickIntervall: 1s\n")
        record = agent.wait_for("policy_refused")
        self.assertEqual(record["level"], "error")
        for words in ("line 2", "tickIntervall", "tickInterval", "keeps"):
            self.assertIn(words, record["msg"])
        event = self.until(lambda: next((event for event in self.cluster.events()
                                         if event["reason"] == "PolicyRefused"), None), 5,
                           "the Event")
        self.assertEqual(event["regarding"]["kind"], "Node")
        self.assertIn("line 2", event["note"])
        metrics = agent.metrics()
        self.assertEqual(metrics["imagefs_guard_policy_in_force"], 0)
        self.assertEqual(metrics['imagefs_guard_policy_reloads_total{result="refused"}'], 1)
        status, body = agent.get("/readyz?verbose")
        self.assertEqual(status, 200)
        self.assertIn("[-]policy (does not count): ", body)
        # The old one is in force: its registry is spoken to in plain http, and it holds.
        self.start_pull_that_is_held(agent, self.name)
        self.assertEqual(len(agent.records("policy_refused")), 1)

        self.put()
        agent.wait_for("policy_taken")
        self.assertEqual(agent.metrics()["imagefs_guard_policy_in_force"], 1)

    def test_a_good_one_is_taken(self):
        """Another floor margin: what fitted does not any more, and the registry is a new one."""
        agent = self.start(plainHttpRegistries=[])
        self.put(floorMargin="210Mi")
        agent.wait_for("policy_taken")
        self.cluster.create_job("flow", self.name, run_seconds=0.5)
        record = agent.wait_for("pull_held")
        self.assertEqual(record["level"], "info")
        self.assertGreater(agent.metrics()["imagefs_guard_imagefs_floor_bytes"],
                           self.floor_bytes() + (200 << 20))
        self.put()
        self.until(lambda: self.cluster.job_result("flow") == "Complete", 40, "the Job")

    def test_to_observe_and_back(self):
        """What an enforcing agent holds and taints, it lets go when it is only to observe."""
        agent = self.start()
        self.start_pull_that_is_held(agent, self.name)
        self.until(lambda: any(TAINT in taint for taint in self.cluster.taints()), 20, "the taint")
        self.put(mode="observe")
        agent.wait_for("policy_taken")
        agent.wait_for("pull_released")
        self.until(lambda: not any(TAINT in taint for taint in self.cluster.taints()), 10,
                   "no taint any more")
        self.assertEqual(agent.metrics()["imagefs_guard_enforcing"], 0)
        self.assertEqual(agent.metrics()["imagefs_guard_held_pulls"], 0)

    def test_another_taint_key_needs_a_restart(self):
        agent = self.start()
        self.put(taintKey="example.com/full")
        self.assertIn("taintKey", agent.wait_for("policy_refused")["msg"])

    def test_swapped_often(self):
        """Many swaps, good and bad, while nothing else happens: the last one counts."""
        agent = self.start()
        for number in range(20):
            self.map.put("mode: [" if number % 2 else json.dumps({"tickInterval": "1s"}))
        self.put(floorMargin="7Mi")
        self.until(lambda: agent.get("/readyz")[0] == 200 and agent.metrics().get(
            "imagefs_guard_policy_in_force") == 1 and agent.metrics()[
                "imagefs_guard_imagefs_floor_bytes"] > self.floor_bytes() + (6 << 20), 10,
                   "the last policy")
        self.assertTrue(agent.process.running())


if __name__ == "__main__":
    run_tests()
