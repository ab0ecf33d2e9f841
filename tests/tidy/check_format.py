#!/usr/bin/python3
"""Every C++ file is as clang-format 14 would write it. `ninja -C build clang-format` rewrites."""

import os
import shutil
import subprocess
import sys

import check_tree

TOOL = "clang-format-14"
FIRST_LINES = 40


def main():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if shutil.which(TOOL) is None:
        print(f"skipped: {TOOL} is not installed")
        return 77
    paths = [path for path in check_tree.Tree(root).paths if check_tree.CODE.search(path)]
    if not paths:
        return 0
    done = subprocess.run([TOOL, "--dry-run", "-Werror", "--style=file", *paths], cwd=root,
                          stderr=subprocess.PIPE, text=True, check=False)
    lines = done.stderr.splitlines()
    print("\n".join(lines[:FIRST_LINES]) if lines else f"{len(paths)} files are formatted")
    return 1 if done.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
