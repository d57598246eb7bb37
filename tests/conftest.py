"""Fixtures for all tests: real stores, and the three services as processes on them.

postgres, redis_server            one of each per worker
  new_database, new_redis         make a fresh database on them; `database_url`, `redis_url`: one for the test
    stack, client, own_gateway    the module's own services; `stack_settings`, overridden, changes their settings
    shared_stack, gateway         one for all tests of the worker that change nothing about it

The services are three programs, as in production. In a module with the mark `both_forms` every test runs a second time,
on the three in one process, as in `sharequeue up`. `make test-one-process` runs all tests so that can.
"""

import asyncio
import contextlib
import gc
import itertools
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import hypothesis
import pytest

from sharequeue.stack.migrate import upgrade
from sharequeue.stack.postgres import Postgres
from sharequeue.stack.redis import Redis
from sharequeue.stack.stack import ServiceProcess, Stack, temporary_stack
from tests.examples import examples
from tests.http.access import ADMIN, Access, caller
from tests.http.calls import Gateway
from tests.kafka_log import on_kafka
from tests.warm_start import WarmStart

gc.disable()  # importing and collecting make no garbage; `pytest_collection_finish` enables it
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise each service would compile all its modules again
os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"  # otherwise it looks for plugins in all installed packages
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells have their background jobs ignore Ctrl-C
os.environ["SHAREQUEUE_GATEWAY_REDIS_TIMEOUT_MS"] = "2500"  # on a busy machine Redis may answer late
if sys.platform == "linux":
    ServiceProcess.popen = WarmStart  # a start costs 0.1 s of CPU instead of 0.75 s; the suite makes about 280
    MOST_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_FILES, MOST_FILES))  # tests of crowds open more than 1,024 sockets
if "TEST_POSTGRES" in os.environ:  # see tests/stores
    Postgres.major = int(os.environ["TEST_POSTGRES"])
    Redis.program = Path(os.environ["TEST_REDIS"])
hypothesis.settings.register_profile(
    "tests",
    deadline=None,  # on a busy machine a slow example is not a failure
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize="SOAK" not in os.environ,  # the same examples in each run
    max_examples=examples(100),
)
hypothesis.settings.load_profile("tests")
TEMPLATE = "migrated"
REDIS_DATABASES = 4096
ONE_PROCESS = "ONE_PROCESS" in os.environ
_numbers = itertools.count(1)
record_log_options = on_kafka.record_log_options


if on_kafka.ON_KAFKA:
    pytest_runtest_call = on_kafka.pytest_runtest_call
    pytest_runtest_logreport = on_kafka.pytest_runtest_logreport
    pytest_sessionfinish = on_kafka.pytest_sessionfinish


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave long runs to `make soak`, and what needs three programs to other runs than `make test-one-process`."""
    if config.option.markexpr:
        return
    left_out = ["soak", *(["three_programs"] if ONE_PROCESS else [])]
    others = [item for item in items if any(map(item.get_closest_marker, left_out))]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of a module with the mark `both_forms` twice."""
    if "one_process" in metafunc.fixturenames and metafunc.definition.get_closest_marker("both_forms"):
        forms = {"one process": True} if ONE_PROCESS else {"three programs": False, "one process": True}
        metafunc.parametrize("one_process", forms.values(), ids=forms.keys(), scope="module")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """All objects of this moment live until the end: the garbage collector need not visit them again."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def seed() -> int:
    """The seed of random runs: SEED from the environment, else a fixed number."""
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


# The module's own stack


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    """Settings of the module's stack; a module overrides this fixture to change them."""
    return {}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the module's stack, with its logs and its cluster token."""
    return tmp_path_factory.mktemp("stack")


@pytest.fixture(scope="module")
def database(new_database: NewDatabase) -> str:
    """The database of the module's stack, for tests that read or change it without the services."""
    return new_database()


@pytest.fixture(scope="module")
def redis_database(new_redis: Callable[[], str]) -> str:
    """The Redis database of the module's stack."""
    return new_redis()


