#!/usr/bin/python3
"""Each rule of check_tree.py finds what breaks it, and is silent about what doesn't."""

import os
import tempfile
import unittest

import check_tree

CLEAN = {
    "README.md": "# a\n",
    "agent/README.md": "# b\n",
    "agent/core/README.md": "# c\n",
    "agent/core/a.h": "#pragma once\n\n/// Says what.\n\n#include <vector>\n",
    "agent/core/a.cc": '#include "agent/core/a.h"\n\n// float in a comment is fine\n',
    "agent/core/a_test.cc": "#include <doctest/doctest.h>\n\ndouble x;\n",
    "agent/io/README.md": "# d\n",
    "agent/io/b.cc": "// untested: glue\n\nvoid f() { curl_easy_cleanup(x); kill(1, SIGKILL); }\n",
}


class Rules(unittest.TestCase):
    def findings(self, changes):
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**CLEAN, **changes}.items():
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "wb") as file:
                    file.write(text if isinstance(text, bytes) else text.encode())
            return check_tree.check(root)

    def finds(self, what, path, text):
        found = self.findings({path: text})
        self.assertTrue(any(what in line for line in found), f"{what}: {found}")

    def test_clean(self):
        self.assertEqual(self.findings({}), [])

    def test_layout(self):
        self.finds("101 columns", "agent/x.md", "x" * 101 + "\n")
        self.assertEqual(self.findings({"agent/x.md": "ü" * 100 + "\n"}), [])
        self.finds("a tab", "agent/x.md", "\ta\n")
        self.finds("spaces at the end", "agent/x.md", "a \n")
        self.finds("no newline", "agent/x.md", "a")
        self.finds("empty lines", "agent/x.md", "a\n\n")
        self.finds("not UTF-8", "agent/x.md", b"\xff\n")
        self.finds("a TODO names", "agent/x.md", "TO" "DO: later\n")

    def test_paths_and_accounts(self):
        for folder in ("work", "root", "home"):
            self.finds("path of one machine", "agent/x.md", f"see /{folder}/a\n")
        self.assertEqual(self.findings({"agent/x.md": "agent/work/a, ~/root/a\n"}), [])
        self.finds("account number", "agent/x.md", "2109876543" "21.dkr.ecr\n")
        self.assertEqual(self.findings({"agent/x.md": "123456789012.dkr.ecr\n"}), [])

    def test_headers(self):
        self.finds("#pragma once", "agent/io/x.h", "/// Says.\n")
        self.finds("/// sentence", "agent/io/x.h", "#pragma once\n\n#include <vector>\n")

    def test_core(self):
        for line in ("#include <thread>", "#include <unordered_map>", '#include "agent/io/loop.h"',
                     "#include <fmt/core.h>"):
            self.finds("core may not include", "agent/core/a.cc", line + "\n")
        for line in ("double x;", "float x;", "auto t = Clock::now();", 'getenv("A");',
                     "std::unordered_map<int, int> m;", "int r = rand();"):
            self.finds("not in core", "agent/core/a.cc", line + "\n")
        self.assertEqual(self.findings({"agent/core/a.cc": 'f("double");  // rand\n'}), [])
        self.assertEqual(self.findings({"agent/io/b_test.cc": "double x;\n"}), [])

    def test_tests(self):
        self.finds("no c_test.cc", "agent/io/c.cc", "void f();\n")
        self.assertEqual(self.findings({"agent/io/c.cc": "void f();\n",
                                        "agent/io/c_test.cc": "\n"[:0] + "// a\n"}), [])
        self.finds("a test that sleeps", "agent/io/c_test.cc", "usleep(3);\n")
        self.finds("a test that sleeps", "tests/unit/x.cc", "std::this_thread::sleep_for(1s);\n")

    def test_words(self):
        for name in ("purge_images", "CleanUp", "cleanup", "kill_pod", "KillPod", "nuke"):
            self.finds("not our word", "agent/io/b.cc", f"// untested: a\nvoid {name}();\n")
        self.assertEqual(self.findings({"agent/io/b.cc": "// untested: a\nvoid skill();\n"}), [])

    def test_folders(self):
        self.finds("agent/new:1: no README.md", "agent/new/x.md", "a\n")
        self.assertEqual(self.findings({"agent/new/x.md": "a\n",
                                        "agent/README.md": "# `new/` has data\n"}), [])
        self.finds("one page", "agent/README.md", "a\n" * 101)

    def test_python(self):
        self.finds("Python:", "tests/x.py", "def f(:\n")


if __name__ == "__main__":
    unittest.main()
