#!/usr/bin/python3
"""How tests/runner.py counts: never a failure that looks like a pass."""

import unittest

from runner import RESULT, Count, count_cases


class Counting(unittest.TestCase):
    def test_doctest(self):
        text = "[doctest] test cases:  12 |  11 passed | 1 failed | 0 skipped\n"
        self.assertEqual(count_cases(text, False), Count(11, 1))
        text = "[doctest] test cases: 120 | 120 passed | 0 failed | 3 skipped\n"
        self.assertEqual(count_cases(text, True), Count(120, 0))

    def test_unittest(self):
        self.assertEqual(count_cases("Ran 8 tests in 1.2s\n\nOK\n", True), Count(8, 0))
        self.assertEqual(count_cases("Ran 8 tests in 1.2s\n\nOK (skipped=3)\n", True), Count(5, 0))
        text = "Ran 8 tests in 1.2s\n\nFAILED (failures=2, errors=1, skipped=1)\n"
        self.assertEqual(count_cases(text, False), Count(4, 3))

    def test_others_are_one(self):
        self.assertEqual(count_cases("fine\n", True), Count(1, 0))
        self.assertEqual(count_cases("", False), Count(0, 1))

    def test_a_crash_after_the_summary_is_a_failure(self):
        text = "[doctest] test cases: 3 | 3 passed | 0 failed | 0 skipped\nLeakSanitizer: ...\n"
        self.assertEqual(count_cases(text, False), Count(3, 1))

    def test_lines_of_meson(self):
        for line, name, result in (
                ("1/3 imagefs-guard:tidy / check_tree_test OK              1.61s",
                 "check_tree_test", "OK"),
                (" 2/13 core      FAIL            1.85s   exit status 1", "core", "FAIL"),
                ("3/3 imagefs-guard:integration / lab SKIP    0.04s", "lab", "SKIP")):
            found = RESULT.match(line)
            self.assertEqual((found[1], found[2]), (name, result))


if __name__ == "__main__":
    unittest.main()
