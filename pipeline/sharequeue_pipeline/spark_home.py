"""A home for Spark without PySpark's archive, for programs that run Spark on this machine alone.

Spark's Python processes import PySpark from `python/lib/pyspark.zip` in its home. The archive has no compiled modules,
so each process compiles what it imports: a second of CPU at each start of a stream. If the home has no archive, they
import the installed package.
"""

import importlib.util
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sharequeue_pipeline import own_directory

_LOCAL: Final = re.compile(r"local(\[[^\]]*\])?")
_PACKAGES: Final = ("pyspark", "py4j")
_PLACES: Final = (
    "import importlib.util as u; print(*(s and s.origin for s in map(u.find_spec, ['pyspark', 'py4j'])), sep='\\n')"
)
CHECK_S: Final = 30


@contextmanager
def spark_home(master: str | None, config: Mapping[str, Any]) -> Iterator[None]:
    """Name such a home to a Spark that starts within this context, if that does no harm.

    It would do harm where other machines run Python, where somebody chose a home or the arguments of spark-submit, and
    where the workers' Python lacks the package.
    """
    wanted = str(master or config.get("spark.master", "local"))
    python = str(config.get("spark.pyspark.python", os.environ.get("PYSPARK_PYTHON", "python3")))
    chosen = {"SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR"} & os.environ.keys()
    if chosen or _LOCAL.fullmatch(wanted) is None or not _has_packages(python):
        yield
        return
    os.environ["SPARK_HOME"] = _made()
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


def _has_packages(python: str) -> bool:
    """Whether a Python imports the same packages as this one."""
    specs = [importlib.util.find_spec(name) for name in _PACKAGES]
    try:
        done = subprocess.run([python, "-c", _PLACES], capture_output=True, text=True, timeout=CHECK_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.stdout.splitlines() == [str(spec and spec.origin) for spec in specs]


def _made() -> str:
    """A directory with links to all of PySpark but its archive. It is removed when the program ends."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = own_directory.make("sharequeue-home-")
    for part in ("bin", "sbin", "jars", "data"):
        found = Path(spec.origin).parent / part
        if found.exists():
            (home / part).symlink_to(found)
    return str(home)
