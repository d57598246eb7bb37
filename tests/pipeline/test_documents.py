"""The examples of docs/pipeline.md run as written; only names, paths and the address of the gateway change."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
import sharequeue_pipeline
from sharequeue_pipeline.java import find_java_home

from tests.http.calls import Gateway
from tests.packages import wheels
from tests.pipeline.conftest import Pipeline
from tests.system.test_readme import blocks
from tests.system.up_command import Up

DOCUMENT = Path(__file__).parents[2] / "docs" / "pipeline.md"


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


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """An empty directory, and beside it the project's wheel: pip takes it in place of a checkout,
    and needs no network."""
    wheels.build(tmp_path)
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


@pytest.mark.soak
def test_five_minutes_from_an_empty_directory(empty: Path, spark_home: Path) -> None:
    """Every line runs as written, with another port, and the libraries that are installed here."""
    text = DOCUMENT.read_text().split("\n## In five minutes\n")[1].split("\n## ")[0]
    (_, install), (_, up), (_, send), (kind, program), (_, run), (_, shown) = blocks(text)
    (wheel,) = empty.parent.glob("*.whl")
    ours = {
        name: value
        for name, value in environment("", spark_home).items()
        if name not in ("PYTHONPATH", "PYSPARK_PYTHON")
    }
    ours |= {"PATH": os.environ["PATH"], "PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    def shell(lines: str, **more: str) -> str:
        return subprocess.run(
            ["sh", "-e", "-c", lines],
            cwd=empty,
            env={**ours, **more},
            stdout=subprocess.PIPE,
            text=True,
            timeout=300,
            check=True,
        ).stdout

    make, pip = install.splitlines()
    shell(make.replace("python3", sys.executable))
    (packages,) = empty.glob(".venv/lib/*/site-packages")
    (packages / "installed-here.pth").write_text(
        "".join(f"{path}\n" for path in sys.path if path.endswith("-packages"))
    )
    shell(pip.replace("/path/to/sharequeue", str(wheel)))
    assert up == ".venv/bin/sharequeue up\n"
    with Up(empty.parent, empty / ".sharequeue", command=(str(empty / ".venv/bin/sharequeue"),)) as stack:
        url = stack.ready()
        shell(send, SHAREQUEUE_URL=url)
        assert (kind, program.splitlines()[0]) == ("python", "# invoices.py")
        at = f'.format("sharequeue").option("url", "{url}")'
        (empty / "invoices.py").write_text(program.replace('.format("sharequeue")', at))
        printed = shell(run, SHAREQUEUE_URL=url)
        assert printed == shown, f"printed\n{printed}\nand not\n{shown}"
        (_, second) = blocks(DOCUMENT.read_text().split("\n## Exactly once")[1].split("\n## ")[0])[0]
        once = re.sub(r"(?s)query = \(.*?\n\)\n", lambda _: second, program)
        (empty / "invoices.py").write_text(once.replace('.format("sharequeue")', at))
        (empty / "orders.txt").write_text('c4={"id":4,"total":1}\n')
        shell(send.splitlines()[-1], SHAREQUEUE_URL=url)
        assert '{"order":4,"vat":0.200}' in shell(run, SHAREQUEUE_URL=url)
        assert stack.end(signal.SIGTERM) == 0


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
    printed = printed_by("archive sales", "sales", pipeline, spark_home, name, tmp_path)
    assert f"{name}-0: 2 records in 1 files, archived up to 2" in printed
    assert "verified: 2 records" in printed
    assert '{"id":1,"total":9.5}' in printed


@pytest.mark.soak
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
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["records"] == 2
    assert [record["value"] for record in gateway.read(name)["records"]] == [{"id": 1}, {"id": 2}]
