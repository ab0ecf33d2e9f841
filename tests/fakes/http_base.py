#!/usr/bin/python3
"""What the small HTTP servers here share: a loopback port, quiet logs, one way to reply."""

import http.server
import json
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    """HTTP/1.1 with keep-alive and without Nagle's delay."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def reply(self, status, body, content_type="application/json", headers=None):
        """Sends bytes or text as they are, anything else as JSON; no body for HEAD."""
        data = body if isinstance(body, bytes) else \
            (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


class Server(http.server.ThreadingHTTPServer):
    """Listens on loopback from its making on, answers between start() and stop()."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, handler, port=0, address="127.0.0.1"):
        super().__init__((address, port), handler)
        self.host = f"{address}:{self.server_port}"
        self.url = f"http://{self.host}"

    def start(self):
        threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True).start()

    def stop(self):
        self.shutdown()
        self.server_close()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def handle_error(self, request, client_address):
        """A client that goes away is usual here; all else shows up as a missing answer."""
