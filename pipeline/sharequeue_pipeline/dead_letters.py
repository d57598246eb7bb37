"""Dead letters from Spark: as rows with their reasons, and back to their topics.

    letters = read_dead_letters(spark, "billing", message="no such customer")
    letters.groupBy("topic", "reason").count().show()
    redrive_dead_letters("billing", message="no such customer")

Both take the filters of `sharequeue groups redrive`. The gateway redrives, and knows which dead letters it has
redriven; the calls are repeated until none is left.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from msgspec import UNSET
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from sharequeue.protocol import apis
from sharequeue.protocol.messages.groups import RedriveDeadLettersRequest, RedriveFilter, RedriveResult
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.group_client import GroupClient
from sharequeue_pipeline.options import DEFAULT_URL, GatewayOptions

AT_ONCE: Final = 10_000
"""Most records of one call."""
DLQ_NAME: Final = "errors.deadletterqueue.topic.name"
HEADER: Final = "__dlq.errors."
REASONS: Final = "array<struct<reason: string, at_ms: bigint>>"


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


def redrive_all(
    to: GatewayOptions, group: str, wanted: RedriveDeadLettersRequest, most: int | None, pace: Pace
) -> Iterator[RedriveCounts]:
    """Redrive a group's dead letters that match a request. Yields: the counts so far, after each call."""
    with GroupClient(to) as gateway:

        def call(most_now: int, page_token: str | None) -> RedriveResult:
            wanted.max_records, wanted.page_token = most_now, page_token
            answer: RedriveResult = gateway.ask(apis.REDRIVE_DEAD_LETTERS, wanted, group=group)
            return answer

        yield from redrive(call, most, pace)


def dead_letter_topic(gateway: GroupClient, group: str) -> str | None:
    """The topic of a group's dead letters; None if there is none yet."""
    name = gateway.group_config(group)[DLQ_NAME]
    if not name:
        return None
    try:
        gateway.describe(name, first_try=True)
    except PipelineError as fault:
        if "there is no topic" in str(fault):
            return None
        raise
    return name


def letters_of(
    spark: SparkSession,
    to: GatewayOptions,
    topics: Sequence[str],
    *,
    from_ms: int | None = None,
    value_format: str = "binary",
) -> DataFrame:
    """All records of dead-letter topics as rows, those of every group. `from_ms`: read from about this time on."""
    options: dict[str, Any] = {
        "url": to.url,
        "timeoutMs": to.timeout_ms,
        "topics": ",".join(topics),
        "mode": "log",
        "failOnDataLoss": False,
        "valueFormat": value_format,
    }
    if from_ms is not None:
        options |= {"startingTimestamp": from_ms, "startingOffsetsByTimestampStrategy": "latest"}
    if to.token:
        options["token"] = to.token
    read = spark.read.format("sharequeue").options(**options).load()

    def header(name: str) -> Any:
        return f.col("headers")[HEADER + name]

    return read.select(
        header("group").alias("group"),
        header("topic").alias("topic"),
        header("partition").cast("int").alias("partition"),
        header("offset").cast("bigint").alias("offset"),
        header("delivery.count").cast("int").alias("delivery_count"),
        header("message").alias("cause"),
        header("reason").alias("reason"),
        f.transform(f.from_json(header("reasons"), REASONS), _given).alias("reasons"),
        "timestamp",
        "key",
        "value",
        "headers",
        f.col("partition").alias("dead_letter_partition"),
        f.col("offset").alias("dead_letter_offset"),
    )


def letters(
    spark: SparkSession,
    to: GatewayOptions,
    group: str,
    topic: str,
    wanted: RedriveDeadLettersRequest,
    value_format: str = "binary",
) -> DataFrame:
    """The dead letters that match a request, redriven or not. `topic`: the dead-letter topic."""
    found = letters_of(spark, to, [topic], value_format=value_format).where(f.col("group") == group).drop("group")
    if wanted.topic is not None:
        found = found.where(f.col("topic") == wanted.topic)
    if wanted.filter is not None and wanted.filter.message is not None:
        causes = f.concat_ws("\0", "cause", "reason")
        found = found.where(causes.contains(wanted.filter.message))
    if wanted.filter is not None and wanted.filter.min_delivery_count is not None:
        found = found.where(f.col("delivery_count") >= wanted.filter.min_delivery_count)
    if wanted.filter is not None and wanted.filter.before_ms is not None:
        found = found.where(f.unix_millis("timestamp") < wanted.filter.before_ms)
    return found


def _given(reason: Column) -> Column:
    return f.struct(f.timestamp_millis(reason["at_ms"]).alias("at"), reason["reason"].alias("reason"))


# For programs


def read_dead_letters(
    spark: SparkSession,
    group: str,
    *,
    url: str = DEFAULT_URL,
    token: str | None = None,
    topic: str | None = None,
    message: str | None = None,
    min_delivery_count: int | None = None,
    before: datetime | None = None,
    value_format: Literal["binary", "string"] = "binary",
) -> DataFrame:
    """The dead letters of a group, one row each, those that were redriven before included.

    Columns: `topic`, `partition`, `offset` and `delivery_count` of the record; `cause` and `reason`; `reasons`, the
    last five of its deliveries with their times (`at`, `reason`), the oldest first, null with fewer than two;
    `timestamp` of the dead letter, with `key`, `value` and `headers`;
    its own `dead_letter_partition` and `dead_letter_offset`.

    Args:
        topic: only of this source topic. message: only if the cause or the reason contains it.
        min_delivery_count: only if it was delivered at least so often.
        before: only dead letters from before this time, UTC if it has no zone.
    Raises: PipelineError: the group has no dead letters.
    """
    to = GatewayOptions(url=url.rstrip("/"), token=token)
    with GroupClient(to) as gateway:
        name = dead_letter_topic(gateway, group)
    if name is None:
        raise PipelineError(f"the group {group!r} has no dead letters")
    return letters(spark, to, group, name, _request(topic, message, min_delivery_count, before), value_format)


def redrive_dead_letters(
    group: str,
    *,
    url: str = DEFAULT_URL,
    token: str | None = None,
    topic: str | None = None,
    message: str | None = None,
    min_delivery_count: int | None = None,
    before: datetime | None = None,
    to: Literal["retry", "source"] = "retry",
    max_records: int | None = None,
    rate: int | None = None,
) -> RedriveCounts:
    """Send dead letters back, each once: to the group alone (`retry`), or to every group of their topic (`source`).

    The filters are those of `read_dead_letters`. `rate`: most records a second.
    """
    wanted = _request(topic, message, min_delivery_count, before)
    wanted.to = to
    done = RedriveCounts(0, 0)
    gateway = GatewayOptions(url=url.rstrip("/"), token=token)
    for counts in redrive_all(gateway, group, wanted, max_records, Pace(rate)):
        done = counts
    return done


def _request(
    topic: str | None, message: str | None, min_delivery_count: int | None, before: datetime | None
) -> RedriveDeadLettersRequest:
    before_ms = None
    if before is not None:
        before_ms = int((before if before.tzinfo else before.replace(tzinfo=UTC)).timestamp() * 1000)
    wanted = RedriveFilter(message=message, min_delivery_count=min_delivery_count, before_ms=before_ms)
    return RedriveDeadLettersRequest(topic=topic, filter=wanted)
