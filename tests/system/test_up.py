"""`sharequeue up`: one line when it is ready, its data after any end, no process left behind, and clear messages."""

import asyncio
import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import asyncpg
import httpx
import psutil
import pytest

from sharequeue.stack import system_user
from sharequeue.stack.postgres import Postgres
from sharequeue.stack.stack import Stack, StackError
from tests.system.up_command import COMMAND, FREE_PORTS, Up, command_for, until

ROOT = os.geteuid() == 0
PORT_OPTIONS = ("--gateway-port", "--coordinator-port", "--share-coordinator-port")
SOON_S = 100
"""A command without anything to wait for ends within seconds, even on a busy machine."""


def status(place: Path) -> tuple[int, int, int]:
    found = place.stat()
    return found.st_mode, found.st_uid, found.st_gid


@pytest.fixture(scope="module", autouse=True)
def nothing_that_was_there_changes_hands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No mode and no owner of what existed before is changed by all these runs."""
    base = tmp_path_factory.getbasetemp()
    ours = [Path(sys.prefix), Path(sys.base_prefix), COMMAND, Path(sysconfig.get_path("purelib")), Path.cwd()]
    places = {*ours, base, *base.parents, system_user.HOME.parent, system_user.HOME, Path(tempfile.gettempdir())}
    before = {place: status(place) for place in places if place.exists()}
    yield
    assert {place: status(place) for place in before} == before


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_of_test_runs_that_were_killed(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Data of `sharequeue up` below HOME belongs to a user, so no other start removes it. Tests know their own data."""
    base = tmp_path_factory.getbasetemp()
    ours = next((place for place in base.parents if place.name.startswith("pytest-of-")), base)
    for note in system_user.HOME.glob("*/lock"):
        if not os.access(note, os.R_OK):  # another user's
            continue
        link = Path(note.read_text().removeprefix("data of "))
        if ours in link.parents and not link.is_symlink():
            shutil.rmtree(note.parent, ignore_errors=True)


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    data_dir = tmp_path / "the data"
    data_dir.mkdir(mode=0o750)
    yield data_dir
    forget(data_dir)


