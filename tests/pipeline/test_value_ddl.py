"""`valueSchema` is read as Spark reads it, and what Spark cannot read is one line."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import _parse_datatype_string
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.options import source_options
from sharequeue_pipeline.source.schema import columns

from tests.http.calls import Gateway
from tests.pipeline.conftest import Pipeline

GOOD = (
    "id INT, at TIMESTAMP",
    "id: int, `a b` STRING, `x``y` bigint",
    "1a INT, order INT, select STRING",
    "a INT NOT NULL COMMENT 'it''s', b STRING COMMENT \"x\"",
    "a DECIMAL(9,2), b DECIMAL(5), c decimal, d NUMERIC(3, 1), e dec",
    "a CHAR(3), b VARCHAR(10)",
    "a STRUCT<b: INT, c ARRAY<MAP<STRING, ARRAY<DOUBLE>>>>, d STRUCT<>",
    "array<struct<a INT>>",
    "map<string,bigint>",
    "bigint",
    "date DATE, timestamp TIMESTAMP_NTZ, binary BINARY, t TIMESTAMP_LTZ",
    "a BOOLEAN, b BYTE, c TINYINT, d SHORT, e SMALLINT, f LONG, g FLOAT, h REAL, i DOUBLE, j INTEGER",
    "not INT, comment STRING, array ARRAY<INT>",
    "a STRING COLLATE UTF8_LCASE",
    "\n id INT ,\n n STRING\n",
)
BAD = (
    ("id INTT,,", "INTT (character 4): a type"),
    ("id INT,", "its end: the name"),
    ("id INT name STRING", "name (character 8): a comma or its end"),
    ("id", "id (character 1): a type"),
    ("id INT, at", "its end: a type"),
    ("a ARRAY<INT", "its end: > belongs"),
    ("a ARRAY INT", "INT (character 9): < belongs"),
    ("map<string>", "> (character 11): , belongs"),
    ("a DECIMAL(x)", "x (character 11): a number"),
    ("a DECIMAL(9,2", "its end: ) belongs"),
    ("a CHAR", "its end: ( belongs"),
    ("a INT NOT", "its end: null belongs"),
    ("a INT COMMENT x", "x (character 15): a comment"),
    ("a-b INT", "- (character 2): a type"),
    ("{'a': 'INT'}", "{ (character 1): the name"),
)


def schema_of(given: str) -> str:
    return columns(source_options({"topics": "t", "valueFormat": "json", "valueSchema": given}))


@pytest.mark.parametrize("given", GOOD)
def test_what_spark_can_read_is_taken(spark: SparkSession, given: str) -> None:
    assert "value" in _parse_datatype_string(schema_of(given)).names


@pytest.mark.parametrize(("given", "said"), BAD)
def test_what_spark_cannot_read_is_one_line(spark: SparkSession, given: str, said: str) -> None:
    with pytest.raises(PipelineError, match="valueSchema cannot be read") as fault:
        schema_of(given)
    assert f"at {said}" in str(fault.value)
    assert "\n" not in str(fault.value)
    with pytest.raises(PySparkException):
        _parse_datatype_string(f"value struct<{given}>, other int")


def test_a_read_names_the_fault(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    with pytest.raises(PySparkException, match="PipelineError: the option valueSchema cannot be read: 'id INTT'"):
        pipeline.read(topics=name, valueFormat="json", valueSchema="id INTT")
