"""The coordinator under test: the real binary in the lab's network, with its account's token."""

import os

import host
import lab as lab_module
from agent import NAMESPACE, Agent
from processes import Process

ACCOUNT = "imagefs-guard-coordinator"


class Coordinator(Agent):
    """Starts it; its log is read like an agent's."""

    def __init__(self, run, binary):
        super().__init__(run.node, binary)
        self.run = run
        self.log = os.path.join(run.logs, "coordinator.log")

    def start(self):
        lab = self.run.lab
        answer = lab.kube.create(
            f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": 3607},
            },
        )
        token = os.path.join(lab.folder, "coordinator-token")
        host.write(token, answer["status"]["token"])
        self.process = Process(
            "coordinator",
            [
                self.binary, "coordinator",
                "--kubernetes-api", lab_module.API,
                "--kubernetes-token", token,
                "--kubernetes-ca", lab.authority.certificate,
                "--namespace", NAMESPACE,
                "--log-level", "debug",
            ],
            self.log,
            netns=lab.netns,
            cgroups=lab.group(),
        ).start()
        return self
