"""Data of an earlier PostgreSQL: upgraded by the next start, kept as a copy, and whole after any interruption."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest

from sharequeue.stack import postgres_upgrade
from sharequeue.stack.postgres import Postgres
from sharequeue.stack.system_user import EmbeddedError
from tests.system.up_command import until

EARLIER = 16
ROWS = 5000


@pytest.fixture(scope="module")
def earlier_data() -> Iterator[Path]:
    """A data directory that the earlier version made, whose server was killed."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    server = at(EARLIER, place / "data")
    asyncio.run(ask(server.start(), f"CREATE TABLE kept AS SELECT n FROM generate_series(1, {ROWS}) n"))
    server.kill()
    until(lambda: not running(server.home), "its last process has ended")
    yield place / "data"
    shutil.rmtree(place)


@pytest.fixture
def data_dir(earlier_data: Path) -> Iterator[Path]:
    """A copy of it."""
    data_dir = earlier_data.with_name("copy")
    subprocess.run(["cp", "-a", earlier_data, data_dir], check=True)
    yield data_dir
    shutil.rmtree(data_dir)


def at(major: int, data_dir: Path, tell: Callable[[str], None] = lambda _: None) -> Postgres:
    """A server of that version."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Postgres, "major", major)
        server = Postgres(data_dir, temporary=True, tell=tell)
    server.major = major  # type: ignore[misc]
    return server


async def ask(url: str, sql: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


def running(home: Path) -> list[psutil.Process]:
    """The servers that work on data beside `home`, and on it."""
    found = []
    for process in psutil.process_iter():
        try:
            if home.parent == Path(process.cwd()).parent and process.name().startswith("postgres"):
                found.append(process)
        except psutil.Error:
            pass
    return found


def check_upgraded(server: Postgres) -> None:
    try:
        url = server.start()
        assert asyncio.run(ask(url, "SELECT count(*) FROM kept")) == ROWS
        assert asyncio.run(ask(url, "SHOW server_version_num")).startswith(str(Postgres.major))
        check_kept(server)
    finally:
        server.stop()


def check_kept(server: Postgres) -> None:
    assert postgres_upgrade.version_of(server.home) == Postgres.major
    assert postgres_upgrade.version_of(server.home.with_name(f"postgresql.{EARLIER}")) == EARLIER
    assert not server.home.with_name("postgresql.upgraded").exists()


def test_data_of_an_earlier_version_is_upgraded_and_kept(data_dir: Path) -> None:
    messages: list[str] = []
    server = Postgres(data_dir, tell=messages.append)
    check_upgraded(server)
    assert messages == [
        f"upgrading the data in {server.home} from PostgreSQL {EARLIER} to {Postgres.major}",
        f"upgraded; the data of PostgreSQL {EARLIER} is kept in {server.home}.{EARLIER}: remove it when the new one works",
    ]
    upgraded, kept = server.home.with_name("postgresql.upgraded"), server.home.with_name(f"postgresql.{EARLIER}")
    for both in (True, False):  # killed before the first of the two last renames, and before the second
        server.home.rename(upgraded)
        if both:
            kept.rename(server.home)
        postgres_upgrade.finish(server.home)
        check_kept(server)
    check_upgraded(Postgres(data_dir, tell=messages.append))
    assert len(messages) == 2, "once"


def test_a_killed_upgrade_begins_again(data_dir: Path) -> None:
    code = "import sys; from pathlib import Path; from sharequeue.stack.postgres import Postgres; Postgres(Path(sys.argv[1])).start()"
    home = (data_dir / "postgresql").resolve()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code, str(data_dir)], env=environment) as program:
        until(lambda: bool(running(home)) or program.poll() is not None, "pg_upgrade has started a server")
        program.send_signal(signal.SIGKILL)
    check_upgraded(Postgres(data_dir))
    assert running(home) == []


def test_a_failed_upgrade_changes_nothing(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Postgres(data_dir)
    run = server._run

    def fail(program: Path, *arguments: str, **options: Any) -> str:
        extra = ["--no-such-option"] if program.name == "pg_upgrade" else []
        return run(program, *arguments, *extra, **options)

    monkeypatch.setattr(server, "_run", fail)
    with pytest.raises(
        EmbeddedError, match=rf"(?s)could not be upgraded from PostgreSQL {EARLIER} to .*unchanged.*pg_upgrade failed"
    ):
        server.start()
    earlier = at(EARLIER, data_dir)
    try:
        assert asyncio.run(ask(earlier.start(), "SELECT count(*) FROM kept")) == ROWS
    finally:
        earlier.stop()


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("12", r"PostgreSQL 12 is needed for .*, and the package .* has 16 and 18"),
        ("99", "PostgreSQL 99 made the data in .*, and this"),
    ],
)
def test_data_that_cannot_be_upgraded_is_named(data_dir: Path, version: str, reason: str) -> None:
    (data_dir / "postgresql" / "PG_VERSION").write_text(f"{version}\n")
    with pytest.raises(EmbeddedError, match=reason):
        Postgres(data_dir).start()
