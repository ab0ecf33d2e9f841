#!/usr/bin/python3
"""Token and CA of the API server, as they rotate and as they go: a running agent reads them again,
and what it holds stays held meanwhile."""

import os

from harness import LAYERS, NodeTest, run_tests

from tls_front import TlsFront  # from tests/fakes, which harness has put on the path

PODS_AGE = 'imagefs_guard_probe_age_seconds{probe="pods"}'


class RotationTest(NodeTest):
    @classmethod
    def prepare(cls):
        cls.image, cls.name = cls.push("etl", LAYERS)

    def setUp(self):
        super().setUp()
        self.folder = self.lab.path(self.lab.unique("account"))
        os.mkdir(self.folder)
        self.versions = 0
        self.front = TlsFront(self.cluster.server.url, self.folder, "token-1")
        self.front.__enter__()
        self.addCleanup(self.front.__exit__, None, None, None)
        os.symlink("..data/token", os.path.join(self.folder, "token"))
        os.symlink("..data/ca.crt", os.path.join(self.folder, "ca.crt"))
        self.mount("token-1")

    def mount(self, token):
        """Swaps what the volume holds, as the kubelet does; without a token there is none."""
        self.versions += 1
        version = os.path.join(self.folder, f"..version_{self.versions}")
        os.mkdir(version)
        os.symlink(self.front.ca_file, os.path.join(version, "ca.crt"))
        if token:
            with open(os.path.join(version, "token"), "w", encoding="utf-8") as file:
                file.write(token)
        os.symlink(version, os.path.join(self.folder, "..data_tmp"))
        os.rename(os.path.join(self.folder, "..data_tmp"), os.path.join(self.folder, "..data"))

    def start(self):
        agent = self.start_agent(api=self.front.url, arguments=[
            "--kubernetes-token", os.path.join(self.folder, "token"),
            "--kubernetes-ca", os.path.join(self.folder, "ca.crt")])
        self.until(lambda: agent.get("/readyz")[0] == 200, 20, "readiness")
        return agent

    def drop_watches(self):
        self.cluster.client.create("/fake/drop-watches", {})

    def assert_recovers(self, agent):
        """It sees pods as they are, and its writes arrive: the pull goes on, the Event is there."""
        self.until(lambda: agent.metrics()[PODS_AGE] == 0, 45, "a fresh view of the pods")
        self.disk.remove_filler()
        self.until(lambda: self.cluster.job_result("flow") == "Complete", 60, "the Job")
        self.until(lambda: "PullReleased" in [event["reason"] for event in self.cluster.events()],
                   30, "the Event PullReleased")

    def assert_blind_but_holding(self, agent, before, *words):
        self.until(lambda: agent.metrics()[PODS_AGE] > 0, 30, "an old view of the pods")
        self.until(lambda: any(word in text for text in agent.complaints() for word in words), 30,
                   f"a complaint about one of {words}")
        self.assertEqual(agent.get("/livez")[0], 200)
        self.assert_no_layer_bytes(2, before)

    def test_token_rotates(self):
        agent = self.start()
        self.start_pull_that_is_held(agent, self.name)
        self.front.token = "token-2"
        self.mount("token-2")
        self.drop_watches()
        self.assert_recovers(agent)
        failed = [record for record in agent.records() if "Unauthorized" in record.get("msg", "")]
        self.assertEqual(failed, [])  # a 401 is met with the new token, not with a failure

    def test_token_is_no_longer_valid_then_renewed(self):
        agent = self.start()
        before, _ = self.start_pull_that_is_held(agent, self.name)
        self.front.token = "token-2"
        self.drop_watches()
        self.assert_blind_but_holding(agent, before, "Unauthorized")
        self.mount("token-2")
        self.assert_recovers(agent)

    def test_token_is_taken_away(self):
        agent = self.start()
        before, _ = self.start_pull_that_is_held(agent, self.name)
        self.front.token = "token-2"
        self.mount(None)
        self.drop_watches()
        self.assert_blind_but_holding(agent, before, "service account token")
        self.mount("token-2")
        self.assert_recovers(agent)

    def test_ca_rotates(self):
        agent = self.start()
        before, _ = self.start_pull_that_is_held(agent, self.name)
        self.front.rotate_certificate()
        self.assert_blind_but_holding(agent, before, "certificate")
        self.mount("token-1")
        self.assert_recovers(agent)


if __name__ == "__main__":
    run_tests()
