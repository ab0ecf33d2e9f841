#!/usr/bin/python3
"""A registry whose images are right but odd: what a forecast must answer well, or call unknown.

    with OddRegistry() as registry:
        registry.image("no-range")  -> "127.0.0.1:PORT/odd/no-range:v1"

Each repository is one oddity; `ODDITIES` names them all. Every layer is a tar of one file of zero
bytes. `blob_requests` has (path, Authorization, Range) of each request for a blob, those at the
second server, where "redirect" leads, included.
"""

import gzip
import hashlib
import io
import json
import tarfile

import http_base
from bad_registry import CONFIG, INDEX, LAYER, MANIFEST, digest_of

MIB = 1 << 20
EMPTY_LAYER = gzip.compress(bytes(1024), mtime=0)
ODDITIES = ("plain", "no-range", "redirect", "many-members", "truncated-gzip", "lying-annotation",
            "by-tag-only", "attestations", "no-layers", "thousand-layers", "same-layer-twice",
            "never-there", "denied", "no-config")


def tar_of(size_bytes, name="file"):
    """A tar with one file of zero bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        entry = tarfile.TarInfo(name)
        entry.size = size_bytes
        archive.addfile(entry, io.BytesIO(bytes(size_bytes)))
    return out.getvalue()


class OddRegistry:
    """A context manager; no auth."""

    def __init__(self):
        self.blob_requests = []
        self._blobs = {}
        self._manifests = {}  # repository -> {tag or digest: (body, media type)}
        registry = self

        class OddHandler(http_base.Handler):
            def do_GET(self):
                registry.answer(self)

            do_HEAD = do_GET

        class StoreHandler(http_base.Handler):
            def do_GET(self):
                registry.blob(self, self.path.rpartition("/")[2])

        self._server = http_base.Server(OddHandler)
        # Another host, not only another port: as S3 is.
        self._store = http_base.Server(StoreHandler, address="127.0.0.2")
        self.host = self._server.host
        self.store_host = self._store.host
        self._build()

    def __enter__(self):
        self._server.start()
        self._store.start()
        return self

    def __exit__(self, *_):
        self._server.stop()
        self._store.stop()

    def image(self, oddity):
        return f"{self.host}/odd/{oddity}:v1"

    def image_by_digest(self, oddity):
        body, _ = self._manifests[oddity]["v1"]
        return f"{self.host}/odd/{oddity}@{digest_of(body)}"

    # ---- what there is ------------------------------------------------------------------------

    def _build(self):
        tar = tar_of(20 * MIB)
        layer = gzip.compress(tar, 1, mtime=0)
        for oddity in ("plain", "no-range", "redirect", "by-tag-only", "no-config", "denied"):
            self._image(oddity, [(layer, tar)])
        # Two members: the trailer speaks of the last one alone, which is no whole number of
        # tar blocks.
        cut = len(tar) - 12345
        self._image("many-members", [(gzip.compress(tar[:cut], 1, mtime=0) +
                                      gzip.compress(tar[cut:], 1, mtime=0), tar)])
        self._image("truncated-gzip", [(layer[:-3], tar)])
        self._image("lying-annotation", [(b"\x28\xb5\x2f\xfd" + bytes(MIB), tar)],
                    media_type=LAYER.replace("gzip", "zstd"),
                    annotations={"ci.umo.uncompressed_blob_size": "1"})
        self._image("attestations", [(layer, tar)], attestations=True)
        self._image("no-layers", [])
        thousand = [tar_of(4096, f"{number}") for number in range(1000)]
        self._image("thousand-layers", [(gzip.compress(small, 1, mtime=0), small)
                                        for small in thousand])
        self._image("same-layer-twice", [(layer, tar), (layer, tar)])

    def _put(self, data):
        self._blobs[digest_of(data)] = data
        return {"digest": digest_of(data), "size": len(data)}

    def _image(self, oddity, layers, *, media_type=LAYER, annotations=None, attestations=False):
        config = {"architecture": "amd64", "os": "linux", "rootfs": {
            "type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(tar).hexdigest()
                                           for _, tar in layers]}}
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST,
                    "config": {"mediaType": CONFIG, **self._put(json.dumps(config).encode())},
                    "layers": [{"mediaType": media_type, **self._put(blob),
                                **({"annotations": annotations} if annotations else {})}
                               for blob, _ in layers]}
        body = json.dumps(manifest).encode()
        here = self._manifests[oddity] = {}
        if not attestations:
            here["v1"] = here[digest_of(body)] = (body, MANIFEST)
            return
        statement = dict(manifest, layers=[{"mediaType": "application/vnd.in-toto+json",
                                            **self._put(b"{}" * (8 * MIB))}])
        statement_body = json.dumps(statement).encode()
        index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [
            {"mediaType": MANIFEST, "digest": digest_of(statement_body),
             "size": len(statement_body), "platform": {"os": "unknown", "architecture": "unknown"},
             "annotations": {"vnd.docker.reference.type": "attestation-manifest"}},
            {"mediaType": MANIFEST, "digest": digest_of(body), "size": len(body),
             "platform": {"os": "linux", "architecture": "amd64"}}]}).encode()
        here["v1"] = (index, INDEX)
        here[digest_of(body)] = (body, MANIFEST)
        here[digest_of(statement_body)] = (statement_body, MANIFEST)

    # ---- how it answers -----------------------------------------------------------------------

    def answer(self, request):
        parts = request.path.partition("?")[0].strip("/").split("/")
        if len(parts) != 5 or parts[:2] != ["v2", "odd"] or parts[2] not in ODDITIES:
            request.reply(200 if parts == ["v2"] else 404, _error("NAME_UNKNOWN"))
            return
        oddity, kind, reference = parts[2:]
        if oddity == "denied":
            request.reply(403, _error("DENIED", "User: flow is not authorized"))
        elif kind == "manifests":
            self._manifest(request, oddity, reference)
        elif oddity == "no-config" and len(self._blobs.get(reference, b"")) < 1000:
            request.close_connection = True  # no answer at all
        else:
            self.blob_requests.append((request.path, request.headers.get("Authorization"),
                                       request.headers.get("Range")))
            if oddity == "redirect":
                request.reply(307, b"", headers={"Location":
                                                 f"{self._store.url}/signed/{reference}"})
            else:
                self._send(request, reference, ranges=oddity != "no-range")

    def blob(self, request, digest):
        """At the second server: as S3, which knows nothing of the registry's logins."""
        self.blob_requests.append((request.path, request.headers.get("Authorization"),
                                   request.headers.get("Range")))
        self._send(request, digest, ranges=True)

    def _manifest(self, request, oddity, reference):
        # A pull-through cache that has not seen the image yet answers for tags alone.
        unknown = oddity == "by-tag-only" and reference.startswith("sha256:")
        found = None if unknown else self._manifests.get(oddity, {}).get(reference)
        if found is None:
            request.reply(404, _error("MANIFEST_UNKNOWN", "Requested image not found"))
            return
        body, media_type = found
        request.reply(200, body, media_type, {"Docker-Content-Digest": digest_of(body)})

    def _send(self, request, digest, ranges):
        data = self._blobs.get(digest)
        if data is None:
            request.reply(404, _error("BLOB_UNKNOWN"))
            return
        wanted = request.headers.get("Range", "")
        if not ranges or not wanted.startswith("bytes="):
            request.reply(200, data, "application/octet-stream")
            return
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start, end = int(first), min(int(last or len(data)), len(data) - 1)
        request.reply(206, data[start:end + 1], "application/octet-stream",
                      {"Content-Range": f"bytes {start}-{end}/{len(data)}"})


def _error(code, message=""):
    return {"errors": [{"code": code, "message": message}]}
