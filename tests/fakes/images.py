#!/usr/bin/python3
"""Builds container images of exact sizes as OCI layouts and pushes them with skopeo.

    image = images.build(directory, "etl:v1", [Layer(40 * MIB), Layer(60 * MIB, "zero")])
    images.push(image, registry, "flows/etl:v1")

Random bytes don't compress, zero bytes compress about 200:1; so compressed and unpacked size are
set apart from each other. The same name and layers give the same digests.
"""

import contextlib
import gzip
import hashlib
import json
import os
import random
import struct
import subprocess
import tarfile
from dataclasses import dataclass, field

from lab import SYSTEM_PATH, require, run

MIB = 1 << 20
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


@dataclass
class Layer:
    """One layer: files of `size_bytes` in all, random or zero; gzip, zstd or plain tar ("none").

    "estargz" and "zstd:chunked" have their own table of contents at the end.
    """
    size_bytes: int
    content: str = "random"
    compression: str = "gzip"
    annotations: dict = field(default_factory=dict)
    files: int = 1


@dataclass
class Image:
    """What was built: a layout on disk and the numbers that a forecast should find."""
    layout: str
    name: str
    digest: str  # of the manifest, or of the index
    config_digest: str  # of the first platform
    layer_digests: list
    compressed_bytes: int
    unpacked_bytes: int  # of the layers' files; a filesystem adds a little


def build(directory, name, layers, *, annotations=None, platforms=("linux/amd64",), index=False):
    """Writes an OCI layout to `directory`; more than one platform, or index=True, makes an index.

    Each platform has its own config and the same layers.
    """
    blobs = os.path.join(directory, "blobs", "sha256")
    os.makedirs(blobs, exist_ok=True)
    built = [_layer(blobs, f"{name}/{number}", layer) for number, layer in enumerate(layers)]
    descriptors = [descriptor for descriptor, _ in built]
    manifests = []
    for platform in platforms:
        config = _config(blobs, name, platform, [diff_id for _, diff_id in built])
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config,
                    "layers": descriptors}
        if annotations:
            manifest["annotations"] = annotations
        descriptor = _blob(blobs, MANIFEST, json.dumps(manifest).encode())
        manifests.append((dict(descriptor, platform=_platform(platform)), config))
    top = manifests[0][0]
    if index or len(platforms) > 1:
        body = {"schemaVersion": 2, "mediaType": INDEX,
                "manifests": [descriptor for descriptor, _ in manifests]}
        top = _blob(blobs, INDEX, json.dumps(body).encode())
    _write_layout(directory, name, top)
    return Image(layout=directory, name=name, digest=top["digest"],
                 config_digest=manifests[0][1]["digest"],
                 layer_digests=[descriptor["digest"] for descriptor in descriptors],
                 compressed_bytes=sum(descriptor["size"] for descriptor in descriptors),
                 unpacked_bytes=sum(layer.size_bytes for layer in layers))


def push(image, registry, repository, host=None):
    """Pushes byte for byte; returns the name to pull it by, such as 127.0.0.1:5000/a:v1.

    `host` is the one to put into that name, where it isn't the registry's own.
    """
    require(["skopeo"])
    argv = ["skopeo", "--insecure-policy", "copy", "--quiet", "--all", "--preserve-digests",
            "--dest-tls-verify=false"]
    if registry.credentials:
        argv += ["--dest-creds", ":".join(registry.credentials)]
    run([*argv, f"oci:{image.layout}:{image.name}",
         f"docker://{registry.push_host}/{repository}"])
    return f"{host or registry.host}/{repository}"


