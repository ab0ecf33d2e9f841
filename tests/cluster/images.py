"""Makes container images of exact sizes and pushes them to a registry over its HTTP API.

A layer of random bytes does not compress, one of zero bytes compresses 200 : 1; so the compressed
and the unpacked size of an image can be chosen apart, as in real images.
"""

import contextlib
import dataclasses
import gzip
import hashlib
import http.client
import io
import json
import os
import tarfile
import time

from errors import Broken
from processes import run

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20
TYPES = "application/vnd.oci.image."
CHUNK = 4 * MIB
TELL_BYTES = 100 * MIB  # an image that takes seconds to make


@dataclasses.dataclass(frozen=True)
class Layer:
    kind: str  # "random" or "zero"
    mib: int


@dataclasses.dataclass(frozen=True)
class ImageSpec:
    """What an image is made of; on top of its layers comes the static pause program."""

    name: str
    layers: tuple = ()
    index: bool = True  # the tag names an index of platforms, as most public images do


@dataclasses.dataclass
class Image:
    """An image that was pushed, with the facts the checks need."""

    reference: str
    manifest_digest: str
    config_digest: str
    layer_digests: list
    compressed_bytes: int
    tar_bytes: int


class Hashing:
    """A file being written: passes the bytes on, and counts and hashes them."""

    def __init__(self, target=None):
        self.target, self.hash, self.size = target, hashlib.sha256(), 0

    def write(self, data):
        self.hash.update(data)
        self.size += len(data)
        if self.target is not None:
            self.target.write(data)
        return len(data)

    def flush(self):
        pass

    @property
    def digest(self):
        return "sha256:" + self.hash.hexdigest()


class Content:
    """A readable that makes up its bytes, so that no big layer is ever in memory."""

    def __init__(self, kind, size):
        self.kind, self.left = kind, size

    def read(self, size):
        size = min(size, self.left)
        self.left -= size
        return os.urandom(size) if self.kind == "random" else bytes(size)


def cache_key():
    """Whatever makes the images must be the same, else they are made anew."""
    digest = hashlib.sha256()
    for name in ("images.py", "pause.c"):
        with open(os.path.join(HERE, name), "rb") as f:
            digest.update(f.read())
    return digest.hexdigest()[:16]


def compile_pause(folder):
    path = os.path.join(folder, "pause")
    run(
        "gcc", "-static", "-O2", "-s", "-Wall", "-Wextra", "-o", path, os.path.join(HERE, "pause.c")
    )
    return path


def write_layer(path, name, content, size, mode, level):
    """Writes one gzip-compressed layer of one file; returns its descriptor and its diff id."""
    with open(path, "wb") as file:
        blob = Hashing(file)
        with gzip.GzipFile(filename="", fileobj=blob, mode="wb", compresslevel=level, mtime=0) as z:
            tar = Hashing(z)
            with tarfile.open(fileobj=tar, mode="w|", bufsize=CHUNK, copybufsize=CHUNK) as archive:
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = size, mode
                archive.addfile(entry, content)
    descriptor = {
        "mediaType": TYPES + "layer.v1.tar+gzip",
        "digest": blob.digest,
        "size": blob.size,
    }
    return descriptor, tar.digest, tar.size


