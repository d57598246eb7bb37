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


LONG, INT = spark.LongType(), spark.IntegerType()


def struct(**fields: spark.DataType) -> spark.StructType:
    return spark.StructType([spark.StructField(name, data_type) for name, data_type in fields.items()])


@pytest.mark.parametrize(
    ("given", "wanted", "fits"),
    [
        ((9, 2), (9, 2), True),
        ((9, 2), (12, 4), True),
        ((9, 2), (9, 3), False),  # a digit before the point is lost
        ((9, 2), (12, 1), False),  # a decimal place is lost
        ((5, 0), (9, 2), True),
    ],
)
def test_a_decimal_fits_one_that_has_all_its_digits(
    given: tuple[int, int], wanted: tuple[int, int], fits: bool
) -> None:
    assert (misfit(spark.DecimalType(*given), spark.DecimalType(*wanted)) is None) is fits


@pytest.mark.parametrize(
    ("given", "wanted", "why"),
    [
        (INT, INT, None),
        (struct(a=INT), struct(a=LONG, b=INT), None),
        (struct(a=INT, c=INT), struct(a=LONG, b=INT), "value.c is unknown: the schema has a, b"),
        (struct(a=struct(b=LONG)), struct(a=struct(b=INT)), "value.a.b is of the type bigint, and the schema has int"),
        (struct(a=INT), INT, "value is of the type struct<a:int>, and the schema has int"),
        (INT, struct(a=INT), "value is of the type int, and the schema has struct<a:int>"),
        (spark.ArrayType(LONG), spark.ArrayType(INT), "value[] is of the type bigint, and the schema has int"),
        (
            spark.MapType(LONG, INT),
            spark.MapType(INT, INT),
            "value (keys) is of the type bigint, and the schema has int",
        ),
        (spark.MapType(INT, LONG), spark.MapType(INT, INT), "value{} is of the type bigint, and the schema has int"),
        (spark.DecimalType(9, 0), LONG, "value is of the type decimal(9,0), and the schema has bigint"),
        (spark.StringType(), spark.BinaryType(), "value is of the type string, and the schema has binary"),
    ],
)
def test_the_place_that_does_not_fit_is_named(given: spark.DataType, wanted: spark.DataType, why: str | None) -> None:
    assert misfit(given, wanted) == why
