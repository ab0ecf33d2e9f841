#!/usr/bin/python3
"""The story that daemonset/quickstart tells, played on a real containerd and a real disk.

Four pods run on a node; a Job's image doesn't fit under the kubelet's floor. Played twice: with
the kubelet's rules alone, and with the agent. Shows free space as it falls, then both results.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "fakes"))

import images  # noqa: E402
import lab as lab_module  # noqa: E402
from fake_cluster import JOBS, NODE, FakeCluster  # noqa: E402
from images import MIB, Layer  # noqa: E402
from kubelet import Config, Timings  # noqa: E402

DISK_BYTES = 640 * MIB
FILLER_BYTES = 190 * MIB
FLOOR_PERCENT = 40
REGISTRY_BYTES_PER_SECOND = 12 * MIB
# 70 MiB compressed, 190 MiB unpacked: 260 MiB at the peak.
LAYERS = [Layer(30 * MIB), Layer(60 * MIB, "zero"), Layer(30 * MIB), Layer(60 * MIB, "zero"),
          Layer(10 * MIB)]
# The kubelet looks every 10 s and keeps DiskPressure for 5 min; nobody wants to wait that long.
PASS_SECONDS = 3.0
PRESSURE_SECONDS = 8.0
PROTECTED = {"hub": "968Ki", "proxy": "400Ki", "traefik": "200Ki", "user-scheduler": "100Ki"}
JOB = "flow-etl"
JOB_USAGE = "700Ki"  # second after the hub, as it was measured
JOB_SECONDS = 6
LIMIT_SECONDS = 75  # for each half; both are done in half of it
HOLD_SHOWN_SECONDS = 6
TAINT = "status-taint.cluster-autoscaler.kubernetes.io/imagefs-guard"
CONDITION = "ImageFilesystemRisk"
POLICY = {"tickInterval": "1s", "guardMargin": "8Mi", "clearMargin": "16Mi", "clearAfter": "2s"}
BAR_CELLS = 44


def mib(size):
    return f"{size / MIB:.0f} MiB"


class Screen:
    """Lines for people: a bar that stays in place on a terminal, plain lines elsewhere."""

    def __init__(self, stream=sys.stdout):
        self._stream = stream
        self._live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._colour = self._live and "NO_COLOR" not in os.environ
        encoding = (stream.encoding or "").lower()
        self._full, self._empty = ("█", "·") if encoding.startswith("utf") else ("#", ".")
        self._bar = ""
        self._plain_at = 0.0

    def say(self, text=""):
        self._clear()
        print(text, file=self._stream, flush=True)
        self._draw()

    def event(self, seconds, text, tone=""):
        """One thing that happened; `tone` is good, bad or nothing."""
        code = {"good": "32", "bad": "31"}.get(tone)
        if self._colour and code:
            text = f"\x1b[{code}m{text}\x1b[0m"
        self.say(f"  {seconds:5.1f} s  {text}")

    def meter(self, seconds, free, forecast, floor, capacity, note):
        """Free space now, with marks for forecast and floor."""
        numbers = f"free {mib(free)}  forecast {mib(forecast)}  floor {mib(floor)}"
        if self._live:
            # It must fit one line, else clearing it leaves the rest.
            width = shutil.get_terminal_size().columns
            if width >= BAR_CELLS + len(numbers) + len(note) + 14:
                numbers += f"  {note}"
            cells = max(10, min(BAR_CELLS, width - len(numbers) - 13))
            self._clear()
            bar = self._cells(free, forecast, floor, capacity, cells)
            self._bar = f"  {seconds:5.1f} s  {bar} {numbers}"
            self._draw()
        elif time.monotonic() >= self._plain_at:
            self._plain_at = time.monotonic() + 2.0
            print(f"  {seconds:5.1f} s    {numbers}  {note}", file=self._stream, flush=True)

    def end_meter(self):
        self._clear()
        self._bar = ""
        self._plain_at = 0.0

    def _cells(self, free, forecast, floor, capacity, count):
        def cell(size):
            return max(0, min(count - 1, int(size * count / capacity)))
        cells = [self._full if index < cell(free) else self._empty for index in range(count)]
        cells[cell(floor)] = "|"
        cells[cell(forecast)] = "v"
        text = "".join(cells)
        if self._colour:
            text = f"\x1b[{'31' if free < floor else '36'}m{text}\x1b[0m"
        return text

    def _clear(self):
        if self._bar:
            self._stream.write("\r\x1b[K")

    def _draw(self):
        if self._bar:
            self._stream.write(self._bar)
            self._stream.flush()


class Lowest:
    """The least free space that was seen, looked at twenty times a second."""

    def __init__(self, disk):
        self._disk = disk
        self._done = threading.Event()
        self.bytes = disk.available_bytes()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while not self._done.wait(0.05):
            self.bytes = min(self.bytes, self._disk.available_bytes())

    def stop(self):
        self._done.set()
        return self.bytes


class Half:
    """One half of the story: the Job comes, and somebody looks after the disk, or nobody."""

    def __init__(self, stage, guarded):
        self.stage = stage
        self.guarded = guarded
        self.screen = stage.screen
        self.disk = stage.disk
        self.floor = int(stage.disk.capacity_bytes() * FLOOR_PERCENT / 100)
        self.cluster = None
        self.agent = None
        self.pressure = False
        self.held_layer_bytes = None
        self.result = {}
        self._seen = set()
        self._held_at = 0.0
        self._filler_removed_at = None

    def play(self):
        """Runs to the end and fills `result`."""
        self.disk.remove_filler()
        self.stage.runtime.reset()
        self.disk.fill(FILLER_BYTES)
        config = Config(eviction_hard={"imagefs.available": f"{FLOOR_PERCENT}%"})
        timings = Timings(eviction_pass=PASS_SECONDS, pressure_transition=PRESSURE_SECONDS,
                          heartbeat=1.0)
        self.cluster = FakeCluster(self.stage.runtime, config, timings)
        self.stage.lab.enter(self.cluster)
        for name, usage in PROTECTED.items():
            self.cluster.create_pod(name, self.stage.small, usage=usage)
        self.cluster.wait_running(*PROTECTED)
        if self.guarded:
            self._start_agent()
        self._watch()

    def _start_agent(self):
        policy = self.stage.lab.path("policy.yaml")
        with open(policy, "w", encoding="utf-8") as file:
            json.dump({**POLICY, "plainHttpRegistries": [self.stage.registry.host]}, file)
        self.agent = self.stage.lab.spawn("agent", [
            self.stage.agent, "run", "--node", NODE, "--policy", policy,
            "--kubernetes-api", self.cluster.server.url, "--kubelet", self.cluster.kubelet.url,
            "--containerd-socket", self.stage.runtime.socket, "--image-path", self.disk.path,
            "--kubelet-path", self.cluster.kubelet_path, "--listen", "127.0.0.1:0"])
        lab_module.wait_until(lambda: self._records("agent_started") or self._agent_ended(), 10,
                              what="the agent's start")
        self._agent_ended()

    def _agent_ended(self):
        if not self.agent.running():
            raise lab_module.Failed(f"the agent ended: {self.agent.log_end(3)}")
        return False

    def _watch(self):
        forecast = self.disk.available_bytes() - self.stage.image.compressed_bytes \
            - self.stage.image.unpacked_bytes
        lowest = Lowest(self.disk)
        self.cluster.create_job(JOB, self.stage.big, usage=JOB_USAGE, run_seconds=JOB_SECONDS)
        started = time.monotonic()
        ended_at = None
        while (seconds := time.monotonic() - started) < LIMIT_SECONDS:
            self._look(seconds)
            if self.guarded and self.held_layer_bytes is not None and \
                    seconds - self._held_at > HOLD_SHOWN_SECONDS and not self._filler_removed_at:
                self._free_space(seconds)
            if self._over() and ended_at is None:
                ended_at = seconds
            if ended_at is not None and seconds > ended_at + 0.5:
                break
            shown = forecast + (FILLER_BYTES if self._filler_removed_at else 0)
            self.screen.meter(seconds, self.disk.available_bytes(), shown, self.floor,
                              self.disk.capacity_bytes(), self._note())
            time.sleep(0.25)
        self.screen.end_meter()
        self.result = {
            "evicted": [name for name in self.cluster.evicted()
                        if name in PROTECTED], "lowest": lowest.stop(), "floor": self.floor,
            "held_layer_bytes": self.held_layer_bytes, "pressure": self.pressure,
            "bind_to_hold_ms": next((record.get("bind_to_hold_ms")
                                     for record in self._records("pull_held")), None),
            "job": self.cluster.job_result(JOB)}

    def _over(self):
        if self.guarded:
            return self.cluster.job_result(JOB) in ("Complete", "Failed") and \
                TAINT not in self.cluster.taints()
        return set(PROTECTED) <= set(self.cluster.evicted())

    def _free_space(self, seconds):
        self._filler_removed_at = seconds
        self.disk.remove_filler()
        self.screen.event(seconds, f"somebody removes {mib(FILLER_BYTES)} of other data")

    def _note(self):
        layer_bytes = self.cluster.ingest_bytes()
        running = sum(self.cluster.phase(name) == "Running" for name in PROTECTED)
        return f"downloading {mib(layer_bytes)}  {running} of {len(PROTECTED)} pods run"

    def _records(self, event):
        found = []
        for line in self.agent.log().splitlines() if self.agent else ():
            with contextlib.suppress(json.JSONDecodeError):
                record = json.loads(line)
                if record.get("event") == event:
                    found.append(record)
        return found

    def _once(self, key, seconds, text, tone=""):
        if key not in self._seen:
            self._seen.add(key)
            self.screen.event(seconds, text, tone)
            return True
        return False

    def _look(self, seconds):
        """Compares what is now with what was told already."""
        cluster = self.cluster
        pod = cluster.job_pod(JOB)
        if pod and pod["spec"].get("nodeName"):
            self._once("bound", seconds, f"the Job's pod is bound to the node; its image peaks at "
                       f"{mib(self.stage.peak_bytes)}")
        if cluster.ingest_bytes() > 0:
            self._once("download", seconds, "the first layer byte arrives")
        if self.disk.available_bytes() < self.floor:
            self._once("floor", seconds, "free space is under the floor", "bad")
        if cluster.kubelet.disk_pressure:
            self.pressure = True
            self._once("pressure", seconds, "DiskPressure: the node takes no pods any more", "bad")
        for name in cluster.evicted():
            self._once(f"evicted {name}", seconds, f"the kubelet evicts {name}", "bad")
        result = cluster.job_result(JOB)
        if result in ("Complete", "Failed"):
            self._once("job", seconds, f"the Job is {result}",
                       "good" if result == "Complete" else "bad")
        if self.guarded:
            self._look_at_agent(seconds)

    def _look_at_agent(self, seconds):
        cluster = self.cluster
        if not self.agent.running():
            raise lab_module.Failed(f"the agent ended: {self.agent.log_end(3)}")
        for event in cluster.events("PullHeld"):
            if self._once("held", seconds, f"held: {event['note']}", "good"):
                self._held_at = seconds
                self.held_layer_bytes = 0
        if self.held_layer_bytes is not None and "released" not in self._seen:
            self.held_layer_bytes = max(self.held_layer_bytes, cluster.ingest_bytes()) \
                if not self._records("pull_released") else self.held_layer_bytes
        tainted = TAINT in cluster.taints()
        if tainted:
            self._once("taint", seconds, "the node is tainted: new pods look elsewhere", "good")
        if self._records("pull_released") and "held" in self._seen:
            self._once("released", seconds, "released: it fits now", "good")
        if "taint" in self._seen and not tainted:
            self._once("clear", seconds, "the taint is gone", "good")


class Stage:
    """What both halves share: the disk, the registry with its images, containerd."""

    def __init__(self, lab, screen, agent):
        self.lab = lab
        self.screen = screen
        self.agent = agent
        self.disk = lab.image_filesystem(DISK_BYTES)
        self.registry = lab.registry(bytes_per_second=REGISTRY_BYTES_PER_SECOND)
        screen.say("making two images, one of 190 MiB and one of 4 KiB")
        small = images.build(lab.path("small"), "small", [Layer(4096)])
        self.small = images.push(small, self.registry, "lab/small:v1")
        self.image = images.build(lab.path("etl"), "etl", LAYERS)
        self.big = images.push(self.image, self.registry, "flows/etl:v1")
        self.peak_bytes = self.image.compressed_bytes + self.image.unpacked_bytes
        self.runtime = lab.containerd(self.disk, [self.registry])

    def introduce(self):
        capacity = self.disk.capacity_bytes()
        name, version = self.runtime.client().version()
        self.screen.say(f"""
  disk      {mib(capacity)} of ext4 on a loop device, {mib(FILLER_BYTES)} of it in use
  floor     {mib(capacity * FLOOR_PERCENT / 100)}: with less free the kubelet evicts pods \
