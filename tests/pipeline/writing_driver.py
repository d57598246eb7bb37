"""A driver program for tests to kill. It copies the log of a topic to another one.

Usage: writing_driver.py HOW URL FROM TO DIRECTORY RECORDS_PER_TRIGGER. It prints `batch N` when
batch N has ended, and ends when all records are copied. The stage between gives the records of a task another order
each time. HOW: `plain`, or `transactional` for one transaction per micro-batch, or `settling`: the same for the group
that is named as the topic. In transactions each run of a task
gives every record another value of `run`, and the records go to other tasks. The first attempt of a task waits in its
middle while there is the file DIRECTORY/stuck.
Values are long: what a task has made reaches the sink only in pieces of 64 KiB.
"""

import random
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.listener import StreamingQueryListener
from sharequeue_pipeline import session

from tests.pipeline.driver import QUICK_SPARK

NAMES, LONG = ["id", "run", "long"], "x" * 4000
BATCH = 10
STOP_AFTER = 5
"""Batches that a task has made where it may wait."""


def stage(stuck: str, *, marked: bool) -> Any:
    """A function for mapInArrow: the same records in any order. `marked`: they have the name of this run."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        first, name = context.attemptNumber() == 0, uuid.uuid4().hex if marked else ""
        for number, batch in enumerate(batches):
            places = list(range(batch.num_rows))
            random.shuffle(places)
            shuffled = batch.take(pa.array(places, pa.int64()))
            yield pa.RecordBatch.from_arrays(
                [shuffled.column("id"), *(pa.array([text] * shuffled.num_rows) for text in (name, LONG))], names=NAMES
            )
            if number == STOP_AFTER:
                while first and Path(stuck).exists():
                    time.sleep(0.05)

    return run


class Progress(StreamingQueryListener):
    """Prints a line for each batch that has ended."""

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        print(f"batch {event.progress.batchId}", flush=True)

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        pass


def start(spark: SparkSession, how: str, url: str, source: str, to: str, directory: str, records: int) -> Any:
    transactional = how != "plain"
    options = {"url": url, "topics": source, "maxRecordsPerTrigger": records, "parallelism": 2}
    options |= {"group": source} if how == "settling" else {"mode": "log"}
    rows = spark.readStream.format("sharequeue").options(**options).load()
    ids = rows.selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS id").repartition(
        2, f.rand() if transactional else "id"
    )
    made = ids.mapInArrow(stage(f"{directory}/stuck", marked=transactional), "id bigint, run string, long string")
    value = "named_struct('id', id, 'run', run, 'long', long)"
    rows = made.selectExpr(f"{value if transactional else f'to_json({value})'} AS value")
    writer = rows.writeStream.format("sharequeue").options(url=url, topic=to, maxRequestRecords=10)
    if transactional:
        writer = writer.option("transactional", "true")
    return writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()


def main() -> None:
    how, url, source, to, directory, records = sys.argv[1:]
    config = {**QUICK_SPARK, "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH)}
    spark = session("writing driver", master="local[2,4]", config=config)
    spark.streams.addListener(Progress())
    print("started", flush=True)
    start(spark, how, url, source, to, directory, int(records)).awaitTermination()
    print("done", flush=True)


if __name__ == "__main__":
    main()
