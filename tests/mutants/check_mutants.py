#!/usr/bin/python3
"""The list of mutants does not rot: each one's text is in its file exactly once."""

import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main():
    with open(os.path.join(ROOT, "tests", "mutants", "mutants.json"), encoding="utf-8") as file:
        mutants = json.load(file)
    wrong = []
    names = [mutant["name"] for mutant in mutants]
    if len(names) < 25 or len(names) != len(set(names)):
        wrong.append("there must be 25 mutants or more, each with its own name")
    for mutant in mutants:
        with open(os.path.join(ROOT, mutant["file"]), encoding="utf-8") as file:
            times = file.read().count(mutant["old"])
        if times != 1 or mutant["old"] == mutant["new"]:
            wrong.append(f"{mutant['name']}: its text is {times} times in {mutant['file']}")
    print("\n".join(wrong) or f"{len(mutants)} mutants, each fits its file")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
