#!/usr/bin/python3
"""Unpacked sizes: tables of contents, what this node has learned, what others have told."""

import json
import subprocess

from harness import MIB, NODE, Layer, NodeTest, binary, lab, run_tests

MAPS = "/api/v1/namespaces/imagefs-guard/configmaps"
OWN = f"{MAPS}/imagefs-guard-sizes-{NODE}"


class SizesTest(NodeTest):
    @classmethod
    def prepare(cls):
        small = {"files": 2000}  # of 2 kB, each in a block of 4
        pushed = {
            form: cls.push(form.replace(":", "-"), [
                Layer(30 * MIB, "random", form),
                Layer(4_000_000, "random", form, **small),
            ])
            for form in ("gzip", "estargz", "zstd:chunked")}
        cls.names = {form: name for form, (_, name) in pushed.items()}
        cls.compressed = {form: image.compressed_bytes for form, (image, _) in pushed.items()}

    def verdict_on(self, agent, image, sources):
        """The verdict that came once the registry had told the sizes."""
        return agent.wait_for("verdict", image=image, size_sources=sources)

    def sources_of_check(self, image, *arguments):
        """Where `imagefs-guard check` has the sizes of the image's layers from."""
        done = subprocess.run(
            [binary(), "check", "-o", "json", "--plain-http-registry", self.registry.host,
             "--containerd-socket", self.runtime.socket, "--image-path", self.disk.path,
             "--kubelet-path", self.cluster.kubelet_path, "--floor", "5%", *arguments, image],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
            env={"PATH": lab.SYSTEM_PATH, "AWS_EC2_METADATA_DISABLED": "true"})
        self.assertEqual(done.stderr, "")
        return [layer["sizeFrom"] for layer in json.loads(done.stdout)["images"][0]["layers"]]

    def run_job(self, job, image):
        self.cluster.create_job(job, image, run_seconds=0.5)
        self.until(lambda: self.cluster.job_result(job) == "Complete", 40, f"the Job {job}")

    def test_tables_of_contents(self):
        for form in ("estargz", "zstd:chunked"):
            with self.subTest(form):
                agent = self.start_agent()
                job, image = f"flow-{form[0]}", self.names[form]
                self.cluster.create_job(job, image, run_seconds=0.5)
                verdict = self.verdict_on(agent, image, "2 table of contents")
                # 30 MiB, 2,000 files of a block, 22 directories and the other layer's root.
                unpacked = 30 * MIB + (2000 + 22 + 1) * 4096
                needed = verdict["bytes_needed_mid"] - self.compressed[form]
                # eStargz's table becomes a file of its layer.
                self.assertGreaterEqual(needed, unpacked)
                self.assertLess(needed, unpacked * 1.01)
                agent.terminate()

    def test_learned_here_survives_the_agent(self):
        agent = self.start_agent()
        self.run_job("first", self.names["gzip"])
        self.verdict_on(agent, self.names["gzip"], "2 gzip trailer")
        told = self.until(lambda: self.cluster.client.find(OWN), 20, "the node's map of sizes")
        self.assertEqual(told["metadata"]["ownerReferences"][0]["name"], NODE)
        records = told["data"]["sizes"].splitlines()
        self.assertEqual(len(records), 1)  # only one layer is large
        _, unpacked, inodes, kind = records[0].split()
        self.assertEqual(kind, "ext4")
        self.assertAlmostEqual(int(unpacked), 30 * MIB, delta=32 * 1024)
        self.assertLessEqual(int(inodes), 3)

        agent.terminate()
        self.runtime.reset()
        # What the node has told is there for `check` too, as far as the API server is.
        api = ("--node", NODE, "--kubernetes-api", self.cluster.server.url)
        self.assertEqual(self.sources_of_check(self.names["gzip"], *api),
                         ["learned here", "gzip trailer"])
        self.assertEqual(self.sources_of_check(self.names["gzip"], *api, "--namespace", "other"),
                         ["gzip trailer", "gzip trailer"])
        self.assertEqual(self.sources_of_check(self.names["gzip"]),
                         ["gzip trailer", "gzip trailer"])
        agent = self.start_agent()
        self.cluster.create_job("second", self.names["gzip"], run_seconds=0.5)
        self.verdict_on(agent, self.names["gzip"], "1 learned here, 1 gzip trailer")

    def test_told_by_others(self):
        agent = self.start_agent()
        self.run_job("first", self.names["gzip"])
        told = self.until(lambda: self.cluster.client.find(OWN), 20, "the node's map of sizes")
        agent.terminate()
        record = told["data"]["sizes"].split()
        self.cluster.client.delete(OWN)
        self.cluster.client.create(MAPS, {
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "imagefs-guard-sizes", "namespace": "imagefs-guard"},
            "data": {record[0][0]: f"{record[0]} {50 * MIB} 5 ext4\n"}})
        self.runtime.reset()
        agent = self.start_agent()
        self.cluster.create_job("second", self.names["gzip"], run_seconds=0.5)
        verdict = self.verdict_on(agent, self.names["gzip"],
                                  "1 learned elsewhere, 1 gzip trailer")
        self.assertGreater(verdict["bytes_needed_mid"], 50 * MIB + self.compressed["gzip"])


if __name__ == "__main__":
    run_tests()
