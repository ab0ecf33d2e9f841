#!/usr/bin/python3
"""`imagefs-guard check`: the answer, the exit code and the words, against volumes that aren't there
and against a live node; odd registries get the right answer, or "unknown" and why."""

import json
import os
import subprocess
import time
import unittest

from harness import (FLOOR, LAYERS, MIB, NODE, PEAK_BYTES, ROOT, Layer, NodeTest, binary, images,
                     lab, run_tests)

import bad_registry  # from tests/fakes, which harness has put on the path
from ecr_api import EcrApi
from odd_registry import ODDITIES, OddRegistry
from registry import Basic, Bearer

ECR_HOST = "123456789012.dkr.ecr.us-east-2.amazonaws.com"
FITS, NO, UNKNOWN = 0, 1, 2
ROOMY = ("--capacity", "100Gi", "--available", "60Gi")


def check(*arguments, environment=None, columns=None):
    """(exit code, stdout, stderr)"""
    variables = {"PATH": lab.SYSTEM_PATH, "AWS_EC2_METADATA_DISABLED": "true",
                 **(environment or {})}
    if columns:
        variables["COLUMNS"] = str(columns)
    done = subprocess.run([binary(), "check", *arguments], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60, check=False, env=variables)
    return done.returncode, done.stdout, done.stderr


class Mistakes(unittest.TestCase):
    """One clear sentence, exit 2, nothing on stdout."""

    def refused(self, *arguments, words):
        code, stdout, stderr = check(*arguments)
        self.assertEqual((code, stdout), (UNKNOWN, ""), stderr)
        lines = stderr.splitlines()
        self.assertEqual(len(lines), 1, stderr)
        self.assertTrue(lines[0].startswith("imagefs-guard: "))
        self.assertIn(words, lines[0])

    def test_mistakes(self):
        self.refused(words="at least one IMAGE")
        self.refused("a", "--no-such-flag", words="--no-such-flag")
        self.refused("a", "--output", "yaml", words="table or json")
        self.refused("a", "--node-type", "al2", words="no node type")
        self.refused("a", "--capacity", "10Gi", words="--available is missing")
        self.refused("a", "--policy", "not-there.yaml", words="not-there.yaml")
        self.refused("a", "--registry-config", "not-there.json", words="not-there.json")
        self.refused("a", *ROOMY, "--registry-config", os.path.join(ROOT, "meson.build"),
                     words="meson.build")
        for name in ("quay.io/UPPER", "a:b:c", "", "https://quay.io/x", "f" * 64):
            self.refused(*ROOMY, name, words=name if name else "")

    def test_no_such_registry(self):
        code, stdout, stderr = check(*ROOMY, "--timeout", "5s", "--plain-http-registry",
                                     "127.0.0.1:1", "127.0.0.1:1/x:1")
        self.assertEqual((code, stderr), (UNKNOWN, ""))
        self.assertIn("can't be judged", stdout)

    def test_inside_addresses_only_by_name(self):
        code, stdout, _ = check(*ROOMY, "127.0.0.1:1/x:1")
        self.assertEqual(code, UNKNOWN)
        self.assertIn("is not public", stdout)


class Volumes(unittest.TestCase):
    """Against volumes that aren't there, with a real registry."""

    auth = None

    @classmethod
    def setUpClass(cls):
        cls.lab = lab.Lab()
        cls.lab.__enter__()
        cls.addClassCleanup(cls.lab.__exit__, None, None, None)
        cls.registry = cls.lab.registry(cls.auth)
        cls.prepare()

    @classmethod
    def prepare(cls):
        cls.etl = cls.push("etl", LAYERS)
        cls.twin = cls.push("twin", [*LAYERS, Layer(8 * MIB)], seed="etl")
        cls.arm = cls.push("arm", [Layer(30 * MIB)], platforms=("linux/arm64", "linux/s390x"))

    @classmethod
    def push(cls, name, layers, seed=None, **options):
        image = images.build(cls.lab.path(cls.lab.unique("image")), seed or name, layers,
                             **options)
        return images.push(image, cls.registry, f"flows/{name}:v1")

    def check(self, *arguments, **options):
        return check("--plain-http-registry", self.registry.host, *arguments, **options)

    def json(self, *arguments, **options):
        code, stdout, stderr = self.check("-o", "json", *arguments, **options)
        self.assertEqual(stderr, "")
        return code, json.loads(stdout)


