"""Tests of the stores are coroutines; each runs in an event loop of its own, with a deadline."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sharequeue.stack import redis as redis_server
from tests.storage.record_logs import PostgresRecordLogs

pytest.register_assert_rewrite("tests.storage.record_log_suite", "tests.storage.record_log_trimming_suite")

DEADLINE_S = 300
"""It ends a test that hangs, and no other: on a busy machine one that makes a large state takes more than a minute."""


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[redis_server.Redis]:
    """A server that no other test uses: it may be stopped, and its statistics are this test's."""
    server = redis_server.Redis(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object:
    """Run a test that is a coroutine function."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def run() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await pyfuncitem.obj(**arguments)

    asyncio.run(run())
    return True


@pytest.fixture(scope="module")
def module_database(new_database: Callable[[], str]) -> str:
    """A database for the module; its tests keep to topics and groups of their own."""
    return new_database()


@pytest.fixture(params=["postgres"])
def record_log(request: pytest.FixtureRequest) -> PostgresRecordLogs:
    """Opens record logs of one implementation, all on the same data."""
    assert request.param == "postgres"
    return PostgresRecordLogs(request.getfixturevalue("module_database"))
