"""Prints what happened: lines while it runs, a table at the end."""

import threading
import time

from scenario import ALONE, GUARDED

ROWS = (
    ("protected pods evicted", "protected_evicted", str),
    ("first eviction", "first_eviction_s", lambda v: f"{v} s after the binding"),
    ("lowest free space", "lowest_free_bytes", lambda v: f"{v / 2**20:.1f} MiB"),
    ("floor", "floor_bytes", lambda v: f"{v / 2**20:.1f} MiB"),
    ("layer bytes while held", "held_layer_bytes", str),
    ("bound to held", "bind_to_hold_ms", lambda v: f"{v} ms"),
    ("the Job", "job", str),
)


class Progress:
    """Lines with the time since the start; may be called from any thread."""

    def __init__(self):
        self.started = time.monotonic()
        self.lock = threading.Lock()

    def __call__(self, text):
        with self.lock:
            print(f"[{time.monotonic() - self.started:6.1f} s] {text}", flush=True)


def print_table(results):
    """One block per scenario, the kubelet alone on the left, with the agent on the right."""
    for name, modes in results.items():
        left, right = modes.get(ALONE, {}), modes.get(GUARDED, {})
        print(f"\n{name:26}{'kubelet alone':28}with imagefs-guard")
        for title, key, show in ROWS:
            if key in left or key in right:
                cells = [show(side[key]) if key in side else "-" for side in (left, right)]
                print(f"  {title:24}{cells[0]:28}{cells[1]}")
    print(flush=True)
