"""The figures of a report, out of the gateway's counters, the groups' offsets and the dead-letter topics.

Each task reads the counters of some hours or the offsets of some groups, and Spark adds them up. Times are histograms,
which can be added, so quantiles are right for any sum of hours and partitions. This process gets sums only: a bounded
number of topics and groups by name, and the others together.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from sharequeue.protocol import apis
from sharequeue.protocol.messages.reports import ActivityReport, ListActivityQuery
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.jobs.operator_client import OperatorClient
from sharequeue_pipeline.jobs.reporting.figures import (
    COUNTS,
    HOUR_MS,
    Bucket,
    GroupFigures,
    Lag,
    Others,
    Report,
    Step,
    TopicFigures,
    quantiles,
    step_of,
)
from sharequeue_pipeline.options import GatewayOptions

HOURS_PER_TASK: Final = 24
GROUPS_PER_TASK: Final = 50
MOST_GROUPS: Final = 10_000
"""Groups whose lag a report asks for, one call each."""
OTHERS: Final = -1
OF_GROUPS: Final = tuple(name for name in COUNTS if name not in ("produced", "dead_letters"))
_COUNTED: Final = ("produced", *OF_GROUPS)
COLUMNS: Final = {
    "hour": "TIMESTAMP",
    "group_id": "STRING",
    "topic": "STRING",
    "topic_id": "STRING",
    "partition": "INT",
    **dict.fromkeys(_COUNTED, "BIGINT"),
    "deliveries": "ARRAY<STRUCT<delivery_count: INT, records: BIGINT>>",
    "times_to_accept": "ARRAY<STRUCT<from_ms: BIGINT, below_ms: BIGINT, records: BIGINT>>",
    "dead_letters": "ARRAY<STRUCT<cause: STRING, records: BIGINT>>",
}
SCHEMA: Final = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
LAG_SCHEMA: Final = (
    "group_id STRING, topic STRING, topic_id STRING, lag BIGINT, unknown BIGINT, open_letters BIGINT, removed BIGINT"
)


class Scope(NamedTuple):
    """What a report is about. `top`: how many topics and groups it names."""

    from_ms: int
    to_ms: int
    group: str | None
    topic: str | None
    top: int

    @property
    def step_ms(self) -> int:
        return step_of(self.from_ms, self.to_ms)


def activity(spark: SparkSession, to: GatewayOptions, scope: Scope) -> DataFrame:
    """The counters of a period: one row per hour, group and partition, and one without group for records produced."""
    first, end = scope.from_ms // HOUR_MS, -(-scope.to_ms // HOUR_MS)
    slices = [(hour, min(hour + HOURS_PER_TASK, end)) for hour in range(first, end, HOURS_PER_TASK)]
    topic = scope.topic

    def read(hours: tuple[int, int]) -> Iterator[tuple[Any, ...]]:
        with GatewayClient(to) as gateway:
            yield from _rows(gateway, hours[0] * HOUR_MS, hours[1] * HOUR_MS, topic)

    rows = spark.sparkContext.parallelize(slices, max(1, len(slices))).flatMap(read)
    return spark.createDataFrame(rows, SCHEMA)


def _rows(gateway: GatewayClient, from_ms: int, to_ms: int, topic: str | None) -> Iterator[tuple[Any, ...]]:
    token: str | None = None
    while True:
        query = ListActivityQuery(from_ms=from_ms, to_ms=to_ms, topic=topic, page_size=10_000, page_token=token)
        answer: ActivityReport = gateway.ask(apis.LIST_ACTIVITY, query)
        for entry in answer.activity:
            row = msgspec.to_builtins(entry)
            row["hour"] = datetime.fromtimestamp(entry.hour_ms / 1000, UTC)
            yield tuple(row.get(name) for name in COLUMNS)
        if answer.next_page_token is msgspec.UNSET:
            return
        token = answer.next_page_token


def narrowed(frame: DataFrame, lag: DataFrame, scope: Scope) -> DataFrame:
    """With `scope.group`: the rows of that group, and the records produced to its topics."""
    if scope.group is None:
        return frame
    of_group = frame.where(f.col("group_id") == scope.group)
    topics = of_group.select("topic_id").union(lag.select("topic_id")).distinct()
    return of_group.union(
        frame.where("group_id IS NULL").join(topics, "topic_id", "left_semi").select(of_group.columns)
    )


def lags(spark: SparkSession, to: GatewayOptions, groups: Sequence[str], topic: str | None) -> DataFrame:
    """What groups have not finished now, by topic. A group that was deleted in the meantime has no rows."""

    def read(names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        with OperatorClient(to) as gateway:
            for name in names:
                listed = gateway.offsets(name)
                for entry in listed.topics if listed is not None else ():
                    if topic is None or entry.topic == topic:
                        known = [place.lag for place in entry.partitions if place.lag >= 0]
                        yield (
                            name,
                            entry.topic,
                            entry.topic_id,
                            sum(known),
                            len(entry.partitions) - len(known),
                            sum(place.open_dead_letters for place in entry.partitions),
                            sum(place.removed_unfinished for place in entry.partitions),
                        )

    slices = [groups[n : n + GROUPS_PER_TASK] for n in range(0, len(groups), GROUPS_PER_TASK)]
    rows = spark.sparkContext.parallelize(slices, max(1, len(slices))).flatMap(read)
    return spark.createDataFrame(rows, LAG_SCHEMA)


def groups_to_ask(gateway: OperatorClient, scope: Scope) -> tuple[list[str], list[str]]:
    """The groups whose lag is wanted, and what a reader must know about them. At most `MOST_GROUPS`."""
    if scope.group is not None:
        return [scope.group], []
    found: list[str] = []
    for name in gateway.groups():
        if len(found) == MOST_GROUPS:
            return found, [f"The lag is that of the first {MOST_GROUPS:,} groups by name; there are more."]
        found.append(name)
    return found, []


def figures(frame: DataFrame, lag: DataFrame, scope: Scope, made_ms: int, notes: Sequence[str] = ()) -> Report:
    """Add up activity and lags. `frame`: rows of `activity`; it is read several times."""
    frame = frame.withColumns(
        {
            "group_id": f.coalesce("group_id", f.lit("")),
            "at_ms": f.floor(f.unix_millis("hour") / scope.step_ms) * scope.step_ms,
            "dead": _dead(),
        }
    )
    pairs = _pairs(frame, lag).cache()
    try:
        named = pairs.orderBy(f.desc("weight"), "topic", "topic_id", "group_id").limit(scope.top).collect()
        topic_ids = list(dict.fromkeys(row.topic_id for row in named))
        wanted = pairs.where((f.col("group_id") == "") & f.col("topic_id").isin(topic_ids)).collect()
        shown = {(row.topic_id, row.group_id): row for row in (*named, *wanted)}
        everything = _totals(pairs, list(shown))
    finally:
        pairs.unpersist()
    places = {key: number for number, key in enumerate(shown)}
    sums = _Sums(frame, places)
    topics = []
    again = {row.topic for row in named if len({r.topic_id for r in named if r.topic == row.topic}) > 1}
    for topic_id in topic_ids:
        of_topic = [row for row in shown.values() if row.topic_id == topic_id]
        produced = places.get((topic_id, ""), OTHERS - 1)
        topics.append(
            TopicFigures(
                topic=of_topic[0].topic,
                topic_id=topic_id,
                produced=sum(row.produced for row in of_topic),
                steps=sums.steps.get(produced, []),
                groups=[sums.group(row, places[topic_id, row.group_id]) for row in of_topic if row.group_id],
                again=of_topic[0].topic in again,
            )
        )
    total, others = everything
    return Report(
        from_ms=scope.from_ms,
        to_ms=scope.to_ms,
        made_ms=made_ms,
        step_ms=scope.step_ms,
        only_group=scope.group,
        only_topic=scope.topic,
        total=sums.total(total),
        produced=total.produced or 0,
        topic_count=total.topics,
        group_count=total.groups,
        steps=sums.of_all(),
        topics=topics,
        others=others,
        notes=list(notes),
    )


def _dead() -> Column:
    return f.coalesce(
        f.aggregate("dead_letters", f.lit(0).cast("bigint"), lambda so_far, entry: so_far + entry.records), f.lit(0)
    )


def _pairs(frame: DataFrame, lag: DataFrame) -> DataFrame:
    """A row for each topic (with the group "") and each group in a topic; `weight` says how much there is to it."""
    counted = frame.groupBy("topic_id", "group_id").agg(
        f.max_by("topic", "hour").alias("counted_name"),
        *(f.sum(name).alias(name) for name in _COUNTED),
        f.sum("dead").alias("dead"),
    )
    of_lag = [name.split(" ")[0] for name in LAG_SCHEMA.split(", ")]
    joined = counted.join(lag.withColumnRenamed("topic", "lag_name"), ["topic_id", "group_id"], "full")
    numbers = [*_COUNTED, "dead"]
    return joined.select(
        "topic_id",
        "group_id",
        f.coalesce("lag_name", "counted_name").alias("topic"),
        *(f.coalesce(name, f.lit(0)).alias(name) for name in numbers),
        *(name for name in of_lag if name not in ("topic_id", "group_id", "topic")),
        sum((f.coalesce(name, f.lit(0)) for name in ("produced", "delivered", "dead", "lag")), f.lit(0)).alias(
            "weight"
        ),
    )


def _totals(pairs: DataFrame, shown: Sequence[tuple[str, str]]) -> tuple[Row, Others | None]:
    """The sums over all pairs, and over those that are not shown."""
    keys = pairs.sparkSession.createDataFrame([*shown] or [("", "")], "topic_id STRING, group_id STRING")
    marked = pairs.join(
        f.broadcast(keys.withColumn("shown", f.lit(True))), ["topic_id", "group_id"], "left"
    ).withColumn("known", f.col("lag").isNotNull())  # fmt: skip
    rest = f.col("shown").isNull()
    summed = ("produced", *OF_GROUPS, "dead", "lag", "unknown", "open_letters", "removed")
    found = marked.agg(
        f.count_distinct("topic_id").alias("topics"),
        f.count_if(f.col("group_id") != "").alias("groups"),
        f.count_if("known").alias("known"),
        f.count_if(rest & (f.col("group_id") == "")).alias("rest_topics"),
        f.count_if(rest & (f.col("group_id") != "")).alias("rest_groups"),
        *(f.sum(name).alias(name) for name in summed),
        *(f.sum(f.when(rest, f.col(name))).alias(f"rest_{name}") for name in summed),
    ).first()
    assert found is not None
    if not found.rest_topics and not found.rest_groups:
        return found, None
    counts = {name: found[f"rest_{name}"] or 0 for name in ("produced", *OF_GROUPS, "lag")}
    dead = found.rest_dead or 0
    return found, Others(topics=found.rest_topics, groups=found.rest_groups, dead_letters=dead, **counts)


class _Sums:
    """Activity by place (a topic or a group that is shown, or `OTHERS`) and by step."""

    def __init__(self, frame: DataFrame, places: Mapping[tuple[str, str], int]) -> None:
        keys = [(*key, place) for key, place in places.items()] or [("", "", OTHERS)]
        known = frame.sparkSession.createDataFrame(keys, "topic_id STRING, group_id STRING, place INT")
        placed = frame.join(f.broadcast(known), ["topic_id", "group_id"], "left").fillna(OTHERS, ["place"])
        self._by_step: dict[int, dict[str, int]] = {}
        self.steps: dict[int, list[Step]] = {}
        counts = [*(f.sum(name).alias(name) for name in _COUNTED), f.sum("dead").alias("dead_letters")]
        for row in placed.groupBy("place", "at_ms").agg(*counts).orderBy("at_ms").collect():
            found: dict[str, Any] = {name: row[name] for name in COUNTS}
            if row.place != OTHERS:
                self.steps.setdefault(row.place, []).append(Step(row.at_ms, **found))
            so_far = self._by_step.setdefault(row.at_ms, dict.fromkeys(COUNTS, 0))
            for name, records in found.items():
                so_far[name] += records
        self._histograms: dict[tuple[str, int], dict[Any, int]] = {}
        for row in _entries(placed, "place").collect():
            self._histograms.setdefault((row.kind, row.place), {})[_key(row)] = row.records
        self._step_times: dict[int, dict[Bucket, int]] = {}
        for row in _entries(placed.select("at_ms", *_without("deliveries", "dead_letters")), "at_ms").collect():
            self._step_times.setdefault(row.at_ms, {})[row.a, row.b] = row.records

    def group(self, row: Row, place: int) -> GroupFigures:
        return GroupFigures(
            row.group_id,
            **{name: row[name] for name in OF_GROUPS},
            dead_letters=dict(sorted(self._histograms.get(("dead_letters", place), {}).items())),
            deliveries=dict(sorted(self._histograms.get(("deliveries", place), {}).items())),
            time_to_accept=quantiles(self._histograms.get(("times", place), {})),
            lag=None if row.lag is None else Lag(row.lag, row.unknown, row.open_letters, row.removed),
            steps=self.steps.get(place, []),
        )

    def total(self, row: Row) -> GroupFigures:
        counts: dict[str, Any] = {name: row[name] or 0 for name in OF_GROUPS}
        return GroupFigures(
            "",
            **counts,
            dead_letters=self._merged("dead_letters"),
            deliveries=self._merged("deliveries"),
            time_to_accept=quantiles(self._merged("times")),
            lag=Lag(row.lag, row.unknown, row.open_letters, row.removed) if row.known else None,
        )

    def _merged(self, kind: str) -> dict[Any, int]:
        total: dict[Any, int] = {}
        for (of_kind, _), histogram in self._histograms.items():
            for key, records in histogram.items() if of_kind == kind else ():
                total[key] = total.get(key, 0) + records
        return dict(sorted(total.items()))

    def of_all(self) -> list[Step]:
        return [
            Step(at_ms, **counts, time_to_accept=quantiles(self._step_times.get(at_ms, {})))
            for at_ms, counts in sorted(self._by_step.items())
        ]


def _without(*columns: str) -> list[Column]:
    """The three columns of histograms, these ones empty."""
    kinds = ("deliveries", "dead_letters", "times_to_accept")
    return [f.array().cast(COLUMNS[name]).alias(name) if name in columns else f.col(name) for name in kinds]


def _entries(frame: DataFrame, by: str) -> DataFrame:
    """All histograms added up in one pass: `kind`, the place in the histogram (`a`, `b`, `text`), and `records`."""
    wanted = "STRUCT<kind: STRING, a: BIGINT, b: BIGINT, text: STRING, records: BIGINT>"

    def of(column: str, kind: str, a: str, b: str, text: str) -> str:
        return f"transform({column}, e -> CAST(struct('{kind}', {a}, {b}, {text}, e.records) AS {wanted}))"

    entries = (
        of("deliveries", "deliveries", "e.delivery_count", "0", "''"),
        of("dead_letters", "dead_letters", "0", "0", "e.cause"),
        of("times_to_accept", "times", "e.from_ms", "e.below_ms", "''"),
    )
    exploded = frame.select(by, f.expr(f"explode(concat({', '.join(entries)}))").alias("entry")).select(by, "entry.*")
    return exploded.groupBy(by, "kind", "a", "b", "text").agg(f.sum("records").alias("records"))


def _key(row: Row) -> Any:
    return {"deliveries": row.a, "dead_letters": row.text, "times": (row.a, row.b)}[row.kind]
