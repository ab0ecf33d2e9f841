#!/usr/bin/python3
"""200 images of 12 layers from a registry that takes 50 ms for each answer.

`imagefs-guard check` with all of them at once; the registry counts requests and connections. Each
image is one manifest and one config; its layers are too small to ask for their sizes.
"""

import gzip
import hashlib
import http.server
import json
import subprocess
import sys
import tempfile
import threading
import time

import node_lab  # noqa: F401 - puts tests/fakes into the path
import http_base
import one_bench
import rows

IMAGES, LAYERS = 200, 12
DELAY_S = 0.05
TYPES = "application/vnd.oci.image."


def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


class FarRegistry:
    """Images of layers that all share one blob's bytes but for a few; answers late."""

    def __init__(self, images):
        self.blobs, self.manifests = {}, {}
        self.requests = self.connections = 0
        self.lock = threading.Lock()
        base = [self.put(gzip.compress(f"base {i}".encode() * 100, 1, mtime=0))
                for i in range(LAYERS // 2)]
        for i in range(images):
            own = [self.put(gzip.compress(f"image {i} layer {j}".encode() * 100, 1, mtime=0))
                   for j in range(LAYERS - len(base))]
            self.add(f"i{i}", base + own)

    def put(self, data):
        self.blobs[digest_of(data)] = data
        return {"mediaType": TYPES + "layer.v1.tar+gzip", "digest": digest_of(data),
                "size": len(data)}

    def add(self, tag, layers):
        config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {
            "type": "layers",
            "diff_ids": [digest_of(gzip.decompress(self.blobs[layer["digest"]]))
                         for layer in layers]}}).encode()
        described = {**self.put(config), "mediaType": TYPES + "config.v1+json"}
        body = json.dumps({"schemaVersion": 2, "mediaType": TYPES + "manifest.v1+json",
                           "config": described, "layers": layers}).encode()
        self.manifests[tag] = self.manifests[digest_of(body)] = body

    def handler(self):
        registry = self

        class Handler(http_base.Handler):
            def setup(self):
                super().setup()
                with registry.lock:
                    registry.connections += 1

            def do_GET(self):
                with registry.lock:
                    registry.requests += 1
                time.sleep(DELAY_S)
                registry.answer(self)

            do_HEAD = do_GET

        return Handler

    def answer(self, request):
        kind, _, name = request.path.partition("?")[0].rpartition("/")
        if kind.endswith("/manifests") and name in self.manifests:
            body = self.manifests[name]
            request.reply(200, body, TYPES + "manifest.v1+json",
                          {"Docker-Content-Digest": digest_of(body)})
        elif kind.endswith("/blobs") and name in self.blobs:
            request.reply(200, self.blobs[name], "application/octet-stream")
        else:
            request.reply(200 if request.path == "/v2/" else 404, {})


def ask(agent, server, images):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as policy:
        json.dump({"plainHttpRegistries": [server.host]}, policy)
        policy.flush()
        began = time.monotonic()
        done = subprocess.run(
            [agent, "check", "--policy", policy.name, "--capacity", "1Ti", "--available", "1Ti",
             "--floor", "1Gi", "-o", "json", *[f"{server.host}/far:i{i}" for i in range(images)]],
            capture_output=True, text=True, check=False)
        took = time.monotonic() - began
    if done.returncode != 0:
        sys.exit(f"check ended with {done.returncode}: {done.stderr[-300:]}")
    return took


def main():
    arguments = one_bench.arguments(__doc__)
    images = 20 if arguments.quick else IMAGES
    http.server.ThreadingHTTPServer.request_queue_size = 512
    registry = FarRegistry(images)
    with http_base.Server(registry.handler()) as server:
        one_bench.say(f"{images} images")
        took = ask(arguments.agent, server, images)
    rows.save(arguments.json, [
        rows.told(f"{images} images: time", took, "s", 2),
        rows.Row("requests", str(registry.requests), f"≤ {2 * images}, one for each document",
                 registry.requests <= 2 * images),
        rows.told("connections", str(registry.connections)),
        rows.told("requests at once, on average", registry.requests * DELAY_S / took)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
