#!/usr/bin/python3
"""Every query of the Grafana dashboard, evaluated by a real Prometheus that scrapes a real agent.
Needs no containerd: an agent that sees a filesystem and nothing else has nearly all metrics."""

import json
import os
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

from harness import ROOT, binary, lab, run_tests

DASHBOARD = os.path.join(ROOT, "daemonset", "dashboards", "imagefs-guard.json")
VARIABLES = {"$instance": ".*", "$__rate_interval": "30s"}
# Counted only once there has been one: this agent drains nobody and asks no registry.
EMPTY = ("imagefs_guard_drains_total", "imagefs_guard_registry_requests_total",
         "imagefs_guard_findings")


def queries():
    """(panel, expression with its variables filled in)"""
    with open(DASHBOARD, encoding="utf-8") as file:
        panels = json.load(file)["panels"]
    found = []
    for panel in panels:
        for target in panel["targets"]:
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            found.append((panel["title"], expression))
    return found


class DashboardTest(unittest.TestCase):
    def setUp(self):
        if shutil.which("prometheus") is None:
            self.skipTest("prometheus is not here: tests/packages integration")
        folder = tempfile.TemporaryDirectory(prefix="imagefs-guard-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def spawn(self, name, argv):
        log = os.path.join(self.folder, f"{name}.log")
        with open(log, "wb") as file:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                       env={"PATH": os.environ["PATH"],
                                            "AWS_EC2_METADATA_DISABLED": "true"})
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        return log

    def ask(self, path, **query):
        url = f"http://127.0.0.1:{self.port}{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=5) as reply:
                return json.load(reply)["data"]["result"]
        except OSError as error:
            body = error.read().decode() if hasattr(error, "read") else str(error)
            raise AssertionError(f"{query}: {body}") from None

    def scrape(self):
        log = self.spawn("agent", [
            binary(), "run", "--node", "n", "--kubernetes-api", "http://127.0.0.1:1",
            "--kubelet", "http://127.0.0.1:1", "--containerd-socket", f"{self.folder}/none.sock",
            "--image-path", self.folder, "--kubelet-path", self.folder,
            "--listen", "127.0.0.1:0"])

        def listening():
            with open(log, encoding="utf-8") as file:
                return next((json.loads(line)["port"] for line in file
                             if '"event":"listening"' in line), None)
        target = f"127.0.0.1:{lab.wait_until(listening, 15, what='the agent')}"
        config = os.path.join(self.folder, "prometheus.yml")
        with open(config, "w", encoding="utf-8") as file:
            json.dump({"global": {"scrape_interval": "1s"}, "scrape_configs": [
                {"job_name": "imagefs-guard", "static_configs": [{"targets": [target]}]}]}, file)
        self.port = lab.free_port()
        self.spawn("prometheus", [
            "prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}"])

    def scraped(self, times):
        try:
            found = self.ask("/api/v1/query",
                             query="count_over_time(imagefs_guard_ticks_total[5m])")
        except AssertionError:
            return False
        return bool(found) and int(found[0]["value"][1]) >= times

    def test_every_query_has_an_answer(self):
        self.scrape()
        lab.wait_until(lambda: self.scraped(8), 60, what="eight scrapes")
        now = time.time()
        asked = queries()
        self.assertGreater(len(asked), 20)
        for panel, expression in asked:
            with self.subTest(panel=panel, expression=expression):
                self.assertNotIn("$", expression)
                series = self.ask("/api/v1/query_range", query=expression, start=now - 5, end=now,
                                  step=1)
                if not any(name in expression for name in EMPTY):
                    self.assertTrue(series, "no series")
        print(f"\n{len(asked)} queries", flush=True)

    def test_panels_fit_the_screen(self):
        with open(DASHBOARD, encoding="utf-8") as file:
            panels = json.load(file)["panels"]
        taken = set()
        for panel in panels:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24)
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                     for y in range(place["y"], place["y"] + place["h"])}
            self.assertFalse(taken & cells, panel["title"])
            taken |= cells
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))


if __name__ == "__main__":
    run_tests(needs_lab=False)
