"""The benchmark's images in a real registry whose storage is kept between runs.

Blobs are pushed over the registry's HTTP API as soon as they are made and exist nowhere else;
what the manifests need of them is remembered beside the storage.
"""

import dataclasses
import hashlib
import http.client
import json
import os
import urllib.parse

from blobs import Blob, make_blob
from lab import Failed
from registry import Registry
from trees import Workshop

REPOSITORY = "bench/forecast"  # one for all, so that layers are shared
OCI = "application/vnd.oci.image."
DOCKER = "application/vnd.docker."
SECONDS = 600


class KeptRegistry(Registry):
    """A docker-registry whose blobs survive the lab."""

    def __init__(self, lab, storage):
        super().__init__(lab)
        self._storage = storage

    def _config(self):
        config = super()._config()
        config["storage"]["filesystem"]["rootdirectory"] = self._storage
        return config


@dataclasses.dataclass
class Pushed:
    """An image in the registry."""

    name: str  # to pull it by
    form: str
    blobs: list
    config_bytes: int
    manifest_bytes: int

    @property
    def compressed_bytes(self):
        """Of each blob once, as containerd keeps them."""
        unique = {blob.digest: blob.compressed_bytes for blob in self.blobs}
        return sum(unique.values())


class Store:
    """Makes and pushes images, each layer once."""

    def __init__(self, folder, registry, say):
        self._workshop = Workshop(os.path.join(folder, "trees"), say)
        self._say = say
        self._registry = registry
        self._folder = os.path.join(folder, "blobs")
        os.makedirs(self._folder, exist_ok=True)

    def image(self, recipe):
        blobs = [self._blob(recipe.steps[:count + 1], recipe.form)
                 for count in range(len(recipe.steps))]
        config = json.dumps({
            "architecture": "amd64", "os": "linux", "created": "2026-01-01T00:00:00Z",
            "config": {"Cmd": ["/bin/sh"], "Labels": {"name": recipe.name}},
            "rootfs": {"type": "layers", "diff_ids": [blob.diff_id for blob in blobs]},
        }).encode()
        types = _types(recipe.docker)
        config_digest = self._registry_push(config)
        manifest = json.dumps({
            "schemaVersion": 2, "mediaType": types["manifest"],
            "config": {"mediaType": types["config"], "digest": config_digest,
                       "size": len(config)},
            "layers": [_descriptor(blob, recipe.docker) for blob in blobs],
        }).encode()
        self._request("PUT", f"/v2/{REPOSITORY}/manifests/{recipe.name}", manifest, 201,
                      {"Content-Type": types["manifest"]})
        return Pushed(f"{self._registry.host}/{REPOSITORY}:{recipe.name}", recipe.form, blobs,
                      len(config), len(manifest))

    def _blob(self, steps, form):
        key = f"{self._workshop.key(steps)}-{form.replace(':', '-')}"
        known = os.path.join(self._folder, f"{key}.json")
        if os.path.exists(known):
            with open(known, encoding="utf-8") as file:
                blob = Blob(**json.load(file))
            if self._has(blob.digest):
                return blob
        tree = self._workshop.tree(steps)
        self._say(f"packing as {form}: {steps[-1]}")
        partial = os.path.join(self._folder, f"{key}.partial")
        try:
            blob = make_blob(tree, form, partial)
            if not self._has(blob.digest):
                with open(partial, "rb") as body:
                    self._upload(blob.digest, body, blob.compressed_bytes)
        finally:
            if os.path.exists(partial):
                os.unlink(partial)
        with open(known, "w", encoding="utf-8") as file:
            json.dump(dataclasses.asdict(blob), file)
        return blob

    def _registry_push(self, body):
        digest = "sha256:" + hashlib.sha256(body).hexdigest()
        if not self._has(digest):
            self._upload(digest, body, len(body))
        return digest

    def _has(self, digest):
        return self._request("HEAD", f"/v2/{REPOSITORY}/blobs/{digest}", None, None)[0] == 200

    def _upload(self, digest, body, size):
        _, headers = self._request("POST", f"/v2/{REPOSITORY}/blobs/uploads/", None, 202)
        place = urllib.parse.urlsplit(headers["Location"])
        self._request("PUT", f"{place.path}?{place.query}&digest={digest}", body, 201,
                      {"Content-Type": "application/octet-stream", "Content-Length": str(size)})

    def _request(self, method, path, body, wanted, headers=None):
        connection = http.client.HTTPConnection(self._registry.push_host, timeout=SECONDS)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            reply = connection.getresponse()
            said = reply.read()
        finally:
            connection.close()
        if wanted is not None and reply.status != wanted:
            raise Failed(f"the registry answers {reply.status} to {method}: {said[:200]}")
        return reply.status, reply.headers


def _types(docker):
    if docker:
        return {"manifest": DOCKER + "distribution.manifest.v2+json",
                "config": DOCKER + "container.image.v1+json"}
    return {"manifest": OCI + "manifest.v1+json", "config": OCI + "config.v1+json"}


def _descriptor(blob, docker):
    media_type = DOCKER + "image.rootfs.diff.tar.gzip" if docker else blob.media_type
    described = {"mediaType": media_type, "digest": blob.digest, "size": blob.compressed_bytes}
    if blob.annotations:
        described["annotations"] = blob.annotations
    return described