def forget(data_dir: Path) -> None:
    """Remove what lies outside of a data directory, too."""
    home = data_dir / "postgresql"
    if home.is_symlink():
        shutil.rmtree(home.resolve().parent)
    shutil.rmtree(data_dir)


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[], str], new_redis: Callable[[], str]
) -> Iterator[tuple[Up, Path, str]]:
    """A stack on stores that were given, with its data directory and PostgreSQL's URL.

    It runs where a careless user might: a proxy in the environment, a module called `redis` in the current directory.
    """
    place = tmp_path_factory.mktemp("running")
    (place / "redis.py").write_text("raise ImportError('this is no Redis client')\n")
    database_url = new_database()
    proxy = {"http_proxy": "http://127.0.0.1:9", "no_proxy": "", "NO_PROXY": ""}
    options = ("--postgres-url", database_url, "--redis-url", new_redis())
    with Up(place, place / "data", *options, environment=proxy, cwd=place) as up:
        up.ready()
        yield up, place / "data", database_url


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command that must end by itself."""
    return subprocess.run([str(COMMAND), *arguments], capture_output=True, text=True, check=False, timeout=SOON_S)


def refused(*options: str, data_dir: Path) -> str:
    """Run an `up` that must fail with exit code 1 and without a traceback. Returns: its message, one line."""
    done = run("up", "--data-dir", str(data_dir), *FREE_PORTS, *options)
    assert (done.returncode, done.stdout) == (1, ""), done
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("sharequeue up: ")
    return done.stderr


def port_of(url: str) -> int:
    return int(url.rsplit(":", 1)[1])


def is_open(url: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port_of(url))) == 0


def held(url: str) -> list[tuple[int, int, str, int]]:
    """The acquired records: first and last offset, holder, delivery count."""
    answer = httpx.get(f"{url}/v1/share-groups/g/in-flight", params={"topic": "t"}, timeout=60).json()
    return [
        (batch["first_offset"], batch["last_offset"], batch["member_id"], batch["delivery_count"])
        for partition in answer["partitions"]
        for batch in partition["batches"]
        if batch["delivery_state"] == "ACQUIRED"
    ]


def produce_and_hold(url: str) -> None:
    """Three records; `m1` accepts the first and keeps the others for long."""
    with httpx.Client(base_url=url, timeout=60) as client:
        records = {"records": [{"value": number} for number in range(3)]}
        client.post("/v1/topics/t/records", json=records).raise_for_status()
        config = {"share.record.lock.duration.ms": "300000"}
        client.patch("/v1/share-groups/g/config", json={"config": config}).raise_for_status()
        fetch = {"topics": ["t"], "member_id": "m1", "max_wait_ms": 10_000}
        (batch,) = client.post("/v1/share-groups/g/fetch", json=fetch).raise_for_status().json()["batches"]
        assert [record["value"] for record in batch["records"]] == [0, 1, 2]
    assert accept(url, 0) == "applied"
    assert held(url) == [(1, 2, "m1", 1)]


def accept(url: str, offset: int) -> str:
    word = {"topic": "t", "partition": 0, "first_offset": offset, "last_offset": offset, "delivery_count": 1}
    request = {"member_id": "m1", "acknowledgements": [{**word, "type": "accept"}]}
    answer = httpx.post(f"{url}/v1/share-groups/g/acknowledge", json=request, timeout=60).raise_for_status().json()
    result: str = answer["results"][0]["status"]
    return result


def loggers_of(data_dir: Path, message: str) -> list[str]:
    """The services that logged a message, in order."""
    lines = [json.loads(line) for line in (data_dir / "logs" / "services.log").read_text().splitlines()]
    return [line["service"] for line in lines if line["message"] == message]


# The life of a stack


def test_a_migration_that_is_refused_says_why(
    data_dir: Path, new_database: Callable[[], str], new_redis: Callable[[], str]
) -> None:
    database_url = new_database()
    sql(database_url, "UPDATE log.schema_version SET version_num = 'log_999'")
    said = refused("--postgres-url", database_url, "--redis-url", new_redis(), data_dir=data_dir)
    assert "another version of sharequeue made the schema log (revision 'log_999')" in said
    assert "use an empty database (with `sharequeue up`, another --data-dir)" in said
    assert said.count("\n") == 1


def test_ctrl_c_ends_a_migration_that_waits(
    tmp_path: Path, data_dir: Path, new_database: Callable[[], str], new_redis: Callable[[], str]
) -> None:
    """Another runner of the migrations has their lock."""
    database_url = new_database()
    key = int.from_bytes(hashlib.blake2b(b"sharequeue-migrate-groups", digest_size=8).digest(), signed=True)
    waits = (
        "SELECT true FROM pg_stat_activity WHERE application_name = 'sharequeue-migrate' AND wait_event = 'advisory'"
    )
    with asyncio.Runner() as runner:
        other = runner.run(asyncpg.connect(database_url))
        runner.run(other.execute(f"DROP SCHEMA groups CASCADE; SELECT pg_advisory_lock({key})"))
        with Up(tmp_path, data_dir, "--postgres-url", database_url, "--redis-url", new_redis()) as up:
            until(lambda: bool(runner.run(other.fetchval(waits))), "the migration waits")
            assert up.end(signal.SIGINT) == 0
            assert (up.left(), up.stderr) == ([], "stopping\n")
        runner.run(other.close())


def sql(database_url: str, statement: str) -> object:
    """Execute a statement. Returns: the first value of its answer."""

    async def executed() -> object:
        connection = await asyncpg.connect(database_url)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    return asyncio.run(executed())


def test_data_and_locks_survive_every_kind_of_end(tmp_path: Path, data_dir: Path) -> None:
    """First start cut off by kill -9; Ctrl-C; a crash of the machine; kill -9; the death of PostgreSQL."""
    before = status(data_dir)
    with Up(tmp_path, data_dir, umask=0o077) as up:
        until(lambda: (data_dir / "postgresql").resolve().with_name("postgresql.partial").exists(), "initdb runs")
        up.end(signal.SIGKILL)

    with Up(tmp_path, data_dir, umask=0o077) as up:
        url = up.ready()
        assert re.fullmatch(r"ready: http://127\.0\.0\.1:\d+\n", up.stdout)
        loaded = Path(f"/proc/{up.process.pid}/maps").read_text()
        assert "msgspec" in loaded
        assert "greenlet" not in loaded, "a library of the migrations, whose memory ends with their process"
        produce_and_hold(url)
        assert up.end(signal.SIGINT) == 0
        assert up.left() == []
        assert not is_open(url)
        assert up.stdout.count("\n") == 1
    assert loggers_of(data_dir, "stopping") == ["gateway", "group coordinator", "share coordinator"]

    with process_with_the_postmasters_number(data_dir), Up(tmp_path, data_dir, umask=0o077) as up:
        url = up.ready()
        assert held(url) == [(1, 2, "m1", 1)]
        assert accept(url, 1) == "applied"
        postmaster = up.process_of("postgres")
        postmaster.suspend()
        assert up.end(signal.SIGKILL) == -signal.SIGKILL
        with Up(tmp_path, data_dir, umask=0o077) as next_up:
            until(lambda: "waiting for the processes of an earlier stack" in next_up.stderr, "it waits")
            postmaster.resume()
            url = next_up.ready()
            assert up.left() == []
            assert held(url) == [(2, 2, "m1", 1)]
            assert accept(url, 2) == "applied"
            next_up.process_of("postgres").kill()
            until(lambda: "PostgreSQL is started again in 1 s" in next_up.stderr, "it is noticed")
            assert "PostgreSQL died (exit code " in next_up.stderr
            until(lambda: produced(url) == 200, "the stack works again")
            assert next_up.end(signal.SIGINT) == 0
            assert next_up.left() == []
    assert status(data_dir) == before


def test_data_of_another_postgresql_is_refused_and_not_changed(data_dir: Path) -> None:
    server = Postgres(data_dir)
    server.start()
    server.stop()
    version = server.home / "PG_VERSION"
    owner = status(version)
    version.write_text("16\n")
    before = {file: status(file) for file in server.home.rglob("*")}
    assert "PostgreSQL 16 made the data in" in (message := refused(data_dir=data_dir))
    assert "remove the data, or give another --data-dir" in message
    assert {file: status(file) for file in server.home.rglob("*")} == before
    assert (version.read_text(), status(version)) == ("16\n", owner)


@contextlib.contextmanager
def process_with_the_postmasters_number(data_dir: Path) -> Iterator[None]:
    """A process of PostgreSQL's user, which a postmaster.pid left by a crash happens to name."""
    file = data_dir / "postgresql" / "postmaster.pid"
    user = file.parent.stat().st_uid
    with subprocess.Popen(["sleep", "600"], user=user if ROOT else None) as process:
        file.write_text(f"{process.pid}\n{file.parent.resolve()}\n")
        file.chmod(0o600)
        os.chown(file, user, -1)
        try:
            yield
        finally:
            process.kill()