class Open(Volumes):
    """Numbers, several images at once, what is printed."""

    def test_fits(self):
        code, report = self.json(*ROOMY, self.etl)
        self.assertEqual((code, report["verdict"], report["fits"]), (FITS, "Fits", True))
        peak = report["total"]["peakBytes"]
        self.assertLessEqual(peak["low"], peak["mid"])
        # The high side is never under the truth, and near it where the trailer tells.
        self.assertGreaterEqual(peak["high"], PEAK_BYTES)
        self.assertLess(peak["high"], PEAK_BYTES * 1.05)
        self.assertEqual([layer["sizeFrom"] for layer in report["images"][0]["layers"]],
                         ["gzip trailer"] * 3)
        # 40 used and a little to come, floor 10 %: 45.
        self.assertEqual(report["smallestVolumeGib"], 45)

    def test_does_not_fit(self):
        small = ("--capacity", "512Mi", "--floor", FLOOR, "--available", "300Mi")
        code, report = self.json(*small, self.etl)
        self.assertEqual((code, report["fits"]), (NO, False))
        self.assertEqual(report["verdict"], "NeverFits")
        self.assertEqual(report["smallestVolumeGib"], 1)
        self.assertAlmostEqual(report["node"]["floorBytes"], 0.4 * 512 * MIB, delta=16)
        code, stdout, _ = self.check(*small, self.etl)
        self.assertEqual(code, NO)
        self.assertIn("never fits this volume, 1 GiB would do", stdout)
        self.assertIn("Smallest volume that fits: 1 GiB", stdout)

    def test_equality_fits(self):
        _, report = self.json(*ROOMY, self.etl)
        peak = report["total"]["peakBytes"]["high"]
        floor = 1 << 30
        volume = ("--capacity", "100Gi", "--floor", str(floor))
        self.assertEqual(self.json(*volume, "--available", str(floor + peak), self.etl)[0], FITS)
        self.assertEqual(self.json(*volume, "--available", str(floor + peak - 1), self.etl)[0], NO)

    def test_together(self):
        """One ledger: what they share is counted once, in whatever order."""
        alone = [self.json(*ROOMY, name)[1]["total"] for name in (self.etl, self.twin)]
        for names in ((self.etl, self.twin), (self.twin, self.etl)):
            _, both = self.json(*ROOMY, *names)
            self.assertEqual(both["total"]["layersMissing"], 4)
            self.assertEqual(both["total"]["peakBytes"]["high"], alone[1]["peakBytes"]["high"])
        _, stdout, _ = self.check(*ROOMY, "-v", self.etl, self.twin)
        self.assertIn("together", stdout)
        self.assertEqual(stdout.count("shared"), 3)
        # Room for one of them alone.
        floor, peak = 1 << 30, alone[0]["peakBytes"]["high"]
        tight = ("--capacity", "100Gi", "--floor", str(floor), "--available", str(floor + peak))
        code, report = self.json(*tight, self.etl, self.twin)
        self.assertEqual((code, [image["verdict"] == "Fits" for image in report["images"]]),
                         (NO, [True, False]))

    def test_unknown_beside_known(self):
        nowhere = self.etl.replace("etl", "nowhere")
        code, report = self.json(*ROOMY, nowhere, self.etl)
        self.assertEqual(code, UNKNOWN)
        self.assertEqual([image["verdict"] for image in report["images"]], ["Unknown", "Fits"])
        self.assertIsNone(report["smallestVolumeGib"])
        # What surely does not fit is no longer unknown.
        code, _ = self.json("--capacity", "1Gi", "--available", "0", nowhere, self.etl)
        self.assertEqual(code, NO)

    def test_platform(self):
        code, report = self.json(*ROOMY, self.arm)
        self.assertEqual(code, UNKNOWN)
        self.assertIn("linux/arm64", report["images"][0]["sentence"])
        code, _ = self.json(*ROOMY, "--platform", "linux/arm64", self.arm)
        self.assertEqual(code, FITS)

    def test_node_types(self):
        for node_type, gib, percent in (("al2023", 20, 10), ("al2023:50", 50, 10),
                                        ("bottlerocket", 20, 15), ("auto", 80, 15),
                                        ("auto:100", 100, 15)):
            code, report = self.json("--node-type", node_type, self.etl)
            self.assertEqual(code, FITS, node_type)
            node = report["node"]
            self.assertAlmostEqual(node["capacityBytes"] / (gib << 30), 1, delta=0.01)
            self.assertAlmostEqual(node["floorBytes"] * 100 / node["capacityBytes"], percent,
                                   delta=0.01)
            self.assertIn("used from the start", node["assumption"])
        code, report = self.json("--node-type", "al2023", "--available", "2Gi", self.etl)
        self.assertEqual(code, NO)
        self.assertIsNone(report["node"]["assumption"])

    def test_width(self):
        for columns in (80, 150):
            _, stdout, _ = self.check("-v", *ROOMY, self.etl, self.twin, columns=columns)
            self.assertLessEqual(max(map(len, stdout.splitlines())), columns)
        _, stdout, _ = self.check(*ROOMY, self.etl)  # a pipe: nothing is cut
        self.assertNotIn("…", stdout)

    def test_no_blob_access(self):
        policy = self.lab.path("policy.yaml")
        with open(policy, "w", encoding="utf-8") as file:
            json.dump({"blobAccess": False}, file)
        _, report = self.json("--policy", policy, *ROOMY, self.etl)
        self.assertEqual(report["total"]["layersOfUnknownSize"], 3)


