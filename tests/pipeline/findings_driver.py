"""A driver program for tests to kill: what a data engineer once found wrong with the pipeline, tried on a cluster.

Usage: findings_driver.py RUN URL PROXY_URL NAME DIRECTORY MASTER ARCHIVE. NAME begins the names of all topics and
groups. ARCHIVE has the packages that the workers of MASTER lack. RUN is `first` or `second`. The first run stays in
the first micro-batch of two queries, and writes rows until it is killed. The second one continues all three
from the same checkpoints, and prints one line of JSON: what it found, by the names of `Findings.second`.
"""

import json
import re
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from sharequeue_pipeline import settle

from tests.pipeline.driver import TOO_BUSY, session_on

ROWS = 200_000
"""Rows of 1 KiB that one task writes."""
TYPES = "id INT, amount DOUBLE, name STRING"
POISON = "57"
"""The value of the record that the query rejects."""


def refusal(read: Callable[[], object]) -> str:
    """The pipeline's line about a read that it refuses; all that Spark says if there is no such line.

    Raises: PySparkException: this machine is busy.
    """
    try:
        return f"it was not refused: {read()}"
    except PySparkException as fault:
        if TOO_BUSY in str(fault):
            raise
        line = re.search(r"PipelineError: ([^\n]+)", str(fault))
        return line[1] if line and "ParseException" not in str(fault) else str(fault)


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.selectExpr("CAST(value AS STRING) AS value").collect())


def sizes(query: StreamingQuery) -> list[int]:
    """Rows of the micro-batches that had any."""
    return [entry["numInputRows"] for entry in query.recentProgress if entry["numInputRows"]]


def said(query: StreamingQuery, field: str) -> list[dict[str, Any]]:
    """A field of the source in all progress reports that have it."""
    texts = [entry["sources"][0][field] or "null" for entry in query.recentProgress]
    return [found for found in map(json.loads, texts) if found is not None]


