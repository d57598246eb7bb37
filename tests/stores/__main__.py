"""`make test-stores`: the tests that depend on the stores most, on stores other than the embedded ones.

PostgreSQL 16 is in the wheel beside 18. Valkey 8 is another wheel,
Redis 7 a `redis-server` in PATH or Debian's package. The tests of this folder have stores that speak TLS:
PostgreSQL 17 of one more wheel, and Redis 7.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.compose.engine import EngineError
from tests.stores.servers import ROOT, redis_7, valkey_8, version_of

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
TLS_TESTS: Final = ("tests/stores/test_stores_over_tls.py", "tests/stores/test_production_page.py")


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
    options = sys.argv[1:]
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
            used = {"TEST_POSTGRES": str(run.postgres), "TEST_REDIS": str(server)}
            if code := pytest(run.tests, options, used):
                return code
    print("test-stores: PostgreSQL 17 and Redis 7 over TLS", flush=True)
    return pytest(TLS_TESTS, options, {})


def pytest(tests: Sequence[str], options: Sequence[str], variables: Mapping[str, str]) -> int:
    """Returns: the exit code."""
    command = [sys.executable, "-m", "pytest", *options, *tests]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
