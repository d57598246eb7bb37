"""`sharequeue up` as a process: started, watched and ended as its user would."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import psutil

COMMAND = Path(sys.executable).with_name("sharequeue")
FREE_PORTS = ("--gateway-port", "0", "--coordinator-port", "0", "--share-coordinator-port", "0")
DEADLINE_S = 120


def until(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait until a condition holds; fail after the deadline."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {deadline_s} s: {what}"
        time.sleep(0.02)


class Up:
    """One run of `sharequeue up`. Use it in a `with`: its end kills what is left.

    Args:
        place: for the output files; exists.
        command: what to run in place of the installed command.
        process: further arguments of Popen.
    """

    def __init__(
        self,
        place: Path,
        data_dir: Path,
        *options: str,
        command: tuple[str, ...] = (str(COMMAND),),
        environment: Mapping[str, str] | None = None,
        **process: object,
    ) -> None:
        self._out, self._err = place / "stdout", place / "stderr"
        self._all: dict[int, psutil.Process] = {}
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [*command, "up", "--data-dir", str(data_dir), *FREE_PORTS, *options],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **(environment or {})},
                **process,  # type: ignore[call-overload]
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.processes()
            self.process.kill()
            self.process.wait()
        for process in self.left():
            process.kill()

    @property
    def stdout(self) -> str:
        return self._out.read_text()

    @property
    def stderr(self) -> str:
        return self._err.read_text()

    def ready(self) -> str:
        """Wait for the line that says so. Returns: the gateway's URL."""
        until(lambda: "\n" in self.stdout or self.process.poll() is not None, "ready")
        assert self.process.poll() is None, self.stderr
        self.processes()
        return self.stdout.removeprefix("ready: ").strip()

    def processes(self) -> list[psutil.Process]:
        """The process and all its descendants, including those seen earlier."""
        try:
            own = psutil.Process(self.process.pid)
            for process in (own, *own.children(recursive=True)):
                self._all[process.pid] = process
        except psutil.NoSuchProcess:
            pass
        return list(self._all.values())

    def process_of(self, *words: str) -> psutil.Process:
        """The direct child whose command line contains these words."""
        (found,) = [
            process
            for process in psutil.Process(self.process.pid).children()
            if all(any(word in part for part in process.cmdline()) for word in words)
        ]
        return found

    def end(self, number: signal.Signals) -> int:
        """Send a signal. Returns: the exit code."""
        self.processes()
        self.process.send_signal(number)
        return self.exit_code()

    def exit_code(self) -> int:
        return self.process.wait(DEADLINE_S)

    def left(self) -> list[psutil.Process]:
        """Which of its processes still run."""
        return [process for process in self._all.values() if _runs(process)]


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def command_for(reads: Callable[[Path], bool], place: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """The command and its environment for a user who may not reach this interpreter, as where it is below /root.

    Args:
        reads: whether the user can get into a directory.
        place: a directory of that user's reach, for links to what is not.
    """

    def within_reach(directory: Path, name: str) -> Path:
        if reads(directory):
            return directory
        ignore = shutil.ignore_patterns("test", "tests", "*.a", ".git", ".venv", ".*_cache", "site-packages")
        shutil.copytree(directory, place / name, symlinks=True, copy_function=_link, ignore=ignore)
        return place / name

    base = within_reach(Path(sys.base_prefix), "python")
    library = Path(*Path(os.__file__).parent.relative_to(sys.base_prefix).parts)
    imported = [Path(entry) for entry in sys.path if entry and not entry.startswith(sys.base_prefix)]
    path = [str(within_reach(entry, f"path{number}")) for number, entry in enumerate(imported) if entry.is_dir()]
    script = place / "sharequeue"
    script.write_text(COMMAND.read_text())
    python = base / "bin" / f"python{library.name.removeprefix('python')}"
    environment = {"PYTHONPATH": os.pathsep.join(path), "LD_LIBRARY_PATH": str(base / "lib")}
    return (str(python), str(script)), environment


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