@pytest.mark.soak
def test_an_ordinary_user_without_a_home_can_run_up(tmp_path: Path) -> None:
    """The first start is interrupted; the second is ended by SIGTERM. As root this is the user `nobody`."""
    place = Path(tempfile.mkdtemp(prefix="an ordinary user "))
    data_dir = place / "data"
    try:
        place.chmod(0o755)
        data_dir.mkdir()
        command, environment, process = (str(COMMAND),), {"HOME": "/nonexistent"}, {}
        if ROOT:
            account = pwd.getpwnam("nobody")
            shutil.chown(data_dir, account.pw_uid, account.pw_gid)
            process = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}

            def reads(directory: Path) -> bool:
                listing = ["ls", str(directory)]
                return subprocess.run(listing, capture_output=True, check=False, **process).returncode == 0

            command, paths = command_for(reads, place)
            environment |= paths
        before = status(place), status(data_dir)

        with Up(tmp_path, data_dir, command=command, environment=environment, cwd="/", **process) as up:
            until((data_dir / "postgresql.partial").exists, "initdb runs")
            assert up.end(signal.SIGINT) == 0, up.stderr
            until(lambda: not up.left(), "no process is left")
        with Up(tmp_path, data_dir, command=command, environment=environment, cwd="/", **process) as up:
            produce_and_hold(up.ready())
            owners = {process.uids().effective for process in up.processes()}
            assert owners == {data_dir.stat().st_uid}
            assert up.end(signal.SIGTERM) == 0
            assert up.left() == []
        assert (status(place), status(data_dir)) == before
        if ROOT:
            assert "belongs to the user nobody" in refused(data_dir=data_dir)
    finally:
        shutil.rmtree(place)


