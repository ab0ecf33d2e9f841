"""A real JupyterHub: the hub as a pod on the node, KubeSpawner, the proxy in the lab.

The hub's image holds the same packages as the environment in the cache; so does the small user's,
with one more layer. All pods have the node's network, each its own port.
"""

import hashlib
import http.client
import json
import os

import image_layers
import lab as lab_module
import python_tools
from errors import Broken
from images import MIB
from observer import APP_LABEL
from processes import wait_until

NAME = "jupyterhub"
TOKEN = "scenario-token-of-this-lab-0123456789"
PROXY_TOKEN = "proxy-token-of-this-lab-0123456789"
CONFIG = os.path.join(lab_module.HERE, "components", NAME, "jupyterhub_config.py")
INSIDE = "opt/jupyter"
ENV = ("PATH=/usr/local/bin:/usr/bin:/bin", f"PYTHONPATH=/{INSIDE}", "HOME=/tmp", "LANG=C.UTF-8",
       "PYTHONDONTWRITEBYTECODE=1")
HUB_LABELS = {"app": "jupyterhub", "component": "hub", "release": "lab"}
START_SECONDS = 300  # z2jh's singleuser.startTimeout


def image(name, extra_mib=0):
    """Python and JupyterHub, with `extra_mib` of random bytes more."""
    packages = python_tools.folder_of(NAME)
    files = os.path.join(packages, "files")
    for folder in ("srv", "tmp", "usr/local/share/jupyterhub"):
        os.makedirs(os.path.join(files, folder), exist_ok=True)
    with open(CONFIG, encoding="utf-8") as f:
        config = f.read()
    with open(os.path.join(files, "srv", "jupyterhub_config.py"), "w", encoding="utf-8") as f:
        f.write(config)
    templates = os.path.join(packages, "share", "jupyterhub")
    parts = [
        ("cat", os.path.join(packages, "root.tar")),
        image_layers.tar_of(python_tools.site_packages(NAME), INSIDE),
        image_layers.tar_of(templates, "usr/local/share/jupyterhub"),
        image_layers.tar_of(files, ""),
    ]
    if extra_mib:
        extra = os.path.join(packages, f"extra-{extra_mib}")
        os.makedirs(os.path.join(extra, "data"), exist_ok=True)
        with open(os.path.join(extra, "data", "extra"), "wb") as f:
            f.write(os.urandom(extra_mib * MIB))
        parts.append(image_layers.tar_of(extra, ""))
    key = hashlib.sha256((packages + config + repr(parts)).encode()).hexdigest()
    return image_layers.FilesSpec(
        name, key, tuple(parts), (("Env", ENV), ("WorkingDir", "/tmp")),
    )


class Hub:
    """One hub for one run; users are those that have an image."""

    def __init__(self, run, users):
        self.run, self.lab, self.users = run, run.lab, users
        self.pod = None

    def start(self):
        proxy = self.lab.start(
            "proxy",
            ["--ip", "0.0.0.0", "--port", "8000", "--api-ip", "0.0.0.0", "--api-port", "8001",
             "--default-target", f"http://{self.run.node.address}:8081"],
            binary=python_tools.node_program(NAME, "configurable-http-proxy"),
            env={"CONFIGPROXY_AUTH_TOKEN": PROXY_TOKEN},
        )
        self.run.at_end.append(proxy.kill)
        self.lab.kube.apply_all(self.objects())
        self.run.wait_running("hub", seconds=60)
        wait_until(self.answers, 60, "the hub's answer")
        self.pod = self.run.observer.of_app("hub")[0]
        return self

    def objects(self):
        namespace = self.run.namespace
        rights = {"apiGroups": [""], "verbs": ["get", "list", "watch", "create", "delete", "patch"],
                  "resources": ["pods", "persistentvolumeclaims", "secrets", "services"]}
        events = {"apiGroups": [""], "verbs": ["get", "list", "watch"], "resources": ["events"]}
        group = "rbac.authorization.k8s.io"
        meta = {"name": "hub", "namespace": namespace}
        return [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
            {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta,
             "rules": [rights, events]},
            {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": meta,
             "roleRef": {"apiGroup": group, "kind": "Role", "name": "hub"},
             "subjects": [{"kind": "ServiceAccount", "name": "hub", "namespace": namespace}]},
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta,
             "spec": {
                 "replicas": 1,
                 "selector": {"matchLabels": {APP_LABEL: "hub"}},
                 "template": {"metadata": {"labels": {APP_LABEL: "hub", **HUB_LABELS}},
                              "spec": self.pod_spec()},
             }},
        ]

    def pod_spec(self):
        settings = {
            "proxy": lab_module.ADDRESS,
            "node": self.run.node.address,
            "namespace": self.run.namespace,
            "selector": self.run.selector(),
            "token": TOKEN,
            "start_timeout": START_SECONDS,
            "images": {name: self.run.image(spec).reference for name, spec in self.users.items()},
            "ports": {name: 8890 + i for i, name in enumerate(self.users)},
        }
        spec = self.run.pod_spec(image("hub"))
        spec["automountServiceAccountToken"] = True
        spec["serviceAccountName"] = "hub"
        container = spec["containers"][0]
        container.pop("args")
        container["command"] = ["/usr/bin/python3", "-m", "jupyterhub", "-f",
                                "/srv/jupyterhub_config.py"]
        container["env"] = [
            {"name": "HUB_SETTINGS", "value": json.dumps(settings)},
            {"name": "CONFIGPROXY_AUTH_TOKEN", "value": PROXY_TOKEN},
        ]
        return spec

    def request(self, method, path, body=None):
        """The status and the text of an answer of the hub's API."""
        connection = http.client.HTTPConnection(self.run.node.address, 8081, timeout=30)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, "/hub/api" + path, data,
                               {"Authorization": f"token {TOKEN}"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def answers(self):
        try:
            return self.request("GET", "/info")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def spawn(self, user):
        for path in (f"/users/{user}", f"/users/{user}/server"):
            status, text = self.request("POST", path)
            if status not in (201, 202):
                raise Broken(f"the hub answered {status} to {path}: {text}")

    def is_ready(self, user):
        status, text = self.request("GET", f"/users/{user}")
        servers = json.loads(text).get("servers", {}) if status == 200 else {}
        return bool(servers.get("", {}).get("ready"))

    def progress(self, user, seconds):
        """The messages that the user's browser would show, of the first seconds."""
        connection = http.client.HTTPConnection(self.run.node.address, 8081, timeout=seconds)
        messages = []
        try:
            connection.request("GET", f"/hub/api/users/{user}/server/progress",
                               headers={"Authorization": f"token {TOKEN}"})
            answer = connection.getresponse()
            for line in answer:
                if line.startswith(b"data:"):
                    messages.append(json.loads(line[5:])["message"])
        except (TimeoutError, ValueError, KeyError):
            pass  # it goes on for as long as the server is not ready
        finally:
            connection.close()
        return messages
