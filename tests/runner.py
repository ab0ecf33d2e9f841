#!/usr/bin/python3
"""Builds the project and runs its suites for tests/run; ends with "N passed, N failed".

One build, build/, without optimisation: it is there soonest. With --all two others: build/sanitized
with AddressSanitizer and UBSan for unit and replay, build/release for sim and for the agent that
the integration and cluster suites start.
"""

import argparse
import collections
import json
import os
import re
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
QUICK = os.path.join(ROOT, "build")
SANITIZED = os.path.join(QUICK, "sanitized")
RELEASE = os.path.join(QUICK, "release")
CLANG = os.path.join(QUICK, "clang")
CLUSTER = os.path.join(ROOT, "tests", "cluster", "run")
# Each suite's build with --all; else it is QUICK.
SUITES = {"unit": SANITIZED, "replay": SANITIZED, "sim": RELEASE, "integration": RELEASE,
          "image": RELEASE, "tidy": SANITIZED}
# Played with --all or by name. The image has limits that only an optimised agent keeps.
SELDOM = {"image"}
NOT_COMPILED = {"tidy"}  # looks at the sources alone
# Real components on real clocks: what fails is played once more, and said to have been.
TIMED = {"integration"}
# They wait more than they work, each on a node of its own.
SIDE_BY_SIDE = {"integration": 5}
# Little optimisation where the point is to check: it compiles in a third of the time.
OPTIONS = {QUICK: ["-Doptimization=0", "-Db_sanitize=none", "-Dwerror=true"],
           SANITIZED: ["-Doptimization=0", "-Db_sanitize=address,undefined", "-Dwerror=true"],
           RELEASE: ["--buildtype=release", "-Db_sanitize=none"],
           # Each file apart, so that none leans on what another one includes.
           CLANG: ["-Doptimization=0", "-Dwerror=true", "-Dunity=off"]}
# Played by --all; the others take longer or need more: tests/cluster/scenarios/README.md.
SCENARIOS = ["storm", "enospc", "delete-mid-pull", "fits", "agent-killed", "least-privilege",
             "installed", "installed-helm", "two-nodes", "prefect-hold", "prefect-drain-S",
             "prefect-drain-P", "prefect-naive"]
ERROR_LINES = 25
RESULT = re.compile(r"^\s*\d+/\d+\s+(?:\S+ / )?(\S+)\s+(OK|FAIL|SKIP|TIMEOUT|ERROR|EXPECTEDFAIL|"
                    r"UNEXPECTEDPASS|INTERRUPT)\s+([\d.]+)s")
GOOD = {"OK", "EXPECTEDFAIL"}
SKIPPED = "SKIP"

Count = collections.namedtuple("Count", "passed failed")


class BuildFailed(Exception):
    """The text is what to show."""


def say(text):
    print(text, flush=True)


