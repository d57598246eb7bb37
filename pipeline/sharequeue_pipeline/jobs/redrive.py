"""`sharequeue pipeline redrive`: send a group's dead letters back to their topics, at a rate, each once.

An interrupted run can be repeated. Only a dry run needs Spark: it reads the dead-letter topic. `dead_letters` does the
work, also for programs.
"""

from datetime import UTC

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sharequeue.cli.output import show_table
from sharequeue.cli.redrive_options import redrive_options, redrive_request
from sharequeue.protocol import apis
from sharequeue.protocol.messages.groups import RedriveDeadLettersRequest, RedriveResult
from sharequeue_pipeline.dead_letters import Pace, RedriveCounts, dead_letter_topic, letters, redrive_all
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.group_client import GroupClient
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
from sharequeue_pipeline.options import GatewayOptions


def overview(
    spark: SparkSession, to: GatewayOptions, group: str, topic: str, wanted: RedriveDeadLettersRequest
) -> DataFrame:
    """The dead letters that match a request, redriven or not: counts by source topic, cause and delivery count."""
    grouped = letters(spark, to, group, topic, wanted).groupBy("topic", "cause", "delivery_count")
    return grouped.agg(
        f.count("*").alias("records"), f.min("timestamp").alias("first"), f.max("timestamp").alias("last")
    ).orderBy("topic", "cause", "delivery_count")


@click.command()
@redrive_options
@click.option("--rate", type=click.IntRange(1), help="most records a second")
@click.option("--dry-run", is_flag=True, help="show what would be redriven, and redrive nothing")
@gateway_options
@master_option
@json_option
@job
def command(
    group: str,
    topic: str | None,
    message: str | None,
    min_delivery_count: int | None,
    before: str | None,
    max_records: int | None,
    rate: int | None,
    target: str,
    dry_run: bool,
    url: str,
    token: str | None,
    timeout_s: int,
    master: str | None,
    as_json: bool,
) -> int:
    """Send the dead letters of GROUP back to their topics. A repeated run redrives none of them twice."""
    to = gateway_at(url, token, timeout_s)
    request = redrive_request(
        topic=topic, message=message, min_delivery_count=min_delivery_count, before=before, target=target
    )
    request.max_records = max_records
    if dry_run:
        request.dry_run = True
        return _show(to, group, request, master, as_json)
    done = RedriveCounts(0, 0)
    try:
        for done in redrive_all(to, group, request, max_records, Pace(rate)):  # noqa: B007 - the last counts are reported
            pass
    except PipelineError as fault:
        raise PipelineError(f"interrupted after {done.redriven} dead letters; run it again: {fault}") from None
    if as_json:
        echo_json(done._asdict())
    else:
        skipped = f"; {done.skipped} skipped, because their record or topic is gone" if done.skipped else ""
        say(f"{done.redriven} dead letters of {group} redriven{skipped}")
    return 0


def _show(to: GatewayOptions, group: str, request: RedriveDeadLettersRequest, master: str | None, as_json: bool) -> int:
    with GroupClient(to) as gateway:
        answer: RedriveResult = gateway.ask(apis.REDRIVE_DEAD_LETTERS, request, group=group)
        name = dead_letter_topic(gateway, group) if answer.matched else None
    rows = []
    if name is not None:
        rows = [
            row.asDict() for row in overview(start("redrive", master, small=True), to, group, name, request).collect()
        ]
    for row in rows:
        row |= {name: row[name].astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") for name in ("first", "last")}
    if as_json:
        echo_json({"matched": answer.matched, "dead_letters": rows})
        return 0
    if rows:
        columns = ("topic", "cause", "#delivery_count", "#records", "first", "last")
        title = f"{name}, redriven dead letters included; times in UTC"
        show_table(columns, [tuple(row[name.removeprefix("#")] for name in columns) for row in rows], title=title)
    say(f"{answer.matched} dead letters of {group} would be redriven")
    return 0


if __name__ == "__main__":
    command()
