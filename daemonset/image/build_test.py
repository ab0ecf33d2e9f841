#!/usr/bin/python3
"""Builds the image twice and compares, looks into it, and runs what is in it.

The binary is $IMAGEFS_GUARD; where that isn't built, any small program of the machine does, for
what is tested is the image's making. Exit 77 where a package that it needs is missing.
"""

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(HERE, "build")
AGENT = os.environ.get("IMAGEFS_GUARD", "")
BINARY = AGENT if os.access(AGENT, os.X_OK) else "/usr/bin/sha256sum"
LIMIT_BYTES = 40 << 20


def build(output, *more, epoch="1700000000"):
    return subprocess.run(
        [BUILD, "--binary", BINARY, "--output", output, *more],
        env=dict(os.environ, SOURCE_DATE_EPOCH=epoch), capture_output=True, text=True, check=False)


class ImageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.mkdtemp(prefix="imagefs-guard-image-test-")
        cls.layout = os.path.join(cls.scratch, "one")
        cls.first = build(cls.layout)
        assert cls.first.returncode == 0, cls.first.stderr
        index = cls.load("index.json")
        cls.descriptor = index["manifests"][0]
        cls.manifest = json.loads(cls.blob(cls.descriptor))
        cls.config = json.loads(cls.blob(cls.manifest["config"]))
        cls.tars = [gzip.decompress(cls.blob(layer)) for layer in cls.manifest["layers"]]
        cls.members = {}
        for data in cls.tars:
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                cls.members.update({member.name: member for member in tar.getmembers()})

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.scratch)

    @classmethod
    def load(cls, name):
        with open(os.path.join(cls.layout, name), encoding="utf-8") as f:
            return json.load(f)

    @classmethod
    def blob(cls, descriptor):
        with open(os.path.join(cls.layout, "blobs", *descriptor["digest"].split(":")), "rb") as f:
            data = f.read()
        assert descriptor["digest"] == "sha256:" + hashlib.sha256(data).hexdigest()
        assert descriptor["size"] == len(data)
        return data

    def test_twice_is_the_same(self):
        second = build(os.path.join(self.scratch, "two"))
        self.assertEqual(second.stdout.split()[0], self.first.stdout.split()[0])
        self.assertEqual(second.stdout.split()[0], self.descriptor["digest"])

    def test_an_older_layout_is_replaced_and_nothing_else(self):
        folder = os.path.join(self.scratch, "old")
        self.assertEqual(build(folder, epoch="1").returncode, 0)
        self.assertEqual(build(folder).stdout.split()[0], self.descriptor["digest"])
        other = os.path.join(self.scratch, "other")
        os.makedirs(os.path.join(other, "precious"))
        refused = build(other)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("no OCI layout", refused.stderr)
        self.assertTrue(os.path.isdir(os.path.join(other, "precious")))

    def test_size(self):
        size = self.manifest["config"]["size"] + sum(x["size"] for x in self.manifest["layers"])
        self.assertLess(size, LIMIT_BYTES)

    def test_layers(self):
        digests = ["sha256:" + hashlib.sha256(data).hexdigest() for data in self.tars]
        self.assertEqual(self.config["rootfs"]["diff_ids"], digests)
        for name, member in self.members.items():
            self.assertEqual((member.uid, member.gid, member.mtime), (0, 0, 1700000000), name)
            if not member.issym():
                self.assertFalse(member.mode & 0o6022, f"{name} is writable for others, or setuid")

    def test_nothing_that_one_could_live_off(self):
        names = {os.path.basename(name) for name, m in self.members.items() if not m.isdir()}
        tools = {"sh", "bash", "dash", "busybox", "apt", "dpkg", "perl", "python3", "curl", "wget"}
        self.assertFalse(names & tools)
        programs = [n for n, m in self.members.items() if n.startswith("usr/bin/") and m.isfile()]
        self.assertEqual(programs, ["usr/bin/imagefs-guard"])

    def test_certificates_come_from_the_package(self):
        member = self.members["etc/ssl/certs/ca-certificates.crt"]
        self.assertGreater(member.size, 100000)
        self.assertIn("var/lib/dpkg/status.d/ca-certificates", self.members)

    def test_config(self):
        config = self.config["config"]
        self.assertEqual(config["User"], "65532:65532")
        self.assertEqual(config["Entrypoint"], ["/usr/bin/imagefs-guard"])
        self.assertIn("org.opencontainers.image.version", config["Labels"])
        self.assertEqual(self.config["created"], "2023-11-14T22:13:20Z")

    def test_the_tree_is_what_the_layers_hold(self):
        tree = os.path.join(self.scratch, "tree")
        self.assertEqual(build("", "--tree", tree).returncode, 0)
        found = {os.path.relpath(os.path.join(folder, name), tree)
                 for folder, folders, names in os.walk(tree) for name in names + folders}
        self.assertEqual(found, set(self.members))

    def test_a_program_without_a_package_is_refused(self):
        plain = os.path.join(self.scratch, "plain.txt")
        with open(plain, "w", encoding="utf-8") as f:
            f.write("no program\n")
        refused = subprocess.run([BUILD, "--binary", plain], capture_output=True, text=True,
                                 env=dict(os.environ, SOURCE_DATE_EPOCH="1"), check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertEqual(refused.stderr.count("\n"), 1)

    def test_skopeo_reads_it(self):
        if not shutil.which("skopeo"):
            self.skipTest("skopeo is missing")
        said = subprocess.run(["skopeo", "inspect", f"oci:{self.layout}"], capture_output=True,
                              text=True, check=True)
        self.assertEqual(json.loads(said.stdout)["Digest"], self.descriptor["digest"])

    def test_it_runs_with_nothing_but_its_own_files(self):
        if os.geteuid() != 0:
            self.skipTest("chroot needs root")
        tree = os.path.join(self.scratch, "root")
        self.assertEqual(build("", "--tree", tree).returncode, 0)
        said = subprocess.run(["chroot", tree, "/usr/bin/imagefs-guard", "--version"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(said.returncode, 0, said.stderr)


if __name__ == "__main__":
    if not os.path.exists("/var/lib/dpkg/info/ca-certificates.list"):
        print("skipped: this needs Debian's package ca-certificates")
        sys.exit(77)
    unittest.main()
