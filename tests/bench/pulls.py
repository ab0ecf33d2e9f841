"""One filesystem with a real containerd on it: forecasts by the product, truth by statfs.

Blobs are kept (`discard_unpacked_layers = false`), so that what lies on the disk after a pull is
what a pull that discards them has at its peak, measured at rest: synced, no preallocation, no
moment that a poll could miss. With `discard` the peak is polled instead.
"""

import ctypes
import hashlib
import json
import os
import subprocess
import threading
import time

from api_client import Client
from api_server import ApiServer
from containerd_client import Client as Containerd
from lab import SYSTEM_PATH, Failed, wait_until
from protobuf import encode, integer

NODE = "node-a"
MAPS = "/api/v1/namespaces/imagefs-guard/configmaps"
LEARNED_MIB = 16  # what the agents tell each other about; compressed
FLOOR = "5%"
CHECK_SECONDS = 120
PULL_SECONDS = 900
POLL_SECONDS = 0.01
SETTLE_SECONDS = 10.0
DATABASES = ("io.containerd.metadata.v1.bolt/meta.db",
             "io.containerd.snapshotter.v1.overlayfs/metadata.db")


class Forecaster:
    """`imagefs-guard check` against a live node, with different knowledge."""

    MODES = ("prior", "registry", "learned", "told")

    def __init__(self, lab, binary, host):
        self._binary, self._host = binary, host
        self._server = ApiServer()
        self._server.start()
        lab.enter(_Ending(self._server.stop))
        self._client = Client(self._server.url)
        self._closed = lab.path("no-blob-access.yaml")
        with open(self._closed, "w", encoding="utf-8") as policy:
            policy.write("blobAccess: false\ndiscardUnpackedLayers: false\n")
        self._open = lab.path("blob-access.yaml")
        with open(self._open, "w", encoding="utf-8") as policy:
            policy.write("discardUnpackedLayers: false\n")

    def tell(self, own, others):
        """What the nodes have learned, as their maps have it: {diff ID: record's text}."""
        lines = {}
        for diff_id, record in others.items():
            lines.setdefault(diff_id[0], []).append(f"{diff_id} {record}\n")
        maps = {f"imagefs-guard-sizes-{NODE}":
                {"sizes": "".join(f"{diff_id} {record}\n" for diff_id, record in own.items())},
                "imagefs-guard-sizes": {shard: "".join(text) for shard, text in lines.items()}}
        for name, data in maps.items():
            if self._client.find(f"{MAPS}/{name}"):
                self._client.delete(f"{MAPS}/{name}")
            self._client.create(MAPS, {
                "apiVersion": "v1", "kind": "ConfigMap", "data": data,
                "metadata": {"name": name, "namespace": "imagefs-guard"}})

    def ask(self, mode, image, runtime):
        """The report of one image: what it says of bytes, and where it has that from."""
        known = mode in ("learned", "told")
        argv = [self._binary, "check", "-o", "json", "--plain-http-registry", self._host,
                "--policy", self._closed if mode == "prior" else self._open,
                "--containerd-socket", runtime.socket, "--image-path", runtime.filesystem.path,
                "--kubelet-path", runtime.filesystem.path, "--floor", FLOOR,
                *(["--node", NODE, "--kubernetes-api", self._server.url] if known else []),
                image.name]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=CHECK_SECONDS, check=False,
                              env={"PATH": SYSTEM_PATH, "AWS_EC2_METADATA_DISABLED": "true"})
        try:
            report = json.loads(done.stdout)
        except json.JSONDecodeError:
            raise Failed(f"check says nothing of {image.name}: {done.stderr[-300:]}") from None
        total = report["total"]
        by_source = {}
        for layer in report["images"][0]["layers"]:
            source = layer["sizeFrom"] or "none"
            by_source[source] = by_source.get(source, 0) + (layer["unpackedBytes"] or {}).get(
                "mid", 0)
        return {"peak": total["peakBytes"], "unpacked": total["unpackedBytes"],
                "inodes": total["inodes"], "download": total["downloadBytes"],
                "source": max(by_source, key=by_source.get, default="none"),
                "layers": [{"digest": layer["digest"], "from": layer["sizeFrom"],
                            "unpacked": layer["unpackedBytes"], "inodes": layer["inodes"]}
                           for layer in report["images"][0]["layers"]]}


