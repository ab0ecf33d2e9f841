#!/usr/bin/python3
"""The status page of the real agent in a real browser: what it shows, narrow and wide, light and
dark, with keyboard and screen reader; that names from outside stay text; and `status`."""

import json
import os
import subprocess

from browser import Browser
from harness import LAYERS, NodeTest, binary, exit_of, lab, run_tests

FIRST_PAINT_MS = 200
STATUS_BYTES = 64 << 10
EVIL = '127.0.0.1:1/<img/src=x/onerror=window.hacked=1></script><script>window.hacked=1</script>'
# Text whose contrast with what is behind it is below 4.5 : 1.
FAINT = """(() => {
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const faint = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.getClientRects().length
      || element.closest("svg, script, noscript, .hidden, .skip")) continue;
    const ink = luminance(parse(getComputedStyle(element).color));
    const ground = luminance(behind(element));
    const contrast = (Math.max(ink, ground) + .05) / (Math.min(ink, ground) + .05);
    if (contrast < 4.5) faint.push(texts.currentNode.data.trim() + " " + contrast.toFixed(2));
  }
  return faint;
})()"""
TEXT = "document.getElementById('{}').innerText"


def screenshots(owner):
    """Where they stay: beside the test's logs where meson runs it, else in the lab."""
    logs = os.path.join(os.path.dirname(binary()), "meson-logs")
    folder = os.path.join(logs, "status-page") if os.path.isdir(logs) else owner.path("shots")
    folder = os.environ.get("IMAGEFS_GUARD_SCREENSHOTS", folder)
    os.makedirs(folder, exist_ok=True)
    return folder