def locked(file: IO[str]) -> bool:
    """Lock a file. Returns: whether no other process holds it."""
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


INTERRUPTED_AT_A_FORK = """
import os, signal, sys
from sharequeue.cli import main
left = [int(sys.argv.pop(1))]
def forked():
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGINT)
os.register_at_fork(after_in_parent=forked)
sys.exit(main())
"""


@pytest.mark.parametrize(
    "fork",
    [
        pytest.param(1, id="Redis"),
        pytest.param(2, id="migration"),
        pytest.param(5, id="PostgreSQL"),
    ],
)
def test_an_interrupt_while_a_process_starts_ends_up(tmp_path: Path, data_dir: Path, fork: int) -> None:
    """The signal comes while a hook of Python's fork runs, where Python drops the exception of a handler. The process
    that was being started is ended too: each of them holds the lock."""
    script = tmp_path / "up.py"
    script.write_text(INTERRUPTED_AT_A_FORK)
    with Up(tmp_path, data_dir, command=(sys.executable, str(script), str(fork))) as up:
        assert (up.exit_code(), up.stdout, up.stderr) == (0, "", "stopping\n")
    with (data_dir / "processes.lock").open() as lock:
        until(lambda: locked(lock), "no process is left")


def test_a_start_that_fails_ends_the_migration_that_it_began(data_dir: Path) -> None:
    (data_dir / "postgresql.password").mkdir()
    stack = Stack(data_dir)
    with pytest.raises(StackError, match=r"postgresql\.password"):
        stack.start()
    stack.stop()
    with (data_dir / "processes.lock").open() as lock:
        assert locked(lock), "no process has it"


@pytest.mark.soak
def test_the_number_of_coordinators_can_shrink(
    tmp_path: Path, new_database: Callable[[], str], new_redis: Callable[[], str]
) -> None:
    """The stack is killed with two of each kind; one of each then owns what they all did."""
    stores = ("--postgres-url", new_database(), "--redis-url", new_redis())
    logs = tmp_path / "data" / "logs"
    with Up(tmp_path, tmp_path / "data", *stores, "--coordinators", "2", "--share-coordinators", "2", "--json") as up:
        said = json.loads(up.ready())
        assert (len(said["coordinators"]), len(said["share_coordinators"]), said["postgresql_data"]) == (2, 2, None)
        produce_and_hold(said["gateways"][0])
        owners = {json.loads(line)["owner"] for file in logs.glob("*coordinator*") for line in taken(file)}
        assert owners == {"coordinator-0", "coordinator-1", "share-coordinator-0", "share-coordinator-1"}
        assert up.end(signal.SIGKILL) == -signal.SIGKILL
    with Up(tmp_path, tmp_path / "data", *stores) as up:
        url = up.ready()
        assert held(url) == [(1, 2, "m1", 1)]
        assert accept(url, 1) == "applied"
        assert up.end(signal.SIGTERM) == 0
    assert "is not in the range" in run("up", "--coordinators", "0").stderr


@pytest.mark.soak
def test_json_says_where_the_stack_runs(tmp_path: Path, data_dir: Path) -> None:
    """One object on stdout, and nothing else until the end."""
    with Up(tmp_path, data_dir, "--json", "--gateways", "2") as up:
        said = json.loads(up.ready())
        assert {key: said[key] for key in ("data_dir", "logs", "pid")} == {
            "data_dir": str(data_dir),
            "logs": str(data_dir / "logs"),
            "pid": up.process.pid,
        }
        assert said["postgresql_data"] == str((data_dir / "postgresql").resolve())
        services = [said["gateways"], said["coordinators"], said["share_coordinators"]]
        assert [len(urls) for urls in services] == [2, 1, 1]
        for url in itertools.chain.from_iterable(services):
            assert httpx.get(f"{url}/readyz", timeout=60).status_code == 200
        produce_and_hold(said["gateways"][1])
        assert up.stderr == ""
        assert up.end(signal.SIGTERM) == 0
        assert json.loads(up.stdout) == said


