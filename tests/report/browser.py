"""A headless Chromium, driven over its DevTools protocol through a pair of pipes.

Nothing but Python's standard library: Chromium reads commands from file descriptor 3 and writes answers
to 4, each a JSON text that ends with a zero byte.
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

TIMEOUT = 120  # seconds for an answer; a busy machine is slow


class BrowserError(Exception):
    pass


class Browser:
    def __init__(self, program):
        to_child, self._to = os.pipe()
        self._from, from_child = os.pipe()
        self._profile = tempfile.mkdtemp(prefix="muon-chromium-")
        self._buffer = b""
        self._next = 0
        self.events = []
        # The shell puts the pipes where Chromium expects them, whatever their numbers are here.
        self._process = subprocess.Popen(
            ["sh", "-c", f'exec 3<&{to_child} 4>&{from_child}; exec "$@"', "sh", program,
             "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--hide-scrollbars", "--no-first-run", "--remote-debugging-pipe",
             f"--user-data-dir={self._profile}", "about:blank"],
            pass_fds=(to_child, from_child), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_child)
        os.close(from_child)
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.call(f"{domain}.enable")

    def close(self):
        try:
            self._call("Browser.close", {})
        except BrowserError:
            self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        shutil.rmtree(self._profile, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _read(self, deadline):
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._from], [], [], left)[0]:
                raise BrowserError(f"no answer from Chromium in {TIMEOUT} s")
            part = os.read(self._from, 1 << 20)
            if not part:
                raise BrowserError("Chromium ended")
            self._buffer += part
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def _call(self, method, params, session=None):
        self._next += 1
        command = {"id": self._next, "method": method, "params": params}
        if session:
            command["sessionId"] = session
        try:
            os.write(self._to, json.dumps(command).encode() + b"\0")
        except BrokenPipeError:
            raise BrowserError("Chromium ended") from None
        deadline = time.monotonic() + TIMEOUT
        while True:
            message = self._read(deadline)
            if message.get("id") == self._next:
                if "error" in message:
                    raise BrowserError(f"{method}: {message['error']['message']}")
                return message["result"]
            if "method" in message:
                self.events.append(message)

    def call(self, method, **params):
        """A command to the page."""
        return self._call(method, params, self._session)

    def open(self, url):
        """Loads a page and waits until it is there."""
        self.events.clear()
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + TIMEOUT
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            message = self._read(deadline)
            if "method" in message:
                self.events.append(message)

    def show(self, width, height, scheme, media=""):
        """The size of the window and what the reader prefers."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", media=media,
                  features=[{"name": "prefers-color-scheme", "value": scheme}])

    def run(self, script):
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in result:
            raise BrowserError(json.dumps(result["exceptionDetails"]))
        return result["result"].get("value")

    def point(self, x, y):
        """Moves the pointer."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self, path):
        """The whole page as a PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                         clip={"x": 0, "y": 0, "width": size["width"], "height": size["height"],
                               "scale": 1})["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
