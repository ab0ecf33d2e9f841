#!/usr/bin/python3
"""A node to try things on: a loop-mounted image filesystem, a private containerd, registries.

Used by daemonset/quickstart and the integration tests:

    with Lab() as lab:
        disk = lab.image_filesystem(640 << 20)
        registry = lab.registry()
        runtime = lab.containerd(disk, [registry])

Everything that a Lab starts or mounts is gone when the block ends, also after Ctrl-C, SIGTERM or
an exception. After a kill -9 of this process its children die too (parent-death signal) and the
mounts go with the private mount namespace; only a directory under /tmp stays.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from containerd_client import Client, Error

STOP_SECONDS = 5.0
START_SECONDS = 30.0
CLONE_NEWNS = 0x00020000
# Debian keeps mkfs and losetup here, and a plain `su` doesn't have it in its PATH.
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Missing(Exception):
    """Something that this machine doesn't give: a right, a tool, a kernel feature."""


class Failed(Exception):
    """A part of the lab that did not come up; the text holds the end of its log."""


def require(tools=()):
    """Raises Missing with one clear sentence where the lab can't work on this machine."""
    if os.geteuid() != 0:
        raise Missing("This needs root: it mounts a loop device and runs its own containerd.")
    absent = [tool for tool in tools if shutil.which(tool, path=SYSTEM_PATH) is None]
    if absent:
        raise Missing(f"Not installed: {', '.join(absent)}; run tests/packages integration.")
    if not os.path.exists("/dev/loop-control"):
        raise Missing("This machine has no loop devices (/dev/loop-control), so no image "
                      "filesystem can be mounted.")


def run_tests(tools=("containerd", "docker-registry", "skopeo")):
    """unittest.main() for tests that need a lab; exit 77 says "skipped" to meson."""
    try:
        require(tools)
    except Missing as error:
        print(f"skipped: {error}")
        sys.exit(77)
    unittest.main()


def wait_until(condition, seconds=START_SECONDS, period=0.05, what="the condition"):
    """Polls until condition() is true and returns its value; raises Failed after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failed(f"{what}: not within {seconds:g} s")
        time.sleep(period)


def free_port():
    """A TCP port on loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Process:
    """A child with its own process group and a log file. Made by Lab.spawn()."""

    def __init__(self, name, argv, log_path, env=None):
        self.name = name
        self.log_path = log_path
        with open(log_path, "ab") as log:
            # setpriv: the child is killed when this process dies, whatever it dies of.
            self.popen = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *argv], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, env={"PATH": SYSTEM_PATH, **(env or {})},
                start_new_session=True)
        self.pid = self.popen.pid

    def running(self):
        return self.popen.poll() is None

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def log_end(self, lines=5):
        return "\n".join(self.log().splitlines()[-lines:])

    def signal(self, number):
        """Sends a signal to the child alone, if it still runs."""
        if self.running():
            self.popen.send_signal(number)

    def stop(self, seconds=STOP_SECONDS):
        """SIGTERM, then SIGKILL for its whole group; returns the exit code."""
        self.signal(signal.SIGTERM)
        try:
            self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        # What it left behind, such as an unpigz of containerd.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        return self.popen.wait()

    def wait(self, seconds):
        """The exit code, or None if it still runs after `seconds`."""
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return None


class Filesystem:
    """A loop-mounted filesystem, small enough to fill."""

    def __init__(self, path):
        self.path = path
        self._filler = os.path.join(path, "filler")

    def available_bytes(self):
        """As the kubelet counts: f_frsize * f_bavail."""
        stat = os.statvfs(self.path)
        return stat.f_frsize * stat.f_bavail

    def capacity_bytes(self):
        stat = os.statvfs(self.path)
        return stat.f_frsize * stat.f_blocks

    def fill(self, size_bytes):
        """Takes `size_bytes` with one file, in place of the filler before."""
        self.remove_filler()
        with open(self._filler, "wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, size_bytes)

    def fill_to(self, available_bytes):
        """Leaves about this many bytes available."""
        self.remove_filler()
        self.fill(max(1, self.available_bytes() - available_bytes))

    def remove_filler(self):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._filler)


class Lab:
    """Owns a temporary directory and all that is started in it; see the module's text."""

    def __init__(self, keep_directory=False, private_mounts=True):
        self._keep_directory = keep_directory
        self._private_mounts = private_mounts
        self._stack = contextlib.ExitStack()
        self._handlers = {}
        self._names = {}

    def __enter__(self):
        require(["setpriv", "mount", "losetup"])
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("a Lab belongs to the main thread: its children die with it")
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._handlers[number] = signal.signal(number, _leave)
        if self._private_mounts:
            _unshare_mounts()
        self.directory = tempfile.mkdtemp(prefix="imagefs-guard-")
        os.chmod(self.directory, 0o755)
        if not self._keep_directory:
            self._stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
        self._stack.callback(unmount_all, self.directory)
        return self

    def __exit__(self, *exception):
        # A second Ctrl-C must not leave half of it behind.
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in self._handlers:
            signal.signal(number, signal.SIG_IGN)
        try:
            self._stack.__exit__(*exception)
        finally:
            signal.signal(signal.SIGINT, interrupt)
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
        return False

    def path(self, *parts):
        return os.path.join(self.directory, *parts)

    def unique(self, name):
        """`name`, then `name-2`, `name-3` for directories and logs."""
        self._names[name] = self._names.get(name, 0) + 1
        return name if self._names[name] == 1 else f"{name}-{self._names[name]}"

    def enter(self, context):
        """Enters a context manager that is left when the lab is."""
        return self._stack.enter_context(context)

    def spawn(self, name, argv, env=None):
        """Starts a program; it is stopped when the lab ends."""
        name = self.unique(name)
        process = Process(name, [str(part) for part in argv], self.path(f"{name}.log"), env)
        self._stack.callback(process.stop)
        return process

    def image_filesystem(self, size_bytes, kind="ext4"):
        """A new, empty ext4 or xfs of `size_bytes` on a sparse loop file."""
        if kind not in ("ext4", "xfs"):
            raise ValueError(f"no such filesystem: {kind}")
        require([f"mkfs.{kind}"])
        name = self.unique("imagefs")
        image, path = self.path(f"{name}.img"), self.path(name)
        with open(image, "wb") as backing:
            backing.truncate(size_bytes)
        options = {"ext4": ["-q", "-m", "0", "-b", "4096", "-E", "lazy_itable_init=0"],
                   "xfs": ["-q"]}[kind]
        run([f"mkfs.{kind}", *options, image])
        os.mkdir(path)
        try:
            run(["mount", "-o", "loop", image, path])
        except Failed as error:
            raise Missing(f"A loop device can't be mounted here: {error}") from None
        self._stack.callback(_detach, image, path)
        return Filesystem(path)

    def registry(self, auth=None, bytes_per_second=0):
        """A docker-registry; `auth` is None, Basic(...) or Bearer(...) from registry.py."""
        from registry import Registry
        return self.enter(Registry(self, auth, bytes_per_second))

    def containerd(self, filesystem, registries=(), **options):
        """A private containerd with its root on `filesystem`; see Containerd."""
        return self.enter(Containerd(self, filesystem, registries, **options))