class Runner:
    """Counts over all suites; a build that fails is one failure and ends what rests on it."""

    def __init__(self, everything):
        self._everything = everything
        self.passed = 0
        self.failed = 0
        self.skipped = 0
        self.what_failed = []
        self._ready = {}

    def add(self, passed, failed, name):
        self.passed += passed
        self.failed += failed
        if failed:
            self.what_failed.append(name)

    def build(self, directory, compiled=True):
        """Sets up and compiles a build directory once; False where that failed before or now."""
        key = (directory, compiled)
        if key not in self._ready:
            try:
                build(directory, compiled)
                self._ready[key] = True
            except BuildFailed as error:
                say(f"FAILED: {error}")
                self.add(0, 1, str(error))
                self._ready[key] = False
        return self._ready[key]

    def suite(self, name):
        directory = SUITES[name] if self._everything or name in SELDOM else QUICK
        if not self.build(directory, compiled=False):
            return
        names = tests_of(directory, name)
        if not names or (name not in NOT_COMPILED and not self.build(directory)):
            return
        say(f"{name}: {len(names)} test programs")
        log = os.path.join(directory, "meson-logs", f"{name}.json")
        run_meson_tests(directory, name)
        ran = read_log(log)
        if name in TIMED:
            ran = second_try(directory, name, ran)
        for test in ran:
            self.report(test)
        missing = len(names) - len(ran)
        if missing > 0:
            say(f"  FAILED: {missing} of {name} did not run")
            self.add(0, missing, name)

    def report(self, test):
        """Counts one test program; shows the end of what a failed one printed."""
        short = test["name"].rpartition(" / ")[2].rpartition(":")[2]
        output = (test.get("stdout") or "") + (test.get("stderr") or "")
        if test["result"] == SKIPPED:
            self.skipped += 1
            reason = next((line for line in output.splitlines() if "skipped" in line), "skipped")
            say(f"  skipped  {short}: {reason.removeprefix('skipped: ')}")
            return
        good = test["result"] in GOOD
        count = count_cases(output, good)
        self.add(*count, short)
        if not good:
            lines = output.strip().splitlines()[-ERROR_LINES:]
            say("\n".join(f"    {line}" for line in lines))
            say(f"  FAILED   {short} ({test['result'].lower()}, "
                f"{test['duration']:.1f} s)")

    def clang(self):
        """The other compiler: no warnings, and the unit tests pass."""
        say("clang: build and unit tests")
        if not self.build(CLANG):
            return
        done = subprocess.run(["meson", "test", "-C", CLANG, "--suite", "unit", "--no-rebuild",
                               "--print-errorlogs"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            say("\n".join(done.stdout.splitlines()[-ERROR_LINES:]))
        self.add(done.returncode == 0, done.returncode != 0, "clang")

    def cluster(self):
        if not os.path.exists(CLUSTER):
            return
        say("cluster: real kubelet, containerd, API server")
        if not self.build(RELEASE):
            return
        count, bad = play_cluster(SCENARIOS)
        if bad:
            say(f"  played once more: {' '.join(bad)}")
            again, bad = play_cluster(bad)
            count = Count(count.passed + count.failed - again.failed, again.failed)
        self.add(*count, " ".join(bad) or "cluster")


def build(directory, compiled):
    name = os.path.relpath(directory, ROOT)
    environment = dict(os.environ)
    if directory == CLANG:
        environment.update(CC="clang-14", CXX="clang++-14")
    if os.path.exists(os.path.join(directory, "build.ninja")):
        options = [option for option in OPTIONS[directory] if option.startswith("-D")]
        quietly(["meson", "configure", directory, *options], f"configuring {name}")
    else:
        quietly(["meson", "setup", directory, *OPTIONS[directory]], f"setting up {name}",
                environment)
    if not compiled:
        return
    started = time.monotonic()
    say(f"compiling {name}")
    ninja = ["ninja", "-C", directory, *targets_of(directory)]
    if sys.stdout.isatty():  # ninja shows its own progress
        code = subprocess.run(ninja, stdin=subprocess.DEVNULL, check=False).returncode
        if code != 0:
            raise BuildFailed(f"{name} does not compile")
    else:
        quietly(ninja, f"compiling {name}")
    say(f"compiled {name} in {time.monotonic() - started:.0f} s")


def targets_of(directory):
    """What to compile: everything, but in the release build only what its suites start."""
    if directory != RELEASE:
        return []
    tests, targets = (json.loads(subprocess.run(
        ["meson", "introspect", what, directory], capture_output=True, text=True,
        check=True).stdout) for what in ("--tests", "--targets"))
    wanted = {target for test in tests
              if in_suite(test, "integration") or in_suite(test, "sim")
              for target in test["depends"]}
    files = [os.path.relpath(target["filename"][0], directory) for target in targets
             if target["id"] in wanted or target["name"] == "imagefs-guard"]
    return sorted(set(files))


def in_suite(test, suite):
    return suite in (label.rpartition(":")[2] for label in test["suite"])


def quietly(argv, what, environment=None):
    """Runs a tool and shows its output only where it fails."""
    done = subprocess.run(argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, env=environment, check=False)
    if done.returncode != 0:
        say("\n".join(done.stdout.splitlines()[-2 * ERROR_LINES:]))
        raise BuildFailed(what)


def play_cluster(scenarios):
    """The count of halves, and the names of the scenarios that failed."""
    last, bad = "", []
    agent = os.path.join(RELEASE, "imagefs-guard")
    with subprocess.Popen([CLUSTER, "--agent", agent, *scenarios], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout:
            last = line.strip() or last
            failed = re.search(r"\] (\S+) (?:alone|guarded): FAILED, logs", line)
            if failed and failed[1] not in bad:
                bad.append(failed[1])
            if not re.match(r"^\d+ passed, \d+ failed$", last):
                say(f"  {line.rstrip()}")
    found = re.match(r"^(\d+) passed, (\d+) failed$", last)
    if not found:
        say("  FAILED: the cluster suite could not run")
        return Count(0, 1), []
    return Count(int(found[1]), int(found[2])), bad


def second_try(directory, suite, ran):
    """The results, with those of a second run in place of what failed in the first."""
    bad = [test["name"].rpartition(" / ")[2].rpartition(":")[2] for test in ran
           if test["result"] not in GOOD and test["result"] != SKIPPED]
    if not bad:
        return ran
    say(f"  played once more: {' '.join(bad)}")
    run_meson_tests(directory, suite, bad)
    again = {test["name"]: test for test in read_log(
        os.path.join(directory, "meson-logs", f"{suite}-again.json"))}
    return [again.get(test["name"], test) for test in ran]


def tests_of(directory, suite):
    """Names of the tests of a suite; none where the suite isn't there yet."""
    listed = subprocess.run(["meson", "introspect", "--tests", directory], capture_output=True,
                            text=True, check=True).stdout
    return [test["name"] for test in json.loads(listed) if in_suite(test, suite)]


def run_meson_tests(directory, suite, names=()):
    """Runs a suite, or some of it, and prints a line for each test that passes, as it ends."""
    argv = ["meson", "test", "-C", directory, "--suite", suite, "--no-rebuild",
            "--num-processes", str(1 if names else SIDE_BY_SIDE.get(suite, os.cpu_count() or 1)),
            "--logbase", f"{suite}-again" if names else suite, *names]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, "UBSAN_OPTIONS": "print_stacktrace=1"}) as child:
        try:
            for line in child.stdout:
                found = RESULT.match(line)
                if found and found[2] in GOOD:
                    say(f"  ok       {found[1]} ({float(found[3]):.1f} s)")
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)
            child.wait()
            raise


