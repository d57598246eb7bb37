"""Checks of the stores that the user names by URL, and work in a database without services. A store that cannot be used
is refused in one sentence, before the start."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import asyncpg

from sharequeue.service.addresses import check_redis_url
from sharequeue.stack.chains import CHAINS, head

ANSWER_SECONDS: Final = 5


class StoreError(Exception):
    """A store cannot be used; the text names it, where it is and why, without its password."""


def check_postgres(url: str, option: str) -> bool:
    """Connect once. `option`: the command-line option that gave the URL. Raises: StoreError.

    Returns: whether all schemas are up to date. False too where a migration says whether the database can be used:
    behind a pooler, which answers the login with a process id of its own, and if it is read-only.
    """

    async def up_to_date() -> bool:
        async with once(url) as connection:
            usual = connection.get_server_pid(), "off"
            try:
                answers = await connection.fetchrow("SELECT pg_backend_pid(), current_setting('transaction_read_only')")
                found = [
                    await connection.fetchval(f"SELECT version_num FROM {chain}.schema_version") for chain in CHAINS
                ]
            except asyncpg.PostgresError:  # one is missing, or another role's
                return False
        return tuple(answers) == usual and found == [head(chain) for chain in CHAINS]

    with faults_of(url, option):
        return asyncio.run(up_to_date())


@contextlib.asynccontextmanager
async def once(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url, timeout=ANSWER_SECONDS)
    try:
        yield connection
    finally:
        await connection.close(timeout=ANSWER_SECONDS)


@contextlib.contextmanager
def faults_of(url: str, option: str, failed: str | None = None) -> Iterator[None]:
    """Raises: StoreError: what is done in its body with the PostgreSQL at `url`, which `option` gave, fails. `failed`:
    what that means, in place of the store's place."""
    try:
        yield
    except TimeoutError:
        raise StoreError(f"{place_of(url, 5432, 'PostgreSQL', option)}: no answer within {ANSWER_SECONDS} s") from None
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as fault:
        place = failed or place_of(url, 5432, "PostgreSQL", option)
        raise StoreError(f"{place}: {reason_of(fault)}") from None


def check_redis(url: str, option: str) -> None:
    """Connect once and send PING. Raises: StoreError. `option`: the command-line option that gave the URL."""
    import redis  # noqa: PLC0415 - the import is slow and seldom needed

    once = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
    patience = {"socket_connect_timeout": ANSWER_SECONDS, "socket_timeout": ANSWER_SECONDS}
    try:
        check_redis_url(url)
        with redis.Redis.from_url(url, retry=once, **patience) as connection:
            connection.ping()
    except (redis.RedisError, OSError, ValueError) as fault:
        raise StoreError(f"{place_of(url, 6379, 'Redis', option)}: {reason_of(fault)}") from None


def check_kafka(servers: str, option: str) -> None:
    """Connect to one of some brokers, `host:port` separated by commas. Raises: StoreError: none takes a connection."""
    faults = []
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
        except (OSError, ValueError) as fault:
            reason = "give host:port" if isinstance(fault, ValueError) or not host else reason_of(fault)
            faults.append(f"{server.strip()}: {reason}")
        else:
            return
    raise StoreError(f"cannot use Kafka ({option}): {'; '.join(faults)}")


async def in_database(url: str, function: Any, *arguments: Any) -> Any:
    """Run a function of `sharequeue.access_store` in a transaction. Running services learn of a change as of any other.

    Raises: StoreError; ApiError.
    """
    with faults_of(url, "--database-url"):
        async with once(url) as connection:
            try:
                async with connection.transaction():  # every change of metadata waits for it
                    await connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{ANSWER_SECONDS}s'")
                    return await function(connection, *arguments)
            except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
                detail = "the database has no tables for keys and rights: run `sharequeue migrate` first"
                raise StoreError(detail) from None


def place_of(url: str, usual_port: int, name: str, option: str) -> str:
    """The beginning of a sentence about a store that cannot be used: which one, and where, without its password."""
    try:
        parts: SplitResult = urlsplit(url)
        host, port = parts.hostname, parts.port or usual_port
    except ValueError:
        host = None
        port = usual_port
    where = f" at {host}:{port}" if host else ""
    return f"cannot use {name}{where} ({option})"


def reason_of(fault: BaseException) -> str:
    """Return why a store refused, in its words."""
    cause = getattr(fault, "orig", None) or fault
    return str(cause) or type(cause).__name__
