"""What the benchmark programs share: their flags and their progress."""

import argparse
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
STARTED = time.monotonic()


def say(text):
    print(f"{time.monotonic() - STARTED:6.0f} s  {text}", file=sys.stderr, flush=True)


def arguments(description):
    parser = argparse.ArgumentParser(description=description.split("\n", maxsplit=1)[0])
    parser.add_argument("--agent", required=True, metavar="PATH")
    parser.add_argument("--json", required=True, metavar="FILE", help="where the rows go")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    return parser.parse_args()