class Findings:
    def __init__(self, url: str, name: str, directory: str, *cluster: str) -> None:
        self._url, self._name, self._directory = url, name, directory
        self._spark = session_on(*cluster)
        self._rejected: list[int] = []
        """Rows that each micro-batch has rejected."""

    def _read(self, topic: str, **options: Any) -> DataFrame:
        given = {"url": self._url, "topics": f"{self._name}-{topic}", **options}
        return self._spark.read.format("sharequeue").options(**given).load()

    def _start(self, what: str, write: Callable[[DataFrame, int], None], **options: Any) -> StreamingQuery:
        given = {"url": self._url, "parallelism": 2, **options}
        writer = self._spark.readStream.format("sharequeue").options(**given).load().writeStream.foreachBatch(write)
        place = f"{self._directory}/{what}-checkpoint"
        return writer.option("checkpointLocation", place).trigger(availableNow=True).start()

    def _written(self, what: str) -> DataFrame:
        return self._spark.read.parquet(f"{self._directory}/{what}")

    def _write(self, what: str, frame: DataFrame, batch: int) -> None:
        """Write a micro-batch; a repeat overwrites it."""
        columns = frame.selectExpr("topic", "partition", "CAST(value AS STRING) AS value", "delivery_count")
        columns.write.mode("overwrite").parquet(f"{self._directory}/{what}/batch={batch}")

    def skewed(self, inside: Callable[[], None]) -> StreamingQuery:
        """A group at defaults reads a topic with one hot partition. `inside`: is called when a batch is written."""

        def write(frame: DataFrame, batch: int) -> None:
            self._write("skewed", frame, batch)
            inside()

        return self._start("skewed", write, topics=f"{self._name}-skewed", group=f"{self._name}-skewed")

    def rejecting(self, inside: Callable[[], None]) -> StreamingQuery:
        """A query that rejects one record of its batch. `inside`: is called after that."""

        def write(frame: DataFrame, batch: int) -> None:
            bad = frame.where(f"CAST(value AS STRING) = '{POISON}'")
            self._rejected.append(settle(bad, "reject", f.concat(f.lit("no "), "value")))
            self._write("rejecting", frame.where(f"CAST(value AS STRING) != '{POISON}'"), batch)
            inside()

        return self._start("rejecting", write, topics=f"{self._name}-rejecting", group=f"{self._name}-rejecting")

    def by_pattern(self, **options: Any) -> StreamingQuery:
        """A read of the log of all topics that match."""

        def write(frame: DataFrame, batch: int) -> None:
            self._write("pattern", frame, batch)

        return self._start("pattern", write, subscribePattern=f"{self._name}-log-.", mode="log", **options)

    def write_shuffled(self, step: int) -> None:
        """One task writes the same rows under the same write id in both runs. `step`: their order."""
        rows = self._spark.range(0, ROWS, 1, 1)
        key = f"lpad(CAST(id * {step} % {ROWS} AS STRING), 20, '0')"
        frame = rows.selectExpr(f"concat({key}, repeat('x', 1000)) AS value")
        options = {"url": self._url, "topic": f"{self._name}-shuffled", "writeId": self._name}
        frame.write.format("sharequeue").options(**options).mode("append").save()

    def first(self) -> None:
        """Work that a kill interrupts. It must not end. It prints `too busy` if a query had to start again."""
        self.by_pattern().awaitTermination()
        for query in (self.skewed, self.rejecting):
            reached = threading.Event()

            def stay(reached: threading.Event = reached) -> None:
                reached.set()
                threading.Event().wait()

            running = query(stay)
            while not reached.wait(1):
                if not running.isActive:
                    assert TOO_BUSY in str(running.exception()), running.exception()
                    print("too busy", flush=True)
                    running = query(stay)
        self.write_shuffled(7919)
        threading.Event().wait()

    def second(self) -> dict[str, Any]:
        parts = (
            self.continued_log,
            self.continued_groups,
            self.shuffled_once,
            self.turns,
            self.waiting,
            self.refusals,
            self.ranges_of_the_log,
            self.typed,
            self.without_register,
        )
        found: dict[str, Any] = {"too busy": 0}
        for part in parts:
            began = time.monotonic()
            while True:
                try:
                    found |= part()
                    break
                except PySparkException as fault:
                    if TOO_BUSY not in str(fault) or found["too busy"] == 9:
                        raise
                    found["too busy"] += 1
            print(f"{part.__name__}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
        return found

    def continued_log(self) -> dict[str, Any]:
        strict = refusal(lambda: self.by_pattern().awaitTermination())
        query = self.by_pattern(failOnDataLoss=False)
        query.awaitTermination()
        read = {topic: numbers(self._written("pattern").where(f"topic = '{self._name}-log-{topic}'")) for topic in "ab"}
        return {
            "deleted": strict,
            "read by pattern": read,
            "lost": [offset["lost"] for offset in said(query, "endOffset")][-1:],
            "log ends": said(query, "latestOffset")[-1:],
        }

    def continued_groups(self) -> dict[str, Any]:
        self.skewed(lambda: None).awaitTermination()
        self.rejecting(lambda: None).awaitTermination()
        rows = self._written("skewed")
        first = rows.where("batch = 0").select("partition").distinct().collect()
        return {
            "skewed": [rows.count(), rows.select("value").distinct().count()],
            "skewed batches": rows.select("batch").distinct().count(),
            "skewed deliveries": rows.agg(f.max("delivery_count")).collect()[0][0],
            "partitions of the first skewed batch": sorted(row.partition for row in first),
            "rejected again": sum(self._rejected),
            "accepted": numbers(self._written("rejecting")),
        }

    def shuffled_once(self) -> dict[str, Any]:
        self.write_shuffled(7907)
        keys = self._read("shuffled").selectExpr("left(CAST(value AS STRING), 21) AS value")
        return {"shuffled": [keys.count(), keys.distinct().count()]}

    def turns(self) -> dict[str, Any]:
        """Another group takes the same topic in batches of 4,000."""
        batches: list[dict[str, int]] = []

        def write(frame: DataFrame, batch: int) -> None:
            counts = frame.groupBy("partition").count().collect()
            batches.append({str(row.partition): row["count"] for row in counts})

        group = f"{self._name}-turns"
        query = self._start("turns", write, topics=f"{self._name}-skewed", group=group, maxRecordsPerTrigger=4000)
        query.awaitTermination()
        lags = [each["lag"][f"{self._name}-skewed"] for each in said(query, "latestOffset")]
        return {"turns": batches, "lags": lags}

    def waiting(self) -> dict[str, Any]:
        """Ten records are there. The first batch must wait until there are twenty."""
        topic = f"{self._name}-waiting"
        options = {"url": self._url, "topics": topic, "mode": "log"}
        reader = self._spark.readStream.format("sharequeue").options(**options, minRecordsPerTrigger=20)
        place = f"{self._directory}/waiting-checkpoint"
        query = reader.load().writeStream.format("noop").option("checkpointLocation", place).start()
        deadline = time.monotonic() + 120
        while query.status["message"] != "Waiting for data to arrive" and time.monotonic() < deadline:
            time.sleep(0.1)
        more = self._spark.range(10).selectExpr("id AS value")
        more.write.format("sharequeue").options(url=self._url, topic=topic).mode("append").save()
        while not sizes(query) and query.isActive and time.monotonic() < deadline:
            time.sleep(0.1)
        query.stop()
        return {"first batch that waited": sizes(query)[:1]}

    def refusals(self) -> dict[str, Any]:
        def offsets(first: int, second: int) -> str:
            return json.dumps({f"{self._name}-two": {"0": first, "1": second}})

        def refused(**options: Any) -> str:
            return refusal(lambda: self._read("two", **options).count())

        one = json.dumps({f"{self._name}-two": {"0": 0}})
        return {
            "start behind end": refused(startingOffsets=offsets(40, 0), endingOffsets=offsets(10, 50)),
            "offset behind the log": refused(startingOffsets=offsets(51, 0)),
            "omitted partition": refused(startingOffsets=one),
            "latest as a start": refused(startingOffsets=offsets(-1, 0)),
            "offset below -2": refused(startingOffsets=offsets(-3, 0)),
            "JSON without from_json": refused(valueFormat="json", valueSchema="id INT"),
        }

    def ranges_of_the_log(self) -> dict[str, Any]:
        def offsets(first: int, second: int) -> str:
            return json.dumps({f"{self._name}-two": {"0": first, "1": second}})

        return {
            "earliest and latest": numbers(
                self._read("two", startingOffsets=offsets(-2, 45), endingOffsets=offsets(5, -1))
            ),
            "from a time": self._read("two", startingTimestamp=2000).count(),
            "up to a time": self._read("two", endingTimestamp=2000).count(),
        }

    def typed(self) -> dict[str, Any]:
        """JSON as typed columns; what does not fit is null."""
        texts = self._read("typed", valueFormat="string").orderBy("offset")
        values = texts.withColumn("value", f.from_json("value", TYPES)).select("value.*")
        return {"typed": [row.asDict() for row in values.collect()]}

    def without_register(self) -> dict[str, Any]:
        """A session that nobody registered the format with, and SQL in it."""
        plain = self._spark.newSession()
        options = {"url": self._url, "topics": f"{self._name}-typed"}
        read = plain.read.format("sharequeue").options(**options).load().count()
        given = ", ".join(f"{name} '{to}'" for name, to in {**options, "valueFormat": "string"}.items())
        plain.sql(f"CREATE TEMPORARY VIEW typed USING sharequeue OPTIONS ({given})")
        (row,) = plain.sql(f"SELECT sum(from_json(value, '{TYPES}').id) AS total FROM typed").collect()
        return {"plain": read, "sql": row.total}


def main() -> None:
    findings = Findings(*sys.argv[2:])
    if sys.argv[1] == "first":
        findings.first()
    else:
        print(json.dumps(findings.second()), flush=True)


if __name__ == "__main__":
    main()
