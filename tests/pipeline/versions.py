"""`make spark-versions`: tests of the pipeline on the oldest Spark that it supports. `make test` has the newest."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

OLDEST: Final = "4.2.0"
TESTS: Final = (
    "tests/pipeline/test_session.py",
    "tests/pipeline/test_source.py",
    "tests/pipeline/test_sink.py",
    "tests/pipeline/test_settle.py",
    "tests/pipeline/test_pushed_filters.py",
)
ROOT: Final = Path(__file__).parents[2]


def install(version: str, directory: Path) -> None:
    """Install PySpark beside the one of this environment. Python finds it first if `directory` is in PYTHONPATH."""
    words = ["--quiet", "--no-deps", "--disable-pip-version-check", "--target", str(directory), f"pyspark=={version}"]
    subprocess.run([sys.executable, "-m", "pip", "install", *words], check=True)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="sharequeue-pyspark-") as made:
        install(OLDEST, Path(made))
        environment = {**os.environ, "PYTHONPATH": made}
        asked = [sys.executable, "-c", "import pyspark; print(pyspark.__version__)"]
        found = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stdout.strip()
        if found != OLDEST:
            print(f"Python finds PySpark {found}, not {OLDEST}", file=sys.stderr)
            return 1
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *TESTS], cwd=ROOT, env=environment, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
