"""What a run leaves on the machine while it lasts, and how all of it goes away again.

A run is named by its folder under /var/tmp; its network namespaces and control groups carry that
name. So `sweep()` can remove everything of a run by name alone, be it this run's own at its end,
or that of an earlier run that was killed with -9.
"""

import contextlib
import ctypes
import glob
import json
import os
import shutil
import signal
import tempfile
from errors import Broken
from processes import let_pass, run, wait_until

PARENT = "/var/tmp"
PREFIX = "igc-"
CGROUPS = "/sys/fs/cgroup"
CLONE_NEWNET = 0x40000000


def start_time_of(pid):
    """The kernel's start time of a process: with it a pid that was given anew is told apart."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rsplit(")", 1)[1].split()[19]
    except OSError:
        return None


def new_run_folder():
    folder = tempfile.mkdtemp(prefix=PREFIX, dir=PARENT)
    with open(os.path.join(folder, "owner"), "w", encoding="utf-8") as f:
        f.write(f"{os.getpid()} {start_time_of(os.getpid())}\n")
    os.chmod(folder, 0o755)
    return folder


def sweep_orphans(say):
    """Removes what runs left that were killed before they could do it themselves."""
    for folder in glob.glob(os.path.join(PARENT, PREFIX + "*")):
        try:
            with open(os.path.join(folder, "owner"), encoding="utf-8") as f:
                pid, started = f.read().split()
        except (OSError, ValueError):
            continue
        if start_time_of(pid) != started:
            say(f"removing what an earlier run left: {os.path.basename(folder)}")
            sweep(folder)


def sweep(folder):
    """Ends all processes of a run and removes its mounts, namespaces, groups and files."""
    name = os.path.basename(folder)
    kill_groups(name)
    unmount_below(folder)
    for netns in glob.glob(f"/run/netns/{name}-*"):
        run("ip", "netns", "del", os.path.basename(netns), check=False)
    remove_groups(name)
    remove_log_links(folder)
    remove_shim_sockets(folder)
    shutil.rmtree(folder, ignore_errors=True)


def remove_shim_sockets(folder):
    """containerd's shims put their sockets into one folder of the machine; bundles name them."""
    bundles = os.path.join(folder, "*", "state", "io.containerd.runtime.v2.task", "*", "*")
    for path in glob.glob(os.path.join(bundles, "bootstrap.json")):
        with contextlib.suppress(OSError, ValueError, KeyError):
            with open(path, encoding="utf-8") as f:
                os.remove(json.load(f)["address"].removeprefix("unix://"))


def remove_log_links(folder):
    """The kubelet links the logs of its pods here, whatever its own folders are."""
    links = "/var/log/containers"
    with contextlib.suppress(OSError):
        for link in os.scandir(links):
            if link.is_symlink() and os.readlink(link.path).startswith(folder + "/"):
                os.remove(link.path)
        os.rmdir(links)  # only if nothing else is in it


def unmount_below(folder):
    """Deepest first; a lazy unmount is the last resort for a mount that something still uses."""
    for _ in range(3):
        with open("/proc/self/mounts", encoding="utf-8") as f:
            points = [line.split()[1].replace("\\040", " ") for line in f]
        below = [p for p in points if p == folder or p.startswith(folder + "/")]
        if not below:
            return
        for point in reversed(below):
            if not run_quietly("umount", point):
                run_quietly("umount", "--lazy", point)


def run_quietly(*argv):
    try:
        run(*argv)
        return True
    except Broken:
        return False


# Control groups. Version 1 has one tree per controller, version 2 one for all; hybrid has both
# kinds, with the controllers in version 1.


def is_unified():
    return os.path.exists(os.path.join(CGROUPS, "cgroup.controllers"))


def group_trees():
    if is_unified():
        return [CGROUPS]
    with open("/proc/self/mounts", encoding="utf-8") as f:
        mounts = [line.split()[:3] for line in f]
    return sorted({point for _, point, kind in mounts if kind in ("cgroup", "cgroup2")})


def make_group(path):
    """Creates the group `path` (relative) in every tree; returns its folders."""
    folders = []
    for tree in group_trees():
        folder = tree
        for part in path.split("/"):
            if is_unified():
                enable_controllers(folder)
            parent, folder = folder, os.path.join(folder, part)
            os.makedirs(folder, exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                copy_if_empty(os.path.join(parent, name), os.path.join(folder, name))
        folders.append(folder)
    return folders


def enable_controllers(folder):
    with open(os.path.join(folder, "cgroup.controllers"), encoding="utf-8") as f:
        names = f.read().split()
    for name in names:
        with contextlib.suppress(OSError):
            write(os.path.join(folder, "cgroup.subtree_control"), f"+{name}")


def copy_if_empty(source, target):
    """A version 1 cpuset starts empty and takes no process until it is filled."""
    if is_unified() or not os.path.exists(target):
        return
    with open(source, encoding="utf-8") as f, open(target, encoding="utf-8") as g:
        wanted, present = f.read().strip(), g.read().strip()
    if wanted and not present:
        write(target, wanted)


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def folders_of_group(path):
    """All folders of the group in all trees, the deepest first."""
    found = []
    for tree in group_trees():
        for folder, _, _ in os.walk(os.path.join(tree, path), topdown=False):
            found.append(folder)
    return found


def pids_of_group(path):
    pids = set()
    for folder in folders_of_group(path):
        with contextlib.suppress(OSError):
            with open(os.path.join(folder, "cgroup.procs"), encoding="utf-8") as f:
                pids.update(int(line) for line in f)
    return pids - {os.getpid()}


def kill_groups(path):
    """SIGKILL to each process of our own groups, until none is left."""

    def none_left():
        pids = pids_of_group(path)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not pids

    with contextlib.suppress(Broken):
        wait_until(none_left, 10, "the end of all processes", pause=0.05)


def remove_groups(path):
    for _ in range(20):
        left = folders_of_group(path)
        for folder in left:
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        if not left:
            return
        let_pass(0.1)


# Network namespaces.


def enter_network(name):
    """Moves this thread, and all that it starts from now on, into a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{name}", "rb") as f:
        if libc.setns(f.fileno(), CLONE_NEWNET) != 0:
            raise Broken(
                f"entering the network namespace {name}: {os.strerror(ctypes.get_errno())}"
            )
