"""`valueSchema` is checked before Spark reads it, and each fault is one line. tests/pipeline compares with Spark."""

import pytest
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.options import source_options
from sharequeue_pipeline.source.schema import columns

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
    "a STRING COMMENT 'it\\'s', b INT",
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
    ("a CHAR(3, 1)", ", (character 9): ) belongs"),
    ("a INT COLLATE UTF8_LCASE", "COLLATE (character 7): a comma or its end"),
)


def schema_of(given: str) -> str:
    return columns(source_options({"topics": "t", "valueFormat": "json", "valueSchema": given}))


@pytest.mark.parametrize("given", GOOD)
def test_what_spark_can_read_passes(given: str) -> None:
    assert given.strip() in schema_of(given)


@pytest.mark.parametrize(("given", "said"), BAD)
def test_what_spark_cannot_read_is_one_line(given: str, said: str) -> None:
    with pytest.raises(PipelineError, match="valueSchema cannot be read") as fault:
        schema_of(given)
    assert f"at {said}" in str(fault.value)
    assert "\n" not in str(fault.value)