class Registry:
    """Pushes to one registry, by its address as nodes see it."""

    def __init__(self, address):
        self.address = address

    def request(self, method, url, body=None, headers=None):
        connection = http.client.HTTPConnection(self.address, timeout=120)
        try:
            connection.request(method, url, body, headers or {})
            answer = connection.getresponse()
            answer.read()
            return answer.status, answer.headers
        finally:
            connection.close()

    def ready(self):
        try:
            return self.request("GET", "/v2/")[0] == 200
        except OSError:
            return False

    def put_blob(self, name, digest, body, size):
        status, headers = self.request(
            "POST", f"/v2/{name}/blobs/uploads/", headers={"Content-Length": "0"}
        )
        if status != 202:
            raise Broken(f"the registry answered {status} to an upload of {name}")
        location = headers["Location"].split(self.address, 1)[-1]
        url = location + ("&" if "?" in location else "?") + "digest=" + digest
        status, _ = self.request(
            "PUT",
            url,
            body,
            {"Content-Length": str(size), "Content-Type": "application/octet-stream"},
        )
        if status != 201:
            raise Broken(f"the registry answered {status} to a blob of {name}")

    def put_manifest(self, name, reference, manifest):
        body = json.dumps(manifest).encode()
        status, _ = self.request(
            "PUT",
            f"/v2/{name}/manifests/{reference}",
            body,
            {"Content-Type": manifest["mediaType"]},
        )
        if status != 201:
            raise Broken(f"the registry answered {status} to the manifest of {name}")
        return "sha256:" + hashlib.sha256(body).hexdigest(), len(body)

    def push(self, spec, pause, folder, say):
        """Makes the layers one after the other and pushes them; returns the Image."""
        started = time.monotonic()
        descriptors, diff_ids, tar_bytes = [], [], 0
        scratch = os.path.join(folder, f"layer-{spec.name}")
        parts = [
            (
                f"data/{i}",
                Content(layer.kind, layer.mib * MIB),
                layer.mib * MIB,
                0o644,
                0 if layer.kind == "random" else 1,
            )
            for i, layer in enumerate(spec.layers)
        ]
        with open(pause, "rb") as program:
            parts.append(("pause", program, os.path.getsize(pause), 0o755, 6))
            for name, content, size, mode, level in parts:
                descriptor, diff_id, tar_size = write_layer(
                    scratch, name, content, size, mode, level
                )
                with open(scratch, "rb") as blob:
                    self.put_blob(spec.name, descriptor["digest"], blob, descriptor["size"])
                descriptors.append(descriptor)
                diff_ids.append(diff_id)
                tar_bytes += tar_size
        os.remove(scratch)
        image = self.put_metadata(spec, descriptors, diff_ids, tar_bytes)
        if image.compressed_bytes > TELL_BYTES:
            say(
                f"image {spec.name}: {image.compressed_bytes // MIB} MiB compressed, "
                f"{tar_bytes // MIB} MiB unpacked ({time.monotonic() - started:.0f} s)"
            )
        return image

    def push_once(self, spec, pause, folder, say):
        """Like push(), but an image that an earlier run left in the folder is used again."""
        record = os.path.join(folder, f"{spec.name}.json")
        with contextlib.suppress(OSError, ValueError):
            with open(record, encoding="utf-8") as f:
                saved = json.load(f)
            if saved["spec"] == repr(spec):
                return Image(**saved["image"])
        image = self.push(spec, pause, folder, say)
        with open(record + ".new", "w", encoding="utf-8") as f:
            json.dump({"spec": repr(spec), "image": dataclasses.asdict(image)}, f)
        os.rename(record + ".new", record)
        return image

    def put_metadata(self, spec, descriptors, diff_ids, tar_bytes):
        config = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "created": "2024-01-01T00:00:00Z",
                "config": {"Entrypoint": ["/pause"]},
                "rootfs": {"type": "layers", "diff_ids": diff_ids},
            }
        ).encode()
        config_digest = "sha256:" + hashlib.sha256(config).hexdigest()
        self.put_blob(spec.name, config_digest, io.BytesIO(config), len(config))
        manifest = {
            "schemaVersion": 2,
            "mediaType": TYPES + "manifest.v1+json",
            "config": {
                "mediaType": TYPES + "config.v1+json",
                "digest": config_digest,
                "size": len(config),
            },
            "layers": descriptors,
        }
        body = json.dumps(manifest).encode()
        digest = "sha256:" + hashlib.sha256(body).hexdigest()
        self.put_manifest(spec.name, digest if spec.index else "1", manifest)
        if spec.index:
            self.put_manifest(
                spec.name,
                "1",
                {
                    "schemaVersion": 2,
                    "mediaType": TYPES + "index.v1+json",
                    "manifests": [
                        {
                            "mediaType": manifest["mediaType"],
                            "digest": digest,
                            "size": len(body),
                            "platform": {"architecture": "amd64", "os": "linux"},
                        }
                    ],
                },
            )
        return Image(
            f"{self.address}/{spec.name}:1",
            digest,
            config_digest,
            [d["digest"] for d in descriptors],
            sum(d["size"] for d in descriptors),
            tar_bytes,
        )