class _Ending:
    def __init__(self, end):
        self._end = end

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._end()


class Peak:
    """Polls what is used on a filesystem while it is entered."""

    def __init__(self, path):
        self._path, self._over = path, threading.Event()
        self._thread = threading.Thread(target=self._poll)
        self.used_bytes = 0

    def _poll(self):
        while not self._over.wait(POLL_SECONDS):
            self.used_bytes = max(self.used_bytes, used(self._path))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()


def used(path):
    stat = os.statvfs(path)
    return stat.f_frsize * (stat.f_blocks - stat.f_bfree)


def used_inodes(path):
    stat = os.statvfs(path)
    return stat.f_files - stat.f_ffree


def synced(path):
    """What is used once everything is written and nothing moves any more."""
    libc = ctypes.CDLL(None, use_errno=True)
    folder = os.open(path, os.O_RDONLY)
    try:
        deadline = time.monotonic() + SETTLE_SECONDS
        before = None
        while True:
            libc.syncfs(folder)
            now = used(path)
            if now == before or time.monotonic() > deadline:
                return now
            before = now
            time.sleep(0.15)
    finally:
        os.close(folder)


def on_disk(path):
    """Bytes of the blocks of a file, or of all files below a folder."""
    if os.path.isfile(path):
        return os.stat(path).st_blocks * 512
    return sum(os.lstat(os.path.join(folder, name)).st_blocks * 512
               for folder, _, names in os.walk(path) for name in names)


def measure_pull(runtime, image, discard):
    """Pulls into an empty runtime; the truth, in bytes."""
    path, root = runtime.filesystem.path, runtime.root
    before, inodes_before = synced(path), used_inodes(path)
    databases = sum(on_disk(os.path.join(root, name)) for name in DATABASES)
    started = time.monotonic()
    with Peak(path) as peak:
        runtime.client().pull_image(image.name, timeout=PULL_SECONDS)
    seconds = time.monotonic() - started
    if discard:
        wait_until(lambda: len(runtime.client().blobs()) <= 2, 30, what="the blobs' collection")
    after = synced(path)
    blobs = on_disk(os.path.join(root, "io.containerd.content.v1.content", "blobs"))
    databases = sum(on_disk(os.path.join(root, name)) for name in DATABASES) - databases
    truth = {"rest": after - before, "peak_seen": max(peak.used_bytes - before, 0),
             "blobs": blobs, "databases": databases, "seconds": seconds,
             "inodes": used_inodes(path) - inodes_before}
    truth["peak"] = truth["peak_seen"] if discard else truth["rest"]
    truth["unpacked"] = truth["rest"] - blobs
    return truth


def learn(runtime, image):
    """What an agent measures after a pull: each layer's Usage."""
    client = Containerd(runtime.socket)
    chain, usage = None, []
    for blob in image.blobs:
        chain = blob.diff_id if chain is None else "sha256:" + _sha256(f"{chain} {blob.diff_id}")
        reply = client.call("/containerd.services.snapshots.v1.Snapshots/Usage",
                            encode((1, "overlayfs"), (2, chain)))
        usage.append({"digest": blob.digest, "usage": integer(reply, 1),
                      "inodes": integer(reply, 2)})
    return usage


def records(image, usage, kind):
    """Of that, what agents tell each other: {diff ID: record's text}, large layers only."""
    return {blob.diff_id.partition(":")[2]: f"{measured['usage']} {measured['inodes']} {kind}"
            for blob, measured in zip(image.blobs, usage)
            if blob.compressed_bytes > LEARNED_MIB << 20}


def _sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()