class StatusPageTest(NodeTest):
    @classmethod
    def prepare(cls):
        cls.image, cls.name = cls.push("etl", LAYERS)
        _, cls.small = cls.push("tiny", LAYERS[:1])

    def browse(self, agent):
        folder = self.lab.path(self.lab.unique("browser"))
        os.mkdir(folder)
        browser = Browser(folder)
        try:
            browser.__enter__()
        except lab.Missing as error:
            self.skipTest(str(error))
        self.addCleanup(browser.__exit__)
        self.url = f"http://127.0.0.1:{agent.wait_for('listening')['port']}/"
        return browser

    def guarded(self):
        """An agent that holds a pull, beside a pod whose image can't be judged."""
        agent = self.start_agent()
        self.cluster.create_job("odd", EVIL)
        self.until(lambda: self.cluster.job_pod("odd"), 10, "its pod")
        _, record = self.start_pull_that_is_held(agent, self.name)
        self.until(lambda: "can't be judged" in agent.get("/status.json?now")[1], 20, "the odd one")
        self.until(lambda: self.status(agent)["stage"] == "guard", 20, "Guard")
        self.until(lambda: self.status(agent)["findings"], 20, "a finding")
        return agent, record

    def status(self, agent):
        status, text = agent.get("/status.json")
        self.assertEqual(status, 200)
        self.assertLess(len(text), STATUS_BYTES)
        return json.loads(text)

    def test_what_it_shows(self):
        agent, _ = self.guarded()
        browser = self.browse(agent)
        folder = screenshots(self.lab)
        for width in (360, 1600):
            for scheme in ("light", "dark"):
                with self.subTest(width=width, scheme=scheme):
                    browser.look(width, scheme)
                    browser.open(self.url)
                    self.check_content(browser)
                    self.assertLessEqual(
                        browser.evaluate("document.documentElement.scrollWidth"), width)
                    self.assertEqual(browser.evaluate(FAINT), [])
                    browser.screenshot(os.path.join(folder, f"{width}-{scheme}.png"))
        self.assertEqual(browser.complaints(), [])
        outside = [url for url in browser.requested()
                   if not url.startswith((self.url, "data:", "about:"))]
        self.assertEqual(outside, [])

    def check_content(self, browser):
        stage = browser.evaluate(TEXT.format("stage"))
        self.assertIn("Guard", stage)
        self.assertIn(f"the pull of {self.name} is held: it needs", stage)
        space = browser.evaluate(TEXT.format("space"))
        for words in ("Images in use", "Free to use", "Floor", "imagefs.available", "Headroom"):
            self.assertIn(words, space)
        pulls = browser.evaluate(TEXT.format("pulls"))
        for words in (self.name, "held", "GiB at its peak", "default/flow-"):
            self.assertIn(words, pulls)
        self.assertIn("imageGCHighThresholdPercent", browser.evaluate(TEXT.format("findings")))
        self.assertIn("floor", browser.evaluate(TEXT.format("history")))
        self.assertIn("runtime", browser.evaluate(TEXT.format("parts")))
        # What pods are called stays text.
        self.assertIn("<img", pulls)
        self.assertFalse(browser.evaluate("'hacked' in window"))
        self.assertEqual(browser.evaluate("document.querySelectorAll('main img').length"), 0)

    def test_screen_reader_and_keyboard(self):
        agent, _ = self.guarded()
        browser = self.browse(agent)
        for width in (360, 1600):
            browser.look(width, "light")
            browser.open(self.url)
            nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
            seen = [(node["role"]["value"], node.get("name", {}).get("value", ""))
                    for node in nodes if not node["ignored"]]
            roles = [role for role, _ in seen]
            for role in ("banner", "main", "contentinfo", "heading", "table", "columnheader",
                         "rowheader", "cell", "slider"):
                self.assertIn(role, roles, width)
            regions = [name for role, name in seen if role == "region"]
            self.assertIn("Pulls in flight and held", regions)
            images = [name for role, name in seen if role == "image"]
            self.assertEqual(len(images), 2, images)
            self.assertIn("Free to use", images[0])
            self.assertIn("Free space from", images[1])
            self.assertFalse([pair for pair in seen if pair[0] in ("table", "slider", "link")
                              and not pair[1]], "something has no name")
        browser.press("Tab")
        self.assertEqual(browser.evaluate("document.activeElement.className"), "skip")
        reached = []
        for _ in range(12):
            browser.press("Tab")
            reached.append(browser.evaluate(
                "document.activeElement.id || document.activeElement.tagName.toLowerCase()"))
        for element in ("moment", "summary", "a"):
            self.assertIn(element, reached)
        browser.evaluate("document.getElementById('moment').focus()")
        browser.press("ArrowLeft")
        self.assertIn("free, floor", browser.evaluate(
            "document.getElementById('moment').getAttribute('aria-valuetext')"))

    def test_lives_without_reload(self):
        agent, _ = self.guarded()
        browser = self.browse(agent)
        browser.look(1600, "light")
        browser.open(self.url)
        browser.evaluate("window.loaded = 1")
        self.disk.remove_filler()
        browser.until(f"!{TEXT.format('pulls')}.includes({json.dumps(self.name)})", 40)
        browser.until(f"{TEXT.format('stage')}.includes('Clear')", 40)
        self.assertEqual(browser.evaluate("window.loaded"), 1)
        agent.process.stop()
        browser.until("!document.getElementById('lost').hidden", 30)
        self.assertIn("No answer from the agent since", browser.evaluate(TEXT.format("lost")))

    def test_first_paint(self):
        agent, _ = self.guarded()
        browser = self.browse(agent)
        browser.look(1600, "light")
        times = []
        for _ in range(5):
            browser.open(self.url)
            times.append(browser.evaluate(
                "performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        print(f"\nfirst contentful paint: {', '.join(f'{time:.0f}' for time in times)} ms",
              flush=True)
        self.assertLess(min(times), FIRST_PAINT_MS)

    def test_the_numbers_are_the_disk_s(self):
        agent = self.start_agent()
        self.cluster.create_job("small", self.small, run_seconds=0.2)
        self.until(lambda: (self.status(agent)["space"] or {}).get("imagesBytes"), 30, "the image")
        status = self.status(agent)
        disk, space = status["filesystem"], status["space"]
        self.assertEqual(disk["capacityBytes"], self.disk.capacity_bytes())
        parts = ("imagesBytes", "reclaimableBytes", "blobsBytes", "inFlightBytes",
                 "leftoverBytes", "otherBytes")
        self.assertEqual(sum(space[part] for part in parts),
                         disk["capacityBytes"] - disk["availableBytes"])
        self.until(lambda: len(self.status(agent)["history"]) > 0, 10, "a sample")

    def test_in_a_terminal(self):
        agent, _ = self.guarded()
        address = f"127.0.0.1:{agent.wait_for('listening')['port']}"
        done = subprocess.run([binary(), "status", "--address", address], capture_output=True,
                              text=True, timeout=20, check=False, env={"COLUMNS": "100"})
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for words in (": guard, mode enforce", f"the pull of {self.name} is held", "| floor",
                      "Findings:"):
            self.assertIn(words, done.stdout)
        print("\n" + done.stdout, flush=True)
        done = subprocess.run([binary(), "status", "--address", address, "-o", "json"],
                              capture_output=True, text=True, timeout=20, check=False)
        self.assertEqual(json.loads(done.stdout)["stage"], "guard")
        agent.process.stop()
        code, error = exit_of(["status", "--address", address])
        self.assertEqual(code, 1)
        self.assertEqual(error.count("\n"), 1)
        self.assertIn(f"no agent answers on {address}", error)


if __name__ == "__main__":
    run_tests()
