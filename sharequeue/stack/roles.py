"""A role of PostgreSQL for each service, which owns the schema of that service and can read no other one."""

import asyncio
import base64
import hashlib
import hmac
import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from sharequeue.stack.checks import StoreError, faults_of, once

VARIABLES: Final[Mapping[str, str]] = {
    "groups": "SHAREQUEUE_COORDINATOR_DATABASE_URL",
    "share_state": "SHAREQUEUE_SHARE_COORDINATOR_DATABASE_URL",
    "log": "SHAREQUEUE_GATEWAY_DATABASE_URL",
}
"""By schema: the variable of the service that owns it."""
ITERATIONS: Final = 4096
"""PostgreSQL's own number; the passwords of services are random."""


def owners(environment: Mapping[str, str]) -> dict[str, str]:
    """The database URL of each schema's owner. Raises: StoreError: a variable has no user and password."""
    found = {}
    for chain, variable in VARIABLES.items():
        url = environment.get(variable, "")
        name, password = _login(url, variable)
        if not name or not password or not password.isascii():
            raise StoreError(f"--roles needs {variable}, with a user and a password in ASCII")
        found[chain] = url
    return found


def make_roles(url: str, urls: Mapping[str, str]) -> None:
    """Make the roles that are missing, give each its password, and let it make its schema.

    Args:
        url: of a role that may make others.
        urls: as `owners` returns them.
    Raises: StoreError.
    """
    with faults_of(url, "--url", "the roles cannot be made"):
        asyncio.run(_make(url, urls))


async def _make(url: str, urls: Mapping[str, str]) -> None:
    async with once(url) as connection, connection.transaction():
        for chain, owner in urls.items():
            name, password = _login(owner, VARIABLES[chain])
            known = await connection.fetchval("SELECT true FROM pg_roles WHERE rolname = $1", name)
            role, verifier, database = await connection.fetchrow(
                "SELECT quote_ident($1), quote_literal($2), quote_ident(current_database())",
                name,
                scram_verifier(password, os.urandom(16)),
            )
            await connection.execute(f"{'ALTER' if known else 'CREATE'} ROLE {role} LOGIN PASSWORD {verifier}")
            await connection.execute(f"GRANT CONNECT, CREATE ON DATABASE {database} TO {role}")


def _login(url: str, variable: str) -> tuple[str, str]:
    """The user and the password of a URL. Raises: StoreError, which does not repeat the URL."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise StoreError(f"{variable} is no URL") from None
    return unquote(parts.username or ""), unquote(parts.password or "")


def scram_verifier(password: str, salt: bytes) -> str:
    """Return what PostgreSQL stores of a password (RFC 5803). It is sent in place of the password, so no log has
    that."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, ITERATIONS)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    shown = (base64.b64encode(part).decode() for part in (salt, stored, server))
    return "SCRAM-SHA-256${}:{}${}:{}".format(ITERATIONS, *shown)
