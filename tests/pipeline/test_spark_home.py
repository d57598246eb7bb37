"""Spark's Python processes import the installed packages, which are compiled."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from sharequeue_pipeline.spark_home import spark_home

WORKER = """
from sharequeue_pipeline import session
def place(_):
    import os, pyspark
    return pyspark.__file__
spark = session(master="local[1]", config={"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"})
print(spark.sparkContext.parallelize([0], 1).map(place).first())
import os
print(os.environ.get("SPARK_HOME"))
spark.stop()
"""


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment in which nobody has chosen a home."""
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    return monkeypatch


@pytest.mark.soak
def test_workers_import_the_installed_pyspark(plain: pytest.MonkeyPatch) -> None:
    done = subprocess.run([sys.executable, "-c", WORKER], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines() == [pyspark.__file__, "None"]


@pytest.mark.parametrize("master", [None, "local", "local[2]", "local[*]", "local[2,3]"])
def test_a_local_spark_has_a_home_without_the_archive(plain: pytest.MonkeyPatch, master: str | None) -> None:
    with spark_home(master, {}):
        home = Path(os.environ["SPARK_HOME"])
        assert (home / "bin" / "spark-submit").exists()
        assert any((home / "jars").glob("spark-core*"))
        assert not (home / "python").exists()
    assert "SPARK_HOME" not in os.environ


@pytest.mark.parametrize(
    ("master", "config", "environment"),
    [
        ("spark://head:7077", {}, {}),
        ("local-cluster[2,1,1024]", {}, {}),
        (None, {"spark.master": "yarn"}, {}),
        ("local", {"spark.pyspark.python": "/nowhere/python"}, {}),
        ("local", {}, {"PYSPARK_PYTHON": "/bin/false"}),
        ("local", {}, {"PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell"}),
        ("local", {}, {"SPARK_CONF_DIR": "/etc/spark"}),
        ("local", {}, {"SPARK_HOME": "/opt/spark"}),
    ],
)
def test_a_home_stays_as_it_was_chosen(
    plain: pytest.MonkeyPatch, master: str | None, config: dict[str, str], environment: dict[str, str]
) -> None:
    """A cluster, workers with another Python, or a choice that somebody made."""
    for name, to in environment.items():
        plain.setenv(name, to)
    with spark_home(master, config):
        assert os.environ.get("SPARK_HOME") == environment.get("SPARK_HOME")
    assert os.environ.get("SPARK_HOME") == environment.get("SPARK_HOME")
