#!/usr/bin/python3
"""Calls to a real containerd over its socket: CRI images, content, leases, snapshots.

Used by the fake kubelet to pull, and by tests to look at what a pull has written. grpcio carries
the frames; the messages are encoded by hand (protobuf.py).
"""

import os
import threading

# Forking for child processes while channels are open is fine here: children only exec.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc  # noqa: E402

from protobuf import decode, encode, integer, message, messages, text  # noqa: E402

NAMESPACE = "k8s.io"
LIST_REPLY_LIMIT = 64 << 20


class Error(Exception):
    """A call that failed: `code` is the gRPC name such as "NOT_FOUND", the text is containerd's."""

    def __init__(self, code, details):
        super().__init__(details)
        self.code = code


METADATA = (("containerd-namespace", NAMESPACE),)


class Client:
    """Calls to one containerd. Each has its own channel: grpc backs off for seconds on one that
    saw the socket missing, and containerd restarts here all the time."""

    def __init__(self, socket_path):
        self._target = f"unix:{socket_path}"

    def _channel(self):
        return grpc.insecure_channel(
            self._target, options=[("grpc.max_receive_message_length", LIST_REPLY_LIMIT),
                                   ("grpc.enable_http_proxy", 0),
                                   ("grpc.use_local_subchannel_pool", 1)])

    def call(self, path, request=b"", timeout=10.0):
        """One unary call; the reply comes back decoded."""
        with self._channel() as channel:
            try:
                return decode(channel.unary_unary(path)(request, timeout, METADATA))
            except grpc.RpcError as error:
                raise Error(error.code().name, error.details()) from None

    def stream(self, path, request=b"", timeout=10.0):
        """One server-streaming call; all replies, decoded."""
        with self._channel() as channel:
            try:
                return [decode(raw) for raw in
                        channel.unary_stream(path)(request, timeout, METADATA)]
            except grpc.RpcError as error:
                raise Error(error.code().name, error.details()) from None

    # CRI, as the kubelet calls it.

    def version(self):
        """The runtime's name and version, such as ("containerd", "1.6.20")."""
        reply = self.call("/runtime.v1.RuntimeService/Version")
        return text(reply, 2), text(reply, 3)

    def pull_image(self, image, username="", password="", timeout=900.0):
        """Pulls like the kubelet does and returns the image ID. Blocks until the pull ends."""
        auth = encode((1, username), (2, password))
        reply = self.call("/runtime.v1.ImageService/PullImage",
                          encode((1, encode((1, image))), (2, auth)), timeout)
        return text(reply, 1)

    def image_status(self, image):
        """{id, repo_tags, repo_digests, size_bytes} or None where the image is not here."""
        reply = self.call("/runtime.v1.ImageService/ImageStatus",
                          encode((1, encode((1, image)))))
        found = message(reply, 1)
        return _image(found) if found else None

    def list_images(self):
        reply = self.call("/runtime.v1.ImageService/ListImages")
        return [_image(image) for image in messages(reply, 1)]

    def remove_image(self, image):
        self.call("/runtime.v1.ImageService/RemoveImage", encode((1, encode((1, image)))), 60.0)

    # containerd's own services, for tests that look behind the CRI.

    def ingests(self):
        """Live downloads: [{ref, offset, total}]. A hold is one with offset 0."""
        reply = self.call("/containerd.services.content.v1.Content/ListStatuses")
        return [{"ref": text(status, 3), "offset": integer(status, 4),
                 "total": integer(status, 5)} for status in messages(reply, 1)]

    def blobs(self):
        """Committed content: {digest: size}."""
        replies = self.stream("/containerd.services.content.v1.Content/List")
        return {text(info, 1): integer(info, 2)
                for reply in replies for info in messages(reply, 1)}

    def snapshots(self, snapshotter="overlayfs"):
        """[{name, kind}]; kind is 1 view, 2 active, 3 committed."""
        replies = self.stream("/containerd.services.snapshots.v1.Snapshots/List",
                              encode((1, snapshotter)))
        return [{"name": text(info, 1), "kind": integer(info, 3)}
                for reply in replies for info in messages(reply, 1)]

    def leases(self):
        """[{id, labels}]."""
        reply = self.call("/containerd.services.leases.v1.Leases/List")
        return [{"id": text(lease, 1),
                 "labels": {text(entry, 1): text(entry, 2) for entry in messages(lease, 3)}}
                for lease in messages(reply, 1)]

    def lease_resources(self, lease_id):
        """[(type, id)] that a lease keeps alive, such as ("content", "sha256:…")."""
        reply = self.call("/containerd.services.leases.v1.Leases/ListResources",
                          encode((1, lease_id)))
        return [(text(resource, 2), text(resource, 1)) for resource in messages(reply, 1)]

    def delete_lease(self, lease_id):
        self.call("/containerd.services.leases.v1.Leases/Delete", encode((1, lease_id)))

    def open_hold(self, ref, digest):
        """Opens a content Write on `ref` and keeps it, as the agent's hold does.

        Returns an object with close(). Raises Error (ALREADY_EXISTS, UNAVAILABLE) like containerd.
        """
        return Hold(self._channel(), ref, digest)


class Hold:
    """A Write stream that stays open. Closing it lets the pull go on."""

    def __init__(self, channel, ref, digest):
        self._channel = channel
        self._done = threading.Event()

        def requests():
            yield encode((2, ref), (4, digest))
            self._done.wait()

        stub = channel.stream_stream("/containerd.services.content.v1.Content/Write")
        self._stream = stub(requests(), metadata=METADATA)
        try:
            next(self._stream)
        except grpc.RpcError as error:
            self.close()
            raise Error(error.code().name, error.details()) from None

    def close(self):
        self._done.set()
        self._channel.close()


def _image(fields):
    return {"id": text(fields, 1),
            "repo_tags": [raw.decode() for raw in fields.get(2, [])],
            "repo_digests": [raw.decode() for raw in fields.get(3, [])],
            "size_bytes": integer(fields, 4),
            "pinned": bool(integer(fields, 8))}
