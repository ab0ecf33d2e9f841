#!/usr/bin/python3
"""A stand-in for ECR's JSON API: GetAuthorizationToken, with the request's signature checked.

The token is `AWS:<password>` for a registry with Basic auth, as real ECR's is. The check of the
signature is written from AWS's description of SigV4 and shares no code with the agent.
"""

import base64
import hashlib
import hmac
import time

import http_base

ACCESS_KEY = "AKIDEXAMPLE"
SECRET_KEY = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
TARGET = "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"
TOKEN_SECONDS = 12 * 3600
UNSIGNED_HEADERS = {"connection", "expect", "user-agent", "accept", "content-length", "te"}


def sign(method, path, query, headers, body, secret_key, scope):
    """The SigV4 signature of a request. `headers` are the signed ones, lower-case."""
    date, region, service, _ = scope.split("/")
    names = ";".join(sorted(headers))
    canonical = "\n".join([
        method, path, query, *(f"{name}:{' '.join(headers[name].split())}"
                               for name in sorted(headers)),
        "", names, hashlib.sha256(body).hexdigest()])
    to_sign = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope,
                         hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{secret_key}".encode()
    for part in (date, region, service, "aws4_request", to_sign):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex()


class EcrApi:
    """A context manager. `requests` counts the tokens given, `refusals` says why others failed."""

    def __init__(self, password="secret", session_token=None):
        self.password = password
        self.session_token = session_token
        self.requests = 0
        self.refusals = []
        self.fail_next = []  # (status, __type) to answer with instead
        api = self

        class EcrHandler(http_base.Handler):
            def do_POST(self):
                status, answer = api.answer(self, self.body())
                self.reply(status, answer, "application/x-amz-json-1.1")

        self._server = http_base.Server(EcrHandler)
        self.url = self._server.url

    @property
    def environment(self):
        """What the agent needs in its environment to sign for this API."""
        variables = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
                     "AWS_EC2_METADATA_DISABLED": "true"}
        if self.session_token:
            variables["AWS_SESSION_TOKEN"] = self.session_token
        return variables

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *_):
        self._server.stop()

    def answer(self, request, body):
        if self.fail_next:
            status, kind = self.fail_next.pop(0)
            return status, {"__type": kind, "message": "as the test asked"}
        wrong = self._what_is_wrong(request, body)
        if wrong:
            self.refusals.append(wrong)
            return 400, {"__type": "InvalidSignatureException", "message": wrong}
        self.requests += 1
        token = base64.b64encode(f"AWS:{self.password}".encode()).decode()
        return 200, {"authorizationData": [{
            "authorizationToken": token, "expiresAt": time.time() + TOKEN_SECONDS,
            "proxyEndpoint": "https://123456789012.dkr.ecr.us-east-2.amazonaws.com"}]}

    def _what_is_wrong(self, request, body):
        headers = {name.lower(): value for name, value in request.headers.items()}
        if headers.get("x-amz-target") != TARGET:
            return f"target {headers.get('x-amz-target')}"
        if headers.get("x-amz-security-token") != self.session_token:
            return "security token is missing or not ours"
        kind, _, rest = headers.get("authorization", "").partition(" ")
        parts = dict(part.strip().partition("=")[::2] for part in rest.split(","))
        if kind != "AWS4-HMAC-SHA256" or not {"Credential", "SignedHeaders",
                                              "Signature"} <= set(parts):
            return "not signed"
        key, _, scope = parts["Credential"].partition("/")
        signed = parts["SignedHeaders"].split(";")
        if key != ACCESS_KEY or len(scope.split("/")) != 4:
            return "unknown key or broken scope"
        unsigned = set(headers) - set(signed) - UNSIGNED_HEADERS - {"authorization"}
        if unsigned or not {"host", "x-amz-date", "x-amz-target"} <= set(signed):
            return f"not in SignedHeaders: {sorted(unsigned)}"
        wanted = sign(request.command, request.path, "", {
            name: headers.get(name, "") for name in signed}, body, SECRET_KEY, scope)
        if not hmac.compare_digest(wanted, parts["Signature"]):
            return "the signature does not match"
        return ""
