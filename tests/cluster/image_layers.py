"""Images of real files: layers from folders and tars, pushed once and kept with the others."""

import contextlib
import dataclasses
import gzip
import hashlib
import io
import json
import os
import subprocess
import time

from errors import Broken
from images import CHUNK, MIB, TYPES, Hashing, Image

LEVEL = 1  # the registry's speed is what counts, not the bytes


@dataclasses.dataclass(frozen=True)
class FilesSpec:
    """An image of real files. `parts` are commands whose output is a tar each."""

    name: str
    key: str  # whatever makes the image must be the same, else it is made anew
    parts: tuple
    config: tuple  # pairs of the image's config: Env, WorkingDir, Cmd


def tar_of(folder, inside):
    """A folder's files under `inside`. Their times stay: compiled Python is checked against them.
    """
    return ("tar", "-C", folder, "-c", "--sort=name", "--owner=0", "--group=0", "--numeric-owner",
            f"--transform=s,^\\.,{inside},", ".")


def push_once(registry, spec, folder, say):
    """Like Registry.push_once(), for files."""
    record = os.path.join(folder, f"{spec.name}.files.json")
    with contextlib.suppress(OSError, ValueError, KeyError):
        with open(record, encoding="utf-8") as f:
            saved = json.load(f)
        if saved["key"] == spec.key:
            return Image(**saved["image"])
    started = time.monotonic()
    image = push(registry, spec, os.path.join(folder, f"layer-{spec.name}"))
    with open(record + ".new", "w", encoding="utf-8") as f:
        json.dump({"key": spec.key, "image": dataclasses.asdict(image)}, f)
    os.rename(record + ".new", record)
    say(f"image {spec.name}: {image.compressed_bytes // MIB} MiB compressed, "
        f"{image.tar_bytes // MIB} MiB unpacked ({time.monotonic() - started:.0f} s)")
    return image


def push(registry, spec, scratch):
    descriptors, diff_ids, tar_bytes = [], [], 0
    for argv in spec.parts:
        blob, tar = write_layer(argv, scratch)
        with open(scratch, "rb") as f:
            registry.put_blob(spec.name, blob.digest, f, blob.size)
        descriptors.append({"mediaType": TYPES + "layer.v1.tar+gzip", "digest": blob.digest,
                            "size": blob.size})
        diff_ids.append(tar.digest)
        tar_bytes += tar.size
    os.remove(scratch)
    config = json.dumps({
        "architecture": "amd64",
        "os": "linux",
        "created": "2024-01-01T00:00:00Z",
        "config": dict(spec.config),
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    }).encode()
    config_digest = "sha256:" + hashlib.sha256(config).hexdigest()
    registry.put_blob(spec.name, config_digest, io.BytesIO(config), len(config))
    digest, _ = registry.put_manifest(spec.name, "1", {
        "schemaVersion": 2,
        "mediaType": TYPES + "manifest.v1+json",
        "config": {"mediaType": TYPES + "config.v1+json", "digest": config_digest,
                   "size": len(config)},
        "layers": descriptors,
    })
    return Image(f"{registry.address}/{spec.name}:1", digest, config_digest,
                 [d["digest"] for d in descriptors], sum(d["size"] for d in descriptors),
                 tar_bytes)


def write_layer(argv, scratch):
    """The gzip-compressed output of a tar; returns what was written and what was read."""
    with open(scratch, "wb") as file, subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
        blob, tar = Hashing(file), Hashing()
        with gzip.GzipFile(filename="", fileobj=blob, mode="wb", compresslevel=LEVEL, mtime=0) as z:
            while chunk := child.stdout.read(CHUNK):
                tar.write(chunk)
                z.write(chunk)
    if child.returncode != 0:
        raise Broken(f"`{' '.join(argv)}` ended with code {child.returncode}")
    return blob, tar
