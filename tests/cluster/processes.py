"""Starts, watches and ends processes, always by their id, and runs short commands."""

import os
import signal
import subprocess
import threading
import time

from errors import Broken

BASE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The shell joins the control groups before it becomes the program, so that no child can escape:
# each "$0 FILE" is a cgroup.procs file, the rest is the program.
JOIN = 'for f in $CGROUPS; do echo $$ > "$f" || exit 125; done; unset CGROUPS; exec "$@"'


def run(*argv, check=True, **options):
    """Runs a short command and returns its output; a failure tells the command and its words."""
    done = subprocess.run(
        argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, **options
    )
    if check and done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise Broken(f"`{' '.join(argv)}` failed: {said}")
    return done.stdout


def let_pass(seconds):
    """Watches on for a while, where that nothing happens is the point."""
    threading.Event().wait(max(0.0, seconds))


def wait_until(condition, seconds, what, pause=0.1):
    """Returns the first true answer of `condition`, or says that `what` did not happen in time."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise Broken(f"{what} did not happen within {seconds:g} s")
        let_pass(pause)


class Process:
    """One daemon: its log, its network namespace, its control groups, its end."""

    def __init__(self, name, argv, log, netns=None, cgroups=(), env=None):
        self.name = name
        self.log = log
        self.argv = [str(part) for part in argv]
        if netns:
            # Not `ip netns exec`: it mounts a fresh /sys, which hides the control groups.
            self.argv = ["nsenter", f"--net=/run/netns/{netns}", "--", *self.argv]
        self.cgroups = [os.path.join(folder, "cgroup.procs") for folder in cgroups]
        self.env = {"PATH": BASE_PATH, "HOME": "/root", "LANG": "C.UTF-8", **(env or {})}
        self.child = None

    def start(self):
        env = dict(self.env, CGROUPS=" ".join(self.cgroups))
        with open(self.log, "ab") as log:
            # An own session: Ctrl-C in the terminal must reach the harness alone, which then ends
            # everything in order.
            self.child = subprocess.Popen(
                ["sh", "-c", JOIN, "join", *self.argv],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
            )
        return self

    @property
    def pid(self):
        return self.child.pid

    def alive(self):
        return self.child is not None and self.child.poll() is None

    def require_alive(self):
        if not self.alive():
            raise Broken(
                f"{self.name} ended with code {self.child.returncode}; its log: {self.log}"
            )
        return True

    def wait_ready(self, probe, seconds=60):
        """Waits for `probe`, and gives up at once when the process has ended."""
        wait_until(
            lambda: self.require_alive() and probe(),
            seconds,
            f"the start of {self.name} (log: {self.log})",
        )
        return self

    def kill(self):
        """kill -9, as a crash would."""
        if self.alive():
            self.child.kill()
            self.child.wait()

    def stop(self, grace=5.0):
        """SIGTERM, then SIGKILL after `grace` seconds; returns the exit code."""
        if self.child is None:
            return None
        if self.alive():
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(grace)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.child.returncode