@pytest.mark.soak
def test_a_gateway_with_another_address_becomes_ready(
    tmp_path: Path, new_database: Callable[[], str], new_redis: Callable[[], str]
) -> None:
    """The wait for it asks at that address, and so do the other services."""
    stores = ("--postgres-url", new_database(), "--redis-url", new_redis())
    host = {"SHAREQUEUE_GATEWAY_HOST": "127.0.0.2"}
    with Up(tmp_path, tmp_path / "data", *stores, environment=host) as up:
        url = up.ready()
        assert url.startswith("http://127.0.0.2:")
        produce_and_hold(url)
        assert up.end(signal.SIGTERM) == 0


def test_json_of_a_start_that_is_refused(tmp_path: Path) -> None:
    done = run("up", "--data-dir", str(tmp_path), "--coordinator-port", "45671", "--gateway-port", "45671", "--json")
    assert (done.returncode, done.stdout) == (1, "")
    failure = json.loads(done.stderr)
    assert failure["code"] == "FAILED"
    assert failure["detail"].startswith("port 45671 is given twice")
    wrong = run("up", "--coordinators", "0", "--json")
    assert (wrong.returncode, json.loads(wrong.stderr)["code"]) == (2, "WRONG_USAGE")


def taken(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if '"took over"' in line]


def test_the_process_of_all_services_is_started_again(
    tmp_path: Path, new_database: Callable[[], str], new_redis: Callable[[], str]
) -> None:
    """Locks and what was acknowledged survive, as with three processes."""
    stores = ("--postgres-url", new_database(), "--redis-url", new_redis())
    with Up(tmp_path, tmp_path / "data", *stores, "--json") as up:
        said = json.loads(up.ready())
        (url,), addresses = said["gateways"], said["gateways"] + said["coordinators"] + said["share_coordinators"]
        assert [httpx.get(f"{address}/readyz", timeout=60).status_code for address in addresses] == [200] * 3
        produce_and_hold(url)
        up.process_of("sharequeue_all_in_one").kill()
        until(lambda: "the service process is started again in 1 s" in up.stderr, "it is noticed")
        log_file = tmp_path / "data" / "logs" / "services.log"
        assert f"the service process died (exit code -9); the end of {log_file}:\n" in up.stderr
        until(lambda: produced(url) == 200, "the stack works again")
        assert held(url) == [(1, 2, "m1", 1)]
        assert accept(url, 1) == "applied"
        assert up.end(signal.SIGTERM) == 0
        assert up.left() == []


def commands(up: Up) -> list[str]:
    """Of the processes that run now."""
    children = psutil.Process(up.process.pid).children()
    return [" ".join(child.cmdline()) for child in children if child.status() != psutil.STATUS_ZOMBIE]


def produced(url: str) -> int:
    """The status of a produce; 0 while nobody listens."""
    try:
        return httpx.post(f"{url}/v1/topics/t/records", json={"records": [{"value": 1}]}, timeout=60).status_code
    except httpx.TransportError:
        return 0


# Beside one that runs


def test_stores_given_by_url_are_used(running: tuple[Up, Path, str]) -> None:
    up, data_dir, database_url = running
    produce_and_hold(up.ready())
    assert sql(database_url, "SELECT count(*) FROM groups.topics WHERE name = 't'") == 1
    assert not any((data_dir / name).exists() for name in ("postgresql", "redis"))
    assert len(up.processes()) == 2, "itself and the three services"


def test_a_second_stack_on_the_same_data_is_refused(running: tuple[Up, Path, str]) -> None:
    up, data_dir, _ = running
    said = refused(data_dir=data_dir)
    assert f"another stack (process {up.process.pid}) runs on {data_dir}" in said
    assert "--data-dir" in said
    assert run("healthcheck", f"{up.ready()}/readyz").returncode == 0, "the first one goes on"


def test_other_users_cannot_read_the_data(running: tuple[Up, Path, str]) -> None:
    _, data_dir, _ = running
    assert data_dir.stat().st_mode & 0o777 == (0o710 if ROOT else 0o700)
    kept = {place.relative_to(data_dir): place.stat().st_mode & 0o077 for place in data_dir.rglob("*")}
    assert Path("logs/services.log") in kept
    assert [place for place, others in kept.items() if others] == []


@pytest.mark.parametrize("option", PORT_OPTIONS)
def test_a_taken_port_is_reported_by_name(running: tuple[Up, Path, str], tmp_path: Path, option: str) -> None:
    port = port_of(running[0].ready())
    assert f"port {port} is taken; give another {option} " in refused(option, str(port), data_dir=tmp_path / "data")


