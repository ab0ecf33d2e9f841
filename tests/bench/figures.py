"""From forecasts and truths to errors, a table and a summary; arithmetic only."""

import math

MIB = 1 << 20
# By what the bytes were known: the targets (median and worst error of the peak, percent).
EXACT = ("learned here", "learned elsewhere", "table of contents", "plain tar")
TARGETS = {"exact": (3.0, 8.0), "rough": (15.0, None)}
UNDER_TRUTH_MOST = 1.0  # percent of the pulls


def error(forecast, truth):
    """In percent of the truth: positive where too much was forecast."""
    return 100.0 * (forecast - truth) / truth if truth else 0.0


def percentile(values, percent):
    """The nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)] if ordered else 0.0


def lines_of(results):
    """One flat record for each image, filesystem and mode."""
    lines = []
    for result in results:
        truth = result["truth"]
        # The least that was free meanwhile: what the high side must cover.
        seen = max(truth["peak"], truth["peak_seen"])
        for mode, told in result["forecasts"].items():
            lines.append({
                "image": result["image"], "form": result["form"], "kind": result["kind"],
                "mode": mode, "source": told["source"], "truth": truth["peak"],
                "low": told["peak"]["low"], "mid": told["peak"]["mid"],
                "high": told["peak"]["high"],
                "error": error(told["peak"]["mid"], truth["peak"]),
                "unpacked_error": error(told["unpacked"]["mid"], truth["unpacked"]),
                "width": 100.0 * (told["peak"]["high"] - told["peak"]["low"]) / truth["peak"],
                "over": error(told["peak"]["high"], seen),
                "short": max(truth["peak"] - told["peak"]["high"], 0),
                "dip": max(seen - told["peak"]["high"], 0),
                "inodes_error": error(told["inodes"], truth["inodes"]),
            })
    return lines


def summary_of(lines):
    """Rows by what was known: pulls, errors, and how often the high side was under the truth."""
    groups = {}
    for line in lines:
        groups.setdefault((line["mode"], line["source"]), []).append(line)
    order = {"prior": 0, "registry": 1, "told": 2, "learned": 3}
    rows = []
    for (mode, source), members in sorted(groups.items(),
                                          key=lambda item: (order[item[0][0]], item[0][1])):
        rows.append({"mode": mode, "source": source, **figures_of(members)})
    return rows


def figures_of(members):
    errors = [abs(line["error"]) for line in members]
    return {"pulls": len(members), "median": percentile(errors, 50),
            "p95": percentile(errors, 95), "worst": max(errors),
            "unpacked_median": percentile([abs(line["unpacked_error"]) for line in members], 50),
            "unpacked_worst": max(abs(line["unpacked_error"]) for line in members),
            "high_over_median": percentile([line["over"] for line in members], 50),
            "under": sum(line["short"] > 0 for line in members),
            "under_seen": sum(line["dip"] > 0 for line in members)}


def verdicts_of(lines):
    """(sentence, reached) for each target."""
    said = []
    for name, (median, worst) in TARGETS.items():
        chosen = [line for line in lines
                  if (line["source"] in EXACT) == (name == "exact")]
        if not chosen:
            continue
        figures = figures_of(chosen)
        what = "learned and TOC" if name == "exact" else "ISIZE, headers and prior"
        said.append((f"{what}: median error {figures['median']:.2f} % (at most {median:g})",
                     figures["median"] <= median))
        if worst is not None:
            said.append((f"{what}: worst error {figures['worst']:.2f} % (at most {worst:g})",
                         figures["worst"] <= worst))
    for key, what in (("short", "the truth"), ("dip", "the most that statfs showed meanwhile")):
        under = sum(line[key] > 0 for line in lines)
        share = 100.0 * under / len(lines) if lines else 0.0
        said.append((f"high side under {what} in {under} of {len(lines)} forecasts, "
                     f"{share:.2f} % (at most {UNDER_TRUTH_MOST:g})", share <= UNDER_TRUTH_MOST))
    return said


def dips_of(results):
    """Sentences: how much more statfs showed while a pull ran than at rest, by filesystem."""
    said = []
    for kind in sorted({result["kind"] for result in results}):
        truths = [result["truth"] for result in results if result["kind"] == kind]
        dips = [max(truth["peak_seen"] - truth["rest"], 0) for truth in truths]
        shares = [100.0 * dip / truth["rest"] for dip, truth in zip(dips, truths)]
        inodes = [dip / max(truth["inodes"], 1) for dip, truth in zip(dips, truths)]
        said.append(
            f"{kind}: while a pull ran statfs showed at most {max(dips) / MIB:.0f} MiB more than "
            f"at rest; median {percentile(shares, 50):.1f} % of the peak, "
            f"{percentile(inodes, 50) / 1000:.1f} kB an inode")
    return said


def markdown_summary(rows):
    text = ["| knows | size from | pulls | median | p95 | worst | unpacked only | high side "
            "| under |",
            "|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        text.append(
            f"| {row['mode']} | {row['source']} | {row['pulls']} | {row['median']:.2f} % "
            f"| {row['p95']:.2f} % | {row['worst']:.2f} % "
            f"| {row['unpacked_median']:.1f} / {row['unpacked_worst']:.1f} % "
            f"| {row['high_over_median']:+.1f} % | {row['under']} / {row['under_seen']} |")
    return "\n".join(text)


def markdown_images(lines):
    """One row for each image and filesystem: the truth and the error by each mode."""
    modes = [mode for mode in ("prior", "registry", "told", "learned")
             if any(line["mode"] == mode for line in lines)]
    table = {}
    for line in lines:
        table.setdefault(line["image"], {}).setdefault(
            line["kind"], {})[line["mode"]] = line
    text = ["| image | on | peak, MiB | " + " | ".join(modes) + " |",
            "|---|---|---|" + "---|" * len(modes)]
    for image, kinds in table.items():
        for kind, told in kinds.items():
            truth = next(iter(told.values()))["truth"] / MIB
            cells = [cell(told.get(mode)) for mode in modes]
            text.append(f"| {image} | {kind} | {truth:.0f} | " + " | ".join(cells) + " |")
    return "\n".join(text)


def cell(line):
    """Error of the middle, and of the high side: "+0.4 (+1)"; a "!" where that is under.

    The high side is held against the most that statfs showed while the pull ran."""
    if line is None:
        return ""
    return f"{line['error']:+.1f} ({line['over']:+.0f}){'!' if line['dip'] else ''}"
