"""`sharequeue pipeline report`: what topics and groups did, as one HTML page, Markdown, JSON and Parquet."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
import msgspec
from pyspark.sql import functions as f

from sharequeue.cli.output import moment_ms
from sharequeue.protocol import apis
from sharequeue.protocol.messages.reports import ListActivityQuery
from sharequeue_pipeline.jobs.command_line import (
    gateway_at,
    gateway_options,
    job,
    json_option,
    master_option,
    say,
    start,
)
from sharequeue_pipeline.jobs.operator_client import OperatorClient
from sharequeue_pipeline.jobs.reporting.figures import HOUR_MS
from sharequeue_pipeline.jobs.reporting.markdown import markdown
from sharequeue_pipeline.jobs.reporting.page import page
from sharequeue_pipeline.jobs.reporting.reading import SCHEMA, Scope, activity, figures, groups_to_ask, lags, narrowed
from sharequeue_pipeline.jobs.reporting.reasons import dying, reasons

MOST_NAMED: Final = 500


@click.command()
@click.option(
    "--from", "begin", help="the start, like 2026-11-21T08:00; UTC if it has no zone  [default: a day before --to]"
)
@click.option("--to", "end", help="the end, exclusive  [default: now]")
@click.option("--group", help="only this group, and the records produced to its topics")
@click.option("--topic", help="only this topic")
@click.option(
    "--top",
    type=click.IntRange(1, MOST_NAMED),
    default=50,
    show_default=True,
    help="how many topics and groups to name: those with the most records; the others are added up",
)
@click.option(
    "--samples",
    type=click.IntRange(0, 20),
    default=3,
    show_default=True,
    help="how many records to show for each reason of dead letters",
)
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
    top: int,
    samples: int,
    out: Path,
    url: str,
    token: str | None,
    timeout_s: int,
    master: str | None,
    as_json: bool,
) -> int:
    """Report what topics and groups did: OUT/report.html, OUT/report.md, OUT/report.json, OUT/activity (Parquet).

    An earlier report in OUT is replaced.
    """
    made_ms = int(datetime.now(UTC).timestamp() * 1000)
    to_ms = -(-made_ms // HOUR_MS) * HOUR_MS if end is None else moment_ms(end, "--to")
    from_ms = to_ms - 24 * HOUR_MS if begin is None else moment_ms(begin, "--from")
    if from_ms >= to_ms:
        raise click.UsageError("--from must be before --to")
    scope = Scope(from_ms, to_ms, group, topic, top)
    to = gateway_at(url, token, timeout_s)
    with OperatorClient(to) as gateway:
        gateway.ask(apis.LIST_ACTIVITY, ListActivityQuery(from_ms=to_ms, page_size=1))  # fail before Spark starts
        groups, notes = groups_to_ask(gateway, scope)
    spark = start("report", master, small=True)
    parquet = str(out.absolute() / "activity")
    lag = lags(spark, to, groups, topic).cache()
    counted = narrowed(activity(spark, to, scope), lag, scope)
    counted.withColumn("date", f.to_date("hour")).write.mode("overwrite").partitionBy("date").parquet(parquet)
    frame = spark.read.schema(SCHEMA).parquet(parquet)
    report = figures(frame, lag, scope, made_ms, notes)
    found = reasons(spark, to, scope, dying(frame), samples)
    report = msgspec.structs.replace(
        report, reasons=found.reasons, more_reasons=found.more, notes=[*report.notes, *found.notes]
    )
    encoded = msgspec.json.encode(report)
    (out / "report.json").write_bytes(encoded)
    (out / "report.md").write_text(markdown(report), "utf-8")
    (out / "report.html").write_text(page(report), "utf-8")
    if as_json:
        click.echo(encoded.decode())
    else:
        say(f"{out / 'report.html'}: {report.topic_count:,} topics, {report.group_count:,} groups of topics")
    return 0


if __name__ == "__main__":
    command()