class _Sink:
    """Where tarfile writes to: hashes the tar, compresses it and hashes the blob."""

    def __init__(self, path, compression):
        self.tar_hash = hashlib.sha256()
        self._path = path
        self._process = None
        self._file = open(path, "wb")
        if compression == "gzip":
            # A fixed mtime and no name, so that the digest depends on the content alone.
            self._out = gzip.GzipFile("", "wb", 1, self._file, mtime=0)
        elif compression == "zstd":
            require(["zstd"])
            self._process = subprocess.Popen(["zstd", "-q", "-1", "-c"], stdin=subprocess.PIPE,
                                             stdout=self._file, env={"PATH": SYSTEM_PATH})
            self._out = self._process.stdin
        elif compression == "none":
            self._out = self._file
        else:
            raise ValueError(f"no such compression: {compression}")

    def write(self, data):
        self.tar_hash.update(data)
        self._out.write(data)

    def close(self):
        """Digest and size of the blob."""
        self._out.close()
        if self._process is not None and self._process.wait() != 0:
            raise OSError("zstd failed")
        self._file.close()
        blob_hash = hashlib.sha256()
        with open(self._path, "rb") as blob:
            while chunk := blob.read(MIB):
                blob_hash.update(chunk)
        return blob_hash.hexdigest(), os.path.getsize(self._path)


class _Source:
    """A file object of `size` bytes for tarfile, without holding them in memory."""

    def __init__(self, seed, content, size):
        if content not in ("random", "zero"):
            raise ValueError(f"no such content: {content}")
        self._random = random.Random(seed) if content == "random" else None
        self._left = size

    def read(self, size):
        size = min(size, self._left)
        self._left -= size
        return self._random.randbytes(size) if self._random else bytes(size)


def _entries(seed, layer):
    """(tar header, content) of each file; a hundred to a directory where there are many."""
    name = hashlib.sha256(seed.encode()).hexdigest()[:12]
    for number in range(layer.files):
        path = name if layer.files == 1 else f"{name}/{number // 100}/{number}"
        entry = tarfile.TarInfo(path)
        entry.size = layer.size_bytes // layer.files
        entry.mode = 0o644
        yield entry, _Source(f"{seed}/{number}" if number else seed, layer.content, entry.size)


class _IndexedBlob:
    """A blob with its table of contents: eStargz or zstd:chunked, as their specifications say."""

    def __init__(self, path, form):
        self.tar_hash = hashlib.sha256()
        self.annotations = {}
        self._form = form
        self._file = open(path, "wb")
        self._toc = []

    def write(self, seed, layer):
        with self._member() as out:
            for entry, source in _entries(seed, layer):
                self._add(out, entry, source.read(entry.size))
            if self._form == "zstd:chunked":
                self._put(out, bytes(2 * 512))
        toc = json.dumps({"version": 1, "entries": self._toc}).encode()
        if self._form == "estargz":
            self._end_stargz(toc)
        else:
            self._end_chunked(toc)
        self._file.close()

    @contextlib.contextmanager
    def _member(self):
        if self._form == "estargz":
            with gzip.GzipFile("", "wb", 1, self._file, mtime=0) as out:
                yield out
            return
        require(["zstd"])
        self._file.flush()
        with subprocess.Popen(["zstd", "-q", "-1", "-c"], stdin=subprocess.PIPE,
                              stdout=self._file, env={"PATH": SYSTEM_PATH}) as packer:
            yield packer.stdin
            packer.stdin.close()
            if packer.wait() != 0:
                raise OSError("zstd failed")
        self._file.seek(0, os.SEEK_END)

    def _put(self, out, data):
        self.tar_hash.update(data)
        out.write(data)

    def _add(self, out, entry, content):
        self._put(out, entry.tobuf(tarfile.USTAR_FORMAT))
        self._put(out, content)
        self._put(out, bytes(-entry.size % 512))
        self._toc.append({"name": entry.name, "type": "reg", "size": entry.size,
                          "digest": f"sha256:{hashlib.sha256(content).hexdigest()}"})

    def _end_stargz(self, toc):
        offset = self._file.tell()
        entry = tarfile.TarInfo("stargz.index.json")
        entry.size = len(toc)
        with self._member() as out:
            self._put(out, entry.tobuf(tarfile.USTAR_FORMAT) + toc + bytes(-len(toc) % 512)
                      + bytes(2 * 512))
        self._file.write(b"\x1f\x8b\x08\x04" + bytes(5) + b"\xff\x1a\x00SG\x16\x00"
                         + b"%016xSTARGZ" % offset + b"\x01\x00\x00\xff\xff" + bytes(8))
        self.annotations["containerd.io/snapshot/stargz/toc.digest"] = \
            f"sha256:{hashlib.sha256(toc).hexdigest()}"

    def _end_chunked(self, toc):
        packed = subprocess.run(["zstd", "-q", "-c"], input=toc, stdout=subprocess.PIPE,
                                env={"PATH": SYSTEM_PATH}, check=True).stdout
        offset = self._file.tell() + 8
        footer = struct.pack("<7Q", offset, len(packed), len(toc), 1, 0, 0, 0) + b"GNUlInUx"
        for frame in (packed, footer):
            self._file.write(b"\x50\x2a\x4d\x18" + struct.pack("<I", len(frame)) + frame)
        prefix = "io.github.containers.zstd-chunked.manifest-"
        self.annotations[prefix + "position"] = f"{offset}:{len(packed)}:{len(toc)}:1"
        self.annotations[prefix + "checksum"] = f"sha256:{hashlib.sha256(packed).hexdigest()}"


