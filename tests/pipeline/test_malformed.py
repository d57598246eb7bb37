"""valueFormat=json beside Spark's own `from_json`, and malformed records as dead letters, on the real stack."""

import base64

from tests.http.calls import Gateway, good
from tests.pipeline.conftest import Pipeline, wait_for
from tests.pipeline.odd_values import SCHEMAS, VALUES
from tests.pipeline.test_source import settled


def produce_texts(gateway: Gateway, topic: str, *texts: str) -> None:
    """Produce bytes, which need not be JSON."""
    gateway.create_topic(topic)
    records = [{"value_base64": base64.b64encode(text.encode()).decode()} for text in texts]
    good(gateway.http.post(f"/v1/topics/{topic}/records", json={"records": records}))


def test_odd_values_are_read_as_from_json_reads_them(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    produce_texts(gateway, name, *VALUES)
    spark = pipeline.spark
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        texts = pipeline.read(topics=name, parallelism=1).selectExpr("CAST(value AS STRING) AS text").collect()
        assert [row.text for row in texts] == VALUES
        frame = spark.createDataFrame(
            [(number, text) for number, text in enumerate(VALUES)], "offset BIGINT, text STRING"
        )
        different = []
        for ddl in SCHEMAS:
            options = {"valueFormat": "json", "valueSchema": ddl, "parallelism": 1}
            ours = pipeline.read(topics=name, **options).selectExpr(f"{_shown('value')} AS shown").collect()
            theirs = frame.selectExpr(f"{_shown(f'from_json(text, {ddl!r})')} AS shown").collect()
            pairs = zip(VALUES, ours, theirs, strict=True)
            different += [(ddl, text, a.shown, b.shown) for text, a, b in pairs if a.shown != b.shown]
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")
    assert different == [("map<string,int>", '{"id":1,"id":2}', '{"id":2}', '{"id":1,"id":2}')]  # as documented


def _shown(value: str) -> str:
    """A value as text; a null differs from a struct of nulls."""
    return f"if({value} IS NULL, 'null', to_json({value}, map('ignoreNullFields', 'false')))"


def test_malformed_records_become_dead_letters(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    """The others are accepted, and no range counts as lost."""
    produce_texts(gateway, name, '{"id":1}', '{"id":"x"}', '{"id":2}', "no", '{"id":3}')
    stream = pipeline.stream(
        topics=name, group=name, valueFormat="json", valueSchema="id INT", onMalformed="reject", parallelism=1
    )
    pipeline.drain(stream.select("value.id"))
    assert sorted(row.id for row in pipeline.out().collect()) == [1, 2, 3]
    reasons = [letter["headers"]["__dlq.errors.reason"] for letter in gateway.letters(f"dlq.{name}", 2)]
    wait_for(lambda: settled(gateway, name, name), "the dead letters are written")
    assert sorted(reasons) == ["malformed: it is not JSON", "malformed: value.id is not of the type int"]
    assert '"lost": 0' in pipeline.queries[-1].recentProgress[-1]["sources"][0]["endOffset"]
