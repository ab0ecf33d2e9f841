#!/usr/bin/python3
"""Forecasts from every kind of registry, and refusals of what makes no sense."""

import time

from harness import LAYERS, MIB, PEAK_BYTES, Layer, NodeTest, images, run_tests

import bad_registry  # from tests/fakes, which harness has put on the path
from ecr_api import EcrApi
from registry import Basic, Bearer

ECR_HOST = "123456789012.dkr.ecr.us-east-2.amazonaws.com"


class Forecasts(NodeTest):
    """Open registry: index, zstd, plain tar; the forecast is near the truth."""

    @classmethod
    def prepare(cls):
        cls.index = cls.push("index", LAYERS, platforms=("linux/arm64", "linux/amd64"))
        cls.formats = cls.push("formats", [Layer(20 * MIB, "random", "zstd"),
                                           Layer(40 * MIB, "zero", "none")])
        cls.shared = cls.push("shared", LAYERS)

    def verdict(self, agent, name):
        """The last verdict, once the registry has told all it knows of the layers' sizes."""
        self.start_pull_that_is_held(agent, name)
        time.sleep(1)
        return agent.records("verdict")[-1]

    def test_index(self):
        agent = self.start_agent()
        verdict = self.verdict(agent, self.index[1])
        # The high side: never under the truth, and not so far above that it is useless.
        self.assertGreaterEqual(verdict["bytes_needed"], PEAK_BYTES)
        self.assertLess(verdict["bytes_needed"], PEAK_BYTES * 1.2)
        self.assertIn(verdict["verdict"], ("NeverFits", "DoesNotFit"))
        self.assertAlmostEqual(verdict["bytes_floor"], self.floor_bytes(), delta=MIB)

    def test_formats(self):
        agent = self.start_agent()
        image, name = self.formats
        verdict = self.verdict(agent, name)
        self.assertGreaterEqual(verdict["bytes_needed"],
                                image.compressed_bytes + image.unpacked_bytes)

    def test_layers_that_are_here_cost_nothing(self):
        self.runtime.client().pull_image(self.shared[1])
        other = images.build(self.lab.path("other"), "shared", [*LAYERS, Layer(4096)])
        name = images.push(other, self.registry, "flows/other:v1")
        agent = self.start_agent()
        self.disk.fill_to(self.floor_bytes() + 20 * MIB)
        self.cluster.create_job("flow", name, run_seconds=0.5)
        self.until(lambda: self.cluster.job_result("flow") == "Complete", 20, "the Job")
        self.assertEqual(self.cluster.events("PullHeld"), [])
        self.assertTrue(agent.process.running())


class BearerAuth(NodeTest):
    """A public registry behind a token server."""

    auth = Bearer()

    @classmethod
    def prepare(cls):
        cls.name = cls.push("etl", LAYERS)[1]

    def test_forecast(self):
        self.auth.requests.clear()
        agent = self.start_agent(self.policy(plainHttpRegistries=[self.registry.host,
                                                                 self.token_host()]))
        before, _ = self.start_pull_that_is_held(agent, self.name)
        self.assertIn(("", ["repository:flows/etl:pull"]), self.auth.requests)
        self.assert_no_layer_bytes(2, before)

    def token_host(self):
        return self.registry.token_host


class EcrAuth(NodeTest):
    """ECR: a signed call for the token, then Basic auth at the registry."""

    auth = Basic()

    @classmethod
    def prepare(cls):
        cls.push("etl", LAYERS)
        cls.name = f"{ECR_HOST}/flows/etl:v1"
        cls.ecr = cls.lab.enter(EcrApi(cls.auth.password, session_token="session"))

    @classmethod
    def make_runtime(cls):
        return cls.lab.containerd(cls.disk, [cls.registry], hosts={ECR_HOST: cls.registry})

    def test_forecast(self):
        self.cluster.kubelet.config.credentials[ECR_HOST] = self.registry.credentials
        policy = self.policy(ecr={"endpoint": self.ecr.url,
                                  "registryOverride": self.registry.url})
        agent = self.start_agent(policy, self.ecr.environment)
        before, _ = self.start_pull_that_is_held(agent, self.name)
        self.assertEqual(self.ecr.refusals, [])
        self.assertEqual(self.ecr.requests, 1)
        self.assert_no_layer_bytes(2, before)
        self.assertNotIn("secret", agent.process.log())
        self.disk.remove_filler()
        self.until(lambda: self.cluster.job_result("flow") == "Complete", 30, "the Job")


class Lies(NodeTest):
    """Manifests that are too large, malformed, absurd or of a wrong digest: refused, and why."""

    @classmethod
    def prepare(cls):
        cls.name = cls.push("etl", LAYERS)[1]
        cls.liar = cls.lab.enter(bad_registry.BadRegistry())

    @classmethod
    def make_runtime(cls):
        return cls.lab.containerd(cls.disk, [cls.registry, cls.liar])

    def test_each_lie_is_refused(self):
        policy = self.policy(plainHttpRegistries=[self.registry.host, self.liar.host])
        agent = self.start_agent(policy)
        for lie in bad_registry.LIES:
            self.cluster.create_pod(lie, self.liar.image(lie))
        for lie in bad_registry.LIES:
            with self.subTest(lie):
                self.assert_refused(agent, lie)
        self.assertTrue(agent.process.running(), agent.process.log_end(10))
        # And it still does its job.
        before, _ = self.start_pull_that_is_held(agent, self.name)
        self.assert_no_layer_bytes(2, before)

    def assert_refused(self, agent, lie):
        def verdicts():
            return [record for record in agent.records("verdict")
                    if f"/bad/{lie}" in record["image"]]
        for record in self.until(verdicts, 15, f"a verdict on {lie}"):
            if lie.startswith("config-"):
                continue  # its manifest is fine and has the sizes; no crash is enough
            self.assertEqual(record["verdict"], "Unknown")
            reason = record["msg"].partition(record["image"])[2]
            self.assertGreater(len(reason), 20)  # says why


if __name__ == "__main__":
    run_tests()
