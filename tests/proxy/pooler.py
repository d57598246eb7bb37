"""PgBouncer before PostgreSQL, and TLS to both stores, as docs/production.md says.

With its stock settings a stack works through PgBouncer. One that lends a server connection for a transaction is refused
in a sentence, by `migrate` and by each service.
"""

import asyncio
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx

from sharequeue.stack.postgres import Postgres
from sharequeue.stack.process import free_port
from sharequeue.stack.redis import Redis
from sharequeue.stack.stack import temporary_stack
from sharequeue.stack.system_user import system_user
from tests.debian import with_libraries
from tests.http.calls import HANG_S, Gateway, acknowledge_range, wait_until
from tests.proxy.checks import NAME, certificate

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


@contextmanager
def tls_before(port: int, home: Path) -> Iterator[int]:
    """Ends TLS with the certificate in `home`, and passes all bytes on to a port. Returns: its own port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(home / "queue.pem", home / "queue.key")

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while some := await source.read(1 << 16):
                target.write(some)
                await target.drain()
        target.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, to_server), copy(from_server, writer))

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(HANG_S)


def check_session(home: Path, postgres_url: str, redis: Redis) -> None:
    """Through TLS to both stores a record is produced with a key, fetched and accepted, and every service is ready."""
    pem = home.parent / "queue.pem"
    offered = (
        "client_tls_sslmode = require",
        f"client_tls_cert_file = {pem}",
        f"client_tls_key_file = {pem.parent}/queue.key",
    )
    with (
        pgbouncer(home, postgres_url, *offered) as url,
        tls_before(redis.port, home.parent) as redis_port,
        temporary_stack(
            home / "stack",
            postgres_url=f"{url}?sslmode=verify-full&sslrootcert={pem}",
            redis_url=f"{redis.url.replace(f':{redis.port}/', f':{redis_port}/').replace('redis:', 'rediss:')}?ssl_ca_certs={pem}",
        ) as stack,
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
    certificate(home)
    (home / "queue.key").chmod(0o644)  # PgBouncer may be another user
    postgres, redis = Postgres(home / "postgres", temporary=True), Redis(home / "redis")
    try:
        url = postgres.start()
        redis.start()
        check_session(home / "session", url, redis)
        check_transaction(home / "transaction", url)
    finally:
        redis.stop()
        postgres.stop()
        postgres.remove()
