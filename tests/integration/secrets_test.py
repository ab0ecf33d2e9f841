#!/usr/bin/python3
"""Secrets are planted in all that the agent reads, and none may show in what it says: log (debug),
Events, labels, annotations, condition, metrics, readiness. Servers that quote requests in their
errors included: AWS does, and proxies do."""

import base64
import json
import urllib.parse

from harness import LAYERS, NODE, NodeTest, lab, run_tests

import bad_registry  # from tests/fakes, which harness has put on the path
import ecr_api
import http_base
from registry import Basic, Bearer

ECR_HOST = "123456789012.dkr.ecr.us-east-2.amazonaws.com"
PASSWORD = "planted-password-7Hq/x"
SESSION = "planted+session/token+Zk=="
KUBE_TOKEN = "planted.kube-token.Qw3"
POD_ENV = "planted-pod-env-5Tz"
POD_NOTE = "planted-pod-annotation-8Kd"
WAITING = "planted-waiting-message-2Vb"
ISSUED = "planted-issued-token-4Rf"
SIGNATURE = "planted5195a7b1c3d5"
SIGNED_TOKEN = "planted-signed-session-9Xc"
PROXY = "planted-proxy-password-6Ln"
ALL = [PASSWORD, SESSION, KUBE_TOKEN, POD_ENV, POD_NOTE, WAITING, ISSUED, SIGNATURE, SIGNED_TOKEN,
       PROXY, ecr_api.ACCESS_KEY, ecr_api.SECRET_KEY]


def spellings(secret, users=("pusher", "AWS", "user")):
    """The secret as it is, percent-encoded, and in base64, alone and behind a user name."""
    plain = [secret, urllib.parse.quote(secret, safe="")]
    for text in (secret, *(f"{user}:{secret}" for user in users)):
        plain.append(base64.b64encode(text.encode()).decode().rstrip("="))
    return plain


class Echo(http_base.Handler):
    """A registry, a token service, a bucket and an AWS API that quote all they are sent."""

    def quote(self):
        return f"{self.command} {self.path} " + " ".join(
            f"{name}: {value}" for name, value in self.headers.items())

    def refuse(self, status=403, headers=None):
        self.reply(status, {"errors": [{"code": "DENIED", "message": self.quote()}]},
                   headers=headers)

    def do_POST(self):
        self.reply(400, {"__type": "SignatureDoesNotMatch", "message":
                         f"The Canonical String should have been {self.quote()}"},
                   "application/x-amz-json-1.1")

    def do_GET(self):
        repository = self.path.removeprefix("/v2/flows/").partition("/")[0]
        known = self.headers.get("Authorization") is not None
        if self.path.startswith("/signed"):
            self.refuse()
        elif self.path.startswith("/token"):
            # Text that is no JSON, with the token inside.
            self.reply(200, f'{{"token": "{ISSUED}')
        elif repository == "denied":
            self.refuse(403 if known else 401, {"WWW-Authenticate": 'Basic realm="x"'})
        elif repository == "garbage":
            self.reply(200 if known else 401, self.quote(),
                       headers={"WWW-Authenticate": 'Basic realm="x"'})
        elif repository == "bearer":
            realm = f"http://{self.headers['Host']}/token"
            self.refuse(401, {"WWW-Authenticate": f'Bearer realm="{realm}",service="x"'})
        elif "/manifests/" in self.path:
            self.reply(200, json.dumps(bad_registry.manifest(1000)), bad_registry.MANIFEST)
        else:
            self.reply(307, "", headers={"Location": (
                f"/signed?X-Amz-Credential={ecr_api.ACCESS_KEY}%2F20261201&X-Amz-Security-Token="
                f"{SIGNED_TOKEN}&X-Amz-Signature={SIGNATURE}")})


class Planted(NodeTest):
    """What both kinds of test share."""

    def docker_config(self, *hosts, user="user"):
        login = base64.b64encode(f"{user}:{PASSWORD}".encode()).decode()
        path = self.lab.path(self.lab.unique("docker-config"))
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"auths": {host: {"auth": login} for host in hosts}}, file)
        return path

    def kube_token(self):
        path = self.lab.path(self.lab.unique("token"))
        with open(path, "w", encoding="utf-8") as file:
            file.write(KUBE_TOKEN)
        return ["--kubernetes-token", path]

    def create_pod(self, name, image):
        """A pod that carries secrets of its own, as people write them."""
        self.cluster.client.create("/api/v1/namespaces/default/pods", {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": {"note": POD_NOTE,
                                                       "imagefs-guard.io/note": POD_NOTE}},
            "spec": {"nodeName": NODE, "restartPolicy": "Never", "containers": [
                {"name": "main", "image": image,
                 "env": [{"name": "API_KEY", "value": POD_ENV}],
                 "command": ["run", "--key", POD_ENV]}]},
            "status": {"phase": "Pending", "containerStatuses": [
                {"name": "main", "image": image, "imageID": "", "state": {"waiting": {
                    "reason": "ImagePullBackOff",
                    "message": f"GET https://bucket/x?X-Amz-Signature={SIGNATURE}: {WAITING}"}}}]}})

    def said(self, agent):
        """All that the agent has said, by where."""
        return {
            "log": agent.process.log(),
            "events": json.dumps(self.cluster.events()),
            "node": json.dumps(self.cluster.client.get(f"/api/v1/nodes/{NODE}")),
            "metrics": agent.get("/metrics")[1],
            "readyz": agent.get("/readyz?verbose")[1],
        }

    def assert_nothing_shows(self, agent, secrets=tuple(ALL)):
        for where, text in self.said(agent).items():
            self.assertTrue(text, where)
            for secret in secrets:
                for spelling in spellings(secret):
                    at = text.find(spelling)
                    self.assertEqual(at, -1,
                                     f"{spelling} in {where}: {text[max(0, at - 200):at + 80]}")