class BearerLogin(Volumes):
    """A registry that gives nothing to strangers: the login comes from a Docker config.json."""

    auth = Bearer(anonymous_pull=False)

    def test_login(self):
        hosts = ("--plain-http-registry", self.registry.token_host)
        code, _ = self.json(*hosts, *ROOMY, self.etl)
        self.assertEqual(code, UNKNOWN)
        config = self.lab.path("config.json")
        with open(config, "w", encoding="utf-8") as file:
            json.dump({"auths": {self.registry.host: {"username": self.auth.username,
                                                      "password": self.auth.password}}}, file)
        code, report = self.json(*hosts, "--registry-config", config, *ROOMY, self.etl)
        self.assertEqual(code, FITS, report)


class EcrLogin(Volumes):
    """ECR by the environment's credentials; the secret is printed nowhere."""

    auth = Basic()

    def test_ecr(self):
        ecr = self.lab.enter(EcrApi(self.auth.password, session_token="session"))
        policy = self.lab.path("ecr.yaml")
        with open(policy, "w", encoding="utf-8") as file:
            json.dump({"ecr": {"endpoint": ecr.url, "registryOverride": self.registry.url}}, file)
        name = f"{ECR_HOST}/flows/etl:v1"
        code, stdout, stderr = check("--policy", policy, "-v", *ROOMY, name,
                                     environment=ecr.environment)
        self.assertEqual((code, stderr), (FITS, ""), stdout)
        self.assertEqual((ecr.requests, ecr.refusals), (1, []))
        self.assertNotIn("secret", stdout)
        # Without credentials it is unknown, and why is said.
        code, stdout, _ = check("--policy", policy, *ROOMY, name)
        self.assertEqual(code, UNKNOWN)
        self.assertIn("can't be judged", stdout)


