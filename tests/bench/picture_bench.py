#!/usr/bin/python3
"""A node with 1,000 images and 20,000 snapshots: what the agent makes of it, and at what cost.

The images are made in a real containerd through its own services (content, snapshots, images),
20 layers each, none shared. A node as full as that is far beyond what a kubelet keeps.
"""

import hashlib
import json
import sys
import time

import cost
import node_lab
import one_bench
import rows
from containerd_client import METADATA
from images import MIB
from protobuf import encode

IMAGES, LAYERS = 1000, 20
IDLE_S = 120
TYPES = "application/vnd.oci.image."
PAGE_LIMIT = 64 << 10


def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Maker:
    """Makes images in containerd as a pull leaves them, without the bytes of their layers."""

    def __init__(self, channel):
        self.channel = channel

    def call(self, service, method, request):
        path = f"/containerd.services.{service}/{method}"
        return self.channel.unary_unary(path)(request, 30, METADATA)

    def write(self, data, labels):
        digest = digest_of(data)
        frames = iter([encode((1, 2), (2, f"bench-{digest}"), (3, len(data)), (4, digest),
                               (6, data), (7, labels))])
        stream = self.channel.stream_stream("/containerd.services.content.v1.Content/Write")
        for _ in stream(frames, timeout=30, metadata=METADATA):
            pass
        return digest

    def snapshots(self, diff_ids):
        """The chain of a rootfs; returns its top."""
        chain = ""
        for diff_id in diff_ids:
            name = digest_of(f"{chain} {diff_id}".encode()) if chain else diff_id
            self.call("snapshots.v1.Snapshots", "Prepare",
                      encode((1, "overlayfs"), (2, f"bench {name}"), (3, chain),
                             (4, {"containerd.io/gc.root": "bench"})))
            self.call("snapshots.v1.Snapshots", "Commit",
                      encode((1, "overlayfs"), (2, name), (3, f"bench {name}"),
                             (4, {"containerd.io/gc.root": "bench"})))
            chain = name
        return chain

    def image(self, number):
        diff_ids = [digest_of(f"{number}/{i}".encode()) for i in range(LAYERS)]
        top = self.snapshots(diff_ids)
        config = json.dumps({"architecture": "amd64", "os": "linux",
                             "rootfs": {"type": "layers", "diff_ids": diff_ids}}).encode()
        config_digest = self.write(config, {"containerd.io/gc.ref.snapshot.overlayfs": top})
        manifest = json.dumps({
            "schemaVersion": 2, "mediaType": TYPES + "manifest.v1+json",
            "config": {"mediaType": TYPES + "config.v1+json", "digest": config_digest,
                       "size": len(config)},
            "layers": [{"mediaType": TYPES + "layer.v1.tar+gzip", "size": 1000 + i,
                        "digest": digest_of(f"blob {number}/{i}".encode())}
                       for i in range(LAYERS)]}).encode()
        digest = self.write(manifest, {"containerd.io/gc.ref.content.config": config_digest})
        target = encode((1, TYPES + "manifest.v1+json"), (2, digest), (3, len(manifest)))
        self.call("images.v1.Images", "Create", encode((1, encode(
            (1, f"registry.test/team/image-{number}:v1"),
            (2, {"io.cri-containerd.image": "managed"}), (3, target)))))


def make(node, images):
    client = node.runtime.client()
    with client._channel() as channel:  # one channel for 60,000 calls
        maker = Maker(channel)
        for number in range(images):
            maker.image(number)
            if number % 200 == 199:
                one_bench.say(f"{number + 1} images made")
    return len(client.snapshots())


def main():
    arguments = one_bench.arguments(__doc__)
    images, idle_s = (100, 20) if arguments.quick else (IMAGES, IDLE_S)
    with node_lab.new_lab() as lab:
        node = node_lab.BenchNode(lab, arguments.agent, 8192 * MIB)
        snapshots = make(node, images)
        agent = node.start_agent()
        began = time.monotonic()
        lab_ready(agent)
        ready = time.monotonic() - began
        time.sleep(10)
        before = cost.cost_of(agent.process.pid)
        one_bench.say(f"idle for {idle_s} s")
        time.sleep(idle_s)
        after = cost.cost_of(agent.process.pid)
        status = agent.get("/status.json")[1]
        metrics = agent.metrics()
        ticks = metrics["imagefs_guard_decide_duration_seconds_count"]
        decide_ms = 1000 * metrics["imagefs_guard_decide_duration_seconds_sum"] / ticks
        pages = {path: len(agent.get(path)[1].encode()) for path in ("/", "/metrics")}
        complaints = [line for line in agent.complaints() if "not asked yet" not in line]
        agent.process.stop()
    where = f"{images:,} images, {snapshots:,} snapshots"
    rows.save(arguments.json, [
        rows.told(f"{where}: start to ready", ready, "s", 2),
        rows.told("mean decide(), all ticks since the start", decide_ms, "ms", 2),
        rows.at_most("/status.json", len(status.encode()) / 1024, PAGE_LIMIT / 1024, "KiB"),
        rows.told("/metrics", pages["/metrics"] / 1024, "KiB"),
        rows.told("/", pages["/"] / 1024, "KiB"),
        rows.told("RSS", after.rss_mib, "MiB"),
        rows.told("own memory (private and dirty)", after.own_mib, "MiB"),
        rows.told("processor, idle", cost.percent_of_a_core(before, after, idle_s),
                  "% of a core", 2),
        rows.told("complaints in its log", str(len(complaints))),
    ])
    for line in complaints[:5]:
        one_bench.say(f"complaint: {line}")
    return 0


def lab_ready(agent):
    node_lab.lab_module.wait_until(lambda: agent.get("/readyz")[0] == 200, 60, what="/readyz")


if __name__ == "__main__":
    sys.exit(main())
