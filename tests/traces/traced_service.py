"""A service that counts its own functions: `python traced_service.py PACKAGE TRACE_FILE` uses `sys.setprofile`.

Each line of TRACE_FILE is one trace as JSON: what ran from one request to the next.

    {"request": "POST /v1/…", "calls": [["sharequeue_gateway/routing/fetch.py", "RoutedFetch.fetch", 7, 1], …],
    "clock_reads": ["FetchApi._asked", …], "switches": ["Worker._run", …]}

`calls`: our functions in the order of their first call, with the number of our frames on the stack by then, those
that run the service not counted, and how often each was called or resumed. `clock_reads`: the functions that read the
clock. `switches`: the outermost coroutine of each task that was switched to, of libraries too. Comprehensions are part
of the function around them. Work of the service's own loops may fall into a trace: what all traces of many equal
requests have in common is the request's own.
"""

import importlib
import inspect
import json
import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

import sharequeue
import sharequeue_http

PACKAGES = {each.__name__: str(Path(str(each.__file__)).parent) + "/" for each in (sharequeue, sharequeue_http)}
METHODS = (b"GET ", b"POST ")
RUN = ("__main__.py", "sharequeue/service/service.py")
"""What runs the service. A frame of it does not make a request deeper."""
BETWEEN = ("sharequeue/service/garbage.py", "sharequeue/repeats.py", "sharequeue_gateway/leader/rounds.py")
"""Timers that run ten times a second or more, with all that they call. On a busy machine they are in every trace."""
TICK = "Server.serve"
"""Uvicorn looks ten times a second whether it should stop."""
WRAPPERS = ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<module>")


def place_of(code: CodeType) -> str:
    """The file of a function of ours, from its package on; empty for any other function."""
    if code.co_name in WRAPPERS:
        return ""
    for package, folder in PACKAGES.items():
        if code.co_filename.startswith(folder):
            return f"{package}/{code.co_filename.removeprefix(folder)}"
    return ""


def _in_coroutine(frame: FrameType) -> bool:
    """Whether a coroutine runs this one. Then no task is switched to."""
    return frame.f_back is not None and bool(frame.f_back.f_code.co_flags & inspect.CO_COROUTINE)


class Tracer:
    """A profile function. A request ends one trace and begins the next."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._places: dict[CodeType, str] = {}
        self._request = ""
        self._depths: dict[CodeType, int] = {}
        self._times: Counter[CodeType] = Counter()
        self._clock_reads: list[str] = []
        self._switches: list[str] = []

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        place = self._place(code)
        outermost = code.co_flags & inspect.CO_COROUTINE and not _in_coroutine(frame)
        if not (place or outermost) or self._between(frame):
            return
        if outermost and code.co_qualname != TICK:
            self._switches.append(code.co_qualname)
        if not place:
            return
        if code.co_name == "data_received":
            data = frame.f_locals["data"]
            if data.startswith(METHODS):  # else it is the body of the request before, or an answer to this service
                self._begin(data)
        if place == "sharequeue/clock.py" and frame.f_back is not None:
            self._clock_reads.append(frame.f_back.f_code.co_qualname)
        self._times[code] += 1
        if code not in self._depths:
            self._depths[code] = self._depth(frame)

    def _place(self, code: CodeType) -> str:
        place = self._places.get(code)
        if place is None:
            place = self._places[code] = place_of(code)
        return place

    def _between(self, frame: FrameType | None) -> bool:
        while frame is not None and self._place(frame.f_code) not in BETWEEN:
            frame = frame.f_back
        return frame is not None

    def _depth(self, frame: FrameType | None) -> int:
        depth = 0
        while frame is not None:
            place = self._place(frame.f_code)
            depth += bool(place) and not place.endswith(RUN)
            frame = frame.f_back
        return depth

    def _begin(self, data: bytes) -> None:
        if self._request:
            calls = [
                [self._place(code), code.co_qualname, depth, self._times[code]] for code, depth in self._depths.items()
            ]
            trace = {
                "request": self._request,
                "calls": calls,
                "clock_reads": self._clock_reads,
                "switches": self._switches,
            }
            with self._file.open("a") as lines:
                lines.write(json.dumps(trace) + "\n")
        self._request = data.partition(b" HTTP")[0].decode()
        self._depths = {}
        self._times = Counter()
        self._clock_reads = []
        self._switches = []


if __name__ == "__main__":
    name, file = sys.argv[1:]
    program = importlib.import_module(f"{name}.__main__")
    PACKAGES[name] = str(Path(str(program.__file__)).parent) + "/"
    sys.setprofile(Tracer(Path(file)))
    sys.exit(program.start(program.PROGRAM))
