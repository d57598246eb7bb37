"""Spark Connect: the program has no Java of its own, so it can register, read, write and stream, but not settle."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sharequeue_pipeline.java import find_java_home

from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway
from tests.pipeline.driver import QUICK_SPARK
from tests.pipeline.test_source import settled

PACKAGES = ("grpcio", "grpcio-status", "googleapis-common-protos", "protobuf", "zstandard")
"""What PySpark's client of Connect needs beside pandas and pyarrow."""
CLIENT = Path(__file__).with_name("connect.py")


@pytest.mark.soak
def test_a_client_of_spark_connect_writes_reads_and_streams(
    stack: Stack, gateway: Gateway, name: str, tmp_path: Path
) -> None:
    gateway.create_topic(name)
    words = ["--quiet", "--no-deps", "--disable-pip-version-check", "--target", str(tmp_path / "packages"), *PACKAGES]
    subprocess.run([sys.executable, "-m", "pip", "install", *words], check=True)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("".join(f"{key} {to}\n" for key, to in QUICK_SPARK.items()))
    java_home = find_java_home(os.environ)
    done = subprocess.run(
        [sys.executable, str(CLIENT), stack.url, name, name, str(tmp_path)],
        env={
            **{key: value for key, value in os.environ.items() if key != "SPARK_HOME"},
            "PYTHONPATH": os.pathsep.join([str(tmp_path / "packages"), os.getcwd()]),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(tmp_path / "conf"),  # for the server, which it starts
            **({"JAVA_HOME": java_home} if java_home else {}),
        },
        capture_output=True,
        text=True,
        timeout=1800,  # a guard against waiting for ever, also on a busy machine
        check=False,
    )
    assert done.returncode == 0, [
        line for line in done.stderr.splitlines() if re.search(r"Error|Caused|Exception:", line)
    ]
    assert done.stdout.splitlines() == [
        "read 20",
        "streamed 20",
        "settle settle does not work with Spark Connect: the query runs in another process",
    ]
    assert "a session of Spark Connect: records of a query" in done.stderr
    assert settled(gateway, name, name), "availableNow accepts its last batch before it ends"
