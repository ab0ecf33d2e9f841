#!/usr/bin/python3
"""TLS and a bearer token in front of the fake API server, both to be rotated by the test.

    with TlsFront(server.url, folder, token) as front:
        front.url, front.ca_file    # https://127.0.0.1:PORT, what to trust now
        front.token = "another"     # from the next request on
        front.rotate_certificate()  # of another CA; open connections end
"""

import contextlib
import http.client
import os
import socket
import ssl
import threading
import urllib.parse

import http_base
from lab import require, run

DROPPED = {"connection", "content-length", "transfer-encoding", "host"}


class _Handler(http_base.Handler):
    def _forward(self):
        front = self.server.front
        if self.headers.get("Authorization") != f"Bearer {front.token}":
            self.body()
            self.reply(401, {"kind": "Status", "apiVersion": "v1", "status": "Failure",
                             "reason": "Unauthorized", "message": "Unauthorized", "code": 401})
            return
        backend = http.client.HTTPConnection(front.backend.hostname, front.backend.port)
        try:
            headers = {name: value for name, value in self.headers.items()
                       if name.lower() not in DROPPED}
            backend.request(self.command, self.path, self.body() or None, headers)
            self._relay(backend.getresponse())
        except OSError:
            self.close_connection = True
        finally:
            backend.close()

    def _relay(self, response):
        """Piece by piece: a watch has no end."""
        self.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in DROPPED | {"date", "server"}:
                self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while data := response.read1(64 << 10):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _forward


class _Server(http_base.Server):
    def __init__(self, front):
        super().__init__(_Handler)
        self.front = front
        self.open = set()
        self.lock = threading.Lock()

    def get_request(self):
        connection, address = super().get_request()
        # The handshake waits for the handler's thread.
        wrapped = self.front.context.wrap_socket(connection, server_side=True,
                                                 do_handshake_on_connect=False)
        with self.lock:
            self.open.add(wrapped)
        return wrapped, address

    def shutdown_request(self, request):
        with self.lock:
            self.open.discard(request)
        super().shutdown_request(request)

    def drop_connections(self):
        with self.lock:
            for connection in self.open:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)


class TlsFront:
    """A context manager; see the module's text."""

    def __init__(self, backend_url, folder, token):
        require(["openssl"])
        self.backend = urllib.parse.urlsplit(backend_url)
        self.token = token
        self._folder, self._generation = folder, 0
        self.context = self.ca_file = None
        self.rotate_certificate()
        self._server = _Server(self)
        self.url = self._server.url.replace("http:", "https:")

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *_):
        self._server.drop_connections()
        self._server.stop()

    def rotate_certificate(self):
        """A new certificate that is its own CA; `ca_file` names it."""
        self._generation += 1
        key = os.path.join(self._folder, f"front-{self._generation}.key")
        certificate = os.path.join(self._folder, f"front-{self._generation}.pem")
        run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-days", "2", "-subj", f"/CN=generation {self._generation}",
             "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.context, self.ca_file = context, certificate
        if self._generation > 1:
            self._server.drop_connections()
