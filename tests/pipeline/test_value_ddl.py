"""Spark reads what the check of `valueSchema` lets pass, and refuses what the check refuses."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import _parse_datatype_string

from tests.core.test_value_ddl import BAD, GOOD, schema_of
from tests.http.calls import Gateway
from tests.pipeline.conftest import Pipeline


@pytest.mark.parametrize("given", GOOD)
def test_what_passes_spark_can_read(spark: SparkSession, given: str) -> None:
    assert "value" in _parse_datatype_string(schema_of(given)).names


@pytest.mark.parametrize("given", [given for given, _ in BAD])
def test_what_is_refused_spark_cannot_read(spark: SparkSession, given: str) -> None:
    with pytest.raises(PySparkException):
        _parse_datatype_string(f"value struct<{given}>, other int")


def test_a_read_names_the_fault(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    with pytest.raises(PySparkException, match="PipelineError: the option valueSchema cannot be read: 'id INTT'"):
        pipeline.read(topics=name, valueFormat="json", valueSchema="id INTT")
