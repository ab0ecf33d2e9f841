"""A real node: network namespace, image filesystem, registry, containerd, kubelet.

More than one can be up at a time; all share the lab's control plane and the machine's kernel, but
neither network, disk, runtime nor control groups.
"""

import calendar
import dataclasses
import json
import os
import re
import time

import host
import lab as lab_module
from errors import Broken
from images import ImageSpec
from kube import Kube
from processes import Process, run, wait_until

PAUSE = ImageSpec("pause", index=False)


@dataclasses.dataclass(frozen=True)
class NodeSpec:
    """What scenarios may choose about a node."""

    disk_mib: int = 2560
    filesystem: str = "ext4"
    eviction_hard: tuple = (
        ("memory.available", "100Mi"),
        ("nodefs.available", "10%"),
        ("nodefs.inodesFree", "5%"),
    )
    kubelet: tuple = ()  # more pairs for the KubeletConfiguration
    registry_mbit: int = 400  # 0 = as fast as it goes
    discard_unpacked_layers: bool = True


class Node:
    """up(), use, down(). Paths and clients that scenarios need are attributes."""

    def __init__(self, lab, name, spec, logs, labels=None):
        self.lab, self.name, self.spec, self.logs = lab, name, spec, logs
        self.labels = labels or {}
        self.index, lab.next_node = lab.next_node, lab.next_node + 1
        self.netns = f"{lab.name}-n{self.index}"
        self.group = f"{lab.name}/n{self.index}"
        self.address = f"10.99.{self.index}.2"
        # Short, for a unix socket's path has at most 107 characters.
        self.folder = os.path.join(lab.folder, f"n{self.index}")
        self.disk = os.path.join(self.folder, "disk")
        self.containerd_root = os.path.join(self.disk, "containerd")
        self.kubelet_root = os.path.join(self.disk, "kubelet")
        self.runtime_folder = os.path.join(self.folder, "run")
        self.socket = os.path.join(self.runtime_folder, "containerd.sock")
        self.processes = []
        self.containerd = self.kubelet = self.events_log = None

    def up(self):
        os.makedirs(self.runtime_folder)
        os.makedirs(self.logs, exist_ok=True)
        # Shared, as /run is where systemd runs: else no pod can mount it HostToContainer.
        run("mount", "--bind", self.runtime_folder, self.runtime_folder)
        run("mount", "--make-shared", self.runtime_folder)
        self.make_network()
        self.make_disk()
        self.start_registry()
        self.start_containerd()
        self.start_kubelet()
        wait_until(
            lambda: self.kubelet.require_alive() and self.lab.node_is_ready(self.name),
            60,
            f"node {self.name} getting Ready (logs: {self.logs})",
        )
        return self

    def make_network(self):
        i, lab_netns = self.index, self.lab.netns
        run("ip", "netns", "add", self.netns)
        run(
            "ip",
            "-n",
            lab_netns,
            "link",
            "add",
            f"n{i}",
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            self.netns,
        )
        run("ip", "-n", lab_netns, "addr", "add", f"10.99.{i}.1/24", "dev", f"n{i}")
        run("ip", "-n", lab_netns, "link", "set", f"n{i}", "up")
        run("ip", "-n", self.netns, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for name in ("lo", "eth0"):
            run("ip", "-n", self.netns, "link", "set", name, "up")
        run("ip", "-n", self.netns, "route", "add", "default", "via", f"10.99.{i}.1")
        if self.spec.registry_mbit:
            run(
                "nsenter",
                f"--net=/run/netns/{self.netns}",
                "tc",
                "qdisc",
                "add",
                "dev",
                "lo",
                "root",
                "tbf",
                "rate",
                f"{self.spec.registry_mbit}mbit",
                "burst",
                "1mbit",
                "latency",
                "50ms",
            )

    def make_disk(self):
        """A loop file; kubelet and containerd share it, as on a node with one volume."""
        image = self.disk + ".img"
        with open(image, "wb") as f:
            f.truncate(self.spec.disk_mib << 20)
        quiet = ["-q", "-m", "0"] if self.spec.filesystem == "ext4" else ["-q"]
        run(f"mkfs.{self.spec.filesystem}", *quiet, image)
        os.makedirs(self.disk)
        # `-o loop` detaches the loop device by itself at the unmount.
        run("mount", "-o", "loop", image, self.disk)
        run("mount", "--make-shared", self.disk)
        for folder in (self.containerd_root, self.kubelet_root):
            os.makedirs(folder)

    def start(self, name, argv, env=None):
        process = Process(
            name,
            argv,
            os.path.join(self.logs, f"{name}.log"),
            netns=self.netns,
            cgroups=host.make_group(f"{self.group}-daemons"),
            env=env,
        )
        self.processes.append(process)
        return process.start()

    def path(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        host.write(path, text)
        return path

    def start_registry(self):
        config = lab_module.write_registry_config(self.folder, self.lab.storage)
        self.start("registry", ["docker-registry", "serve", config])

    def start_containerd(self):
        self.path(
            f"hosts/{lab_module.REGISTRY}/hosts.toml", f'server = "http://{lab_module.REGISTRY}"\n'
        )
        self.path(
            "cni/10-lab.conflist",
            json.dumps(
                {
                    "cniVersion": "1.0.0",
                    "name": "lab",
                    "plugins": [
                        {
                            "type": "ptp",
                            "ipam": {
                                "type": "host-local",
                                "dataDir": f"{self.folder}/cni-data",
                                "subnet": f"10.98.{self.index}.0/24",
                                "routes": [{"dst": "0.0.0.0/0"}],
                            },
                        }
                    ],
                }
            ),
        )
        config = self.path("containerd.toml", self.containerd_config())
        ctr = self.lab.binaries["ctr"]
        folder = os.path.dirname(self.lab.binaries["containerd"])
        self.containerd = self.start(
            "containerd",
            [self.lab.binaries["containerd"], "--config", config],
            env={"PATH": f"{folder}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
        )
        self.containerd.wait_ready(lambda: host.run_quietly(ctr, "-a", self.socket, "version"))

        self.events_log = self.start(
            "containerd-events", [ctr, "-a", self.socket, "-n", "k8s.io", "events"]
        ).log

    def task_starts(self, since, until):
        """When containers were started, by containerd's own clock, on the monotonic one.

        The kubelet tells a pod's state once a second at best, which is too coarse for some checks.
        """
        offset = time.time() - time.monotonic()
        found = []
        with open(self.events_log, encoding="utf-8") as f:
            for line in f:
                match = re.match(r"(\S+ \S+?)(\.\d+)? \+0000 UTC \S+ /tasks/start ", line)
                if match:
                    whole = calendar.timegm(time.strptime(match[1], "%Y-%m-%d %H:%M:%S"))
                    found.append(whole + float(match[2] or 0) - offset)
        return [when for when in found if since <= when <= until]

    def containerd_config(self):
        cri = "io.containerd.cri.v1"
        discard = str(self.spec.discard_unpacked_layers).lower()
        return f"""version = 3
root = "{self.containerd_root}"
state = "{self.folder}/state"

[grpc]
  address = "{self.socket}"

[plugins."{cri}.images"]
  discard_unpacked_layers = {discard}
  [plugins."{cri}.images".pinned_images]
    sandbox = "{lab_module.REGISTRY}/pause:1"
  [plugins."{cri}.images".registry]
    config_path = "{self.folder}/hosts"

[plugins."{cri}.runtime"]
  disable_apparmor = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."{cri}.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{self.folder}/cni"
  [plugins."{cri}.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."{cri}.runtime".containerd.runtimes.runc.options]
      BinaryName = "/usr/sbin/runc"
      SystemdCgroup = false

[plugins."io.containerd.nri.v1.nri"]
  disable = true

[plugins."io.containerd.internal.v1.opt"]
  path = "{self.folder}/opt"
"""

    def start_kubelet(self):
        authority = self.lab.authority
        user = authority.issue(self.name, f"system:node:{self.name}", "system:nodes")
        serving = authority.issue(
            f"{self.name}-serving", self.name, hosts=[self.address, self.name]
        )
        self.wait_allowed(user)
        host.make_group(self.group)
        config = self.path("kubelet.json", json.dumps(self.kubelet_config(serving), indent=1))
        kubeconfig = self.lab.write_kubeconfig(self.name, user)
        self.kubelet = self.start(
            "kubelet",
            [
                self.lab.binaries["kubelet"],
                f"--config={config}",
                f"--kubeconfig={kubeconfig}",
                f"--root-dir={self.kubelet_root}",
                f"--hostname-override={self.name}",
                f"--node-ip={self.address}",
                f"--cert-dir={self.folder}/pki",
                f"--node-labels={','.join('='.join(pair) for pair in self.labels.items())}",
                "--v=2",
            ],
        )

    def wait_allowed(self, user):
        """A kubelet that starts before the API server knows its rights may stay NotReady."""
        client = Kube(lab_module.API_SERVICE, 443, self.lab.authority.certificate, *user)

        def allowed():
            try:
                client.find(f"/api/v1/nodes/{self.name}")
                client.find(f"/apis/storage.k8s.io/v1/csinodes/{self.name}")
                return True
            except Exception:  # any refusal or broken connection: ask again
                return False

        wait_until(allowed, 30, f"the API server knowing {self.name}")

    def kubelet_config(self, serving):
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "address": "0.0.0.0",
            "port": 10250,
            "readOnlyPort": 0,
            "tlsCertFile": serving[0],
            "tlsPrivateKeyFile": serving[1],
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": self.lab.authority.certificate},
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": "/" + self.group,
            "failCgroupV1": False,
            "failSwapOn": False,
            "resolvConf": "",
            "makeIPTablesUtilChains": False,
            "serializeImagePulls": False,
            "podLogsDir": f"{self.disk}/pod-logs",
            "volumePluginDir": f"{self.folder}/volume-plugins",
            "evictionHard": dict(self.spec.eviction_hard),
            "evictionPressureTransitionPeriod": "15s",
        }
        config.update(dict(self.spec.kubelet))
        return config

    def fill(self, mib):
        """Takes space from the image filesystem, as a neighbour's data would."""
        path = os.path.join(self.disk, "filler")
        run("fallocate", "-l", f"{mib}M", path)
        return path

    def unfill(self):
        os.remove(os.path.join(self.disk, "filler"))

    def down(self):
        """Containers have no say: at the end of a run everything of the node is killed at once."""
        for process in reversed(self.processes):
            if process is self.kubelet:
                process.stop(grace=1)
        host.kill_groups(self.group)
        host.kill_groups(self.group + "-daemons")
        for process in self.processes:
            process.kill()
        host.unmount_below(self.folder)
        run("ip", "netns", "del", self.netns, check=False)
        host.remove_groups(self.group)
        host.remove_groups(self.group + "-daemons")
        image = self.disk + ".img"
        if os.path.exists(image):
            os.remove(image)

    def configz(self):
        """The kubelet's live configuration, by the API server."""
        answer = self.lab.kube.get(f"/api/v1/nodes/{self.name}/proxy/configz")
        if "kubeletconfig" not in answer:
            raise Broken(f"the kubelet of {self.name} does not show its configuration")
        return answer["kubeletconfig"]