(imagefs.available {FLOOR_PERCENT}%)
  runtime   {name} {version}, a registry at {mib(REGISTRY_BYTES_PER_SECOND)} per second
  running   {', '.join(PROTECTED)}
  coming    Job {JOB}, image of {mib(self.image.compressed_bytes)} compressed and \
{mib(self.image.unpacked_bytes)} unpacked

The disk, the pulls and the agent are real; the API server and the kubelet are small stand-ins
with the kubelet's rules. A pass for evictions comes every {PASS_SECONDS:g} s here, not 10 s.
In the bar, | is the floor and v is where the pull would take free space.""")


def table(alone, guarded):
    """Both results side by side."""
    def evicted(result):
        names = result["evicted"]
        return f"{len(names)}: {', '.join(names)}" if names else "none"

    def held(result):
        size = result["held_layer_bytes"]
        return "-" if size is None else mib(size)

    def delay(result):
        return "-" if result["bind_to_hold_ms"] is None else f"{result['bind_to_hold_ms']:.0f} ms"

    rows = [("", "kubelet alone", "with imagefs-guard")]
    for label, show in (
            ("evicted pods", evicted), ("lowest free space", lambda r: mib(r["lowest"])),
            ("the kubelet's floor", lambda r: mib(r["floor"])),
            ("DiskPressure", lambda r: "yes" if r["pressure"] else "no"),
            ("pod bound to pull held", delay), ("layer bytes while held", held),
            ("the Job", lambda r: r["job"])):
        rows.append((label, show(alone), show(guarded)))
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "\n".join(f"  {row[0]:<{widths[0]}}   {row[1]:<{widths[1]}}   {row[2]}".rstrip()
                     for row in rows)


def what_went_wrong(alone, guarded):
    """Sentences about what differs from the story; none where all is well."""
    wrong = []
    if not alone["evicted"]:
        wrong.append("The kubelet alone evicted nobody, so this run shows nothing.")
    if guarded["evicted"] or guarded["pressure"]:
        wrong.append("With the agent the node still came under pressure.")
    if guarded["held_layer_bytes"] is None:
        wrong.append("The agent did not hold the pull.")
    elif guarded["held_layer_bytes"]:
        wrong.append("Layer bytes arrived while the pull was held.")
    if guarded["job"] != "Complete":
        wrong.append(f"With the agent the Job ended as {guarded['job']}.")
    return wrong


EXPLANATION = """
The image needs its compressed and its unpacked bytes at once, more than there was above the
floor. Alone, the kubelet looks when it is too late, and evicts whoever runs there. The agent knew
the sizes from the registry's manifest, held the pull before its first layer byte, said so on pod
and node, and let it go when there was room.
"""

NEXT = """What next:
  daemonset/quickstart --keep      the same, left up to play with
  daemonset/quickstart --cluster   the same on a real kubelet and API server (needs Go)
  tests/run                        all tests"""


def keep(screen, stage, half):
    """Leaves everything up until Ctrl-C, with what one needs to play."""
    other = images.build(stage.lab.path("report"), "report", LAYERS)
    name = images.push(other, stage.registry, "flows/report:v1")
    stage.runtime.client().remove_image(stage.big)
    stage.disk.fill(FILLER_BYTES)  # as it was at the start
    job = stage.lab.path("job.json")
    with open(job, "w", encoding="utf-8") as file:
        json.dump({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "play-"},
                   "spec": {"backoffLimit": 0, "template": {"spec": {
                       "restartPolicy": "Never",
                       "containers": [{"name": "flow", "image": name}]}}}}, file)
    url, disk = half.cluster.server.url, stage.disk.path
    ctr = f"ctr -a {stage.runtime.socket} -n k8s.io"
    screen.say(f"""
