#!/usr/bin/python3
"""Bad flags and policies: one sentence on stderr and exit 78, before anything is touched."""

import os
import tempfile
import unittest

from harness import exit_of, run_tests

FLAGS = ["--node", "node-a", "--kubernetes-api", "http://127.0.0.1:1",
         "--kubelet", "http://127.0.0.1:1"]


class Refusals(unittest.TestCase):
    def refused(self, arguments, *words):
        code, stderr = exit_of(["run", *arguments])
        self.assertEqual(code, 78, stderr)
        lines = [line for line in stderr.splitlines() if line.strip()]
        self.assertEqual(len(lines), 1, stderr)
        for word in words:
            self.assertIn(word, lines[0])

    def refused_policy(self, text, *words):
        with tempfile.NamedTemporaryFile("wb", suffix=".yaml") as policy:
            policy.write(text if isinstance(text, bytes) else text.encode())
            policy.flush()
            self.refused([*FLAGS, "--policy", policy.name], *words)

    def test_unknown_flag(self):
        self.refused([*FLAGS, "--no-such-flag"], "--no-such-flag")

    def test_flag_without_value(self):
        self.refused(["--node"], "--node")

    def test_bad_values(self):
        self.refused([*FLAGS, "--log-level", "loud"], "log-level")
        self.refused([*FLAGS, "--log-format", "xml"], "log-format")
        self.refused(["--node", "node-a", "--kubernetes-api", "ftp://x"], "ftp://x")

    def test_no_policy_file(self):
        self.refused([*FLAGS, "--policy", "does-not-exist.yaml"], "does-not-exist.yaml")

    def test_broken_policies(self):
        self.refused_policy("mode: [", "")
        self.refused_policy("mode: sometimes", "mode")
        self.refused_policy("tickIntervall: 10s", "tickIntervall")
        self.refused_policy("tickInterval: soon", "tickInterval")
        self.refused_policy("tickInterval: -5s", "tickInterval")
        self.refused_policy("guardMargin: 12Xi", "guardMargin")
        self.refused_policy("guardMargin: -1", "guardMargin")
        self.refused_policy("defaultFloor: 150%", "defaultFloor")
        self.refused_policy("taintKey: 'not a key!'", "taintKey")
        self.refused_policy("plainHttpRegistries: yes", "plainHttpRegistries")
        self.refused_policy("- a\n- list\n", "")
        self.refused_policy(b"\xff\xfe\x00", "")

    def test_no_node_name(self):
        self.assertNotIn("NODE_NAME", os.environ)
        self.refused(["--kubernetes-api", "http://127.0.0.1:1"], "--node")


if __name__ == "__main__":
    run_tests(needs_lab=False)