@pytest.fixture(scope="module")
def one_process() -> bool:
    """Whether one process runs the services of the stack. In a module with the mark `both_forms`: both."""
    return ONE_PROCESS


@pytest.fixture(scope="module")
def stack(
    data_dir: Path,
    database: str,
    redis_database: str,
    stack_settings: dict[str, str],
    one_process: bool,
    record_log_options: dict[str, Any],
) -> Iterator[Stack]:
    """The three services, one stack for the module; tests use topics and groups of their own."""
    stores = {"postgres_url": database, "redis_url": redis_database, **record_log_options}
    with temporary_stack(data_dir, **stores, settings=stack_settings, one_process=one_process) as stack:
        yield stack


@pytest.fixture
def client(stack: Stack) -> Iterator[httpx.Client]:
    """An HTTP client of the stack's gateway."""
    hooks = {"response": [on_kafka.skip_if_lacking]} if on_kafka.ON_KAFKA else None
    with httpx.Client(
        base_url=stack.url, timeout=40, event_hooks=hooks, verify=False
    ) as client:  # loading certificates takes 20 ms
        yield client


@pytest.fixture
def own_gateway(client: httpx.Client) -> Gateway:
    """The gateway of the module's own stack."""
    return Gateway(client)


@pytest.fixture(scope="module")
def access(stack: Stack, data_dir: Path) -> Iterator[Access]:
    """Makes keys and rights of the module's own stack, whose settings ask for keys."""
    made = Access(stack, data_dir)
    yield made
    made.close()


@pytest.fixture(scope="module")
def admin(stack: Stack, access: Access) -> Iterator[Gateway]:
    """The gateway of the module's own stack, called by a super user."""
    with caller(stack, access.key(ADMIN)) as gateway:
        yield gateway


# The stack that modules share


@pytest.fixture(scope="session")
def shared_stacks(
    tmp_path_factory: pytest.TempPathFactory,
    new_database: NewDatabase,
    new_redis: Callable[[], str],
    record_log_options: dict[str, Any],
) -> Iterator[Callable[[bool], Stack]]:
    """Both forms of the shared stack. Each starts when the first test asks for it."""
    with contextlib.ExitStack() as stacks:

        @cache
        def of(one_process: bool) -> Stack:
            stores = {"postgres_url": new_database(), "redis_url": new_redis(), **record_log_options}
            folder = tmp_path_factory.mktemp("shared-stack")
            return stacks.enter_context(temporary_stack(folder, **stores, one_process=one_process))

        yield of


@pytest.fixture(scope="module")
def shared_stack(shared_stacks: Callable[[bool], Stack], one_process: bool) -> Stack:
    """The three services with default settings. Tests use topics and groups of their own and stop nothing."""
    return shared_stacks(one_process)


@pytest.fixture(scope="module")
def shared_data_dir(shared_stack: Stack) -> Path:
    """The folder of the shared stack, with its logs and its cluster token."""
    return shared_stack._data_dir


@pytest.fixture(scope="module")
def shared_database(shared_stack: Stack) -> str:
    """The shared stack's database, for tests that read it without the services."""
    assert shared_stack._postgres_url is not None
    return shared_stack._postgres_url


@pytest.fixture(scope="module")
def gateway(shared_stack: Stack) -> Iterator[Gateway]:
    """The shared stack's gateway. The gateway closes connections idle for 5 s, so the client drops them earlier."""
    limits = httpx.Limits(keepalive_expiry=2.5)
    hooks = {"response": [on_kafka.skip_if_lacking]} if on_kafka.ON_KAFKA else None
    with httpx.Client(base_url=shared_stack.url, timeout=40, limits=limits, event_hooks=hooks) as http:
        yield Gateway(http)


# Small things


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    """Runs calls that wait while the test continues."""
    with ThreadPoolExecutor(4) as executor:
        yield executor


@pytest.fixture
def name() -> str:
    """A name no other test uses, for a topic or a group."""
    return f"t{next(_numbers)}"
