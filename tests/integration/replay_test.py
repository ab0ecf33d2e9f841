#!/usr/bin/python3
"""The flight recorder of the real agent, and `imagefs-guard replay` of what it wrote."""

import os
import shutil
import subprocess
import tempfile

from harness import LAYERS, NodeTest, binary, exit_of, run_tests

NEWER, OLDER = "trace.jsonl", "trace.1.jsonl"


def replay(*arguments):
    """(exit code, stdout, stderr)"""
    done = subprocess.run([binary(), "replay", *arguments], capture_output=True, text=True,
                          timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


class ReplayTest(NodeTest):
    @classmethod
    def prepare(cls):
        cls.image, cls.name = cls.push("etl", LAYERS)

    def setUp(self):
        super().setUp()
        self.folder = tempfile.mkdtemp(prefix="imagefs-guard-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, self.folder)
        self.trace = os.path.join(self.folder, NEWER)

    def play(self):
        """A pull is held, and released when there is room; the agent is stopped."""
        agent = self.start_agent(arguments=["--record", self.folder])
        self.start_pull_that_is_held(agent, self.name)
        self.until(lambda: agent.records("verdict", verdict="NeverFits"), 20, "the verdict")
        self.disk.remove_filler()
        agent.wait_for("pull_released", 30)
        self.until(lambda: self.cluster.pods() and
                   self.cluster.job_pod("flow")["status"]["phase"] == "Succeeded", 60, "its end")
        self.assertEqual(agent.terminate(), 0)
        return agent

    def test_an_incident_is_decided_again(self):
        self.play()
        size = os.path.getsize(self.trace)
        with open(self.trace, encoding="utf-8") as file:
            lines = file.readlines()
        print(f"\n{len(lines)} decisions in {size >> 10} KiB, the first line {len(lines[0]) >> 10} "
              f"KiB", flush=True)
        self.assertGreater(len(lines), 5)
        code, said, error = replay(self.trace)
        self.assertEqual((code, error), (0, ""), said[:3000])
        self.assertEqual(said, f"{len(lines)} decisions, all the same\n")
        keep = os.environ.get("KEEP_TRACE")
        if keep:
            shutil.copy(self.trace, keep)
        # With less to keep free, the pull would have gone on at once.
        code, said, _ = replay(self.trace, "--policy", self.policy(reclaim=True, clearAfter="1s"))
        self.assertIn(code, (0, 1))
        code, said, _ = replay(self.trace, "--policy", self.policy(floorMargin="64Mi"))
        self.assertEqual(code, 1)
        self.assertRegex(said, r"node\.floor\.bytes: \d+ → \d+\n")
        self.assertRegex(said, r"\d+ decisions, \d+ differ\n$")

    def test_the_agent_before_is_kept(self):
        for _ in range(2):
            agent = self.start_agent(arguments=["--record", self.folder])
            self.until(lambda: os.path.getsize(self.trace) > 0, 10, "a line")
            agent.kill_9()
        for name in (NEWER, OLDER):
            self.assertEqual(replay(os.path.join(self.folder, name))[0], 0, name)

    def test_bad_traces(self):
        agent = self.start_agent(arguments=["--record", self.folder])
        self.until(lambda: os.path.getsize(self.trace) > 0, 10, "a line")
        agent.terminate()
        with open(self.trace, encoding="utf-8") as file:
            text = file.read()
        bad = os.path.join(self.folder, "bad")
        for content, words in ((text[:-30], "cut off"), ("", "empty"), ("hello\n", "no trace"),
                               (text.replace('"v":1', '"v":99', 1), "version 99"),
                               ("[" * 100000 + "\n", "no trace")):
            with open(bad, "w", encoding="utf-8") as file:
                file.write(content)
            code, said, error = replay(bad)
            self.assertEqual((code, said, error.count("\n")), (2, "", 1), error)
            self.assertIn(words, error)
        with open(bad, "w", encoding="utf-8") as file:
            file.truncate(1 << 30)
        for path, words in ((bad, "bad: "), (os.path.join(self.folder, "none"), "No such file")):
            code, said, error = replay(path)
            self.assertEqual((code, said, error.count("\n")), (2, "", 1), error)
            self.assertIn(words, error)
        self.assertEqual(replay(self.trace, "--policy", bad)[0], 2)

    def test_never_on_a_disk(self):
        code, error = exit_of(["run", "--node", "n", "--kubernetes-api", "http://127.0.0.1:1",
                               "--containerd-socket", self.runtime.socket, "--record",
                               self.disk.path])
        self.assertEqual((code, error.count("\n")), (78, 1))
        self.assertIn("is not in memory", error)

    def test_a_full_memory_stops_the_recording_alone(self):
        path = self.lab.path(self.lab.unique("small"))
        os.mkdir(path)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", path], check=True)
        self.addCleanup(subprocess.run, ["umount", "--lazy", path], check=True)
        agent = self.start_agent(arguments=["--record", path])
        for _ in range(20):
            self.disk.fill_to(self.disk.available_bytes() - (1 << 20))
            agent.get("/status.json")
        self.cluster.create_job("flow", self.name, run_seconds=0.5)
        agent.wait_for("recording_stopped", 60)
        self.assertEqual(agent.get("/livez")[0], 200)
        self.assertEqual(len(agent.records("recording_stopped")), 1)
        code, _, error = replay(os.path.join(path, NEWER))
        self.assertEqual((code, error), (0, ""), "half a line was left")


if __name__ == "__main__":
    run_tests()
