#!/usr/bin/python3
"""Debian's docker-registry on loopback: open, with Basic or with Bearer auth, slow if asked."""

import base64
import json
import os
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field

import http_base
from lab import Failed, SYSTEM_PATH, free_port, require, run, wait_until

TOKEN_SECONDS = 300
SERVICE = "registry.test"
ISSUER = "token.test"


@dataclass
class Basic:
    """A user name and password for everything, as ECR has it (user AWS)."""
    username: str = "AWS"
    password: str = "secret"


@dataclass
class Bearer:
    """A token server beside the registry. Without credentials it gives tokens for pulls only,
    or none at all where `anonymous_pull` is False."""
    username: str = "pusher"
    password: str = "secret"
    anonymous_pull: bool = True
    requests: list = field(default_factory=list)  # (user, scopes) of each token given


class Registry:
    """A context manager. `host` goes into image names, `url` into hosts.toml; with
    `bytes_per_second` these lead through a slow lane, while `push_host` stays fast."""

    def __init__(self, lab, auth=None, bytes_per_second=0):
        self._lab = lab
        self._auth = auth
        self._bytes_per_second = bytes_per_second
        self._directory = lab.path(lab.unique("registry"))
        self._token_server = None
        self._lane = None
        self.process = None
        self.push_host = self.host = f"127.0.0.1:{free_port()}"

    @property
    def url(self):
        return f"http://{self.host}"

    @property
    def token_host(self):
        """Where Bearer tokens come from, or None."""
        return self._token_server.host if self._token_server else None

    @property
    def credentials(self):
        """(user, password) that may push, or None."""
        return (self._auth.username, self._auth.password) if self._auth else None

    def __enter__(self):
        require(["docker-registry"])
        os.makedirs(self._directory)
        if self._bytes_per_second:
            self._lane = SlowLane(self.push_host, self._bytes_per_second)
            self._lane.start()
            self.host = self._lane.host
        with open(os.path.join(self._directory, "config.yml"), "w", encoding="utf-8") as config:
            json.dump(self._config(), config)  # JSON is YAML
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()
        if self._lane:
            self._lane.stop()
        if self._token_server:
            self._token_server.stop()

    def start(self):
        """Starts it, or starts it again at the same address."""
        self.process = self._lab.spawn(
            "registry", ["docker-registry", "serve", os.path.join(self._directory, "config.yml")])
        wait_until(self._answers, what="docker-registry")

    def stop(self):
        if self.process is not None:
            self.process.stop()

    def _answers(self):
        if not self.process.running():
            raise Failed(f"docker-registry ended: {self.process.log_end()}")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            opener.open(f"http://{self.push_host}/v2/", timeout=2).close()
            return True
        except urllib.error.HTTPError as error:
            return error.code == 401
        except OSError:
            return False

    def _config(self):
        config = {"version": "0.1", "log": {"level": "warn"},
                  "storage": {"filesystem": {"rootdirectory":
                                             os.path.join(self._directory, "data")}},
                  "http": {"addr": self.push_host}}
        if isinstance(self._auth, Basic):
            require(["htpasswd"])
            path = os.path.join(self._directory, "htpasswd")
            with open(path, "w", encoding="utf-8") as users:
                users.write(run(["htpasswd", "-Bbn", self._auth.username, self._auth.password]))
            config["auth"] = {"htpasswd": {"realm": self.url, "path": path}}
        elif isinstance(self._auth, Bearer):
            self._token_server = TokenServer(self._directory, self._auth)
            self._token_server.start()
            config["auth"] = {"token": {
                "realm": self._token_server.url, "service": SERVICE, "issuer": ISSUER,
                "rootcertbundle": self._token_server.certificate}}
        return config


class TokenServer:
    """Gives RS256 tokens for docker-registry: user and scopes in, a signed token out."""

    def __init__(self, directory, auth):
        require(["openssl"])
        self._auth = auth
        self._key = os.path.join(directory, "token.key")
        self.certificate = os.path.join(directory, "token.pem")
        run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "7",
             "-subj", "/CN=token.test", "-keyout", self._key, "-out", self.certificate])
        server = self

        class TokenHandler(http_base.Handler):
            def do_GET(self):
                server.answer(self)

            def do_POST(self):
                # Clients try OAuth2 first and come back with GET when they meet this.
                self.body()
                self.reply(405, {"details": "GET only"})

        self._server = http_base.Server(TokenHandler)
        self.host = self._server.host
        self.url = f"{self._server.url}/token"

    def start(self):
        self._server.start()

    def stop(self):
        self._server.stop()

    def answer(self, request):
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(request.path).query)
        user = self._user(request.headers.get("Authorization"))
        if user is None:
            request.reply(401, {"details": "wrong user name or password"})
            return
        access = []
        for scope in query.get("scope", []):
            kind, _, rest = scope.partition(":")
            name, _, wanted = rest.rpartition(":")
            allowed = {"pull", "push"} if user else {"pull"} if self._auth.anonymous_pull else set()
            access.append({"type": kind, "name": name,
                           "actions": sorted(set(wanted.split(",")) & allowed)})
        self._auth.requests.append((user, query.get("scope", [])))
        token = self._sign(user, access)
        request.reply(200, {"token": token, "expires_in": TOKEN_SECONDS})

    def _user(self, header):
        """The name that the credentials prove, "" without any, None where they are wrong."""
        if not header:
            return ""
        wanted = f"{self._auth.username}:{self._auth.password}".encode()
        given = base64.b64decode(header.partition(" ")[2])
        return self._auth.username if given == wanted else None

    def _sign(self, user, access):
        with open(self.certificate, encoding="ascii") as pem:
            chain = ["".join(pem.read().split("-----")[2].split())]
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": SERVICE, "sub": user, "iat": now, "nbf": now - 10,
                  "exp": now + TOKEN_SECONDS, "jti": os.urandom(8).hex(), "access": access}
        signed = ".".join(_base64url(json.dumps(part).encode()) for part in
                          ({"typ": "JWT", "alg": "RS256", "x5c": chain}, claims))
        signature = subprocess.run(
            ["openssl", "dgst", "-sha256", "-sign", self._key], input=signed.encode(),
            capture_output=True, check=True, env={"PATH": SYSTEM_PATH}).stdout
        return f"{signed}.{_base64url(signature)}"


class SlowLane:
    """A TCP proxy that lets so many bytes a second through towards the client, over all
    connections together: a registry at the end of a real network."""

    CHUNK = 64 << 10

    def __init__(self, target, bytes_per_second):
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._bytes_per_second = bytes_per_second
        self._lock = threading.Lock()
        self._free_at = 0.0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.host = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def start(self):
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self):
        self._listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            threading.Thread(target=self._copy, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._copy, args=(server, client, True), daemon=True).start()

    def _copy(self, source, sink, slow):
        try:
            while data := source.recv(self.CHUNK):
                if slow:
                    self._pause(len(data))
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            if slow:
                end.close()

    def _pause(self, size):
        """Waits for this chunk's turn on the line that all connections share."""
        with self._lock:
            start = max(self._free_at, time.monotonic())
            self._free_at = start + size / self._bytes_per_second
            wait = self._free_at - time.monotonic()
        if wait > 0:
            time.sleep(wait)


def _base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
