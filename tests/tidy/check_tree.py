#!/usr/bin/python3
"""Rules about the sources that no compiler checks; the list is in README.md.

check_tree.py [ROOT] prints "path:line: what is wrong" for each finding; exit 1 if there are any.
"""

import ast
import os
import re
import subprocess
import sys

COLUMNS = 100
README_LINES = 100
# Made by tools, or with a format of their own.
FOREIGN = re.compile(r"(\.(go|mod|sum|jsonl|json|svg|png|bin|golden|corpus)|(^|/)LICENSE)$|"
                     r"^tests/fuzz/corpus/")
CODE = re.compile(r"\.(cc|h)$")
OURS = re.compile(r"^(agent|probes)/")
# Only these may be included in agent/core: values and algorithms, nothing that reaches outside.
CORE_HEADERS = set("""algorithm array bit charconv chrono compare concepts cstddef cstdint cstring
    deque functional initializer_list iterator limits map memory numeric optional ranges set span
    string string_view tuple type_traits utility variant vector version""".split())
# VERIFY prints and aborts: the one place in core that may.
CORE_EXTRA_HEADERS = {"agent/core/verify.cc": {"cstdio", "cstdlib"}}
CORE_WORDS = re.compile(r"::now\(|\bgetenv\b|\brand\b|\brandom_device\b|\bmt19937|\bunordered_|"
                        r"\bfloat\b|\bdouble\b|\bthread\b|\bmutex\b")
NEVER_WORDS = re.compile(r"(?i:purge|nuke|clean_?up)|(^|_)kill(_|$|ed|er|s)|Kill")
# Names of others: libcurl's functions, the system call and its signals.
FOREIGN_NAMES = re.compile(r"^(curl_\w*|CURL\w*|sd_\w*|MHD_\w*|kill|SIGKILL)$")
SLEEP = re.compile(r"\b\w*sleep\w*\s*\(")
# Written apart, so that this file doesn't find itself.
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(" + "|".join(("work", "root", "home", "farm")) + r")/")
ACCOUNT = re.compile(r"\b(?!123456789012)\d{12}\.dkr\b")
TODO = re.compile(r"\b(TODO|FIXME|XXX)\b(?!\(#\d+\))")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
UNTESTED = re.compile(r"^// untested: \S+", re.MULTILINE)


class Tree:
    """All files of the project, as git sees them, and the findings about them."""

    def __init__(self, root):
        self.root = root
        self.findings = []
        self.paths = sorted(path for path in _listed(root)
                            if os.path.isfile(os.path.join(root, path)))

    def read(self, path):
        with open(os.path.join(self.root, path), "rb") as file:
            return file.read()

    def find(self, path, line, text):
        self.findings.append(f"{path}:{line}: {text}")


def _listed(root):
    listed = subprocess.run(
        ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True, check=False)
    if listed.returncode == 0:
        return listed.stdout.decode().strip("\0").split("\0")
    found = []
    for folder, folders, names in os.walk(root):  # an unpacked archive
        folders[:] = [name for name in folders if not name.startswith((".", "build"))
                      and name != "__pycache__"]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return found


