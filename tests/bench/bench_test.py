#!/usr/bin/python3
"""The benchmark's own tools: blobs are what they say, and the arithmetic of its table."""

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "fakes")]

import blobs  # noqa: E402
import figures  # noqa: E402
from recipes import QUICK, recipes  # noqa: E402
from trees import make_files  # noqa: E402


class Blobs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = os.path.join(folder.name, "tree")
        self.path = os.path.join(folder.name, "blob")
        os.makedirs(os.path.join(self.tree, "usr/lib"))
        self.big = bytes(range(256)) * 40_000  # three chunks
        for name, data in (("usr/lib/big", self.big), ("usr/a", b"a"), ("empty", b"")):
            with open(os.path.join(self.tree, name), "wb") as file:
                file.write(data)
        os.link(os.path.join(self.tree, "usr/a"), os.path.join(self.tree, "usr/lib/b"))
        os.symlink("big", os.path.join(self.tree, "usr/lib/link"))

    def unpacked(self, form):
        """The tar's bytes, by tools that did not make it."""
        if form == "tar":
            with open(self.path, "rb") as file:
                return file.read()
        if form in ("gzip", "estargz"):
            with gzip.open(self.path) as file:
                return file.read()
        return subprocess.run(["zstd", "-dqc", self.path], capture_output=True, check=True).stdout

    def test_every_form(self):
        for form in blobs.FORMS:
            with self.subTest(form):
                blob = blobs.make_blob(self.tree, form, self.path)
                with open(self.path, "rb") as file:
                    digest = hashlib.sha256(file.read()).hexdigest()
                self.assertEqual(blob.digest, f"sha256:{digest}")
                self.assertEqual(blob.compressed_bytes, os.path.getsize(self.path))
                tar = self.unpacked(form)
                self.assertEqual(blob.diff_id, "sha256:" + hashlib.sha256(tar).hexdigest())
                self.assertEqual(blob.tar_bytes, len(tar))
                with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
                    names = [name for name in archive.getnames() if name not in
                             (blobs.STARGZ_TOC, blobs.NO_PREFETCH)]
                    self.assertEqual(names, ["empty", "usr", "usr/a", "usr/lib", "usr/lib/b",
                                             "usr/lib/big", "usr/lib/link"])
                    self.assertEqual(archive.extractfile("usr/lib/big").read(), self.big)
                    self.assertTrue(archive.getmember("usr/lib/b").islnk())

    def test_table_of_contents(self):
        blobs.make_blob(self.tree, "estargz", self.path)
        with tarfile.open(fileobj=io.BytesIO(self.unpacked("estargz"))) as archive:
            toc = json.load(archive.extractfile(blobs.STARGZ_TOC))
        chunks = [entry for entry in toc["entries"] if entry["name"] == "usr/lib/big"]
        self.assertEqual([entry["type"] for entry in chunks], ["reg", "chunk", "chunk"])
        self.assertEqual(chunks[0]["size"], len(self.big))
        with open(self.path, "rb") as file:
            file.seek(chunks[1]["offset"])
            member = gzip.decompress(file.read(chunks[2]["offset"] - chunks[1]["offset"]))
        self.assertEqual(member, self.big[4 << 20:8 << 20])

    @unittest.skipIf(os.geteuid() != 0, "device nodes need root")
    def test_whiteouts(self):
        os.mknod(os.path.join(self.tree, "usr/gone"), 0o020000)
        try:
            os.setxattr(os.path.join(self.tree, "usr/lib"), "trusted.overlay.opaque", b"y")
        except OSError as error:
            self.skipTest(f"no such attribute here: {error}")
        names = [entry.name for entry, _ in blobs.entries(self.tree)]
        self.assertIn("usr/.wh.gone", names)
        self.assertNotIn("usr/gone", names)
        self.assertEqual(names[names.index("usr/lib") + 1], "usr/lib/.wh..wh..opq")

    def test_made_up_files(self):
        for form, amount in (("random", 1), ("zeros", 1), ("small", 2100), ("links", 450)):
            tree = os.path.join(self.tree, form)
            make_files(tree, form, amount)
            names = [name for _, _, found in os.walk(tree) for name in found]
            self.assertEqual(len(names), 4 if form in ("random", "zeros") else amount)


class Figures(unittest.TestCase):
    @staticmethod
    def result(mid, high, truth, source="gzip trailer"):
        band = {"low": mid, "mid": mid, "high": high}
        return {"image": "a", "form": "gzip", "kind": "ext4",
                "truth": {"peak": truth, "peak_seen": 0, "unpacked": truth, "inodes": 1},
                "forecasts": {"registry": {"source": source, "peak": band, "unpacked": band,
                                           "inodes": 1}}}

    def test_errors(self):
        lines = figures.lines_of([self.result(110, 130, 100), self.result(95, 99, 100),
                                  self.result(100, 100, 100)])
        row, = figures.summary_of(lines)
        self.assertEqual((row["pulls"], row["median"], row["worst"]), (3, 5.0, 10.0))
        self.assertEqual(row["under"], 1)
        self.assertIn("+10.0 (+30) |", figures.markdown_images(lines[:1]))
        self.assertIn("-5.0 (-1)!", figures.markdown_images(lines[1:2]))

    def test_percentiles(self):
        self.assertEqual(figures.percentile([], 50), 0.0)
        self.assertEqual(figures.percentile([3, 1, 2], 50), 2)
        self.assertEqual(figures.percentile(range(1, 101), 95), 95)

    def test_targets(self):
        exact = "table of contents"
        lines = figures.lines_of([self.result(101, 102, 100, exact), self.result(110, 120, 100)])
        self.assertTrue(all(reached for _, reached in figures.verdicts_of(lines)))
        lines = figures.lines_of([self.result(109, 120, 100, exact), self.result(80, 90, 100)])
        self.assertEqual([reached for _, reached in figures.verdicts_of(lines)], [False] * 5)


class Recipes(unittest.TestCase):
    def test_names(self):
        names = [recipe.name for recipe in recipes()]
        self.assertGreaterEqual(len(names), 30)
        self.assertEqual(len(set(names)), len(names))
        self.assertLessEqual(set(QUICK), set(names))
        self.assertFalse([recipe.name for recipe in recipes()
                          if recipe.docker and recipe.form != "gzip"])


if __name__ == "__main__":
    unittest.main()
