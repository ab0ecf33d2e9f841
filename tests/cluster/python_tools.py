"""Real servers that are written in Python, from PyPI: each in a virtual environment of its own.

Like components.py, but pinned by components/<name>/requirements.txt, with the hash of every file,
and built before the run's network namespaces are entered. Beside the environment lies a minimal
Debian with the same Python, `root.tar`, for images that contain the same packages.
"""

import hashlib
import os
import shutil
import time

import components
from errors import Broken, Unable
from processes import run

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3"
# Extracted, not configured: no program of these runs before the container does.
PACKAGES = "python3-minimal,libpython3.11-stdlib,libstdc++6,netbase"
SUITE = "bookworm"


def requirements_of(name):
    return os.path.join(HERE, "components", name, "requirements.txt")


def lock_of(name):
    """What it needs from npm, with the hash of every file; not every one needs something."""
    return os.path.join(os.path.dirname(requirements_of(name)), "package-lock.json")


def folder_of(name):
    digest = hashlib.sha256(PACKAGES.encode())
    for path in (requirements_of(name), lock_of(name)):
        if os.path.exists(path):
            with open(path, "rb") as f:
                digest.update(f.read())
    return os.path.join(components.cache_folder(), f"{name}-{digest.hexdigest()[:16]}")


def program(name, command):
    """A command of the environment."""
    return os.path.join(folder_of(name), "bin", command)


def node_program(name, command):
    return os.path.join(folder_of(name), "node_modules", ".bin", command)


def site_packages(name):
    return os.path.join(folder_of(name), "lib", "python3.11", "site-packages")


def build(name, say):
    """Builds what the cache does not have; a build that broke off leaves no half environment."""
    with components.locked(components.cache_folder()):
        folder = folder_of(name)
        done = os.path.join(folder, "done")
        if os.path.exists(done):
            return
        started = time.monotonic()
        say(f"installing {name} from PyPI and a minimal Debian")
        shutil.rmtree(folder, ignore_errors=True)
        env = dict(os.environ, PIP_DISABLE_PIP_VERSION_CHECK="1")
        try:
            # At its final place from the start, as scripts name their interpreter by its path.
            run(PYTHON, "-m", "venv", folder)
            run(program(name, "pip"), "install", "--quiet", "--require-hashes", "--no-deps",
                "--only-binary=:all:", "-r", requirements_of(name), env=env)
            if os.path.exists(lock_of(name)):
                install_npm(name, folder)
            run("mmdebstrap", "--quiet", "--variant=extract", f"--include={PACKAGES}", SUITE,
                os.path.join(folder, "root.tar"))
        except Broken as error:
            raise Unable(f"Installing {name} failed: {error}.") from error
        with open(done, "w", encoding="utf-8"):
            pass
        say(f"installed {name} in {time.monotonic() - started:.0f} s")


def install_npm(name, folder):
    if shutil.which("npm") is None:
        raise Unable(f"{name} needs npm: tests/packages {name}.")
    for path in (lock_of(name), os.path.join(os.path.dirname(lock_of(name)), "package.json")):
        shutil.copy(path, folder)
    run("npm", "ci", "--silent", "--no-audit", "--no-fund", cwd=folder)