def read_log(path):
    try:
        with open(path, encoding="utf-8") as log:
            return [json.loads(line) for line in log if line.strip()]
    except OSError:
        return []


def count_cases(output, good):
    """Cases inside one test program: doctest and unittest say how many, others are one."""
    found = re.search(r"\[doctest\] test cases:\s*\d+ \|\s*(\d+) passed \|\s*(\d+) failed", output)
    if found:
        passed, failed = int(found[1]), int(found[2])
    else:
        ran = re.search(r"^Ran (\d+) tests? in", output, re.MULTILINE)
        bad = sum(int(number) for number in re.findall(
            r"(?:failures|errors)=(\d+)", output)) if ran else 0
        skipped = sum(int(number) for number in re.findall(r"skipped=(\d+)", output)) if ran else 0
        failed = bad
        passed = max(0, int(ran[1]) - bad - skipped) if ran else int(good)
    if not good and failed == 0:
        failed = 1  # it crashed, ran out of time, or leaked
    return Count(passed, failed)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("suite", nargs="*")
    options = parser.parse_args()
    os.chdir(ROOT)
    runner = Runner(options.all)
    started = time.monotonic()
    try:
        for name in SUITES:
            if name in options.suite or (not options.suite and
                                         (options.all or name not in SELDOM)):
                runner.suite(name)
        if options.all:
            runner.clang()
            runner.cluster()
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    say(f"{time.monotonic() - started:.0f} s"
        + (f", {runner.skipped} skipped" if runner.skipped else ""))
    if runner.what_failed:
        say(f"failed: {', '.join(runner.what_failed)}")
    say(f"{runner.passed} passed, {runner.failed} failed")
    return 1 if runner.failed else 0


if __name__ == "__main__":
    sys.exit(main())
