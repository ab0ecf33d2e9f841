"""Builds the real components from Go modules, once, into a cache folder.

Each group below has its own go.mod and go.sum under components/, which pin every byte. What was
built is kept in <cache>/<group>-<key>, where the key is a hash of those files and of the flags: a
later run with the same pins skips the build.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import threading
import time

from errors import Unable

HERE = os.path.dirname(os.path.abspath(__file__))
GO_MINIMUM = (1, 24)
GO_PLACES = ["/usr/local/go/bin/go", "/usr/lib/go/bin/go", "/usr/lib/go-1.24/bin/go"]
PROGRESS_SECONDS = 15


@dataclasses.dataclass
class Group:
    """One Go module and the commands that are built from it."""

    name: str
    packages: dict  # name of the binary: package path
    tags: str = ""
    ldflags: str = "-s -w"


def kubernetes_ldflags(version):
    """Without these the kubelet calls itself v0.0.0."""
    major, minor = version.lstrip("v").split(".")[:2]
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    flags = ["-s -w"]
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        flags += [f"-X {package}.{key}={value}" for key, value in values.items()]
    return " ".join(flags)


def pinned_version(group, module):
    with open(os.path.join(HERE, "components", group, "go.mod"), encoding="utf-8") as f:
        return re.search(rf"^(?:require)?\s*{re.escape(module)} (v\S+)", f.read(), re.M).group(1)


def groups():
    kubernetes = [
        "kubelet",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubectl",
    ]
    containerd = ["containerd", "containerd-shim-runc-v2", "ctr"]
    return [
        Group("etcd", {"etcd": "go.etcd.io/etcd/server/v3"}),
        Group(
            "containerd",
            {name: f"github.com/containerd/containerd/v2/cmd/{name}" for name in containerd},
            tags="no_btrfs,no_devmapper,no_zfs",
        ),
        Group(
            "kubernetes",
            {name: f"k8s.io/kubernetes/cmd/{name}" for name in kubernetes},
            ldflags=kubernetes_ldflags(pinned_version("kubernetes", "k8s.io/kubernetes")),
        ),
        Group("helm", {"helm": "helm.sh/helm/v3/cmd/helm"}),
    ]


def cache_folder():
    """Where everything that takes long to make is kept; git ignores the default."""
    root = os.path.dirname(os.path.dirname(HERE))
    base = os.environ.get("IMAGEFS_GUARD_CACHE") or os.path.join(root, ".cache")
    return os.path.join(os.path.abspath(base), "cluster")


def key_of(group):
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "tools.go"):
        with open(os.path.join(HERE, "components", group.name, name), "rb") as f:
            digest.update(f.read() + b"\0")
    digest.update(repr((sorted(group.packages.items()), group.tags, group.ldflags)).encode())
    return digest.hexdigest()[:16]


def find_go():
    """The path of a Go that is new enough; says in one sentence how to get one if there is none."""
    how = (
        "install it from go.dev/dl or from Debian's bookworm-backports (golang-go) and put "
        "its `go` on PATH"
    )
    found = ""
    for path in [shutil.which("go"), *GO_PLACES]:
        if not path or not os.access(path, os.X_OK):
            continue
        said = subprocess.run(
            [path, "env", "GOVERSION"],
            capture_output=True,
            text=True,
            env=go_environment(path),
            check=False,
        ).stdout.strip()
        match = re.match(r"go(\d+)\.(\d+)", said)
        if match and (int(match[1]), int(match[2])) >= GO_MINIMUM:
            return path
        found = f" ({path} is {said or 'broken'})"
    wanted = ".".join(map(str, GO_MINIMUM))
    raise Unable(
        f"The real cluster is built with Go {wanted} or newer, which is missing{found}: {how}."
    )


def go_environment(go):
    """The caller's environment, so that its module proxy and build cache are used as they are."""
    env = dict(os.environ, CGO_ENABLED="0", GOWORK="off")
    env["GOFLAGS"] = "-mod=readonly -buildvcs=false -trimpath"
    env["PATH"] = os.path.dirname(go) + ":" + env.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
    # Debian's Go, unlike Go's own, would not fetch the newer Go that some of the pins need.
    env.setdefault("GOTOOLCHAIN", "auto")
    if not env.get("HOME"):
        env["HOME"] = os.path.join(cache_folder(), "home")
    return env


@contextlib.contextmanager
def locked(folder):
    """Two runs at once must not build the same thing twice."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "lock"), "w", encoding="utf-8") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def build(say):
    """Returns {name of a binary: its path}, building what the cache does not have."""
    cache = cache_folder()
    missing = [g for g in groups() if not is_built(cache, g)]
    if missing:
        go = find_go()
        with locked(cache):
            for group in missing:
                if not is_built(cache, group):
                    build_group(go, cache, group, say)
    return {
        name: os.path.join(cache, f"{g.name}-{key_of(g)}", name)
        for g in groups()
        for name in g.packages
    }


def is_built(cache, group):
    return os.path.isdir(os.path.join(cache, f"{group.name}-{key_of(group)}"))


def build_group(go, cache, group, say):
    """Builds into a partial folder that is renamed at the end: no half cache after Ctrl-C."""
    started = time.monotonic()
    final = os.path.join(cache, f"{group.name}-{key_of(group)}")
    partial = final + ".partial"
    shutil.rmtree(partial, ignore_errors=True)
    os.makedirs(partial)
    module = os.path.join(HERE, "components", group.name)
    log_path = os.path.join(cache, f"build-{group.name}.log")
    packages = list(group.packages.values())
    env = go_environment(go)
    say(f"building {', '.join(group.packages)} (log: {log_path})")
    tags = [f"-tags={group.tags}"] if group.tags else []
    listing = subprocess.run(
        [go, "list", "-deps", *tags, *packages],
        cwd=module,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    total = len(listing.stdout.splitlines())
    with open(log_path, "w+", encoding="utf-8") as log:
        # One name is not enough for `-o FILE` with several packages, and with a folder the name is
        # the last part of the package path, which etcd's is not ("v3"): so one package goes alone.
        single = len(packages) == 1
        out = os.path.join(partial, next(iter(group.packages))) if single else partial + "/"
        command = ["nice", "-n", "5", go, "build", "-v", *tags, f"-ldflags={group.ldflags}"]
        command += ["-o", out, *packages]
        process = subprocess.Popen(
            command, cwd=module, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        stop = threading.Event()
        reporter = threading.Thread(
            target=report_progress,
            daemon=True,
            args=(stop, log_path, group.name, total, started, say),
        )
        reporter.start()
        try:
            code = process.wait()
        finally:
            stop.set()
            if process.poll() is None:
                process.send_signal(signal.SIGINT)  # go ends its compilers, too
                process.wait()
    if code != 0:
        with open(log_path, encoding="utf-8") as log:
            tail = "".join(log.readlines()[-15:])
        raise Unable(f"Building {group.name} failed; the end of {log_path}:\n{tail}")
    os.rename(partial, final)
    say(f"built {group.name} in {time.monotonic() - started:.0f} s")


def report_progress(stop, log_path, name, total, started, say):
    """`go build -v` names each package it compiles; those in Go's own cache are not named."""
    while not stop.wait(PROGRESS_SECONDS):
        with open(log_path, encoding="utf-8", errors="replace") as log:
            done = sum(1 for line in log if not line.startswith(("go:", "#")))
        say(
            f"  {name}: {done} of up to {total} packages compiled, "
            f"{time.monotonic() - started:.0f} s"
        )
