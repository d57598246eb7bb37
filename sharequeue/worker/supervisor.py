"""Several processes of one worker: starts them, starts again what died, passes signals on."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

from sharequeue.repeats import PART_DIED
from sharequeue.worker.process import HUNG, NOTHING_FITS, PARENT, SIGNALS

log = logging.getLogger("sharequeue.worker")

LOOK_S: Final = 0.2
YOUNG_S: Final = 10.0
"""If each process dies within this time of its start, the program is broken, and the supervisor ends."""
WRONG_USAGE: Final = 2
"""The exit code of a program that cannot be imported, however long a busy machine takes to find out."""
COMMAND: Final = (sys.executable, "-c", "from sharequeue.cli import main; main()", "work")


class _Child:
    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = arguments
        self._pause_s = 0.0
        self._start_at = self._began_at = 0.0
        self.broken = False
        """Whether it died young or for good, and was not started again."""
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """In a process group of its own: Ctrl-C of a terminal reaches the supervisor alone, which passes it on."""
        self._began_at = time.monotonic()
        self.broken = False
        environment = {**os.environ, PARENT: str(os.getpid())}
        self.process = subprocess.Popen([*COMMAND, *self._arguments], env=environment, process_group=0)

    def start_when_due(self) -> None:
        if self.process is None and time.monotonic() >= self._start_at:
            self.start()

    def tell(self) -> None:
        """Tell the process to stop, or to end its grace."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)

    def ended(self) -> int | None:
        """Note the end of the process. Returns: its exit code; None: it runs, or its end was noted before."""
        code = None if self.process is None else self.process.poll()
        if code is not None:
            age_s = time.monotonic() - self._began_at
            self.broken = code == WRONG_USAGE or (age_s < YOUNG_S and code not in (HUNG, 0))
            self._pause_s = PART_DIED.after(self._pause_s if self.broken else 0.0)
            self._start_at = time.monotonic() + self._pause_s
            self.process = None
            log.error("a process ended with code %d after %.0f s", code, age_s)
        return code


def supervise(each: Sequence[Sequence[str]]) -> int:
    """Run a process for each list of arguments until SIGTERM or Ctrl-C, which go on to them.

    Returns: the exit code. 0: told to stop; 1: all died within ten seconds of their start, or none can be imported;
        NOTHING_FITS: one ended so.
    """
    children = [_Child(arguments) for arguments in each]
    told: list[int] = []
    before = {number: signal.signal(number, lambda which, _: told.append(which)) for number in SIGNALS}
    stopping = False
    try:
        for child in children:
            child.start()
        while True:
            time.sleep(LOOK_S)
            while told:
                told.pop()
                stopping = True
                for child in children:
                    child.tell()
            codes = [child.ended() for child in children]
            if stopping and not any(child.process for child in children):
                return 0
            if NOTHING_FITS in codes:
                return NOTHING_FITS
            if all(child.broken for child in children):
                return 1
            for child in () if stopping else children:
                child.start_when_due()
    finally:
        for child in children:
            if child.process is not None:
                child.tell()
                child.process.wait()
        for number, handler in before.items():
            signal.signal(number, handler)