def without_comments(text):
    """C++ with comments and literals blanked; lines keep their numbers."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'
                         r"(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'", re.DOTALL)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def check_text(tree, path, text):
    """Layout and words in every file of ours."""
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > COLUMNS:
            tree.find(path, number, f"{len(line)} columns, at most {COLUMNS}")
        if "\t" in line:
            tree.find(path, number, "a tab")
        if line != line.rstrip():
            tree.find(path, number, "spaces at the end of the line")
        if MACHINE_PATH.search(line):
            tree.find(path, number, "a path of one machine")
        if ACCOUNT.search(line):
            tree.find(path, number, "an account number other than 123456789012")
        if TODO.search(line) and not path.startswith("tests/tidy/"):
            tree.find(path, number, "a TODO names its issue: TODO(#3)")
    if text and not text.endswith("\n"):
        tree.find(path, text.count("\n") + 1, "no newline at the end")
    if text.endswith("\n\n"):
        tree.find(path, text.count("\n"), "empty lines at the end")


def check_scripts(tree, path, text):
    """A program says what runs it, and Python parses."""
    first = text.split("\n", maxsplit=1)[0]
    executable = os.access(os.path.join(tree.root, path), os.X_OK)
    if executable and first not in ("#!/usr/bin/python3", "#!/bin/bash", "#!/bin/sh"):
        tree.find(path, 1, "executable, but its first line is not #!/usr/bin/python3 or "
                  "#!/bin/bash")
    if path.endswith(".py") or first == "#!/usr/bin/python3":
        try:
            ast.parse(text)
        except SyntaxError as error:
            tree.find(path, error.lineno or 1, f"Python: {error.msg}")


def check_header(tree, path, text):
    lines = [line for line in text.split("\n") if line]
    if lines[:1] != ["#pragma once"]:
        tree.find(path, 1, "a header starts with #pragma once")
    if len(lines) < 2 or not lines[1].startswith("/// "):
        tree.find(path, 2, "a header says its job in a /// sentence after #pragma once")


def check_code(tree, path, text):
    """C++: includes, words, tests."""
    code = without_comments(text)
    is_test = path.endswith("_test.cc") or path.startswith("tests/")
    in_core = path.startswith("agent/core/") and not is_test
    for number, (line, raw) in enumerate(zip(code.split("\n"), text.split("\n")), 1):
        include = INCLUDE.match(raw)
        if include:
            if in_core:
                check_core_include(tree, path, number, include)
            continue
        if in_core and CORE_WORDS.search(line):
            tree.find(path, number, f"not in core: {CORE_WORDS.search(line)[0]}")
        if is_test and SLEEP.search(line):
            tree.find(path, number, "a test that sleeps: wait for what you expect instead")
        if OURS.match(path):
            for name in re.findall(r"[A-Za-z_]\w*", line):
                if NEVER_WORDS.search(name) and not FOREIGN_NAMES.match(name):
                    tree.find(path, number, f"not our word: {name} (hold, release, cancel, drain, "
                              "remove, reclaim)")
    if path.endswith(".cc") and not is_test and OURS.match(path):
        stem = os.path.splitext(os.path.basename(path))[0]
        beside = f"{path[:-3]}_test.cc"
        if beside not in tree.paths and f"tests/unit/{stem}_test.cc" not in tree.paths \
                and not UNTESTED.search(text):
            tree.find(path, 1, f"no {stem}_test.cc beside it or in tests/unit; or say why: "
                      "// untested: REASON")


def check_core_include(tree, path, number, include):
    bracket, name = include[1], include[2]
    allowed = name.startswith("agent/core/") if bracket == '"' else \
        name in CORE_HEADERS | CORE_EXTRA_HEADERS.get(path, set())
    if not allowed:
        tree.find(path, number, f"core may not include {name}")


def check_folders(tree):
    """Each folder has a README.md of one page, or is named in the one above it."""
    folders = {os.path.dirname(path) for path in tree.paths}
    for folder in sorted(folders):
        if any(part.startswith(".") for part in folder.split("/")):
            continue
        readme = os.path.join(folder, "README.md")
        if readme in tree.paths:
            lines = tree.read(readme).count(b"\n")
            if folder and lines > README_LINES:
                tree.find(readme, lines, f"{lines} lines; one page has {README_LINES}")
        elif not named_above(tree, folder):
            tree.find(folder or ".", 1, "no README.md")


def named_above(tree, folder):
    """True where a folder above has a README that names this one, as `name/`."""
    parent, name = os.path.split(folder)
    readme = os.path.join(parent, "README.md")
    if readme in tree.paths and f"{name}/".encode() in tree.read(readme):
        return True
    return bool(parent) and os.path.join(parent, "README.md") not in tree.paths \
        and named_above(tree, parent)


def check(root):
    """All findings, in the order of the paths."""
    tree = Tree(root)
    for path in tree.paths:
        if FOREIGN.search(path):
            continue
        try:
            text = tree.read(path).decode()
        except UnicodeDecodeError:
            tree.find(path, 1, "not UTF-8")
            continue
        check_text(tree, path, text)
        check_scripts(tree, path, text)
        if OURS.match(path) and path.endswith(".h"):
            check_header(tree, path, text)
        if CODE.search(path):
            check_code(tree, path, text)
    check_folders(tree)
    return tree.findings


def main():
    default = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    findings = check(sys.argv[1] if len(sys.argv) > 1 else default)
    print("\n".join(findings) if findings else "check_tree: nothing to say")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
