"""Services that start as forks of a Python which has already imported the packages that all services use.

Importing packages is most of a start: 0.65 s of 0.75 s of CPU, about 280 times in the suite. So one fork server per
pytest worker imports them once:

    pytest worker ──command, environment, open files──▶ fork server: has imported FastAPI, asyncpg, uvloop …
         ▲                                                  │ fork
         │ becomes the parent (PR_SET_CHILD_SUBREAPER)      ▼
         │                                              a child, which forks once more and exits
         │                                                  │ fork
         └────────────────pid────────────────────────── the service: `python -P -m MODULE` in a session of its own

The service has the environment and the files of the request and imports the modules of this project itself. It is a
child of the pytest worker, so the worker can wait for it and signal it like any other process. `sharequeue up` and the
containers start services as usual; tests that run these commands start no fork server.
"""

import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from typing import IO, Final

PACKAGES: Final = (
    "asyncpg",
    "fastapi",
    "httptools",
    "msgspec",
    "prometheus_client",
    "redis.asyncio",
    "uvicorn.protocols.http.httptools_impl",
    "uvloop",
    "sharequeue.protocol.apis",
)
PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36
LARGEST_REQUEST: Final = 1 << 17
MOST_FILES: Final = 16


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value)


class WarmStart:
    """One service process, with the methods of `subprocess.Popen` that `ServiceProcess` calls. Linux only."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        stdout: IO[bytes],
        stderr: IO[bytes],
        pass_fds: Sequence[int],
        **_: object,
    ) -> None:
        """Start the module that `command` ends with. Its standard input is empty, and it dies with its parent."""
        self.returncode: int | None = None
        self._reaping = threading.Lock()
        with open(os.devnull, "rb") as nothing:
            files = [nothing.fileno(), stdout.fileno(), stderr.fileno(), *pass_fds]
            self.pid = _server().fork(command[-1], env, files)

    def poll(self) -> int | None:
        with self._reaping:
            if self.returncode is None:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
                if ended:
                    self.returncode = os.waitstatus_to_exitcode(status)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.poll() is None:
            end = os.pidfd_open(self.pid)
            try:
                select.select([end], [], [], timeout)
            finally:
                os.close(end)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Server:
    """The fork server, as the pytest worker sees it. It ends when the worker does."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._turn = threading.Lock()
        with theirs:
            number = theirs.fileno()
            command = [sys.executable, "-P", __file__, str(number)]
            self._process = subprocess.Popen(command, pass_fds=[number], start_new_session=True)

    def fork(self, module: str, environment: Mapping[str, str], files: Sequence[int]) -> int:
        """Start a service. Returns: its process id."""
        request = json.dumps([os.getpid(), module, dict(environment)]).encode()
        with self._turn:
            _prctl(PR_SET_CHILD_SUBREAPER, 1)  # for this moment the worker adopts orphans below it
            try:
                socket.send_fds(self._channel, [request], files)
                return int(self._channel.recv(16))
            finally:
                _prctl(PR_SET_CHILD_SUBREAPER, 0)


@cache
def _server() -> _Server:
    return _Server()


def serve(channel: socket.socket) -> str:
    """Fork for each request, until the worker ends. Returns: in a fork, the module to run."""
    while True:
        request, files, _, _ = socket.recv_fds(channel, LARGEST_REQUEST, MOST_FILES)
        if not request:
            os._exit(0)
        between = os.fork()
        if not between:
            break
        os.waitpid(between, 0)
        for file in files:
            os.close(file)
    between = os.getpid()
    if os.fork():
        os._exit(0)  # the worker adopts the orphan
    while os.getppid() == between:
        os.sched_yield()
    asking, module, environment = json.loads(request)
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != asking:
        os._exit(1)
    os.setsid()
    channel.send(b"%d" % os.getpid())
    channel.close()
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    return str(module)


def main() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the worker holds signals back while it starts a process
    gc.disable()
    for package in PACKAGES:
        importlib.import_module(package)
    gc.freeze()
    module = serve(socket.socket(fileno=int(sys.argv[1])))
    gc.enable()
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
