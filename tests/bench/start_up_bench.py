#!/usr/bin/python3
"""From exec to the first verdict, on a node where a pull is under way.

Real containerd and registry, a stand-in API server on loopback. Warm: everything is in the page
cache. Cold: the kernel has dropped it before, the disk's included.
"""

import datetime
import subprocess
import sys
import time

import node_lab
import one_bench
import rows
from images import MIB, Layer, build, push

WARM, COLD = 20, 5
IMAGE = [Layer(60 * MIB)]
SLOW = MIB // 2  # so that the pull is under way all the time


def seconds_to(agent, event, began):
    record = agent.wait_for(event)
    when = datetime.datetime.fromisoformat(record["time"].replace("Z", "+00:00"))
    return (when.timestamp() - began) * 1000


def one_start(node, cold):
    if cold:
        subprocess.run(["sync"], check=True)
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as f:
            f.write("1\n")
    began = time.time()
    agent = node.start_agent()
    try:
        return seconds_to(agent, "agent_started", began), seconds_to(agent, "verdict", began)
    finally:
        agent.kill_9()


def main():
    arguments = one_bench.arguments(__doc__)
    warm, cold = (4, 2) if arguments.quick else (WARM, COLD)
    with node_lab.new_lab() as lab:
        node = node_lab.BenchNode(lab, arguments.agent, 4096 * MIB, SLOW)
        name = push(build(lab.path("image"), "slow", IMAGE), node.registry, "flows/slow:v1")
        node.cluster.create_pod("slow", name)
        one_start(node, cold=False)
        one_bench.say(f"{warm} warm starts, {cold} cold ones")
        found = {"warm": [one_start(node, False) for _ in range(warm)],
                 "cold": [one_start(node, True) for _ in range(cold)]}
    rows.save(arguments.json, [
        rows.told(f"{kind}: exec to {what}, {len(times)} starts",
                  rows.spread([time[part] for time in times]), "ms")
        for kind, times in found.items()
        for part, what in ((0, "the first line of its log"), (1, "the first verdict"))])
    return 0


if __name__ == "__main__":
    sys.exit(main())