def test_healthcheck_answers_by_its_exit_code(running: tuple[Up, Path, str]) -> None:
    url = running[0].ready()
    healthy = run("healthcheck", f"{url}/readyz")
    assert (healthy.returncode, json.loads(healthy.stdout)["status"]) == (0, "ready")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}"
    for sick, code in ((f"{url}/no-such-path", 1), ("not a URL", 2), (nobody, 3)):
        done = run("healthcheck", sick)
        assert (done.returncode, done.stdout) == (code, "")
        assert "Traceback" not in done.stderr


# What cannot work


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"password": "s3cret"}, "password authentication failed"),
        ({"database": "missing"}, 'database "missing" does not exist'),
        ({"port": "1"}, "Connect call failed"),
    ],
)
def test_a_wrong_postgres_url_is_named(
    postgres: Postgres, redis_url: str, tmp_path: Path, change: dict[str, str], reason: str
) -> None:
    own = {"password": re.split("[:@]", postgres.url)[2], "port": str(postgres.port), "database": "sharequeue"}
    parts = {**own, **change}
    url = f"postgresql://sharequeue:{parts['password']}@127.0.0.1:{parts['port']}/{parts['database']}"
    said = refused("--postgres-url", url, "--redis-url", redis_url, data_dir=tmp_path / "data")
    assert f"cannot use PostgreSQL at 127.0.0.1:{parts['port']} (--postgres-url)" in said
    assert reason in said
    assert parts["password"] not in said


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://127.0.0.1:1/0", "cannot use Redis at 127.0.0.1:1 (--redis-url)"),
        ("http://127.0.0.1", "cannot use Redis at 127.0.0.1:6379 (--redis-url)"),
        ("redis+sentinel://u:x@h:1/m", "at h:1 (--redis-url): redis+sentinel:// is not supported: name one Redis"),
    ],
)
def test_a_wrong_redis_url_is_named(database_url: str, tmp_path: Path, url: str, reason: str) -> None:
    assert reason in refused("--postgres-url", database_url, "--redis-url", url, data_dir=tmp_path / "data")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--record-log", "kafka", "--kafka", "127.0.0.1:1"), "cannot use Kafka (--kafka): 127.0.0.1:1: "),
        (("--record-log", "kafka", "--kafka", "broker"), "broker: give host:port"),
    ],
)
def test_a_kafka_that_cannot_be_used_is_named(
    database_url: str, redis_url: str, tmp_path: Path, options: tuple[str, ...], reason: str
) -> None:
    stores = ("--postgres-url", database_url, "--redis-url", redis_url)
    assert reason in refused(*stores, *options, data_dir=tmp_path / "data")


@pytest.mark.soak
def test_stores_that_never_answer_stop_the_start(database_url: str, redis_url: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        cases = {
            "PostgreSQL": ("--redis-url", redis_url, "--postgres-url", f"postgresql://u@127.0.0.1:{port}/d"),
            "Redis": ("--postgres-url", database_url, "--redis-url", f"redis://127.0.0.1:{port}"),
        }
        ups = {}
        for name, options in cases.items():
            (tmp_path / name).mkdir()
            ups[name] = Up(tmp_path / name, tmp_path / name / "data", *options)
        started = time.monotonic()
        for name, up in ups.items():
            with up:
                assert up.exit_code() == 1
                assert f"cannot use {name} at 127.0.0.1:{port}" in up.stderr
        assert time.monotonic() - started < SOON_S


def test_a_data_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert f"cannot use the --data-dir {tmp_path / 'file'}" in refused(data_dir=tmp_path / "file")


def test_root_starts_postgresql_as_another_user(tmp_path: Path) -> None:
    """Root may not run PostgreSQL; where that user cannot get into the data directory,
    a link says where the data is."""
    tmp_path.chmod(0o700)
    home = Postgres(tmp_path / "data").home
    link = tmp_path / "data" / "postgresql"
    assert link.is_symlink() == ROOT
    assert home == link.resolve()
    if ROOT:
        assert pwd.getpwnam(system_user.NAME)
        assert system_user.HOME in home.parents
        assert Postgres(tmp_path / "data").home == home, "found again"
        shutil.rmtree(home.parent)