class AllIsWell(Planted):
    """Basic auth as of ECR and of a config file; the pulls are judged and held."""

    auth = Basic(password=PASSWORD)

    @classmethod
    def prepare(cls):
        cls.image, cls.name = cls.push("etl", LAYERS)
        cls.ecr = cls.lab.enter(ecr_api.EcrApi(PASSWORD, session_token=SESSION))

    @classmethod
    def make_runtime(cls):
        return cls.lab.containerd(cls.disk, [cls.registry], hosts={ECR_HOST: cls.registry})

    def test_ecr_and_config_file(self):
        for host in (ECR_HOST, self.registry.host):
            self.cluster.kubelet.config.credentials[host] = self.registry.credentials
        policy = self.policy(
            ecr={"endpoint": self.ecr.url, "registryOverride": self.registry.url},
            registryConfigFile=self.docker_config(self.registry.host, user="AWS"))
        agent = self.start_agent(policy, self.ecr.environment, arguments=self.kube_token())
        self.leave_too_little()
        self.create_pod("ecr", f"{ECR_HOST}/flows/etl:v1")
        record = agent.wait_for("pull_held")
        self.create_pod("file", self.name)
        self.until(lambda: len(self.cluster.events("PullHeld")) >= 2, 20, "both Events")
        self.assertEqual(self.ecr.refusals, [])
        self.assertTrue(record["digest"])
        self.assert_nothing_shows(agent)


class AllIsWellWithTokens(Planted):
    auth = Bearer(password=PASSWORD, anonymous_pull=False)

    @classmethod
    def prepare(cls):
        cls.image, cls.name = cls.push("etl", LAYERS)

    def test_bearer(self):
        token_host = self.registry.token_host
        self.cluster.kubelet.config.credentials[self.registry.host] = self.registry.credentials
        agent = self.start_agent(self.policy(
            plainHttpRegistries=[self.registry.host, token_host],
            registryConfigFile=self.docker_config(self.registry.host, user="pusher")),
            arguments=self.kube_token())
        self.leave_too_little()
        self.create_pod("flow", self.name)
        agent.wait_for("pull_held")
        self.assertIn("pusher", [user for user, _ in self.auth.requests])
        self.assert_nothing_shows(agent)
        for where, text in self.said(agent).items():
            self.assertNotIn("eyJ", text, where)  # how each of these tokens begins


class ServersThatQuote(Planted):
    @classmethod
    def prepare(cls):
        cls.image, cls.name = cls.push("etl", LAYERS)
        cls.echo = cls.lab.enter(http_base.Server(Echo))

    @classmethod
    def make_runtime(cls):
        return cls.lab.containerd(cls.disk, [cls.registry])

    def test_registries_and_aws(self):
        environment = {"AWS_ACCESS_KEY_ID": ecr_api.ACCESS_KEY,
                       "AWS_SECRET_ACCESS_KEY": ecr_api.SECRET_KEY,
                       "AWS_SESSION_TOKEN": SESSION, "AWS_EC2_METADATA_DISABLED": "true",
                       "HTTPS_PROXY": f"http://user:{PROXY}@127.0.0.1:{lab.free_port()}"}
        policy = self.policy(
            plainHttpRegistries=[self.echo.host], ecr={"endpoint": self.echo.url},
            registryConfigFile=self.docker_config(self.echo.host))
        agent = self.start_agent(policy, environment, arguments=self.kube_token())
        images = {kind: f"{self.echo.host}/flows/{kind}:v1"
                  for kind in ("denied", "garbage", "bearer", "presigned")}
        images["aws"] = f"{ECR_HOST}/flows/etl:v1"
        images["proxied"] = "registry.example.com/flows/etl:v1"
        for kind, image in images.items():
            self.create_pod(kind, image)
        for kind, image in images.items():
            self.until(lambda: [record for record in agent.records("verdict")
                                if record["image"] == image], 20, f"a verdict on {kind}")
        self.until(lambda: len(self.cluster.events("PullSizeUnknown")) >= 4, 20, "the Events")
        # The servers did quote, and it did get as far as the log.
        self.assertIn("[redacted]", agent.process.log())
        self.assert_nothing_shows(agent)

    def test_api_server_and_kubelet(self):
        """Whoever answers in their place quotes the token."""
        class QuotingApi(http_base.Handler):
            def do_GET(self):
                self.reply(403, {"kind": "Status", "status": "Failure", "reason": "Forbidden",
                                 "message": f"no: {self.headers.get('Authorization')}"},
                           headers={"Audit-Id": str(self.headers.get("Authorization"))})
        with http_base.Server(QuotingApi) as server:
            agent = self.start_agent(api=server.url, kubelet=server.url,
                                     arguments=self.kube_token())
            self.until(lambda: sum("[redacted]" in text for text in agent.complaints()) >= 3, 15,
                       "complaints about pods, node and kubelet")
            self.assertIn("[redacted]", agent.get("/readyz?verbose")[1])
            self.assert_nothing_shows(agent)


if __name__ == "__main__":
    run_tests()
