"""Drives a Chromium over its debugging pipe: commands in, events out, as JSON with a zero byte behind each.

Source: the Chrome DevTools Protocol. A pipe needs no WebSocket and opens no port.
"""

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

DEADLINE_S: Final = 60
RECEIVED: Final = "Network.responseReceived"

Event = dict[str, Any]


class Page:
    """One page. `events` has all that it reported."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = answers
        self._read = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[Event] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer. Raises: RuntimeError: it failed; TimeoutError."""
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            command["sessionId"] = self._session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        deadline = time.monotonic() + DEADLINE_S
        while True:
            message = self._next(deadline)
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return dict(message["result"])

    def open(self, url: str) -> None:
        """Forget the events, and go to a URL."""
        self.events.clear()
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    @contextmanager
    def at(self, target: str) -> Iterator[None]:
        """Speak to another page of the browser while this lasts."""
        own, session = self._session, self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._session = session
        try:
            yield
        finally:
            self._session = own

    def wait(self, script: str, wanted: Callable[[Any], bool] = bool) -> Any:
        """The first value of an expression that is wanted. Raises: TimeoutError: there was none."""
        deadline = time.monotonic() + DEADLINE_S
        while not wanted(value := self.run(script)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{script} is still {value!r}; the page said {self.complaints()}")
            self.gather(0.1)
        return value

    def gather(self, seconds: float) -> None:
        """Take in events for so long."""
        with contextlib.suppress(TimeoutError):
            while True:
                self._next(time.monotonic() + seconds)

    def requested(self) -> list[str]:
        """The URLs that the page asked for."""
        return [
            event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"
        ]

    def answered(self) -> list[tuple[str, int]]:
        """The URLs that were answered, each with its status, in order."""
        answers = [event["params"]["response"] for event in self.events if event["method"] == RECEIVED]
        return [(answer["url"], answer["status"]) for answer in answers]

    def complaints(self) -> list[str]:
        """Errors and warnings of the browser, such as what the policy refused, and exceptions of scripts."""
        found = []
        for event in self.events:
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(event["params"]["exceptionDetails"]))
            entry = event["params"].get("entry", {})
            if event["method"] == "Log.entryAdded" and entry["level"] in ("error", "warning"):
                found.append(entry["text"])
        return found

    def _next(self, deadline: float) -> Event:
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._answers], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("Chromium did not answer")
            part = os.read(self._answers, 1 << 20)
            if not part:
                raise RuntimeError("Chromium ended")
            self._read += part
        text, _, self._read = self._read.partition(b"\0")
        message: Event = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message


@contextmanager
def browser(program: str, home: Path, *more: str) -> Iterator[Page]:
    """A Chromium with a profile of its own in `home`, for as long as this lasts. `more`: options of Chromium."""
    theirs_in, commands = os.pipe()
    answers, theirs_out = os.pipe()
    options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe")
    shell = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
    process = subprocess.Popen(
        ["bash", "-c", shell, program, *options, *more, f"--user-data-dir={home}"],
        pass_fds=(theirs_in, theirs_out),
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Page(commands, answers)
    finally:
        process.terminate()
        process.wait(60)
        os.close(commands)
        os.close(answers)
