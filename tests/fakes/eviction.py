#!/usr/bin/python3
"""The kubelet's disk rules as pure functions: thresholds, what is met, who is evicted first."""

import re
import struct

# What a kubelet uses where its configuration has no evictionHard at all.
DEFAULT_HARD = {"memory.available": "100Mi", "nodefs.available": "10%",
                "nodefs.inodesFree": "5%", "imagefs.available": "15%", "imagefs.inodesFree": "5%"}
CRITICAL_PRIORITY = 2_000_000_000
_UNITS = {"": 1, "k": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4,
          "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}


def parse_quantity(text):
    """Bytes of a Kubernetes quantity such as 100Mi, 1.5Gi or 5G."""
    match = re.match(r"^(\d+(?:\.\d+)?)([kMGT]i?|Ki|)$", str(text))
    if not match or match[2] not in _UNITS:
        raise ValueError(f"not a quantity: {text!r}")
    return int(float(match[1]) * _UNITS[match[2]]) if "." in match[1] \
        else int(match[1]) * _UNITS[match[2]]


def threshold(value, capacity):
    """The quantity below which the kubelet acts, computed as it does: percentages in float32."""
    if not value or value == "0%":
        return 0
    if value.endswith("%"):
        percentage = struct.unpack("f", struct.pack("f", float(value[:-1]) / 100))[0]
        return int(float(capacity) * percentage)
    return parse_quantity(value)


def met_thresholds(hard, stats, still_met=(), minimum_reclaim=None):
    """{signal: threshold} of all that is met now.

    `stats` is {signal: (available, capacity)}; signals that it doesn't have are left out. One that
    was met before stays so until evictionMinimumReclaim is back as well.
    """
    met = {}
    for signal, value in (DEFAULT_HARD if hard is None else hard).items():
        if signal not in stats:
            continue
        available, capacity = stats[signal]
        quantity = threshold(value, capacity)
        wanted = quantity
        if signal in still_met:
            wanted += threshold((minimum_reclaim or {}).get(signal), capacity)
        if available < wanted:
            met[signal] = quantity
    return met


def may_be_evicted(pod):
    """Critical, static and mirror pods are exempt."""
    annotations = pod["metadata"].get("annotations") or {}
    return (pod["spec"].get("priority") or 0) < CRITICAL_PRIORITY and \
        "kubernetes.io/config.mirror" not in annotations


def rank(pods, usage):
    """Pods in the order in which they are evicted under disk pressure.

    First those above their ephemeral-storage request or without stats, then by lower priority,
    then no stats before all others, then by more usage above the request. `usage` is {uid: bytes};
    a pod that has started nothing has no entry.
    """
    def key(pod):
        used = usage.get(pod["metadata"]["uid"])
        request = sum(parse_quantity(
            (container.get("resources", {}).get("requests") or {}).get("ephemeral-storage", "0"))
            for container in pod["spec"]["containers"])
        above = used is None or used > request
        return (not above, pod["spec"].get("priority") or 0, used is not None,
                -((used or 0) - request), pod["metadata"]["uid"])
    return sorted(filter(may_be_evicted, pods), key=key)


def image_gc_target(available, capacity, high_percent=85, low_percent=80):
    """Bytes that the kubelet's image garbage collection wants back; 0 while it is silent."""
    if capacity <= 0 or 100 - available * 100 // capacity < high_percent:
        return 0
    return capacity * (100 - low_percent) // 100 - available
