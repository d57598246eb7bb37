"""Real stores for the tests: one PostgreSQL and one Redis per run, a fresh database and a fresh Redis number for each user.

`stack` is the three services as processes on them; `client` speaks to its gateway.
"""

import asyncio
import gc
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import hypothesis
import pytest
from xdist.scheduler import LoadFileScheduling

from sharequeue.stack.migrate import upgrade
from sharequeue.stack.postgres import Postgres
from sharequeue.stack.redis import Redis
from sharequeue.stack.stack import ServiceProcess, Stack, temporary_stack
from tests.warm_start import WarmStart

gc.disable()  # nothing that is imported or collected is ever garbage; `pytest_collection_finish` enables it
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process of each stack compiles all its modules again
os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"  # and looks for plugins in all that is installed
os.environ["SHAREQUEUE_GATEWAY_REDIS_TIMEOUT_MS"] = "2500"  # a machine under load is no dead Redis
if sys.platform == "linux":
    ServiceProcess.popen = WarmStart
if "TEST_POSTGRES" in os.environ:  # see tests/stores
    Postgres.major = int(os.environ["TEST_POSTGRES"])
    Redis.program = Path(os.environ["TEST_REDIS"])
hypothesis.settings.register_profile(
    "tests",
    deadline=None,  # nor is what takes long on it wrong
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize="SOAK" not in os.environ,  # what passed once does not fail by chance
)
hypothesis.settings.load_profile("tests")
TEMPLATE = "migrated"
SPARK = "tests/pipeline/"
WITHOUT_SPARK = {f"{SPARK}test_{part}.py" for part in ("columns", "java", "options", "ranges", "readers", "rows")}
ORDER = (
    SPARK,
    *(f"tests/{folder}/" for folder in ("system", "packages", "cluster", "http", "storage", "chaos", "shell", "core")),
    "",
)
"""What has modules that take long comes first: else one worker is still at it when the others are done."""
REDIS_DATABASES = 4096
_numbers = itertools.count(1)


class _Modules(LoadFileScheduling):
    """Workers share out the modules, which start stacks of their own. What needs Spark, which takes seconds to start,
    is one worker's, and nothing else: the others would be done before it."""

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        return SPARK if scope.startswith(SPARK) and scope not in WITHOUT_SPARK else scope


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Modules:
    return _Modules(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long runs are for `make soak` alone."""
    items.sort(key=lambda item: next(number for number, begin in enumerate(ORDER) if item.nodeid.startswith(begin)))
    if config.option.markexpr:
        return
    soak = [item for item in items if item.get_closest_marker("soak")]
    config.hook.pytest_deselected(items=soak)
    items[:] = [item for item in items if item not in soak]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What is there now stays, and need not be looked through again and again."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def seed() -> int:
    """What random runs start from: SEED from the environment, else a fixed number."""
    return int(os.environ.get("SEED") or 932)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    server = Postgres(tmp_path_factory.mktemp("postgres"), temporary=True)
    server.start()
    password = server.url.split(":")[2].partition("@")[0]
    _sql(server.url, f"SET scram_iterations = 1; ALTER ROLE sharequeue PASSWORD '{password}'")  # logins cost less
    _sql(server.url, f"CREATE DATABASE {TEMPLATE}")
    upgrade(_database_url(server, TEMPLATE))
    yield server
    server.remove()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    server = Redis(tmp_path_factory.mktemp("redis"), databases=REDIS_DATABASES)
    server.start()
    yield server
    server.stop()


def _sql(url: str, statement: str) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(run())


def _database_url(server: Postgres, name: str) -> str:
    return server.url.rsplit("/", 1)[0] + f"/{name}"


NewDatabase = Callable[[], str]


@pytest.fixture(scope="session")
def new_database(postgres: Postgres) -> NewDatabase:
    """Makes a database with all schemas up to date; returns its URL."""

    def create() -> str:
        name = f"test_{next(_numbers)}"
        _sql(postgres.url, f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        return _database_url(postgres, name)

    return create


@pytest.fixture
def database_url(new_database: NewDatabase) -> str:
    """A database of this test's own."""
    return new_database()


@pytest.fixture(scope="session")
def new_redis(redis_server: Redis) -> Callable[[], str]:
    """Names one of the server's numbered databases that nobody used before; returns its URL."""
    numbers = iter(range(1, REDIS_DATABASES))

    def create() -> str:
        return redis_server.url.rsplit("/", 1)[0] + f"/{next(numbers)}"

    return create


@pytest.fixture
def redis_url(new_redis: Callable[[], str]) -> str:
    """A Redis database of this test's own."""
    return new_redis()


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    """Settings of the module's stack; a module overrides this fixture to change them."""
    return {}


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory,
    new_database: NewDatabase,
    new_redis: Callable[[], str],
    stack_settings: dict[str, str],
) -> Iterator[Stack]:
    """The three services as processes, one stack for the module; tests use topics and groups of their own."""
    stores = {"postgres_url": new_database(), "redis_url": new_redis()}
    with temporary_stack(tmp_path_factory.mktemp("stack"), **stores, settings=stack_settings) as stack:
        yield stack


@pytest.fixture
def client(stack: Stack) -> Iterator[httpx.Client]:
    """An HTTP client of the stack's gateway."""
    with httpx.Client(base_url=stack.url, timeout=40, verify=False) as client:  # loading certificates takes 20 ms
        yield client


@pytest.fixture
def name() -> str:
    """A name no other test uses, for a topic or a group."""
    return f"t{next(_numbers)}"
