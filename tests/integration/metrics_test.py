#!/usr/bin/python3
"""The agent's pages: health while neighbours come and go, metrics as promtool and a real
Prometheus read them, and what all that costs in memory."""

import concurrent.futures
import json
import os
import shutil
import signal
import subprocess
import urllib.request

from harness import LAYERS, NodeTest, lab, run_tests

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
# What this process may have at most; the node-exporter beside it has about 20 MiB.
RSS_LIMIT_BYTES = 64 << 20
PAGES_COST_BYTES = 2 << 20


def rss_bytes(pid):
    """Resident bytes of the process as the kernel counts them."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def anonymous_bytes(pid):
    """Memory of its own: no libraries, which come and go as they are used."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith("RssAnon:"))
    return int(line.split()[1]) << 10


class PagesTest(NodeTest):
    @classmethod
    def prepare(cls):
        cls.image, cls.name = cls.push("etl", LAYERS)

    def ready(self, agent):
        return agent.get("/readyz")[0] == 200

    def test_health_follows_the_runtime(self):
        agent = self.start_agent()
        self.until(lambda: self.ready(agent), 10, "readiness")
        status, body = agent.get("/readyz?verbose")
        self.assertEqual(status, 200)
        for part in ("ticks", "filesystem", "runtime", "pods", "node", "kubelet"):
            self.assertIn(f"[+]{part} ok\n", body)
        self.addCleanup(lambda: self.runtime.process.running() or self.runtime.start())
        self.runtime.stop()
        self.until(lambda: agent.get("/readyz")[0] == 503, 15, "not ready without containerd")
        self.assertIn("[-]runtime: ", agent.get("/readyz")[1])
        self.assertEqual(agent.get("/livez"), (200, "ok\n"))
        self.assertEqual(agent.metrics()['imagefs_guard_probe_up{probe="runtime"}'], 0)
        self.runtime.start()
        self.until(lambda: self.ready(agent), 30, "readiness again")

    def test_alive_and_not_ready_without_an_api_server(self):
        self.cluster.server.stop()
        agent = self.start_agent()
        status, body = agent.get("/readyz")
        self.assertEqual(status, 503)
        self.assertIn("[-]pods: ", body)
        self.assertEqual(agent.get("/livez")[0], 200)
        self.cluster.server.start()
        self.until(lambda: self.ready(agent), 40, "readiness")

    def test_ready_while_a_registry_is_down(self):
        self.registry.stop()
        self.addCleanup(lambda: self.registry.process.running() or self.registry.start())
        agent = self.start_agent()
        self.cluster.create_job("flow", self.name, run_seconds=0.5)
        part = "[-]registry (does not count): 1 of 1"
        self.until(lambda: part in agent.get("/readyz?verbose")[1], 15, "the registry's part")
        self.assertEqual(agent.get("/readyz"), (200, "ok\n"))
        self.assertGreater(
            self.until(lambda: agent.metrics().get(
                'imagefs_guard_registry_requests_total{code="none"}'), 5, "the count"), 0)

    def test_not_alive_when_the_loop_hangs(self):
        """A stopped process is what a loop that hangs looks like from outside."""
        agent = self.start_agent()
        port = agent.wait_for("listening")["port"]
        agent.process.signal(signal.SIGSTOP)
        self.addCleanup(agent.process.signal, signal.SIGCONT)
        with self.assertRaises(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=1)

    def test_a_held_pull_in_numbers(self):
        agent = self.start_agent()
        _, record = self.start_pull_that_is_held(agent, self.name)
        self.until(lambda: agent.metrics()["imagefs_guard_held_pulls"] == 1, 5, "the hold")
        metrics = agent.metrics()
        self.assertEqual(metrics['imagefs_guard_pulls{state="held"}'], 1)
        self.assertGreater(metrics['imagefs_guard_demand_bytes{state="held"}'], 100 << 20)
        self.assertEqual(metrics["imagefs_guard_imagefs_size_bytes"], self.disk.capacity_bytes())
        self.assertAlmostEqual(metrics["imagefs_guard_imagefs_floor_bytes"], self.floor_bytes(),
                               delta=4096)
        self.until(lambda: agent.metrics()['imagefs_guard_stage{stage="guard"}'] == 1, 5, "Guard")
        self.assertGreater(metrics["imagefs_guard_bind_to_hold_seconds_count"], 0)
        self.check_with_promtool(agent)
        text = agent.get("/metrics")[1]
        for name in (self.name, "flows", record["digest"], "flow-", self.registry.host):
            self.assertNotIn(name, text)
        self.disk.remove_filler()
        self.until(lambda: agent.metrics()["imagefs_guard_hold_duration_seconds_count"] >= 1, 20,
                   "the hold's time")

    def check_with_promtool(self, agent):
        if shutil.which("promtool") is None:
            self.skipTest("promtool is not here: tests/packages integration")
        done = subprocess.run(["promtool", "check", "metrics"], input=agent.get("/metrics")[1],
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_scraped_by_prometheus(self):
        """The real one; it asks for OpenMetrics first."""
        prometheus = shutil.which("prometheus")
        if prometheus is None:
            self.skipTest("prometheus is not here: tests/packages integration")
        agent = self.start_agent()
        target = f"127.0.0.1:{agent.wait_for('listening')['port']}"
        self.until(lambda: self.ready(agent), 10, "readiness")
        folder = self.lab.path(self.lab.unique("prometheus"))
        os.mkdir(folder)
        config = os.path.join(folder, "prometheus.yml")
        with open(config, "w", encoding="utf-8") as file:
            json.dump({"global": {"scrape_interval": "1s"}, "scrape_configs": [
                {"job_name": "agent", "static_configs": [{"targets": [target]}]}]}, file)
        port = lab.free_port()
        server = self.lab.spawn("prometheus", [
            prometheus, f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}"])
        self.addCleanup(server.stop)

        def query(expression):
            url = f"http://127.0.0.1:{port}/api/v1/query?query={expression}"
            try:
                with urllib.request.urlopen(url, timeout=5) as reply:
                    return json.load(reply)["data"]["result"]
            except OSError:
                return []
        value = self.until(lambda: query("imagefs_guard_ticks_total"), 30, "a scrape")
        self.assertGreater(float(value[0]["value"][1]), 0)
        self.assertEqual(float(query("up")[0]["value"][1]), 1)
        for name in agent.metrics():
            if "{" not in name:
                self.assertTrue(query(name), f"{name} did not arrive")

    def test_both_formats(self):
        agent = self.start_agent()
        port = agent.wait_for("listening")["port"]
        request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics",
                                         headers={"Accept": OPEN_METRICS})
        with urllib.request.urlopen(request, timeout=5) as reply:
            self.assertIn("openmetrics-text", reply.headers["Content-Type"])
            text = reply.read().decode()
        self.assertTrue(text.endswith("# EOF\n"))
        self.assertIn("# TYPE imagefs_guard_ticks counter\n", text)
        self.assertIn("\nimagefs_guard_ticks_total ", text)

    def test_costs_little(self):
        """A thousand scrapes, eight at a time, leave the memory as it was."""
        agent = self.start_agent()
        self.until(lambda: self.ready(agent), 10, "readiness")
        for _ in range(20):
            agent.get("/metrics")
        before = anonymous_bytes(agent.process.pid)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: agent.get("/metrics")[0], range(1000)))
        self.assertEqual(answers.count(200), 1000)
        after = anonymous_bytes(agent.process.pid)
        rss = rss_bytes(agent.process.pid)
        told = agent.metrics()["process_resident_memory_bytes"]
        print(f"\nanonymous memory before 1,000 scrapes {before / 2**20:.1f} MiB, after "
              f"{after / 2**20:.1f} MiB; resident {rss / 2**20:.1f} MiB", flush=True)
        self.assertLess(after - before, PAGES_COST_BYTES)
        self.assertAlmostEqual(told, rss, delta=1 << 20)
        if "asan" not in agent.process.log():
            self.assertLess(rss, RSS_LIMIT_BYTES)


if __name__ == "__main__":
    run_tests()
