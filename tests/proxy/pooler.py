"""PgBouncer before PostgreSQL, as docs/production.md says: with its stock settings a stack works through it; one that
lends a server connection for a transaction is refused in a sentence, by `migrate` and by each service."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx

from sharequeue.stack.postgres import Postgres
from sharequeue.stack.process import free_port
from sharequeue.stack.stack import temporary_stack
from sharequeue.stack.system_user import system_user
from tests.debian import with_libraries
from tests.http.calls import HANG_S, Gateway, acknowledge_range, wait_until
from tests.proxy.checks import NAME

PACKAGES: Final = ("pgbouncer", "libevent-2.1-7", "libc-ares2")
REFUSAL: Final = "a pooler in front of PostgreSQL lends a server connection for one transaction only"
NEEDED: Final = {
    "coordinator": {"SHARE_COORDINATOR_URL"},
    "share_coordinator": {"COORDINATOR_URL"},
    "gateway": {"COORDINATOR_URL", "SHARE_COORDINATOR_URL", "REDIS_URL"},
}
"""The URLs that each service must be given, besides the database's. Nothing is there."""


@contextmanager
def pgbouncer(home: Path, postgres_url: str, *lines: str) -> Iterator[str]:
    """PgBouncer with the settings that every one of them needs, and `lines`. Returns: the database's URL through it."""
    home.mkdir()
    home.chmod(0o755)
    server, port = urlsplit(postgres_url), free_port()
    users, file = home / "users.txt", home / "pgbouncer.ini"
    users.write_text(f'"{server.username}" "{server.password}"\n')
    needed = ("listen_addr = 127.0.0.1", f"listen_port = {port}", "unix_socket_dir =", f"auth_file = {users}")
    settings = ("[databases]", f"* = host=127.0.0.1 port={server.port}", "[pgbouncer]", *needed, *lines)
    file.write_text("\n".join(settings) + "\n")
    program, environment = with_libraries("pgbouncer", PACKAGES, home)
    user = system_user() if os.geteuid() == 0 else None
    with (home / "pgbouncer.log").open("w") as log:
        process = subprocess.Popen([program, file], env=environment, user=user, stderr=log)
    try:
        wait_until(lambda: process.poll() is not None or "process up" in (home / "pgbouncer.log").read_text())
        assert process.poll() is None, (home / "pgbouncer.log").read_text()
        yield f"postgresql://{server.username}:{server.password}@127.0.0.1:{port}{server.path}"
    finally:
        process.terminate()
        process.wait(HANG_S)


def check_session(home: Path, postgres_url: str) -> None:
    """A record is produced with a key, fetched and accepted, and every service is ready."""
    with (
        pgbouncer(home, postgres_url) as url,
        temporary_stack(home / "stack", postgres_url=url) as stack,
        httpx.Client(base_url=stack.url, timeout=HANG_S) as http,
    ):
        gateway = Gateway(http)
        gateway.produce(NAME, "one")
        assert gateway.acquire(NAME, NAME, max_wait_ms=10_000) == ["0-0×1"]
        answer = gateway.try_acknowledge(NAME, [acknowledge_range(NAME, 0, 0, "accept", delivery_count=1)])
        assert answer.json()["failed_count"] == 0, answer.text
        wait_until(lambda: http.get("/readyz").json()["status"] == "ready")


def check_transaction(home: Path, postgres_url: str) -> None:
    with pgbouncer(home, postgres_url, "pool_mode = transaction") as url:
        refuses(str(Path(sys.executable).with_name("sharequeue")), "migrate", "--url", url)
        for service, needed in NEEDED.items():
            begin = f"SHAREQUEUE_{service.upper()}_"
            nothing = {begin + name: f"{'redis' if 'REDIS' in name else 'http'}://127.0.0.1:9" for name in needed}
            own = {"DATABASE_URL": url, "PORT": str(free_port()), "CLUSTER_TOKEN": "a-token-of-this-test"}
            refuses(
                sys.executable,
                "-m",
                f"sharequeue_{service}",
                **nothing,
                **{begin + name: value for name, value in own.items()},
            )


def refuses(*command: str, **settings: str) -> None:
    """A program ends with the sentence, and without a traceback."""
    done = subprocess.run(
        command,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode not in (0, -9), said
    assert REFUSAL in said, said
    assert "Traceback" not in said, said


def check_pooler(home: Path) -> None:
    postgres = Postgres(home / "postgres", temporary=True)
    try:
        url = postgres.start()
        check_session(home / "session", url)
        check_transaction(home / "transaction", url)
    finally:
        postgres.stop()
        postgres.remove()
