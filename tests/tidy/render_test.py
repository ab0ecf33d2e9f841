#!/usr/bin/python3
"""Renders daemonset/ with kustomize and with Helm, for every overlay: both give the same objects.

Each rendering also passes check_daemonset.py. kubectl and helm are taken from the cache of
tests/cluster (`tests/cluster/run --build-only` fills it) or from PATH; exit 77 without them.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
DAEMONSET = os.path.join(ROOT, "daemonset")
CHART = os.path.join(DAEMONSET, "helm", "imagefs-guard")
VALUES = os.path.join(DAEMONSET, "helm", "values")
OVERLAYS = sorted(entry.name for entry in os.scandir(os.path.join(DAEMONSET, "overlays"))
                  if entry.is_dir())
WITHOUT_DRAIN = {"observe-only", "no-drain"}
KUBE_VERSION = "1.34.0"  # helm built without its release flags assumes 1.20
sys.path[:0] = [HERE, os.path.join(ROOT, "tests", "cluster")]
sys.dont_write_bytecode = True

import check_daemonset  # noqa: E402
import components  # noqa: E402


def find_tool(name):
    for group in components.groups():
        path = os.path.join(components.cache_folder(),
                            f"{group.name}-{components.key_of(group)}", name)
        if name in group.packages and os.access(path, os.X_OK):
            return path
    return shutil.which(name)


KUBECTL, HELM = find_tool("kubectl"), find_tool("helm")


def output_of(*argv):
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(argv)}: {done.stderr}")
    return done.stdout


def helm(*arguments):
    return [HELM, "template", "imagefs-guard", CHART, "--namespace", "imagefs-guard",
            "--kube-version", KUBE_VERSION, "--set", "namespace.create=true", *arguments]


def objects_of(text):
    """By kind and name; the policy, a text in the ConfigMap, as what it says."""
    found = {}
    for item in yaml.safe_load_all(text):
        if item is None:
            continue
        if item["kind"] == "ConfigMap":
            item["data"] = {key: yaml.safe_load(value) for key, value in item["data"].items()}
        key = (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"])
        assert key not in found, f"{key} is there twice"
        found[key] = item
    return found


class Rendering(unittest.TestCase):
    maxDiff = 4000

    def compare(self, kustomized, charted):
        ours, theirs = objects_of(kustomized), objects_of(charted)
        self.assertEqual(sorted(ours), sorted(theirs))
        for key, item in ours.items():
            self.assertEqual(item, theirs[key], key)

    def check(self, text, drains):
        findings = check_daemonset.Findings()
        objects = [item for item in yaml.safe_load_all(text) if item]
        check_daemonset.check_objects(findings, objects, check_daemonset.Code(ROOT), drains)
        self.assertEqual(findings.all, [])

    def test_base(self):
        text = output_of(KUBECTL, "kustomize", DAEMONSET)
        self.compare(text, output_of(*helm()))
        self.check(text, drains=True)

    def test_overlays(self):
        self.assertEqual(OVERLAYS, sorted(name.removesuffix(".yaml")
                                          for name in os.listdir(VALUES)))
        for name in OVERLAYS:
            with self.subTest(name):
                text = output_of(KUBECTL, "kustomize", os.path.join(DAEMONSET, "overlays", name))
                values = os.path.join(VALUES, f"{name}.yaml")
                self.compare(text, output_of(*helm("--values", values)))
                self.check(text, drains=name not in WITHOUT_DRAIN)

    def test_coordinator(self):
        with tempfile.TemporaryDirectory(prefix="render-test-") as folder:
            base = os.path.join(folder, "base")
            shutil.copytree(os.path.join(DAEMONSET, "base"), base)
            path = os.path.join(base, "kustomization.yaml")
            with open(path, encoding="utf-8") as f:
                kustomization = yaml.safe_load(f)
            if "coordinator.yaml" not in kustomization["resources"]:
                kustomization["resources"].append("coordinator.yaml")
            with open(path, "w", encoding="utf-8") as f:
                yaml.safe_dump(kustomization, f)
            text = output_of(KUBECTL, "kustomize", base)
        self.compare(text, output_of(*helm("--set", "coordinator.enabled=true")))

    def test_lint(self):
        said = output_of(HELM, "lint", "--strict", "--kube-version", KUBE_VERSION, CHART)
        self.assertIn("0 chart(s) failed", said)

    def test_numbers_of_the_policy_stay_numbers(self):
        """Helm reads all numbers as floating point and would write 2e+09."""
        charted = output_of(*helm("--set", "policy.protectedPriority=2000000000",
                                  "--set", "policy.floorMargin=536870912"))
        text = next(item for item in yaml.safe_load_all(charted)
                    if item and item["kind"] == "ConfigMap")["data"]["config.yaml"]
        self.assertIn("protectedPriority: 2000000000", text)
        self.assertIn("floorMargin: 536870912", text)

    def test_a_taint_key_reaches_policy_admission_and_coordinator(self):
        key = "imagefs-guard.io/full"
        charted = output_of(*helm("--set", f"policy.taintKey={key}",
                                  "--set", "coordinator.enabled=true"))
        self.assertNotIn("status-taint", charted)
        self.assertEqual(charted.count(key), 4)

    def test_wrong_values_are_refused(self):
        for wrong in ("policy.moed=observe", "policy.mode=on", "policy.tickInterval=10",
                      "logLevel=loud", "image.digest=abc", "maxSurge=0", "runtimeDirectory=run",
                      "unknown=1", "policy.ecr.endpiont=x"):
            with self.subTest(wrong):
                done = subprocess.run(helm("--set", wrong), capture_output=True, text=True,
                                      check=False)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn("don't meet the specifications of the schema", done.stderr)


if __name__ == "__main__":
    missing = [name for name, path in (("kubectl", KUBECTL), ("helm", HELM)) if not path]
    if missing:
        print(f"skipped: no {' and no '.join(missing)}; tests/cluster/run --build-only makes them")
        sys.exit(77)
    unittest.main()