def _indexed_layer(blobs, seed, layer):
    partial = os.path.join(blobs, "partial")
    blob = _IndexedBlob(partial, layer.compression)
    blob.write(seed, layer)
    digest = hashlib.sha256()
    with open(partial, "rb") as file:
        while chunk := file.read(MIB):
            digest.update(chunk)
    size = os.path.getsize(partial)
    os.rename(partial, os.path.join(blobs, digest.hexdigest()))
    suffix = "+gzip" if layer.compression == "estargz" else "+zstd"
    return ({"mediaType": LAYER + suffix, "digest": f"sha256:{digest.hexdigest()}", "size": size,
             "annotations": {**blob.annotations, **layer.annotations}},
            f"sha256:{blob.tar_hash.hexdigest()}")


def _layer(blobs, seed, layer):
    if layer.compression in ("estargz", "zstd:chunked"):
        return _indexed_layer(blobs, seed, layer)
    partial = os.path.join(blobs, "partial")
    sink = _Sink(partial, layer.compression)
    with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT,
                      bufsize=MIB) as archive:
        for entry, source in _entries(seed, layer):
            archive.addfile(entry, source)
    digest, size = sink.close()
    os.rename(partial, os.path.join(blobs, digest))
    suffix = "" if layer.compression == "none" else f"+{layer.compression}"
    descriptor = {"mediaType": LAYER + suffix, "digest": f"sha256:{digest}", "size": size}
    if layer.annotations:
        descriptor["annotations"] = layer.annotations
    return descriptor, f"sha256:{sink.tar_hash.hexdigest()}"


def _platform(text):
    parts = dict(zip(("os", "architecture", "variant"), text.split("/")))
    return parts


def _config(blobs, name, platform, diff_ids):
    body = {**_platform(platform), "created": "1970-01-01T00:00:00Z",
            "config": {"Cmd": ["/run"], "Labels": {"name": name}},
            "rootfs": {"type": "layers", "diff_ids": diff_ids}}
    return _blob(blobs, CONFIG, json.dumps(body).encode())


def _blob(blobs, media_type, data):
    digest = hashlib.sha256(data).hexdigest()
    with open(os.path.join(blobs, digest), "wb") as blob:
        blob.write(data)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def _write_layout(directory, name, top):
    with open(os.path.join(directory, "oci-layout"), "w", encoding="utf-8") as layout:
        json.dump({"imageLayoutVersion": "1.0.0"}, layout)
    entry = dict(top, annotations={"org.opencontainers.image.ref.name": name})
    with open(os.path.join(directory, "index.json"), "w", encoding="utf-8") as index:
        json.dump({"schemaVersion": 2, "manifests": [entry]}, index)
