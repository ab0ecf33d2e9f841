"""Makes the file trees that become layers: Debian by mmdebstrap, packages by apt, pip and npm.

A step makes one tree, as one line of a Dockerfile makes one layer: apt and shell steps run in a
chroot on an overlay of all that is below, so that what they delete or replace is in the tree as
whiteouts and copies, like in real images. Trees are kept in the cache, by what they are made of.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import os
import random
import shutil
import subprocess
import time

from lab import SYSTEM_PATH, Failed

MIB = 1 << 20
SITE = "usr/local/lib/python3.11/dist-packages"  # where Debian 12's Python looks
STEP_SECONDS = 1800
RETRIES = 2
ERROR_LINES = 5


@dataclasses.dataclass(frozen=True)
class Step:
    """One tree: how it is made and of what. Only apt and shell depend on what is below them."""

    kind: str  # debian, apt, shell, pip, npm, files
    what: tuple

    @property
    def needs_below(self):
        return self.kind in ("apt", "shell")

    def __str__(self):
        return f"{self.kind} {' '.join(map(str, self.what))}"


def debian(variant, *include):
    return Step("debian", (variant, *include))


def apt(*packages):
    return Step("apt", packages)


def shell(script):
    return Step("shell", (script,))


def pip(*packages):
    return Step("pip", packages)


def npm(*packages):
    return Step("npm", packages)


def files(form, amount):
    """Made-up files: random, zeros (MiB), small, links (how many)."""
    return Step("files", (form, amount))


class Workshop:
    """Makes trees below `folder`, each once."""

    def __init__(self, folder, say):
        self._folder = folder
        self._say = say
        os.makedirs(folder, exist_ok=True)

    def key(self, steps):
        """Names the tree of the last of `steps`; the rest is what it lies on."""
        parts = list(steps) if steps[-1].needs_below else [steps[-1]]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def tree(self, steps):
        """The folder of the last step's tree; made now if it is not there."""
        steps = tuple(steps)
        path = os.path.join(self._folder, self.key(steps))
        with open(f"{path}.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two runs may share the cache
            if not os.path.exists(os.path.join(path, "done")):
                self._make_anew(steps, path)
        return os.path.join(path, "tree")

    def _make_anew(self, steps, path):
        step = steps[-1]
        lowers = [self.tree(steps[:count]) for count in range(1, len(steps))] \
            if step.needs_below else []
        self._say(f"making: {step}")
        started = time.monotonic()
        for attempt in range(RETRIES + 1):
            shutil.rmtree(path, ignore_errors=True)
            tree = os.path.join(path, "tree")
            os.makedirs(tree, mode=0o755)
            try:
                self._make(step, path, tree, lowers)
                break
            except Failed as error:
                if attempt == RETRIES:
                    raise Failed(f"{step}: {error}") from None
                self._say(f"once more: {step} ({str(error).splitlines()[-1]})")
        with open(os.path.join(path, "done"), "w", encoding="utf-8") as done:
            done.write(f"{step}\n")
        self._say(f"made in {time.monotonic() - started:.0f} s: {step}")

    def _make(self, step, path, tree, lowers):
        what = list(step.what)
        if step.kind == "debian":
            sources = [os.path.join("/etc/apt", name) for name in
                       ("sources.list.d/debian.sources", "sources.list")]
            source = next(name for name in sources if os.path.exists(name))
            include = [f"--include={','.join(what[1:])}"] if what[1:] else []
            tool("mmdebstrap", "--quiet", "--mode=root", f"--variant={what[0]}", *include,
                 "bookworm", tree, source)
        elif step.kind == "apt":
            self._chroot(path, tree, lowers,
                         "apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install "
                         f"--yes --no-install-recommends {' '.join(what)} && "
                         "rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin")
        elif step.kind == "shell":
            self._chroot(path, tree, lowers, what[0])
        elif step.kind == "pip":
            tool(*find_pip(), "install", "--quiet", "--target", os.path.join(tree, SITE),
                 "--only-binary=:all:", "--no-warn-conflicts", *what)
        elif step.kind == "npm":
            app = os.path.join(tree, "app")
            os.makedirs(app)
            tool("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", app, *what,
                 PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD="1")
        else:
            make_files(tree, *what)

    def _chroot(self, path, tree, lowers, script):
        """Runs a script on an overlay; what it changes lands in `tree`."""
        merged, work = os.path.join(path, "merged"), os.path.join(path, "work")
        os.makedirs(merged)
        os.makedirs(work)
        # The mount's options have one page of room: short names, the topmost first.
        names = []
        for number, lower in enumerate(lowers):
            os.symlink(lower, os.path.join(path, str(number)))
            names.insert(0, os.path.join(path, str(number)))
        with contextlib.ExitStack() as stack:
            mount(stack, "overlay", merged, "-o",
                  f"lowerdir={':'.join(names)},upperdir={tree},workdir={work}")
            mount(stack, "proc", os.path.join(merged, "proc"))
            resolver = os.path.join(merged, "etc/resolv.conf")
            had_one = os.path.lexists(resolver)
            if not had_one:
                shutil.copyfile("/etc/resolv.conf", resolver)
            tool("chroot", merged, "/bin/sh", "-ec", script, LC_ALL="C.UTF-8")
            if not had_one:
                os.unlink(resolver)


def mount(stack, kind, target, *options):
    tool("mount", "-t", kind, *options, kind, target)
    stack.callback(subprocess.run, ["umount", "-l", target], capture_output=True, check=False)


def find_pip():
    for name in ("pip3", "pip"):
        if path := shutil.which(name):
            return [path]
    raise Failed("there is no pip; install python3-pip")


def tool(*argv, **variables):
    """Runs a tool to its end; raises Failed with the end of what it says."""
    environment = {**os.environ, "PATH": f"{SYSTEM_PATH}:{os.environ.get('PATH', '')}",
                   **variables}
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", check=False, env=environment,
                              timeout=STEP_SECONDS)
    except subprocess.TimeoutExpired:
        raise Failed(f"{argv[0]}: not done after {STEP_SECONDS} s") from None
    except FileNotFoundError:
        raise Failed(f"{argv[0]} is not installed; see tests/bench/README.md") from None
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-ERROR_LINES:]
        raise Failed("\n".join([f"{argv[0]} failed", *said]))


