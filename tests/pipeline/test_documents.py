"""The examples of docs/pipeline.md run as written; only names, paths and the address of the gateway change."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest
import sharequeue_pipeline
from sharequeue_pipeline.java import find_java_home

from tests.http.calls import Gateway
from tests.pipeline.conftest import Pipeline
from tests.pipeline.test_source import settled

DOCUMENT = Path(__file__).parents[2] / "docs" / "pipeline.md"


def test_the_example_runs(pipeline: Pipeline, gateway: Gateway, name: str, tmp_path: Path) -> None:
    code = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)[0]
    for written, meant in (
        ('.format("sharequeue")', f'.format("sharequeue").option("url", "{pipeline.url}")'),
        ('"orders"', f'"{name}-orders"'),
        ('"invoices"', f'"{name}-invoices"'),
        ('"billing"', f'"{name}"'),
        ("/tmp/billing", str(tmp_path)),
    ):
        assert written in code
        code = code.replace(written, meant)
    gateway.create_topic(f"{name}-orders")
    gateway.create_topic(f"{name}-invoices")
    gateway.produce(f"{name}-orders", {"id": 1, "total": 9.5}, key="c9")
    variables: dict[str, Any] = {}
    exec(compile(code, str(DOCUMENT), "exec"), variables)
    (record,) = gateway.read(f"{name}-invoices")["records"]
    assert record["value"] == {"order": 1, "vat": 1.9}
    assert record["key_base64"]
    assert settled(gateway, name, f"{name}-orders")


def test_the_example_of_avro_runs(
    pipeline: Pipeline, gateway: Gateway, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = [
        found for found in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL) if "avro" in found
    ]
    code = code.replace("/tmp/schemas", str(tmp_path / "schemas")).replace("payments-value", f"{name}-value")
    code = code.replace('"payments"', f'"{name}"').replace(
        '{"valueFormat"', f'{{"url": "{pipeline.url}", "valueFormat"'
    )
    gateway.create_topic(name)
    exec(compile(code, str(DOCUMENT), "exec"), {"spark": pipeline.spark})
    printed = capsys.readouterr().out
    assert re.findall(r"\| *(\d+)\| *(\d+)\| *(\d+)\|", printed)
    assert sorted(int(cents) for _, _, cents in re.findall(r"\| *(\d+)\| *(\d+)\| *(\d+)\|", printed)) == [0, 100, 200]


def environment(url: str, spark_home: Path) -> dict[str, str]:
    """This Python's programs first in the PATH, a Java for spark-submit, and Spark's settings for short runs."""
    java_home = find_java_home(os.environ)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {
        **{name: value for name, value in os.environ.items() if name != "SPARK_HOME"},
        "PATH": path,
        "SHAREQUEUE_URL": url,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(spark_home / "conf"),
        **({"JAVA_HOME": java_home} if java_home else {}),
    }


def printed_by(block: str, topic: str, pipeline: Pipeline, spark_home: Path, name: str, directory: Path) -> str:
    """What a shell prints that runs every line. Files and archives are in a directory of the test."""
    (lines,) = [
        found
        for found in re.findall(r"```sh\n(printf .*?)```", DOCUMENT.read_text(), re.DOTALL)
        if f"{block} " in found
    ]
    lines = lines.replace("/tmp/", f"{directory}/").replace(f" {topic}", f" {name}")
    done = subprocess.run(
        ["sh", "-e", "-c", lines],
        env=environment(pipeline.url, spark_home),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.soak
def test_the_tour_of_the_jobs_runs(pipeline: Pipeline, spark_home: Path, name: str, tmp_path: Path) -> None:
    printed = printed_by("pipeline compact", "totals", pipeline, spark_home, name, tmp_path)
    assert f"{name}-0: 4 records in 1 files, archived up to 4" in printed
    assert "verified: 4 records" in printed
    assert f"{name}-0: of 3 records below 3, gone: 1 superseded, 0 tombstones" in printed
    assert '{"id":"a","total":1}' not in printed
    assert '{"id":"a","total":3}' in printed


@pytest.mark.soak
def test_the_lines_about_a_delta_table_run(pipeline: Pipeline, spark_home: Path, name: str, tmp_path: Path) -> None:
    printed = printed_by("--format delta", "sales", pipeline, spark_home, name, tmp_path)
    assert f"{name}-0: 2 records in 1 files, archived up to 2" in printed
    assert "verified: 2 records" in printed
    assert "{'id': 1, 'total': 9.50}" in printed


def test_a_job_runs_under_spark_submit(
    pipeline: Pipeline, gateway: Gateway, spark_home: Path, name: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.ndjson").write_text('{"id":1}\n{"id":2}\n')
    submit = Path(pyspark.__path__[0]) / "bin" / "spark-submit"
    script = Path(sharequeue_pipeline.__path__[0]) / "jobs" / "ingest.py"
    words = ["--master", "local[1]", str(script), name, str(tmp_path / "rows.ndjson"), "--create", "1", "--json"]
    done = subprocess.run(
        [str(submit), *words],
        env=environment(pipeline.url, spark_home),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["records"] == 2
    assert [record["value"] for record in gateway.read(name)["records"]] == [{"id": 1}, {"id": 2}]