class Odd(unittest.TestCase):
    """Odd registries: the right answer, or unknown."""

    FILE_BYTES = 20 * MIB

    def setUp(self):
        self.registry = OddRegistry()
        self.registry.__enter__()
        self.addCleanup(self.registry.__exit__, None, None, None)

    def json(self, name, *arguments):
        code, stdout, stderr = check("-o", "json", *ROOMY, "--plain-http-registry",
                                     self.registry.host, *arguments, name)
        self.assertEqual(stderr, "")
        report = json.loads(stdout)
        self.assertEqual(code, FITS if report["fits"] else UNKNOWN)
        return report

    def answer(self, oddity, *arguments):
        return self.json(self.registry.image(oddity), *arguments)

    def assert_exact(self, report, unpacked_bytes):
        high = report["total"]["unpackedBytes"]["high"]
        self.assertGreaterEqual(high, unpacked_bytes)
        self.assertLess(high, unpacked_bytes * 1.03 + 4096)

    def assert_by_prior(self, report):
        self.assertTrue(report["fits"])
        self.assertEqual(report["images"][0]["layers"][0]["sizeFrom"], "prior")

    def test_plain(self):
        self.assert_exact(self.answer("plain"), self.FILE_BYTES)

    def test_no_range(self):
        """It sends the whole blob: not read, and the size is a guess that says so."""
        report = self.answer("no-range")
        self.assert_by_prior(report)
        self.assertEqual(report["total"]["layersOfUnknownSize"], 1)

    def test_redirect(self):
        # To a host that nobody has named: not followed, for an inside address. Its config is
        # behind a redirect too, so all of it counts as new.
        report = self.answer("redirect")
        self.assert_by_prior(report)
        self.assertIn("taken as all new", report["images"][0]["sentence"])
        store = [path for path, _, _ in self.registry.blob_requests
                 if path.startswith("/signed/")]
        self.assertEqual(store, [])

    def test_redirect_to_a_named_host_goes_without_login(self):
        config = os.path.join(lab.tempfile.mkdtemp(), "config.json")
        self.addCleanup(lab.shutil.rmtree, os.path.dirname(config))
        with open(config, "w", encoding="utf-8") as file:
            json.dump({"auths": {self.registry.host: {"username": "u", "password": "p"},
                                 self.registry.store_host: {"username": "u", "password": "p"}}},
                      file)
        report = self.answer("redirect", "--registry-config", config,
                             "--plain-http-registry", self.registry.store_host)
        self.assert_exact(report, self.FILE_BYTES)
        store = [(authorization, wanted) for path, authorization, wanted
                 in self.registry.blob_requests if path.startswith("/signed/")]
        self.assertGreater(len(store), 0)
        for authorization, wanted in store:
            self.assertIsNone(authorization)
            self.assertTrue(wanted is None or wanted.startswith("bytes="))

    def test_many_members(self):
        self.assert_by_prior(self.answer("many-members"))

    def test_truncated_gzip(self):
        report = self.answer("truncated-gzip")
        self.assertTrue(report["fits"])
        self.assertIn(report["images"][0]["layers"][0]["sizeFrom"], ("prior", "gzip trailer"))

    def test_lying_annotation(self):
        report = self.answer("lying-annotation")
        layer = report["images"][0]["layers"][0]
        self.assertEqual(layer["sizeFrom"], "prior")
        self.assertGreaterEqual(layer["unpackedBytes"]["low"], layer["compressedBytes"])

    def test_pull_through_cache_by_digest(self):
        self.assert_exact(self.answer("by-tag-only"), self.FILE_BYTES)
        report = self.json(self.registry.image_by_digest("by-tag-only"))
        self.assertEqual(report["verdict"], "Unknown")
        self.assertIn("not found", report["images"][0]["sentence"].lower())

    def test_attestations(self):
        report = self.answer("attestations")
        self.assertEqual(report["total"]["layers"], 1)
        self.assert_exact(report, self.FILE_BYTES)

    def test_no_layers(self):
        report = self.answer("no-layers")
        self.assertTrue(report["fits"])
        self.assertEqual(report["total"]["peakBytes"]["high"], 0)

    def test_thousand_layers(self):
        report = self.answer("thousand-layers")
        self.assertTrue(report["fits"])
        self.assertEqual(report["total"]["layers"], 1000)
        self.assertEqual(len(report["images"][0]["layers"]), 1000)
        self.assertGreaterEqual(report["total"]["unpackedBytes"]["high"], 1000 * 4096)

    def test_same_layer_twice(self):
        """Downloaded once, unpacked twice."""
        report = self.answer("same-layer-twice")
        layers = report["images"][0]["layers"]
        self.assertEqual(report["total"]["downloadBytes"], layers[0]["compressedBytes"])
        self.assert_exact(report, 2 * self.FILE_BYTES)

    def test_what_is_refused_is_unknown(self):
        for oddity, words in (("never-there", "not found"), ("denied", "not authorized")):
            report = self.answer(oddity)
            self.assertEqual(report["verdict"], "Unknown", oddity)
            self.assertIn(words, report["images"][0]["sentence"].lower())

    def test_no_config(self):
        """Asked three times, then judged by the manifest alone."""
        report = self.answer("no-config")
        self.assert_exact(report, self.FILE_BYTES)
        self.assertIn("taken as all new", report["images"][0]["sentence"])

    def test_every_oddity_is_tried(self):
        with open(__file__, encoding="utf-8") as source:
            text = source.read()
        self.assertEqual([oddity for oddity in ODDITIES if f'"{oddity}"' not in text], [])

    def test_lies_are_unknown(self):
        with bad_registry.BadRegistry() as liar:
            names = [liar.image(lie) for lie in bad_registry.LIES]
            code, stdout, stderr = check("-o", "json", *ROOMY, "--plain-http-registry", liar.host,
                                         "--timeout", "20s", *names)
            self.assertEqual((code, stderr), (UNKNOWN, ""))
            for image in json.loads(stdout)["images"]:
                if "/bad/config-" in image["image"]:
                    continue  # its manifest is fine and has the sizes
                self.assertEqual(image["verdict"], "Unknown", image)
                self.assertGreater(len(image["sentence"]), 20)


