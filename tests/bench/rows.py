"""What every benchmark returns: rows of a measure, its target and what was found."""

import dataclasses
import json
import platform

MIB = 1 << 20


@dataclasses.dataclass
class Row:
    """`reached` is None where there is no target."""

    what: str
    found: str
    target: str = ""
    reached: bool | None = None


def at_most(what, value, limit, unit, digits=1):
    """A row whose value must not be above its target."""
    return Row(what, f"{value:,.{digits}f} {unit}", f"≤ {limit:g} {unit}", value <= limit)


def told(what, value, unit="", digits=1):
    text = value if isinstance(value, str) else f"{value:,.{digits}f}"
    return Row(what, f"{text} {unit}".strip())


def percentile(values, percent):
    """The nearest rank: one of the values, never one between two."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


def spread(values):
    """Median, 99th of a hundred and longest, in words."""
    return (f"p50 {percentile(values, 50):.1f}, p99 {percentile(values, 99):.1f}, "
            f"most {max(values):.1f}")


def table(rows):
    """Markdown, with its columns under each other for whoever reads it as text."""
    lines = [("measure", "target", "found", "")]
    lines += [(row.what, row.target, row.found,
               "" if row.reached is None else "yes" if row.reached else "**no**") for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(4)]
    text = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |"
            for line in lines]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)


def machine():
    """Where it ran, in one line: processor, memory, kernel."""
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        names = [line.partition(":")[2].strip() for line in f if line.startswith("model name")]
    with open("/proc/meminfo", encoding="utf-8") as f:
        kib = int(f.readline().split()[1])
    return (f"{len(names)} × {names[0] if names else 'processor'}, {round(kib / MIB)} GiB, "
            f"Linux {platform.release().split('-')[0]}")


def save(path, rows):
    with open(path, "w", encoding="utf-8") as f:
        json.dump([dataclasses.asdict(row) for row in rows], f, indent=1)


def load(path):
    with open(path, encoding="utf-8") as f:
        return [Row(**row) for row in json.load(f)]
