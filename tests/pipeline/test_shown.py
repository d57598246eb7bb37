"""The code of Spark in the sentences of the pages: Spark's parser reads the SQL, and Spark has the names and options.

tests/shown/kinds.py finds the code. Code of a new form fails here until its form has a test.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pyspark
import pytest
import sharequeue_pipeline
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import _parse_datatype_string

from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway
from tests.pipeline import schemas
from tests.pipeline.test_documents import environment
from tests.shown.kinds import of_kind


@pytest.fixture(scope="module")
def records(spark: SparkSession, stack: Stack, gateway: Gateway) -> DataFrame:
    """The columns of the source."""
    gateway.produce("orders", 1)
    return spark.read.format("sharequeue").options(url=stack.url, topics="orders", mode="log").load()


@pytest.mark.parametrize("code", of_kind("sql"))
def test_spark_reads_the_sql_of_a_sentence(spark: SparkSession, stack: Stack, records: DataFrame, code: str) -> None:
    if code.startswith("CREATE TEMPORARY VIEW orders "):
        spark.sql(code.replace("OPTIONS (", f"OPTIONS (url '{stack.url}', "))  # the page's gateway is at the default
        assert spark.table("orders").schema == records.schema
        spark.catalog.dropTempView("orders")
    elif condition := re.fullmatch(r'where\("(.*)"\)|(\w+ >= …)', code):
        text = condition[1] or condition[2].replace("…", "current_timestamp()")
        assert records.where(text).columns == records.columns
    elif code.endswith("()"):
        assert records.select(F.expr(code)).columns
    else:
        assert _parse_datatype_string(code)


@pytest.mark.parametrize("code", of_kind("spark"))
def test_spark_has_what_a_sentence_names(spark: SparkSession, spark_home: Path, tmp_path: Path, code: str) -> None:
    batch = spark.range(1)
    if code.startswith("spark-submit "):
        submit = Path(pyspark.__path__[0]) / "bin" / "spark-submit"
        said = subprocess.run(
            [submit, "--help"],
            env=environment("", spark_home),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert all(re.search(rf"^ +{option}\b", said.stderr, re.MULTILINE) for option in code.split()[1:])
    elif code.startswith(".trigger("):
        writer = spark.readStream.format("rate").load().writeStream
        eval(f"writer{code}", {"writer": writer})
    else:
        names = {"batch": batch, "spark": spark, "sharequeue_pipeline": sharequeue_pipeline, "function": print}
        eval(code.replace("…", "function"), names)


@contextmanager
def registry_server() -> Iterator[str]:
    """What Confluent's registry answers to `GET /schemas/ids/1`. Yields: its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/schemas/ids/1"
            body = json.dumps({"schema": json.dumps(schemas.FIRST)} if found else {"error_code": 40403}).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        running = Thread(target=server.serve_forever)
        running.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        running.join()


@pytest.mark.parametrize("code", of_kind("registry"))
def test_a_schema_is_copied_from_a_registry_server(tmp_path: Path, code: str) -> None:
    with registry_server() as url:
        command = code.replace("$REGISTRY", url).replace("/tmp/schemas", str(tmp_path))
        subprocess.run(["bash", "-eo", "pipefail", "-c", command], check=True, timeout=300)
    assert schemas.opened(tmp_path, "avro", 1).ddl
    assert json.loads((tmp_path / "1.avsc").read_text()) == schemas.FIRST
