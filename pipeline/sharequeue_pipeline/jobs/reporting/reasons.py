"""The dead letters of a period by reason, with samples, out of the dead-letter topics.

Spark reads the topics from the start of the period on, counts, and keeps the first bytes of a few records. Reasons that
differ only in numbers are one, so that an id in a reason does not make every record a reason of its own.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from sharequeue_pipeline.dead_letters import dead_letter_topic, letters_of
from sharequeue_pipeline.group_client import GroupClient
from sharequeue_pipeline.jobs.reporting.figures import MOST_REASONS, Reason, Sample
from sharequeue_pipeline.jobs.reporting.reading import Scope
from sharequeue_pipeline.jobs.reporting.texts import text_of
from sharequeue_pipeline.options import GatewayOptions

MOST_GROUPS: Final = 50
"""Groups whose dead letters are read: those with the most."""
KEPT_BYTES: Final = 400
"""Of a key and of a value."""
KEPT_CHARACTERS: Final = 500
"""Of a reason."""
REJECTED: Final = "Offset rejected by client."
"""The message of a dead letter that a member rejected, as Kafka has it; activity names the cause `rejected`."""
_UUID: Final = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
NUMBERS: Final = rf"{_UUID}|[0-9]+([.,][0-9]+)*"


class Found(NamedTuple):
    """`more`: dead letters with other reasons. `notes`: what was not read."""

    reasons: list[Reason]
    more: int
    notes: list[str]


def dying(frame: DataFrame) -> list[str]:
    """The groups with dead letters in the rows of `activity`, the one with the most first."""
    exploded = frame.where("group_id IS NOT NULL").select("group_id", f.explode("dead_letters").alias("entry"))
    counted = exploded.groupBy("group_id").agg(f.sum("entry.records").alias("records"))
    return [row.group_id for row in counted.orderBy(f.desc("records"), "group_id").collect()]


def reasons(spark: SparkSession, to: GatewayOptions, scope: Scope, groups: Iterable[str], samples: int) -> Found:
    """The most frequent reasons.

    Args:
        groups: those with dead letters, the one with the most first. samples: how many for each reason.
    """
    asked = list(groups)
    notes = []
    if len(asked) > MOST_GROUPS:
        notes.append(f"Reasons are those of the {MOST_GROUPS} groups with the most dead letters, of {len(asked):,}.")
    with GroupClient(to) as gateway:
        topics = {dead_letter_topic(gateway, group) for group in asked[:MOST_GROUPS]} - {None}
    if not topics:
        return Found([], 0, notes)
    return _reasons(spark, to, scope, asked[:MOST_GROUPS], sorted(filter(None, topics)), samples, notes)


def _reasons(
    spark: SparkSession,
    to: GatewayOptions,
    scope: Scope,
    groups: Sequence[str],
    topics: Sequence[str],
    samples: int,
    notes: list[str],
) -> Found:
    in_period = (f.unix_millis("timestamp") >= scope.from_ms) & (f.unix_millis("timestamp") < scope.to_ms)
    found = letters_of(spark, to, topics, from_ms=scope.from_ms).where(in_period & f.col("group").isin(list(groups)))
    if scope.topic is not None:
        found = found.where(f.col("topic") == scope.topic)
    found = found.withColumn("cause", f.when(f.col("cause") == REJECTED, "rejected").otherwise("delivery_limit"))
    found = found.withColumn("kind", f.regexp_replace(f.substring("reason", 1, KEPT_CHARACTERS), NUMBERS, "#"))
    by = ["group", "topic", "cause", "kind"]
    kept = found.select(
        *by,
        "partition",
        "offset",
        "delivery_count",
        f.unix_millis("timestamp").alias("died_ms"),
        f.substring("reason", 1, KEPT_CHARACTERS).alias("reason"),
        f.substring("key", 1, KEPT_BYTES).alias("key"),
        f.octet_length("key").alias("key_bytes"),
        f.substring("value", 1, KEPT_BYTES).alias("value"),
        f.octet_length("value").alias("value_bytes"),
        "dead_letter_offset",
    ).cache()
    try:
        counted = kept.groupBy(*by).agg(f.count("*").alias("records"))
        rows = counted.orderBy(f.desc("records"), *by).limit(MOST_REASONS).collect()
        named = {
            tuple(row[name] for name in by): Reason(row.group, row.topic, row.cause, row.kind, row.records)
            for row in rows
        }
        newest = Window.partitionBy(*by).orderBy(f.desc("died_ms"), f.desc("dead_letter_offset"))
        wanted = spark.createDataFrame(list(named) or [("", "", "", "")], ", ".join(f"{name} STRING" for name in by))
        same = [kept[name].eqNullSafe(wanted[name]) for name in by]
        chosen = kept.join(f.broadcast(wanted), same, "left_semi").withColumn("place", f.row_number().over(newest))
        for row in chosen.where(f.col("place") <= samples).orderBy("place").collect() if samples else ():
            named[tuple(row[name] for name in by)].samples.append(
                Sample(
                    partition=row.partition,
                    offset=row.offset,
                    delivery_count=row.delivery_count,
                    died_ms=row.died_ms,
                    reason=row.reason,
                    key=text_of(row.key, cut=(row.key_bytes or 0) > KEPT_BYTES),
                    value=text_of(row.value, cut=(row.value_bytes or 0) > KEPT_BYTES),
                    value_bytes=row.value_bytes or 0,
                )
            )
        total = kept.count()
    finally:
        kept.unpersist()
    return Found(list(named.values()), total - sum(entry.records for entry in named.values()), notes)
