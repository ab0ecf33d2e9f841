"""A headless Chromium, spoken to in the DevTools protocol over a pipe."""

import base64
import json
import os
import select
import shutil
import subprocess
import time

from harness import lab

REPLY_SECONDS = 30.0


class Browser:
    """One page of one browser. Use it with `with`; everything ends with it."""

    def __init__(self, folder):
        self._folder = folder
        self._buffer = b""
        self._next = 0
        self.events = []
        self._process = None

    def __enter__(self):
        if shutil.which("chromium") is None:
            raise lab.Missing("chromium is not here: tests/packages integration")
        to_child, self._to = os.pipe()
        self._from, from_child = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--no-first-run", "--hide-scrollbars", "--disable-background-networking",
                 "--disable-component-update", "--disable-extensions", "--no-proxy-server",
                 f"--user-data-dir={self._folder}", "--remote-debugging-pipe", "about:blank"]
        with open(os.path.join(self._folder, "chromium.log"), "wb") as log:
            self._process = subprocess.Popen(
                ["/bin/bash", "-c", f'exec "$@" 3<&{to_child} 4>&{from_child}', "sh", "chromium",
                 *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                pass_fds=(to_child, from_child), start_new_session=True,
                env={"PATH": os.environ["PATH"], "HOME": self._folder, "LANG": "C.UTF-8"})
        os.close(to_child)
        os.close(from_child)
        self._session = None
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"],
                                  flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Accessibility"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        os.close(self._to)
        os.close(self._from)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait(5)

    def call(self, method, **parameters):
        """The result of a command; fails with the browser's word."""
        self._next += 1
        number = self._next
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + REPLY_SECONDS
        while True:
            reply = self._receive(end)
            if reply.get("id") == number:
                if "error" in reply:
                    raise AssertionError(f"{method}: {reply['error']['message']}")
                return reply["result"]
            self.events.append(reply)

    def _receive(self, end):
        while b"\0" not in self._buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._from], [], [], left)[0]:
                raise AssertionError("the browser does not answer")
            data = os.read(self._from, 1 << 20)
            if not data:
                raise AssertionError("the browser has ended")
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(line)

    def open(self, url):
        """Loads a page, and waits until it has been painted."""
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && "
                   "performance.getEntriesByType('paint').length > 0")

    def look(self, width, scheme):
        """As a device of this width, "light" or "dark", sees it."""
        self.call("Emulation.setDeviceMetricsOverride", width=width,
                  height=900, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme}])

    def evaluate(self, expression):
        """The value of a JavaScript expression; promises are waited for."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                         awaitPromise=True)
        if "exceptionDetails" in done:
            raise AssertionError(f"{expression}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def until(self, expression, seconds=20.0):
        """Waits until the expression is true, and returns it."""
        return lab.wait_until(lambda: self.evaluate(expression), seconds, what=expression)

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode={"Tab": 9, "ArrowLeft": 37, "Enter": 13}[key])

    def screenshot(self, path):
        """The whole page as PNG."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def requested(self):
        """URLs of all requests so far."""
        return [event["params"]["request"]["url"] for event in self.events
                if event.get("method") == "Network.requestWillBeSent"]

    def complaints(self):
        """What the page has thrown or was refused."""
        return [event["params"] for event in self.events
                if event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded")]
