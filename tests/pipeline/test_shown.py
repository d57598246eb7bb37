"""The code of Spark in the sentences of the pages: Spark's parser reads the SQL, and Spark has the names and options.

tests/shown/kinds.py finds the code. Code of a new form fails here until its form has a test.
"""

import json
import re
import subprocess
from pathlib import Path

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


@pytest.mark.parametrize("code", of_kind("registry"))
def test_a_schema_is_copied_from_a_registry_server(tmp_path: Path, code: str) -> None:
    with schemas.RegistryServer().running() as server:
        server.put(1, schemas.FIRST)
        command = code.replace("$REGISTRY", server.url).replace("/tmp/schemas", str(tmp_path))
        subprocess.run(["bash", "-eo", "pipefail", "-c", command], check=True, timeout=300)
    assert schemas.opened(tmp_path, "avro", 1).ddl
    assert json.loads((tmp_path / "1.avsc").read_text()) == schemas.FIRST
