"""What a process costs: memory, processor time, open files; read from /proc."""

import dataclasses
import os

TICKS = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass
class Cost:
    """Memory in MiB, processor time in seconds since the process began."""

    rss_mib: float
    pss_mib: float
    own_mib: float  # what is dirty and in no other process: what the node gets back at its end
    cpu_s: float
    files: int
    threads: int


def cost_of(pid):
    memory = {}
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as f:
        for line in f:
            parts = line.split()
            if len(parts) == 3 and parts[2] == "kB":
                memory[parts[0].rstrip(":")] = int(parts[1]) / 1024
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        fields = f.read().rpartition(")")[2].split()
    return Cost(memory["Rss"], memory["Pss"], memory["Private_Dirty"],
                (int(fields[11]) + int(fields[12])) / TICKS,
                len(os.listdir(f"/proc/{pid}/fd")), int(fields[17]))


def percent_of_a_core(before, after, seconds):
    return 100 * (after.cpu_s - before.cpu_s) / seconds
