#!/usr/bin/python3
"""A registry that lies, for the agent's refusals. Each repository is one kind of lie.

    with BadRegistry() as registry:
        registry.image("negative-size")  -> "127.0.0.1:PORT/bad/negative-size:v1"

`LIES` has them all. `registry.asked` lists the paths that were asked for.
"""

import hashlib
import json

import http_base

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
TOO_LARGE_BYTES = 5 << 20  # containerd and the agent stop at 4393216
ENDLESS_CHUNK = b" " * (64 << 10)


def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


CONFIG_BODY = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {
    "type": "layers", "diff_ids": ["sha256:" + "1" * 64]}}).encode()


def manifest(layer_size, **changes):
    """A manifest that is fine but for the size of its layer and what `changes` replaces."""
    return {"schemaVersion": 2, "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": digest_of(CONFIG_BODY),
                       "size": len(CONFIG_BODY)},
            "layers": [{"mediaType": LAYER, "digest": "sha256:" + "2" * 64, "size": layer_size}],
            **changes}


def _body(value):
    return json.dumps(value).encode()


def _deep(levels):
    return b'{"layers":' + b"[" * levels + b"]" * levels + b"}"


LOOP_DIGEST = "sha256:" + "3" * 64
LIES = {
    "negative-size": _body(manifest(-1)),
    "absurd-size": _body(manifest(1 << 62)),
    "size-beyond-int64": _body(manifest(1 << 70)),
    "float-size": _body(manifest(1.5e9)),
    "text-size": _body(manifest("12")),
    "no-size": _body(manifest(0, layers=[{"mediaType": LAYER, "digest": "sha256:" + "2" * 64}])),
    "sum-overflows": _body(manifest(0, layers=[
        {"mediaType": LAYER, "digest": f"sha256:{number:064x}", "size": (1 << 63) - 1}
        for number in range(4)])),
    "bad-digest-text": _body(manifest(1, layers=[
        {"mediaType": LAYER, "digest": "sha256:../../etc", "size": 1}])),
    "not-json": b"<html>502 Bad Gateway</html>",
    "truncated": _body(manifest(10))[:-20],
    "empty": b"",
    "null": b"null",
    "list": b"[]",
    "deep": _deep(100000),
    "not-utf8": b'{"schemaVersion":2,"mediaType":"\xff\xfe"}',
    "index-and-manifest": _body(manifest(1, manifests=[])),
    "too-large": _body(manifest(1, annotations={"filler": "x" * TOO_LARGE_BYTES})),
    "schema1": _body({"schemaVersion": 1, "fsLayers": [{"blobSum": "sha256:" + "2" * 64}]}),
    "index-loop": _body({"schemaVersion": 2, "mediaType": INDEX, "manifests": [
        {"mediaType": INDEX, "digest": LOOP_DIGEST, "size": 2}]}),
    "config-not-there": _body(manifest(1, config={
        "mediaType": CONFIG, "digest": "sha256:" + "4" * 64, "size": 10})),
    "config-digest-lies": _body(manifest(1, config={
        "mediaType": CONFIG, "digest": "sha256:" + "5" * 64, "size": len(CONFIG_BODY)})),
    "endless": None,
    "digest-lies": _body(manifest(1)),
}
CONTENT_TYPES = {"index-loop": INDEX,
                 "schema1": "application/vnd.docker.distribution.manifest.v1+prettyjws"}


class BadRegistry:
    """A context manager; no auth, and it answers every HEAD like its GET."""

    def __init__(self):
        self.asked = []
        registry = self

        class LiesHandler(http_base.Handler):
            def do_GET(self):
                registry.answer(self)

            do_HEAD = do_GET

        self._server = http_base.Server(LiesHandler)
        self.host = self._server.host
        self.url = self._server.url

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *_):
        self._server.stop()

    def image(self, lie):
        """The name of an image that has this lie; "digest-lies" goes by digest."""
        if lie == "digest-lies":
            return f"{self.host}/bad/{lie}@sha256:{'6' * 64}"
        return f"{self.host}/bad/{lie}:v1"

    def answer(self, request):
        path = request.path.partition("?")[0]
        self.asked.append(path)
        parts = path.strip("/").split("/")
        try:
            if len(parts) == 5 and parts[3] == "manifests" and parts[2] in LIES:
                self._manifest(request, parts[2])
            elif len(parts) == 5 and parts[3] == "blobs" and \
                    parts[4] in (digest_of(CONFIG_BODY), "sha256:" + "5" * 64):
                request.reply(200, CONFIG_BODY, "application/octet-stream")
            else:
                request.reply(200 if path == "/v2/" else 404,
                              {"errors": [{"code": "MANIFEST_UNKNOWN"}]})
        except (BrokenPipeError, ConnectionResetError):
            request.close_connection = True

    def _manifest(self, request, lie):
        content_type = CONTENT_TYPES.get(lie, MANIFEST)
        body = LIES[lie]
        if body is not None:
            digest = "sha256:" + "6" * 64 if lie == "digest-lies" else digest_of(body)
            request.reply(200, body, content_type, {"Docker-Content-Digest": digest})
            return
        request.send_response(200)
        request.send_header("Content-Type", content_type)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        if request.command == "HEAD":
            return
        for _ in range(1 << 14):  # 1 GiB: whoever reads all of it is wrong
            request.wfile.write(b"%x\r\n%b\r\n" % (len(ENDLESS_CHUNK), ENDLESS_CHUNK))
        request.wfile.write(b"0\r\n\r\n")