class Live(NodeTest):
    """Against a real node: containerd's socket, the kubelet's thresholds, the disk itself."""

    image_minimum_age = 1.0

    @classmethod
    def prepare(cls):
        cls.etl = cls.push("etl", LAYERS)[1]
        cls.old = cls.push("old", [Layer(60 * MIB)])[1]
        other = images.build(cls.lab.path("other"), "etl", [*LAYERS, Layer(8 * MIB)])
        cls.other = images.push(other, cls.registry, "flows/other:v1")

    def json(self, *arguments, socket=None, kubelet=None):
        code, stdout, stderr = check(
            "-o", "json", "--plain-http-registry", self.registry.host, "--containerd-socket",
            socket or self.runtime.socket, "--image-path", self.disk.path, "--kubelet-path",
            self.cluster.kubelet_path, "--kubelet", kubelet or self.cluster.kubelet.url,
            *arguments)
        self.assertEqual(stderr, "")
        return code, json.loads(stdout)

    def test_node(self):
        code, report = self.json(self.etl)
        node = report["node"]
        self.assertEqual((code, node["name"], node["blindSpots"]), (FITS, "this node", []))
        self.assertEqual((node["capacityBytes"], node["floorFrom"]),
                         (self.disk.capacity_bytes(), "imagefs.available"))
        self.assertAlmostEqual(node["floorBytes"], self.floor_bytes(), delta=MIB)
        self.assertAlmostEqual(node["availableBytes"], self.disk.available_bytes(), delta=4 * MIB)
        self.leave_too_little()
        self.assertEqual(self.json(self.etl)[0], NO)
        # What is here costs nothing, and what it shares with others neither.
        self.disk.remove_filler()
        self.runtime.client().pull_image(self.etl)
        self.disk.fill_to(self.floor_bytes() + 20 * MIB)
        code, report = self.json(self.etl, self.other)
        self.assertEqual(code, FITS, report)
        self.assertEqual([layer["state"] for layer in report["images"][1]["layers"]],
                         ["here", "here", "here", "to come"])

    def test_unused_images(self):
        """With the API server at hand what pods don't name counts; without it nothing does."""
        self.runtime.client().pull_image(self.old)
        time.sleep(2)
        self.disk.fill_to(self.floor_bytes() + PEAK_BYTES - 20 * MIB)
        cluster = ("--node", NODE, "--kubernetes-api", self.cluster.server.url)
        code, report = self.json(*cluster, self.etl)
        self.assertEqual((code, report["verdict"]), (NO, "FitsAfterReclaim"), report)
        self.assertIn("of unused images are removed", report["images"][0]["sentence"])
        self.assertNotEqual(self.json(self.etl)[1]["verdict"], "FitsAfterReclaim")
        self.cluster.create_pod("web", self.old)
        self.cluster.wait_running("web")
        self.assertNotEqual(self.json(*cluster, self.etl)[1]["verdict"], "FitsAfterReclaim")

    def test_kubelet_away(self):
        code, report = self.json(self.etl, kubelet="http://127.0.0.1:1")
        self.assertEqual(code, FITS)
        self.assertEqual(report["node"]["floorFrom"], "policy")
        self.assertIn("kubelet", report["node"]["blindSpots"][0])
        # A floor that is given needs no kubelet.
        code, report = self.json("--floor", "90%", self.etl, kubelet="http://127.0.0.1:1")
        self.assertEqual((code, report["node"]["blindSpots"]), (NO, []))

    def test_no_containerd(self):
        code, report = self.json(self.etl, socket=self.lab.path("no.sock"))
        self.assertEqual((code, report["verdict"]), (UNKNOWN, "Unknown"))
        self.assertIn("can't be seen which layers are here", report["images"][0]["sentence"])


if __name__ == "__main__":
    run_tests()
