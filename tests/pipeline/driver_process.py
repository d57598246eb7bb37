"""`driver.py` as a process: started, read and killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.pipeline import driver


class Driver:
    """A driver program in its own process group, on a machine without Java: the PATH has every other program."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        tools = directory / "tools"
        if not tools.exists():
            tools.mkdir()
            for tool in [*Path("/usr/bin").iterdir(), *Path("/bin").iterdir()]:
                if not tool.name.startswith("java") and not (tools / tool.name).is_symlink():
                    (tools / tool.name).symlink_to(tool)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("JAVA")}
        self._errors = directory / "driver.log"
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, driver.__file__, *arguments],
                env={**kept, "PATH": str(tools), "TMPDIR": str(directory)},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def lines(self) -> Iterator[str]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield line.strip()

    def until(self, wanted: str) -> list[str]:
        """Wait for a line of its output. Returns: all lines up to it."""
        printed = []
        for line in self.lines():
            printed.append(line)
            if line == wanted:
                return printed
        raise AssertionError(f"the driver ended before it printed {wanted!r}:\n{self._errors.read_text()[-3000:]}")

    def kill(self) -> None:
        """Kill all processes at once, as a crash of the machine does."""
        processes = [*psutil.Process(self.process.pid).children(recursive=True)] if self.process.poll() is None else []
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        for process in processes:  # Spark's Python daemon has a group of its own
            if process.is_running():
                process.kill()
        self.process.wait()
