#!/usr/bin/python3
"""Memory and processor time of the agent, beside those that are on every node already.

On the real cluster: agent, prometheus-node-exporter (Debian's), kubelet and containerd of one
node, over ten minutes in which nothing happens, then while 50 pods pull images of their own.
"""

import sys
import time

import cost
import on_cluster
import one_bench
import rows
from images import ImageSpec, Layer
from node import PAUSE, NodeSpec
from processes import Process
from scenario import Scenario

IDLE_S, PULLS, AT_ONCE = 600, 50, 5
SETTLE_S = 30
SMALL = tuple(ImageSpec(f"foot-{i}", (Layer("random", 4), Layer("random", 2)))
              for i in range(PULLS))
EXPORTER = "/usr/bin/prometheus-node-exporter"


class Footprint(Scenario):
    name = "footprint"
    node = NodeSpec(disk_mib=4096)
    images = (PAUSE, *SMALL)


def start_exporter(play):
    return Process("node-exporter", [EXPORTER, "--web.listen-address=127.0.0.1:9100"],
                   f"{play.logs}/node-exporter.log", netns=play.node.netns).start()


def pull_all(play, count):
    for first in range(0, count, AT_ONCE):
        names = [f"foot-{i}" for i in range(first, min(first + AT_ONCE, count))]
        for name, spec in zip(names, SMALL[first:]):
            on_cluster.bound_pod(play, name, play.image(spec).reference)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            pods = {p.name: p for p in play.observer.pods.values()}
            if all(name in pods and pods[name].running for name in names):
                break
            time.sleep(0.1)
        for name in names:
            on_cluster.delete_pod(play, name)


def main():
    arguments = one_bench.arguments(__doc__)
    idle_s, pulls = (30, 10) if arguments.quick else (IDLE_S, PULLS)
    with on_cluster.run(Footprint(), arguments.agent) as play:
        exporter = start_exporter(play)
        play.at_end.append(exporter.kill)
        play.start_agent()
        pids = {"imagefs-guard": play.agent.process.pid, "node-exporter": exporter.pid,
                "kubelet": play.node.kubelet.pid, "containerd": play.node.containerd.pid}
        time.sleep(SETTLE_S)
        one_bench.say(f"idle for {idle_s} s")
        start = {name: cost.cost_of(pid) for name, pid in pids.items()}
        time.sleep(idle_s)
        idle = {name: cost.cost_of(pid) for name, pid in pids.items()}
        one_bench.say(f"{pulls} pulls")
        began = time.monotonic()
        pull_all(play, pulls)
        took = time.monotonic() - began
        busy = {name: cost.cost_of(pid) for name, pid in pids.items()}
        play.finish()
    found = []
    for name in pids:
        found += [
            rows.told(f"{name}: RSS idle, after {pulls} pulls",
                      f"{idle[name].rss_mib:.1f}, {busy[name].rss_mib:.1f}", "MiB"),
            rows.told(f"{name}: of it private and dirty",
                      f"{idle[name].own_mib:.1f}, {busy[name].own_mib:.1f}", "MiB"),
            rows.told(f"{name}: processor idle, while it pulls",
                      f"{cost.percent_of_a_core(start[name], idle[name], idle_s):.3f}, "
                      f"{cost.percent_of_a_core(idle[name], busy[name], took):.2f}",
                      "% of a core"),
            rows.told(f"{name}: open files, threads", f"{idle[name].files}, {idle[name].threads}"),
        ]
    agent, other = "imagefs-guard", idle["node-exporter"].rss_mib
    found += [
        rows.at_most("agent RSS idle", idle[agent].rss_mib, 10, "MiB"),
        rows.at_most("agent RSS in per cent of node-exporter's", 100 * idle[agent].rss_mib / other,
                     50, "%"),
        rows.at_most("agent processor idle",
                     cost.percent_of_a_core(start[agent], idle[agent], idle_s), 0.1,
                     "% of a core", 3),
    ]
    rows.save(arguments.json, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
