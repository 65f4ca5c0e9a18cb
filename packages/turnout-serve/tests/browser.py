"""Chromium without a window, told what to do through a pipe (the DevTools protocol)."""

import json
import os
import shutil
import subprocess
import time
from contextlib import suppress

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--window-size=390,844", "--remote-debugging-pipe",
)  # fmt: skip


class Page:
    """One page of a browser of its own."""

    def __init__(self, folder, url):
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        command = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, str(CHROMIUM), *_FLAGS, f"--user-data-dir={folder}"],
            pass_fds=(theirs_in, theirs_out),
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._left, self._number, self._session = b"", 0, None
        target = self._ask("Target.createTarget", url=url)["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def _ask(self, method, **params):
        """Send a command, and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        message |= {} if self._session is None else {"sessionId": self._session}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._left:
                piece = os.read(self._in, 1 << 16)
                assert piece, "the browser has ended"
                self._left += piece
            text, _, self._left = self._left.partition(b"\0")
            answer = json.loads(text)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def run(self, code):
        """Return what some JavaScript of the page gives."""
        found = self._ask("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition, seconds=30):
        """Wait until a condition in JavaScript holds. While a page is being loaded, nothing does."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with suppress(AssertionError):
                if self.run(f"(() => {{ try {{ return Boolean({condition}); }} catch {{ return false; }} }})()"):
                    return
            time.sleep(0.02)
        raise AssertionError(condition, self.run("document.body.innerText"))

    def mouse(self, kind, x, y):
        """Press, move or release the mouse."""
        self._ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
