"""`make spark-versions`: tests of the pipeline on older versions of Spark. `make test` has the newest."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

BATCHES: Final = (
    "test_archive.py",
    "test_attempts.py",
    "test_columns.py",
    "test_compact.py",
    "test_dead_letters.py",
    "test_ingest.py",
    "test_rows.py",
    "test_sink_columns.py",
)
"""Of reads and writes of batches, and of the jobs."""
STREAMS: Final = (
    "test_log.py",
    "test_session.py",
    "test_settle.py",
    "test_sink.py",
    "test_source.py",
    "test_transactional_sink.py",
)
TESTS: Final = {
    "4.0.0": (*BATCHES, "batches_of_older_spark.py", "streams_of_spark_4_0.py"),
    "4.1.0": (*BATCHES, "batches_of_older_spark.py", "streams_of_spark_4_1.py"),
    "4.2.0": (*BATCHES, *STREAMS),
}
"""The files of tests for each version."""
ROOT: Final = Path(__file__).parents[2]


def install(version: str, directory: Path) -> None:
    """Install PySpark beside the one of this environment. Python finds it first if `directory` is in PYTHONPATH."""
    words = ["--quiet", "--no-deps", "--disable-pip-version-check", "--target", str(directory), f"pyspark=={version}"]
    subprocess.run([sys.executable, "-m", "pip", "install", *words], check=True)


def passes(version: str, tests: tuple[str, ...]) -> bool:
    """Whether the tests pass on this version."""
    with tempfile.TemporaryDirectory(prefix="sharequeue-pyspark-") as made:
        install(version, Path(made))
        environment = {**os.environ, "PYTHONPATH": made}
        asked = [sys.executable, "-c", "import pyspark; print(pyspark.__version__)"]
        found = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stdout.strip()
        if found != version:
            print(f"Python finds PySpark {found}, not {version}", file=sys.stderr)
            return False
        print(f"Spark {version}", flush=True)
        words = [sys.executable, "-m", "pytest", "-q", *(f"tests/pipeline/{name}" for name in tests)]
        return subprocess.run(words, cwd=ROOT, env=environment, check=False).returncode == 0


def main() -> int:
    failed = [version for version, tests in TESTS.items() if not passes(version, tests)]
    for version in failed:
        print(f"tests fail on Spark {version}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
