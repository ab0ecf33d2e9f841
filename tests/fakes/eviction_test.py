#!/usr/bin/python3
"""The kubelet's disk rules, against numbers from real kubelets."""

import unittest

from eviction import (image_gc_target, met_thresholds, parse_quantity, rank, threshold)

GIB = 1 << 30


def pod(name, priority=0, request=None, **annotations):
    container = {"name": "main", "image": "a"}
    if request:
        container["resources"] = {"requests": {"ephemeral-storage": request}}
    return {"metadata": {"name": name, "uid": name, "annotations": annotations},
            "spec": {"priority": priority, "containers": [container]}}


class Thresholds(unittest.TestCase):
    def test_quantities(self):
        for text, wanted in (("100Mi", 104857600), ("1Gi", 1073741824), ("1.5Gi", 1610612736),
                             ("5G", 5000000000), ("968Ki", 991232), ("0", 0), ("12", 12)):
            self.assertEqual(parse_quantity(text), wanted, text)
        for text in ("", "10%", "-1", "1Xi", "Gi"):
            with self.assertRaises(ValueError, msg=text):
                parse_quantity(text)

    def test_percentages_are_float32(self):
        # Seen in the wild: df says 98,831,908 blocks of 1 KiB, the kubelet says 10120387530.
        self.assertEqual(threshold("10%", 98831908 * 1024), 10120387530)
        self.assertEqual(threshold("15%", 100 * GIB), 16106128000)
        self.assertEqual(threshold("0%", GIB), 0)
        self.assertEqual(threshold("", GIB), 0)

    def test_equal_is_not_met(self):
        stats = {"imagefs.available": (100, 1000)}
        self.assertEqual(met_thresholds({"imagefs.available": "100"}, stats), {})
        stats = {"imagefs.available": (99, 1000)}
        self.assertEqual(met_thresholds({"imagefs.available": "100"}, stats),
                         {"imagefs.available": 100})

    def test_a_signal_that_is_not_named_never_fires(self):
        stats = {"imagefs.available": (0, 1000), "nodefs.available": (0, 1000)}
        self.assertEqual(met_thresholds({"nodefs.available": "10%"}, stats),
                         {"nodefs.available": 100})

    def test_without_a_configuration_the_defaults_hold(self):
        stats = {"imagefs.available": (149, 1000), "nodefs.available": (149, 1000)}
        self.assertEqual(list(met_thresholds(None, stats)), ["imagefs.available"])

    def test_minimum_reclaim_counts_until_it_is_back(self):
        hard, reclaim = {"imagefs.available": "100"}, {"imagefs.available": "50"}
        stats = {"imagefs.available": (120, 1000)}
        self.assertEqual(met_thresholds(hard, stats, (), reclaim), {})
        self.assertEqual(met_thresholds(hard, stats, {"imagefs.available"}, reclaim),
                         {"imagefs.available": 100})


class Ranking(unittest.TestCase):
    def names(self, pods, usage):
        return [found["metadata"]["name"] for found in rank(pods, usage)]

    def test_the_storm(self):
        # Measured on 1.34: the hub first, then the others by what they hold.
        pods = [pod("traefik"), pod("hub"), pod("scheduler")]
        usage = {"hub": 968 << 10, "traefik": 200 << 10, "scheduler": 100 << 10}
        self.assertEqual(self.names(pods, usage), ["hub", "traefik", "scheduler"])

    def test_who_has_no_stats_goes_first(self):
        self.assertEqual(self.names([pod("hub"), pod("pulling")], {"hub": 1 << 20}),
                         ["pulling", "hub"])

    def test_below_its_request_a_pod_is_safer(self):
        pods = [pod("big", request="1Gi"), pod("small", priority=100)]
        self.assertEqual(self.names(pods, {"big": 500 << 20, "small": 4096}), ["small", "big"])

    def test_lower_priority_goes_first(self):
        pods = [pod("a", priority=10), pod("b", priority=-10)]
        self.assertEqual(self.names(pods, {"a": 9, "b": 1}), ["b", "a"])

    def test_critical_and_mirror_pods_are_exempt(self):
        pods = [pod("node", priority=2000001000), pod("just", priority=2000000000),
                pod("mirror", **{"kubernetes.io/config.mirror": "x"}), pod("usual")]
        self.assertEqual(self.names(pods, {}), ["usual"])


class ImageGarbageCollection(unittest.TestCase):
    def test_fires_below_16_percent_available(self):
        self.assertEqual(image_gc_target(16, 100), 0)
        self.assertEqual(image_gc_target(15, 100), 5)
        self.assertEqual(image_gc_target(0, 0), 0)
        self.assertEqual(image_gc_target(1, 100, high_percent=100), 0)


if __name__ == "__main__":
    unittest.main()
