"""`sharequeue pipeline redrive`: send a group's dead letters back to their topics, at a rate, each once.

The gateway redrives (`redriveDeadLetters`), and knows which dead letters it has redriven. The job repeats the call
until none is left, and an interrupted run can be repeated. Only a dry run needs Spark: it reads the dead-letter topic.
"""

import time
from collections.abc import Callable, Iterator
from datetime import UTC
from typing import Any, Final, NamedTuple

import click
from msgspec import UNSET
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sharequeue.cli.output import show_table
from sharequeue.cli.redrive_options import redrive_options, redrive_request
from sharequeue.protocol import apis
from sharequeue.protocol.messages.groups import RedriveDeadLettersRequest, RedriveResult
from sharequeue_pipeline.errors import PipelineError
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
from sharequeue_pipeline.options import GatewayOptions

AT_ONCE: Final = 10_000
"""Most records of one call."""
DLQ_NAME: Final = "errors.deadletterqueue.topic.name"
HEADER: Final = "__dlq.errors."


class RedriveCounts(NamedTuple):
    """`skipped`: dead letters without a record, or whose topic was deleted."""

    redriven: int
    skipped: int


class Pace:
    """Keeps a rate, in records per second; None is unlimited. `now`, `sleep`: the clock, in seconds."""

    def __init__(
        self, rate: int | None, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.rate = rate
        self._now = now
        self._sleep = sleep
        self._until = now()

    def spend(self, records: int) -> None:
        """Wait until the rate allows so many records."""
        if self.rate is None:
            return
        self._until = max(self._until, self._now()) + records / self.rate
        self._sleep(max(0.0, self._until - self._now()))


RedriveCall = Callable[[int, str | None], RedriveResult]


def redrive(call: RedriveCall, most: int | None, pace: Pace) -> Iterator[RedriveCounts]:
    """Call until no dead letter is left. Yields: the counts so far, after each call.

    Args:
        call: redrives at most so many dead letters, from a page token on.
        most: the most dead letters of all calls together.
    """
    at_once = AT_ONCE if pace.rate is None else max(1, min(AT_ONCE, pace.rate))
    redriven = skipped = 0
    page_token: str | None = None
    while most is None or redriven + skipped < most:
        answer = call(at_once if most is None else min(at_once, most - redriven - skipped), page_token)
        redriven += answer.redriven
        skipped += answer.skipped_count
        yield RedriveCounts(redriven, skipped)
        if answer.next_page_token is UNSET:
            return
        page_token = answer.next_page_token
        pace.spend(answer.redriven)


def overview(
    spark: SparkSession, to: GatewayOptions, group: str, topic: str, wanted: RedriveDeadLettersRequest
) -> DataFrame:
    """The dead letters that match a request, redriven or not: counts by source topic, cause and delivery count."""
    options: dict[str, Any] = {
        "url": to.url,
        "topics": topic,
        "mode": "log",
        "failOnDataLoss": False,
        **({"token": to.token} if to.token else {}),
    }
    letters = spark.read.format("sharequeue").options(**options).load()

    def header(name: str) -> Any:
        return f.col("headers")[HEADER + name]

    letters = letters.select(
        "timestamp",
        header("topic").alias("topic"),
        header("group").alias("group"),
        header("message").alias("cause"),
        header("reason").alias("reason"),
        header("delivery.count").cast("int").alias("delivery_count"),
    ).where(f.col("group") == group)
    if wanted.topic is not None:
        letters = letters.where(f.col("topic") == wanted.topic)
    if wanted.filter is not None and wanted.filter.message is not None:
        causes = f.concat_ws("\0", "cause", "reason")
        letters = letters.where(causes.contains(wanted.filter.message))
    if wanted.filter is not None and wanted.filter.min_delivery_count is not None:
        letters = letters.where(f.col("delivery_count") >= wanted.filter.min_delivery_count)
    if wanted.filter is not None and wanted.filter.before_ms is not None:
        letters = letters.where(f.unix_millis("timestamp") < wanted.filter.before_ms)
    grouped = letters.groupBy("topic", "cause", "delivery_count")
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
    with GatewayClient(to) as gateway:

        def call(most: int, page_token: str | None) -> RedriveResult:
            request.max_records, request.page_token = most, page_token
            answer: RedriveResult = gateway.ask(apis.REDRIVE_DEAD_LETTERS, request, group=group)
            return answer

        try:
            for done in redrive(call, max_records, Pace(rate)):  # noqa: B007 - the last counts are reported
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
    with GatewayClient(to) as gateway:
        answer: RedriveResult = gateway.ask(apis.REDRIVE_DEAD_LETTERS, request, group=group)
        dead_letter_topic = gateway.group_config(group)[DLQ_NAME]
        there = dead_letter_topic and answer.matched and _exists(gateway, dead_letter_topic)
    rows = []
    if there:
        rows = [
            row.asDict()
            for row in overview(start("redrive", master, small=True), to, group, dead_letter_topic, request).collect()
        ]
    for row in rows:
        row |= {name: row[name].astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") for name in ("first", "last")}
    if as_json:
        echo_json({"matched": answer.matched, "dead_letters": rows})
        return 0
    if rows:
        columns = ("topic", "cause", "#delivery_count", "#records", "first", "last")
        title = f"{dead_letter_topic}, redriven dead letters included; times in UTC"
        show_table(columns, [tuple(row[name.removeprefix("#")] for name in columns) for row in rows], title=title)
    say(f"{answer.matched} dead letters of {group} would be redriven")
    return 0


def _exists(gateway: GatewayClient, topic: str) -> bool:
    try:
        gateway.describe(topic)
    except PipelineError:
        return False
    return True


if __name__ == "__main__":
    command()
