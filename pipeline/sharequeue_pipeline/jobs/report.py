"""`sharequeue pipeline report`: the gateway's counters by topic, group and hour, as Parquet and as a page with plots.

Each task reads the counters of some hours, and Spark adds them up. Times are histograms, which can be added, so
quantiles are right for any sum of hours and partitions.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sharequeue.cli.output import moment_ms
from sharequeue.protocol import apis
from sharequeue.protocol.messages.reports import ActivityReport, ListActivityQuery
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.jobs.command_line import (
    echo_json,
    gateway_at,
    gateway_options,
    job,
    json_option,
    master_option,
    say,
    start,
)
from sharequeue_pipeline.jobs.report_pages import markdown, page, write_plots
from sharequeue_pipeline.jobs.report_tables import COUNTS, Bucket, Sums, tables
from sharequeue_pipeline.options import GatewayOptions

HOUR_MS: Final = 3_600_000
HOURS_PER_TASK: Final = 24
ALL_COUNTS: Final = ("produced", *COUNTS)
COLUMNS: Final = {
    "hour": "TIMESTAMP",
    "group_id": "STRING",
    "topic": "STRING",
    "topic_id": "STRING",
    "partition": "INT",
    **dict.fromkeys(ALL_COUNTS, "BIGINT"),
    "deliveries": "ARRAY<STRUCT<delivery_count: INT, records: BIGINT>>",
    "times_to_accept": "ARRAY<STRUCT<from_ms: BIGINT, below_ms: BIGINT, records: BIGINT>>",
    "dead_letters": "ARRAY<STRUCT<cause: STRING, records: BIGINT>>",
}
SCHEMA: Final = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())


def activity(
    spark: SparkSession,
    to: GatewayOptions,
    from_ms: int,
    to_ms: int,
    group: str | None = None,
    topic: str | None = None,
) -> DataFrame:
    """The counters of the hours from `from_ms` to `to_ms` (exclusive): one row per hour, group and partition."""
    first, end = from_ms // HOUR_MS, -(-to_ms // HOUR_MS)
    slices = [(hour, min(hour + HOURS_PER_TASK, end)) for hour in range(first, end, HOURS_PER_TASK)]

    def read(hours: tuple[int, int]) -> Iterator[tuple[Any, ...]]:
        with GatewayClient(to) as gateway:
            yield from _rows(gateway, hours[0] * HOUR_MS, hours[1] * HOUR_MS, group, topic)

    rows = spark.sparkContext.parallelize(slices, max(1, len(slices))).flatMap(read)
    return spark.createDataFrame(rows, SCHEMA)


def _rows(
    gateway: GatewayClient, from_ms: int, to_ms: int, group: str | None, topic: str | None
) -> Iterator[tuple[Any, ...]]:
    token: str | None = None
    while True:
        query = ListActivityQuery(
            from_ms=from_ms, to_ms=to_ms, group_id=group, topic=topic, page_size=10_000, page_token=token
        )
        answer: ActivityReport = gateway.ask(apis.LIST_ACTIVITY, query)
        for entry in answer.activity:
            row = msgspec.to_builtins(entry)
            row["hour"] = datetime.fromtimestamp(entry.hour_ms / 1000, UTC)
            yield tuple(row.get(name) for name in COLUMNS)
        if answer.next_page_token is msgspec.UNSET:
            return
        token = answer.next_page_token


def summed(frame: DataFrame) -> Sums:
    """Add up activity over partitions, and over hours."""
    frame = frame.withColumn("hour_ms", f.unix_millis("hour"))
    of_groups = frame.where("group_id IS NOT NULL")
    by_hour = ["hour_ms", "topic", "group_id"]
    counts = of_groups.groupBy(*by_hour).agg(*(f.sum(name).alias(name) for name in COUNTS)).collect()
    produced = frame.where("produced > 0").groupBy("hour_ms", "topic").agg(f.sum("produced").alias("n")).collect()
    sums = Sums({}, {}, {}, {}, {}, {}, {}, {})
    for row in produced:
        _add(sums.produced, row.topic, row.n)
        _add(sums.produced_by_hour, (row.hour_ms, row.topic), row.n)
    for row in counts:
        for name in COUNTS:
            _add(_within(sums.counts, (row.topic, row.group_id)), name, row[name])
            _add(_within(sums.counts_by_hour, (row.hour_ms, row.topic, row.group_id)), name, row[name])
    for column, field, target in (
        ("deliveries", "delivery_count", sums.deliveries),
        ("dead_letters", "cause", sums.dead_letters),
    ):
        exploded = of_groups.select("topic", "group_id", f.explode(column).alias("entry"))
        grouped = exploded.groupBy("topic", "group_id", f.col(f"entry.{field}").alias("place"))
        for row in grouped.agg(f.sum("entry.records").alias("n")).collect():
            _add(_within(target, (row.topic, row.group_id)), row.place, row.n)
    exploded = of_groups.select(*by_hour, f.explode("times_to_accept").alias("entry"))
    grouped = exploded.groupBy(*by_hour, "entry.from_ms", "entry.below_ms")
    for row in grouped.agg(f.sum("entry.records").alias("n")).collect():
        bucket: Bucket = (row.from_ms, row.below_ms)
        _add(_within(sums.times, (row.topic, row.group_id)), bucket, row.n)
        _add(_within(sums.times_by_hour, (row.hour_ms, row.topic, row.group_id)), bucket, row.n)
    return sums


def _add(counts: Any, place: Any, records: int) -> None:
    counts[place] = counts.get(place, 0) + records


def _within(histograms: Any, place: Any) -> Any:
    return histograms.setdefault(place, {})


@click.command()
@click.option(
    "--from", "begin", help="first hour, as 2026-11-21T08:00; UTC if it has no zone  [default: a day before --to]"
)
@click.option("--to", "end", help="end, exclusive  [default: now]")
@click.option("--group", help="only this group, without the counts of produced records")
@click.option("--topic", help="only this topic")
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="directory of the report")
@gateway_options
@master_option
@json_option
@job
def command(
    begin: str | None,
    end: str | None,
    group: str | None,
    topic: str | None,
    out: Path,
    url: str,
    token: str | None,
    timeout_s: int,
    master: str | None,
    as_json: bool,
) -> int:
    """Report the activity of topics and groups: OUT/activity (Parquet), OUT/report.md, OUT/report.html.

    An earlier report in OUT is replaced.
    """
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    to_ms = -(-now_ms // HOUR_MS) * HOUR_MS if end is None else moment_ms(end, "--to")
    from_ms = to_ms - 24 * HOUR_MS if begin is None else moment_ms(begin, "--from")
    if from_ms >= to_ms:
        raise click.UsageError("--from must be before --to")
    to = gateway_at(url, token, timeout_s)
    with GatewayClient(to) as gateway:
        gateway.ask(apis.LIST_ACTIVITY, ListActivityQuery(from_ms=to_ms, page_size=1))  # fail before Spark starts
    spark = start("report", master, small=True)
    parquet = str(out.absolute() / "activity")
    frame = activity(spark, to, from_ms, to_ms, group, topic)
    frame.withColumn("date", f.to_date("hour")).write.mode("overwrite").partitionBy("date").parquet(parquet)
    sums = summed(spark.read.schema(SCHEMA).parquet(parquet))
    shown = tables(sums)
    since, until = (datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M") for ms in (from_ms, to_ms))
    title = f"Activity from {since} to {until} UTC"
    plots = write_plots(sums, out / "plots")
    (out / "report.md").write_text(markdown(title, shown, plots, "plots"))
    (out / "report.html").write_text(page(title, shown, plots, out / "plots"))
    if as_json:
        echo_json(
            {
                table.title: [
                    dict(zip((c.removeprefix("#") for c in table.columns), row, strict=True)) for row in table.rows
                ]
                for table in shown
            }
        )
    else:
        say(f"{out / 'report.html'}: {len(shown[0].rows)} topics and groups, {len(shown[1].rows)} rows by hour")
    return 0


if __name__ == "__main__":
    command()
