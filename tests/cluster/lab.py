"""The control plane of a run: etcd, API server, controller manager, scheduler and the registry's
storage, in a network namespace of their own. Nodes hang on it by a veth pair each.

Addresses (nothing of this is visible outside the run's own namespaces):
  10.99.0.1          the control plane
  10.96.0.1:443      the same API server as pods know it: no kube-proxy is needed
  10.99.<i>.2        node i, with its route over 10.99.<i>.1
  127.0.0.1:5000     the registry: one process in each node's namespace on the same storage, so
                     that its speed can be limited without touching the node's other traffic
"""

import glob
import json
import os
import shutil

import components
import host
import image_layers
import images
from kube import Kube, condition_of
from pki import Authority
from processes import Process, run, wait_until

ADDRESS = "10.99.0.1"
SERVICES = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
REGISTRY = "127.0.0.1:5000"
API = f"https://{API_SERVICE}:443"
SHIPPED = ("rbac.yaml", "admission.yaml", "coordinator-admission.yaml", "flowschema.yaml")
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


class Lab:
    """One control plane; nodes come and go while it runs."""

    def __init__(self, folder, logs, binaries, say):
        self.folder, self.logs, self.binaries, self.say = folder, logs, binaries, say
        self.name = os.path.basename(folder)
        self.netns = f"{self.name}-lab"
        self.image_cache = make_image_cache()
        self.storage = os.path.join(self.image_cache, "registry")
        self.processes = []
        self.images = {}
        self.next_node = 1
        self.prefect_servers = {}  # see prefect_lab.py
        self.authority = self.kube = self.kubeconfig = self.registry = self.pause = None

    def up(self):
        """Starts everything; the calling thread is in the lab's network afterwards."""
        self.make_network()
        host.enter_network(self.netns)
        self.authority = Authority(os.path.join(self.folder, "pki"))
        admin = self.authority.issue("admin", "admin", "system:masters")
        self.kubeconfig = self.write_kubeconfig("admin", admin)
        self.kube = Kube(API_SERVICE, 443, self.authority.certificate, *admin)
        self.start_registry()
        self.start_api_server()
        for name in ("kube-controller-manager", "kube-scheduler"):
            self.start(name, self.control_arguments(name))
        self.apply_agent_manifests()
        return self

    def make_network(self):
        run("ip", "netns", "add", self.netns)
        for link in (
            ["link", "set", "lo", "up"],
            ["addr", "add", f"{ADDRESS}/32", "dev", "lo"],
            ["addr", "add", f"{API_SERVICE}/32", "dev", "lo"],
        ):
            run("ip", "-n", self.netns, *link)
        run(
            "nsenter",
            f"--net=/run/netns/{self.netns}",
            "sh",
            "-c",
            "echo 1 > /proc/sys/net/ipv4/ip_forward",
        )

    def group(self):
        return host.make_group(f"{self.name}/lab")

    def start(self, name, arguments, binary=None, env=None):
        process = Process(
            name,
            [binary or self.binaries[name], *arguments],
            os.path.join(self.logs, f"{name}.log"),
            netns=self.netns,
            cgroups=self.group(),
            env=env,
        )
        self.processes.append(process)
        return process.start()

    def start_registry(self):
        self.pause = images.compile_pause(self.folder)
        self.registry = images.Registry(REGISTRY)
        config = write_registry_config(self.folder, self.storage)
        process = self.start("registry", ["serve", config], binary="docker-registry")
        process.wait_ready(self.registry.ready)

    def start_api_server(self):
        data = os.path.join(self.folder, "etcd")
        etcd = self.start(
            "etcd",
            [
                "--data-dir",
                data,
                "--unsafe-no-fsync",
                "--log-level",
                "warn",
                "--listen-client-urls",
                "http://127.0.0.1:2379",
                "--advertise-client-urls",
                "http://127.0.0.1:2379",
                "--listen-peer-urls",
                "http://127.0.0.1:2380",
            ],
        )
        serving, serving_key = self.authority.issue(
            "kube-apiserver",
            "kube-apiserver",
            hosts=[ADDRESS, API_SERVICE, "127.0.0.1", "kubernetes.default.svc"],
        )
        accounts = self.authority.issue("accounts", "accounts")[1]
        client, client_key = self.authority.issue(
            "kubelet-client", "kubelet-client", "system:masters"
        )
        api_server = self.start(
            "kube-apiserver",
            [
                "--etcd-servers=http://127.0.0.1:2379",
                "--secure-port=443",
                "--bind-address=0.0.0.0",
                f"--advertise-address={ADDRESS}",
                f"--service-cluster-ip-range={SERVICES}",
                f"--tls-cert-file={serving}",
                f"--tls-private-key-file={serving_key}",
                f"--client-ca-file={self.authority.certificate}",
                f"--kubelet-certificate-authority={self.authority.certificate}",
                f"--kubelet-client-certificate={client}",
                f"--kubelet-client-key={client_key}",
                "--kubelet-preferred-address-types=InternalIP",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={accounts}",
                f"--service-account-signing-key-file={accounts}",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                "--allow-privileged=true",
                "--v=1",
            ],
        )
        api_server.wait_ready(lambda: etcd.require_alive() and self.kube.ready())

    def control_arguments(self, name):
        arguments = [f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--v=2"]
        if name == "kube-controller-manager":
            arguments += [
                f"--root-ca-file={self.authority.certificate}",
                f"--service-account-private-key-file={self.authority.path('accounts.key')}",
            ]
        return arguments

    def write_kubeconfig(self, name, pair):
        """JSON is YAML, so kubectl and the daemons read it."""
        certificate, key = pair
        path = os.path.join(self.folder, f"{name}.kubeconfig")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "lab",
                    "clusters": [
                        {
                            "name": "lab",
                            "cluster": {
                                "server": API,
                                "certificate-authority": self.authority.certificate,
                            },
                        }
                    ],
                    "users": [
                        {
                            "name": name,
                            "user": {"client-certificate": certificate, "client-key": key},
                        }
                    ],
                    "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": name}}],
                },
                f,
            )
        return path

    def kubectl(self, *arguments):
        return run(
            self.binaries["kubectl"],
            f"--kubeconfig={self.kubeconfig}",
            f"--cache-dir={self.folder}/kubectl",
            *arguments,
        )

    def apply_agent_manifests(self):
        """The DaemonSet's own rights and admission policies, so that what is shipped is tested."""
        base = os.path.join(ROOT, "daemonset", "base")
        files = [f"--filename={os.path.join(base, name)}" for name in SHIPPED]
        self.kubectl("apply", *files)

    def push(self, spec):
        """Pushes an image once; nodes find it in their own registry at once."""
        if spec not in self.images:
            with components.locked(self.image_cache):
                if isinstance(spec, image_layers.FilesSpec):
                    self.images[spec] = image_layers.push_once(
                        self.registry, spec, self.image_cache, self.say
                    )
                else:
                    self.images[spec] = self.registry.push_once(
                        spec, self.pause, self.image_cache, self.say
                    )
        return self.images[spec]

    def make_namespace(self, name):
        """Creates a namespace that pods can be created in at once."""
        self.kube.apply_all([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}])
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        wait_until(lambda: self.kube.find(account), 30, f"the default account of {name}")

    def node_is_ready(self, name):
        node = self.kube.find(f"/api/v1/nodes/{name}")
        return (
            node is not None
            and condition_of(node, "Ready") == "True"
            and not any(
                taint["key"].startswith("node.kubernetes.io/")
                for taint in node["spec"].get("taints") or []
            )
        )

    def down(self):
        """Nothing of the control plane is kept, so nothing needs to end in order."""
        for process in reversed(self.processes):
            process.kill()
        self.processes = []


def make_image_cache():
    """The registry's storage outlives a run: making the images takes longer than using them."""
    cache, wanted = components.cache_folder(), f"images-{images.cache_key()}"
    for old in glob.glob(os.path.join(cache, "images-*")):
        if os.path.basename(old) != wanted:
            shutil.rmtree(old, ignore_errors=True)
    folder = os.path.join(cache, wanted)
    os.makedirs(folder, exist_ok=True)
    return folder


def write_registry_config(folder, storage):
    path = os.path.join(folder, "registry.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(
            {
                "version": "0.1",
                "log": {"level": "warn", "accesslog": {"disabled": True}},
                "storage": {"filesystem": {"rootdirectory": storage}},
                "http": {"addr": REGISTRY},
            },
            f,
        )
    return path
