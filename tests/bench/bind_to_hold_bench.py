#!/usr/bin/python3
"""From the binding of a pod to the hold on its image's pull, on the real cluster.

Pods come one after the other, each with an image of its own (own manifest, own config) that does
not fit. First every image is new to the agent, then the same images come once more. The kubelet's
window is measured on the same node without an agent: from the binding to the first bytes that
containerd takes in for the pod's image.
"""

import glob
import hashlib
import http.client
import io
import json
import os
import sys
import time

import on_cluster
import one_bench
import rows
from images import ImageSpec, Layer, TYPES
from node import PAUSE, NodeSpec
from processes import wait_until
from scenario import FLOW_IMAGE, Scenario

PODS, WINDOW_PODS = 200, 20
SMALL = tuple(ImageSpec(f"window-{i}", (Layer("random", 1),)) for i in range(WINDOW_PODS))
FILLER_MIB = 1400
KEPT_AT_ONCE = 8  # so many pods are on their way out while the next one comes


class BindToHold(Scenario):
    name = "bind-to-hold"
    node = NodeSpec(disk_mib=2560)
    images = (PAUSE, FLOW_IMAGE, *SMALL)


def variants(play, count):
    """References of images that share the flow's layers, each with a config of its own."""
    registry, image = play.lab.registry, play.image(FLOW_IMAGE)
    name = FLOW_IMAGE.name
    base = json.loads(fetch(registry, f"/v2/{name}/manifests/{image.manifest_digest}"))
    config = json.loads(fetch(registry, f"/v2/{name}/blobs/{image.config_digest}"))
    found = []
    for i in range(count):
        body = json.dumps({**config, "author": f"bench {i}"}).encode()
        digest = "sha256:" + hashlib.sha256(body).hexdigest()
        registry.put_blob(name, digest, io.BytesIO(body), len(body))
        described = {"mediaType": TYPES + "config.v1+json", "digest": digest, "size": len(body)}
        registry.put_manifest(name, f"b{i}", {**base, "config": described})
        found.append(f"{registry.address}/{name}:b{i}")
    return found


def fetch(registry, url):
    connection = http.client.HTTPConnection(registry.address, timeout=20)
    connection.request("GET", url, headers={"Accept": TYPES + "manifest.v1+json"})
    try:
        return connection.getresponse().read()
    finally:
        connection.close()


def window_ms(play, number):
    """Without an agent: from the binding to the first ingest, looked for every millisecond."""
    folder = os.path.join(play.node.containerd_root, "io.containerd.content.v1.content", "ingest")
    blobs = os.path.join(os.path.dirname(folder), "blobs", "sha256")
    before, known = set(glob.glob(f"{folder}/*")), len(glob.glob(f"{blobs}/*"))
    name = f"window-{number}"
    on_cluster.bound_pod(play, name, play.image(SMALL[number]).reference)

    def begun():
        return set(glob.glob(f"{folder}/*")) - before or len(glob.glob(f"{blobs}/*")) > known

    wait_until(begun, 20, f"the pull of {name}", pause=0.001)
    first = time.monotonic()
    pod = wait_until(lambda: next((p for p in play.observer.pods.values() if p.name == name), None),
                     10, f"the pod {name}")
    wait_until(lambda: pod.running, 30, f"{name} running")
    on_cluster.delete_pod(play, name)
    return (first - pod.bound) * 1000


def held_ms(play, references, label):
    """By the agent's own clock (its watch's event to containerd's answer), and from outside."""
    own, outside, leaving = [], [], []
    for i, reference in enumerate(references):
        name = f"{label}-{i}"
        on_cluster.bound_pod(play, name, reference)
        record = play.agent.wait_record("pull_held", 30, pod=name)
        pod = next(p for p in play.observer.pods.values() if p.name == name)
        own.append(record["bind_to_hold_ms"])
        outside.append((record["at"] - pod.bound) * 1000)
        on_cluster.delete_pod(play, name)
        leaving.append(pod)
        while len([p for p in leaving if not p.gone]) > KEPT_AT_ONCE:
            time.sleep(0.05)
        if i % 50 == 49:
            one_bench.say(f"{label}: {i + 1} pods")
    wait_until(lambda: all(p.gone for p in leaving), 60, "the pods going")
    return own, outside


def main():
    arguments = one_bench.arguments(__doc__)
    count = PODS // 10 if arguments.quick else PODS
    with on_cluster.run(BindToHold(), arguments.agent) as play:
        references = variants(play, count)
        window = [window_ms(play, i) for i in range(WINDOW_PODS // (4 if arguments.quick else 1))]
        play.node.fill(FILLER_MIB)
        play.watch_layers(FLOW_IMAGE)
        play.start_agent()
        began = time.monotonic()
        new, new_outside = held_ms(play, references, "new")
        known, known_outside = held_ms(play, references, "known")
        written = play.observer.disk.most_layer_bytes(began)
        play.finish()
    rows.save(arguments.json, [
        rows.told("the kubelet's window: bound to first bytes, no agent", rows.spread(window),
                  "ms"),
        rows.told(f"{count} new images: event to hold", rows.spread(new), "ms"),
        rows.told("the same from outside: bound to hold", rows.spread(new_outside), "ms"),
        rows.at_most(f"{count} known images: event to hold, p99", rows.percentile(known, 99), 30,
                     "ms"),
        rows.told("known images: event to hold", rows.spread(known), "ms"),
        rows.told("the same from outside: bound to hold", rows.spread(known_outside), "ms"),
        rows.at_most(f"layer bytes written by {2 * count} held pulls", written, 0, "bytes", 0),
    ])
    return 0


if __name__ == "__main__":
    sys.exit(main())
