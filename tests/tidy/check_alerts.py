#!/usr/bin/python3
"""Rules about daemonset/alerts and daemonset/dashboards: every metric in a rule or a query is one
that the agent has, every alert has a case in which it fires and a line in the README, and
promtool's own checks and cases pass.

check_alerts.py [ROOT] prints what is wrong; exit 1 if there is anything. Without promtool the rest
is checked, and it says so.
"""

import json
import os
import re
import shutil
import subprocess
import sys

import yaml

FOREIGN = {"up"}
# Names in PromQL that are no metrics: functions, keywords, labels.
NAME = re.compile(r"\b(imagefs_guard_\w+|process_\w+|up)\b")
SUFFIXES = ("_bucket", "_count", "_sum")


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def metrics_of(root):
    """The names as they are scraped: counters end with _total."""
    text = read(root, "agent/status/metrics.cc")
    names = set(re.findall(r'"((?:imagefs_guard|process)_\w+)"', text))
    counters = set(re.findall(r'counter\(\s*"(\w+)"', text))
    counters |= set(re.findall(r'"(\w+)",\s*MetricType::Counter', text))
    requests = {name for name in names if name.endswith("_requests")}
    histograms = set(re.findall(r'histogram\(\s*"(\w+)"', text))
    return (names - counters - requests - histograms) \
        | {f"{name}_total" for name in counters | requests} \
        | {name + suffix for name in histograms for suffix in SUFFIXES}


def check(root):
    findings = []
    rules = [rule for group in yaml.safe_load(read(root, "daemonset/alerts/rules.yaml"))["groups"]
             for rule in group["rules"]]
    tests = yaml.safe_load(read(root, "daemonset/alerts/rules_test.yaml"))["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    firing = {case["alertname"] for case in cases if case.get("exp_alerts")}
    readme = read(root, "daemonset/alerts/README.md")
    known = metrics_of(root) | FOREIGN
    for rule in rules:
        name = rule["alert"]
        for metric in NAME.findall(rule["expr"]):
            if metric not in known:
                findings.append(f"{name}: the agent has no metric {metric}")
        if name not in firing:
            findings.append(f"{name}: no case in which it fires")
        if f"**{name}**" not in readme:
            findings.append(f"{name}: not in the README")
        if rule.get("labels", {}).get("severity") not in ("info", "warning", "critical"):
            findings.append(f"{name}: no severity")
    return findings


def check_dashboard(root):
    """Each metric in a query is the agent's, and each query leaves the choice of agents open."""
    findings = []
    for panel in json.loads(read(root, "daemonset/dashboards/imagefs-guard.json"))["panels"]:
        for target in panel["targets"]:
            for metric in NAME.findall(target["expr"]):
                if metric not in metrics_of(root) | FOREIGN:
                    findings.append(f"{panel['title']}: the agent has no metric {metric}")
            if "$instance" not in target["expr"]:
                findings.append(f"{panel['title']}: a query of all agents, whatever is chosen")
    return findings


def promtool(root):
    if shutil.which("promtool") is None:
        print("check_alerts: no promtool (tests/packages integration), so its cases don't run")
        return []
    findings = []
    for arguments in (["check", "rules", "rules.yaml"], ["test", "rules", "rules_test.yaml"]):
        done = subprocess.run(["promtool", *arguments], capture_output=True, text=True,
                              cwd=os.path.join(root, "daemonset", "alerts"), check=False)
        if done.returncode != 0:
            findings.append(f"promtool {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return findings


def main():
    default = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    root = sys.argv[1] if len(sys.argv) > 1 else default
    findings = check(root) + check_dashboard(root) + promtool(root)
    print("\n".join(findings) if findings else "check_alerts: nothing to say")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