def make_files(tree, form, amount):
    """Files whose bytes depend on nothing but form and amount."""
    rng = random.Random(f"{form}/{amount}")
    top = os.path.join(tree, "data", form)
    os.makedirs(top)
    if form in ("random", "zeros"):
        # Four files of unequal length, as the parts of a model are.
        left = amount * MIB
        for number, size in enumerate((left // 2, left // 4, left // 8)):
            write_file(os.path.join(top, f"part-{number}.bin"), size + number, form, rng)
            left -= size + number
        write_file(os.path.join(top, "part-3.bin"), left, form, rng)
    elif form == "small":
        for number in range(amount):
            folder = os.path.join(top, f"{number // 1000:03}", f"{number // 50 % 20:02}")
            if number % 50 == 0:
                os.makedirs(folder)
            path = os.path.join(folder, f"record-{number:06}.json")
            write_file(path, int(rng.expovariate(1 / 900)), "text", rng)
    elif form == "links":
        for number in range(amount):
            folder = os.path.join(top, f"{number // 200:03}")
            path = os.path.join(folder, f"{number:06}")
            if number % 200 == 0:
                os.makedirs(folder)
                write_file(path, 40_000 + number, "text", rng)
                first = path
            elif number % 2:
                os.link(first, path)
            else:
                os.symlink(os.path.basename(first), path)
    else:
        raise ValueError(f"no such files: {form}")


def write_file(path, size, form, rng):
    with open(path, "wb") as file:
        if form == "zeros":
            file.truncate(size)  # a hole here, zeros in the tar, blocks where it is unpacked
            return
        while size > 0:
            piece = rng.randbytes(min(size, MIB))
            file.write(piece.hex()[:len(piece)].encode() if form == "text" else piece)
            size -= len(piece)
