#!/usr/bin/python3
"""Unused images make room for a held pull: by policy alone, the oldest first, no more than it
takes, and what the disk really has afterwards decides."""

import time

from harness import LAYERS, MIB, SLACK_BYTES, TAINT, Layer, NodeTest, run_tests

OLD_BYTES = 60 * MIB
# The image needs 140 MiB and a little at its peak: one unused image has to go, not both.
ROOM_BYTES = 100 * MIB


class ReclaimTest(NodeTest):
    image_minimum_age = 1.0

    @classmethod
    def prepare(cls):
        cls.etl = cls.push("etl", LAYERS)[1]
        cls.oldest = cls.push("oldest", [Layer(OLD_BYTES)])[1]
        cls.newer = cls.push("newer", [Layer(OLD_BYTES, "zero")])[1]

    def setUp(self):
        super().setUp()
        self.client = self.runtime.client()
        for name in (self.oldest, self.newer):
            self.client.pull_image(name)
            time.sleep(1.1)  # one is older than the other, both older than imageMinimumGCAge
        # Their blobs are collected a moment after the pull.
        self.until(self.is_settled, 15, "the end of garbage collection")
        self.disk.fill_to(self.floor_bytes() + ROOM_BYTES)

    def is_settled(self):
        before = self.disk.available_bytes()
        time.sleep(1)
        return self.disk.available_bytes() == before

    def is_here(self, name):
        return self.client.image_status(name) is not None

    def start_with(self, **policy):
        agent = self.start_agent(self.policy(**policy))
        time.sleep(1)  # a few ticks: the sizes of the layers that are here get known
        self.cluster.create_job("flow", self.etl, run_seconds=0.5)
        return agent

    def test_makes_room(self):
        before = self.disk.available_bytes()
        agent = self.start_with(reclaim=True)
        agent.wait_for("verdict", verdict="FitsAfterReclaim")
        removed = agent.wait_for("image_removed")
        self.assertEqual(removed["image"].partition("@")[0], self.oldest.rpartition(":")[0])
        self.assertAlmostEqual(removed["bytes_grown"], OLD_BYTES, delta=SLACK_BYTES)
        self.assertAlmostEqual(removed["bytes_expected"], OLD_BYTES, delta=SLACK_BYTES)
        self.until(lambda: self.cluster.job_result("flow") == "Complete", 30, "the Job")
        self.assertEqual((self.is_here(self.oldest), self.is_here(self.newer)), (False, True))
        self.assertEqual(len(agent.records("image_removed")), 1)
        self.assertEqual(self.cluster.evicted(), [])
        self.assertLess(before, self.floor_bytes() + ROOM_BYTES + SLACK_BYTES)
        self.assertNotEqual(self.cluster.taints().get(TAINT), "NoSchedule")

    def test_only_with_leave(self):
        agent = self.start_with()
        record = agent.wait_for("verdict", verdict="FitsAfterReclaim")
        self.assertIn("of unused images are removed", record["msg"])
        agent.wait_for("pull_held")
        before = self.disk.available_bytes()
        self.assert_no_layer_bytes(4, before)
        self.assertTrue(self.is_here(self.oldest) and self.is_here(self.newer))

    def test_observe_only_looks(self):
        agent = self.start_with(reclaim=True, mode="observe")
        agent.wait_for("image_removal_ordered")
        time.sleep(1)
        self.assertEqual(agent.records("image_removed"), [])
        self.assertTrue(self.is_here(self.oldest) and self.is_here(self.newer))

    def test_what_pods_name_stays(self):
        for pod, image in (("web", self.oldest), ("hub", self.newer)):
            self.cluster.create_pod(pod, image)
        self.cluster.wait_running("web", "hub")
        agent = self.start_with(reclaim=True)
        agent.wait_for("pull_held")
        time.sleep(3)
        self.assertEqual(agent.records("image_removal_ordered"), [])
        self.assertTrue(self.is_here(self.oldest) and self.is_here(self.newer))
        self.assertEqual(agent.records("verdict", verdict="FitsAfterReclaim"), [])


if __name__ == "__main__":
    run_tests()