It is all still up. Ctrl-C here ends it and takes everything down.
  a Job for which there is no room
                     curl -s -H 'Content-Type: application/json' -d @{job} \\
                       {url}{JOBS.format('default')}
  make room for it   rm {disk}/filler
  the agent's log    tail -f {half.agent.log_path}
  node, Events       curl -s {url}/api/v1/nodes/{NODE}
                     curl -s {url}/apis/events.k8s.io/v1/events
  kubelet's rules    curl -s {half.cluster.kubelet.url}/configz
  containerd         {ctr} content active
  free space         df -m {disk}""")
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            signal.pause()
    screen.say("taking everything down")


def play(screen, options):
    with lab_module.Lab(private_mounts=not options.keep) as lab:
        stage = Stage(lab, screen, os.path.abspath(options.agent))
        stage.introduce()
        halves = []
        for number, guarded in enumerate((False, True), 1):
            screen.say(f"\n{number} of 2: " + ("with imagefs-guard" if guarded
                                               else "the kubelet's rules alone"))
            half = Half(stage, guarded)
            half.play()
            halves.append(half)
            if not guarded:  # its node makes room for the next
                half.cluster.__exit__()
        alone, guarded = (half.result for half in halves)
        screen.say(f"\n{table(alone, guarded)}")
        wrong = what_went_wrong(alone, guarded)
        if wrong:
            screen.say("\n" + " ".join(wrong) + "\nThe end of the agent's log:\n"
                       + halves[1].agent.log_end(12))
            return 1
        screen.say(EXPLANATION)
        screen.say(NEXT)
        if options.keep:
            keep(screen, stage, halves[1])
        return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--agent", required=True, help="the imagefs-guard binary")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    sys.stdout.reconfigure(errors="replace")
    screen = Screen()
    try:
        return play(screen, options)
    except lab_module.Missing as error:
        print(error, file=sys.stderr)
        return 2
    except lab_module.Failed as error:
        screen.end_meter()
        print(f"It stopped: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        screen.end_meter()
        print("Interrupted; everything is taken down.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
