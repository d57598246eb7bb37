"""`sharequeue migrate --roles`: each service has a role of its own, which owns its schema and sees no other one."""

import asyncio
import itertools
import os
import subprocess
from collections.abc import Iterator, Mapping

import asyncpg
import pytest

from sharequeue.stack.postgres import Postgres
from sharequeue.stack.roles import VARIABLES
from tests.storage.test_migrations import COMMAND, query

SCHEMAS = ("groups", "log", "share_state")
_numbers = itertools.count(1)


@pytest.fixture
def urls(postgres: Postgres) -> Iterator[dict[str, str]]:
    """Of an empty database: the owner's URL as `DATABASE_URL`, and those of the services by their variables."""
    number = next(_numbers)
    database = f"roles_{number}"
    asyncio.run(execute(postgres.url, f"CREATE DATABASE {database} TEMPLATE template0"))
    server = postgres.url.rpartition("@")[2].rpartition("/")[0]
    found = {
        variable: f"postgresql://{schema}%20{number}:pass-{number}-{schema}%40@{server}/{database}"
        for schema, variable in VARIABLES.items()
    }
    yield {"DATABASE_URL": postgres.url.rpartition("/")[0] + f"/{database}", **found}
    asyncio.run(execute(postgres.url, f"DROP DATABASE {database} WITH (FORCE)"))
    for schema in VARIABLES:
        asyncio.run(execute(postgres.url, f'DROP ROLE IF EXISTS "{schema} {number}"'))


async def execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def migrate(environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = [COMMAND, "migrate", "--roles"]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


def test_each_service_owns_its_schema_and_sees_no_other(urls: dict[str, str]) -> None:
    for _ in range(2):  # it may be repeated
        done = migrate(urls)
        assert done.returncode == 0, done.stderr
        assert "pass-" not in done.stdout + done.stderr
    for schema, variable in VARIABLES.items():
        (role,) = asyncio.run(
            query(
                urls[variable],
                "SELECT rolsuper, rolcreaterole, rolcreatedb, rolbypassrls FROM pg_roles WHERE rolname = current_user",
            )
        )
        assert role == (False, False, False, False)
        owned = f"SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}' AND tableowner <> current_user"
        assert asyncio.run(query(urls[variable], owned)) == [(0,)]
        assert asyncio.run(query(urls[variable], f"SELECT count(*) > 0 FROM {schema}.schema_version")) == [(True,)]
        for other in set(SCHEMAS) - {schema}:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                asyncio.run(query(urls[variable], f"SELECT * FROM {other}.schema_version"))


def test_a_role_takes_the_password_that_its_variable_has_now(urls: dict[str, str]) -> None:
    assert migrate(urls).returncode == 0
    variable = VARIABLES["log"]
    changed = urls[variable].replace("pass-", "changed-")
    done = migrate({**urls, variable: changed})
    assert done.returncode == 0, done.stderr
    assert asyncio.run(query(changed, "SELECT 1")) == [(1,)]
    with pytest.raises(asyncpg.InvalidPasswordError):
        asyncio.run(query(urls[variable], "SELECT 1"))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "postgresql://gateway@localhost/sharequeue",
        "postgresql://gateway:ü@localhost/x",
        "postgresql://[gateway:secret@x",
    ],
)
def test_a_variable_that_names_no_login_is_refused(urls: dict[str, str], url: str) -> None:
    done = migrate({**urls, VARIABLES["log"]: url})
    assert done.returncode == 1
    assert VARIABLES["log"] in done.stderr
    assert "secret" not in done.stderr
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname IN ('groups', 'log', 'share_state')"
    assert asyncio.run(query(urls["DATABASE_URL"], tables)) == [(0,)], "nothing was made"


def test_a_role_that_may_make_none_is_told_so(urls: dict[str, str]) -> None:
    assert migrate(urls).returncode == 0
    done = migrate({**urls, "DATABASE_URL": urls[VARIABLES["log"]]})
    assert done.returncode == 1
    assert "the roles cannot be made: permission denied" in done.stderr
