"""The data of a PostgreSQL as they were: a copy of them, and the copy in their place again."""

import shutil
from pathlib import Path

from sharequeue.stack.postgres import Postgres


def stop_and_copy(server: Postgres) -> None:
    """Copy the data as they are now. The caller starts the server again."""
    server.stop()
    forget(server)
    shutil.copytree(server.home, _copy(server), copy_function=copy_with_owner)
    own_as(server.home, _copy(server))


def stop_and_put_back(server: Postgres) -> None:
    """Put the copy in the place of the data. The caller starts the server again."""
    server.stop()
    for entry in list(server.home.iterdir()):
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    shutil.copytree(_copy(server), server.home, copy_function=copy_with_owner, dirs_exist_ok=True)
    own_as(_copy(server), server.home)


def forget(server: Postgres) -> None:
    """Remove the copy."""
    shutil.rmtree(_copy(server), ignore_errors=True)


def _copy(server: Postgres) -> Path:
    return server.home.with_name("older")


def copy_with_owner(source: str, target: str) -> str:
    shutil.copy2(source, target)
    return target


def own_as(source: Path, target: Path) -> None:
    owner = source.stat()
    for path in (target, *target.rglob("*")):
        shutil.chown(path, owner.st_uid, owner.st_gid)
    target.chmod(0o700)
