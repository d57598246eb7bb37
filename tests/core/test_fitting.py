"""Which columns of Spark can be written with a schema: those that lose nothing."""

import pytest
from pyspark.sql import types as spark
from sharequeue_pipeline.registry.fitting import misfit


@pytest.mark.parametrize(
    ("given_type", "wanted", "fits"),
    [
        ("ShortType", "LongType", True),
        ("LongType", "IntegerType", False),
        ("FloatType", "DoubleType", True),
        ("DoubleType", "FloatType", False),
        ("TimestampType", "TimestampNTZType", False),
        ("StringType", "StringType", True),
    ],
)
def test_a_type_fits_a_wider_one(given_type: str, wanted: str, fits: bool) -> None:
    of, to = getattr(spark, given_type)(), getattr(spark, wanted)()
    assert (misfit(of, to) is None) is fits
    assert (misfit(spark.ArrayType(of), spark.ArrayType(to)) is None) is fits
    assert (misfit(spark.MapType(of, of), spark.MapType(to, to)) is None) is fits
    assert misfit(spark.ArrayType(of), to) is not None