class Containerd:
    """A containerd with own root, state, socket and CNI directory: it meets no other one.

    `hosts` maps more image hosts to registries, such as an ECR name to a loopback one.
    """

    def __init__(self, lab, filesystem, registries=(), *, hosts=None, discard_unpacked_layers=True,
                 binary="containerd"):
        self._lab = lab
        self._binary = binary
        self.filesystem = filesystem
        self.directory = lab.path(lab.unique("containerd"))
        self.root = os.path.join(filesystem.path, "containerd")
        self.socket = os.path.join(self.directory, "containerd.sock")
        self._discard = discard_unpacked_layers
        self._hosts = {registry.host: registry.url for registry in registries}
        self._hosts.update({host: registry.url for host, registry in (hosts or {}).items()})
        self.process = None

    def __enter__(self):
        require([self._binary])
        for part in ("certs.d", "cni-conf", "opt"):
            os.makedirs(os.path.join(self.directory, part))
        for host, url in self._hosts.items():
            folder = os.path.join(self.directory, "certs.d", host)
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, "hosts.toml"), "w", encoding="utf-8") as hosts:
                hosts.write(f'server = "{url}"\n[host."{url}"]\n'
                            'capabilities = ["pull", "resolve"]\n')
        with open(self._config_path(), "w", encoding="utf-8") as config:
            config.write(self._config())
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        """Starts it, or starts it again, and waits until its CRI answers."""
        self.process = self._lab.spawn("containerd",
                                       [self._binary, "--config", self._config_path()])
        wait_until(self._answers, what="containerd")

    def stop(self):
        if self.process is not None:
            self.process.stop()

    def reset(self):
        """Starts again with nothing: no image, lease or pull of before is left."""
        self.stop()
        unmount_all(self.root)
        shutil.rmtree(self.root, ignore_errors=True)
        self.start()

    def client(self):
        return Client(self.socket)

    def _answers(self):
        if not self.process.running():
            raise Failed(f"containerd ended: {self.process.log_end()}")
        try:
            self.client().list_images()
            return True
        except Error:
            return False

    def _config_path(self):
        return os.path.join(self.directory, "config.toml")

    def _config(self):
        # Version 2 is read by 1.6 to 2.x.
        return f"""version = 2
root = "{self.root}"
state = "{self.directory}/state"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "{self.socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{self.directory}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/not-used:none"
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{self.directory}/cni-bin"
    conf_dir = "{self.directory}/cni-conf"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    discard_unpacked_layers = {str(self._discard).lower()}
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{self.directory}/certs.d"
"""


def run(argv, **options):
    """Runs a tool to its end; raises Failed with its last line of complaint."""
    options.setdefault("env", {**os.environ, "PATH": SYSTEM_PATH})
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False, **options)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise Failed(f"{argv[0]}: {lines[-1]}")
    return done.stdout


def unmount_all(directory):
    """Unmounts all that is mounted under `directory`, the deepest first."""
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        points = [line.split()[1].encode().decode("unicode_escape") for line in mounts]
    inside = [point for point in points if point.startswith(directory + "/")]
    for point in sorted(inside, key=len, reverse=True):
        if subprocess.run(["umount", point], capture_output=True, check=False).returncode != 0:
            subprocess.run(["umount", "-l", point], capture_output=True, check=False)


def _detach(image, path):
    unmount_all(path)
    subprocess.run(["umount", path], capture_output=True, check=False)
    # umount frees the loop device as well, unless something still held the mount.
    listed = subprocess.run(["losetup", "-j", image, "-n", "-O", "NAME"], capture_output=True,
                            text=True, check=False).stdout
    for device in listed.split():
        subprocess.run(["losetup", "-d", device], capture_output=True, check=False)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(image)


def _leave(number, _frame):
    raise SystemExit(128 + number)


def _unshare_mounts():
    """A mount namespace of our own: no other process sees, or is kept busy by, our mounts."""
    if _unshare_mounts.done:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        raise Missing("A mount namespace can't be made here: "
                      f"{os.strerror(ctypes.get_errno())}.")
    run(["mount", "--make-rprivate", "/"])
    _unshare_mounts.done = True


_unshare_mounts.done = False
