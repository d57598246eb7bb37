"""A store or a service as a child process: started, watched, ended by process id, with a log file of its own."""

import contextlib
import ctypes
import errno
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from sharequeue.repeats import PART_READY, Tries
from sharequeue.stack.system_user import EmbeddedError, private, system_user

START_SECONDS: Final = 300
"""After a crash PostgreSQL first replays up to 2 GB of its log. A server that dies is noticed at once."""
STOP_SECONDS: Final = 20
PR_SET_PDEATHSIG: Final = 1
ENDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that end this program."""
ROOT: Final = Path("/")
FULL_DISK: Final = os.strerror(errno.ENOSPC)
MOST_LOG_BYTES: Final = 64 << 20
"""A log is rotated above this size, and one older log is kept."""


def free_port(server: object = None) -> int:
    """A TCP port of the loopback address that nobody uses now.

    A socket that does not listen stays bound to the port while the object `server` exists. So no other call returns
    this port, even before the server listens. On Linux a server that reuses addresses can still bind it;
    all of ours do.
    """
    with contextlib.ExitStack() as bound:
        probe = bound.enter_context(socket.socket())
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        if server is not None and sys.platform == "linux":
            weakref.finalize(server, bound.pop_all().close)
        return port


@contextlib.contextmanager
def signals_held() -> Iterator[Callable[[], None]]:
    """Hold back the signals that end this program while it starts a child process. Returns: lets them through again.

    Python starts a child with a fork, and runs hooks before and after it. It drops an exception that a signal handler
    raises in such a hook, so Ctrl-C at that moment would be lost. An exception a moment later would come before the
    child is known here, so nothing would stop the child.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)

    def let_through() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        yield let_through
    finally:
        let_through()


def die_with_parent(signal_number: int) -> Callable[[], None]:
    """Returns: a function that a child calls before it executes its program. It lets all signals through in the child,
    and asks the kernel to signal the child when its parent dies (Linux)."""
    parent = os.getpid()

    def prepare() -> None:
        for number in ENDS:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)  # the parent's handler is not for the child
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal_number)
            if os.getppid() != parent:  # it died before we asked
                os.kill(os.getpid(), signal_number)

    return prepare


def rotate_log(file: Path, most_bytes: int = MOST_LOG_BYTES) -> None:
    """Keep a log below its limit: move its text to `FILE.1`, which replaces an older one.

    The log is copied and emptied, because its writer keeps it open; it is opened to append, so the next line is the
    first. A line that is written during the copy may be lost.
    """
    if not file.exists() or file.stat().st_size < most_bytes:
        return
    older = file.with_name(f"{file.name}.1")
    older.unlink(missing_ok=True)
    with file.open("rb") as source, open(older, "wb", opener=private) as copy:
        shutil.copyfileobj(source, copy)
    os.truncate(file, 0)


class Process:
    """A child process with its log file. `title`: the subject of a sentence about it. It inherits the open files
    `inherited`: locks that it holds while it runs. `user`: whom it runs as; None: as ourselves."""

    popen: ClassVar[Callable[..., "subprocess.Popen[bytes]"]] = subprocess.Popen
    """Starts the processes of this kind."""

    def __init__(self, title: str, log_file: Path, inherited: Sequence[int], user: str | None = None) -> None:
        self.title = title
        self.log_file = log_file
        self._log_start = 0
        self._inherited = tuple(inherited)
        self._user = user
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None, "it was not started"
        return self.process.pid

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def _spawn(
        self,
        command: list[str],
        death_signal: int,
        cwd: Path | None = ROOT,
        stdin: int = subprocess.DEVNULL,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start it. It enters `cwd` before it changes its user, so its user need not be able to reach `cwd`."""
        with open(self.log_file, "ab", opener=private) as log, signals_held():
            self._log_start = log.tell()
            self.process = self.popen(
                command,
                stdin=stdin,
                stdout=log,
                stderr=log,
                cwd=cwd,
                env=env,
                start_new_session=True,
                pass_fds=self._inherited,
                preexec_fn=die_with_parent(death_signal),  # before any thread starts
                **as_user(self._user),
            )

    def _end(self, *signals: int, seconds: float = STOP_SECONDS) -> None:
        """Send signals, and kill it if it has not ended after this time."""
        if self.process is None or not self.running():
            return
        for number in signals:
            self.process.send_signal(number)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def _wait_until(self, ready: Callable[[], bool]) -> None:
        tries = Tries(PART_READY, START_SECONDS)
        while not ready():
            if not self.running():
                raise EmbeddedError(f"{self.title} did not start; its log says:\n{self.log_tail()}")
            if not tries.rest():
                raise EmbeddedError(
                    f"{self.title} was not ready within {START_SECONDS} s; its log says:\n{self.log_tail()}"
                )

    def rotate_log(self) -> None:
        rotate_log(self.log_file)

    def died(self) -> str:
        """Say that it died, and what it logged last."""
        code = self.process.returncode if self.process else None
        return f"{self.title} died (exit code {code}); the end of {self.log_file}:\n{self.log_tail()}"

    def log_tail(self) -> str:
        """The last lines of its log since its start, and what to do if a full disk ended it."""
        with self.log_file.open("rb") as log:
            log.seek(self._log_start if self._log_start <= self.log_file.stat().st_size else 0)  # it was rotated since
            lines = log.read().decode(errors="replace").splitlines()[-15:]
        if any(FULL_DISK in line for line in lines):
            lines.append("Its disk is full. Free some space there, then start again: all that was answered is kept.")
        return "\n".join(lines)


def store_user() -> str | None:
    """The user that stores run as; None: ourselves, who are not root."""
    return system_user() if os.geteuid() == 0 else None


def as_user(user: str | None) -> dict[str, Any]:
    """Arguments of Popen to run as this user, in the user's own group alone. None: run as ourselves."""
    return {} if user is None else {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
