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


def folder_of(name):
    digest = hashlib.sha256(PACKAGES.encode())
    with open(requirements_of(name), "rb") as f:
        digest.update(f.read())
    return os.path.join(components.cache_folder(), f"{name}-{digest.hexdigest()[:16]}")


def program(name, command):
    """A command of the environment."""
    return os.path.join(folder_of(name), "bin", command)


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
            run(program(name, "pip"), "install", "--quiet", "--require-hashes",
                "--only-binary=:all:", "-r", requirements_of(name), env=env)
            run("mmdebstrap", "--quiet", "--variant=extract", f"--include={PACKAGES}", SUITE,
                os.path.join(folder, "root.tar"))
        except Broken as error:
            raise Unable(f"Installing {name} failed: {error}.") from error
        with open(done, "w", encoding="utf-8"):
            pass
        say(f"installed {name} in {time.monotonic() - started:.0f} s")
