"""A driver program that measures: `rates.py URL TOPIC GROUP DIRECTORY RECORDS` prints JSON.

`by_parallelism`: seconds of a job that waits 1 ms per record of one partition, by number of tasks. The other numbers
are records per second.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import SparkSession
from sharequeue_pipeline import session

CONFIG = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
}


def wait(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        for _ in range(batch.num_rows):
            time.sleep(0.001)
        yield batch


def seconds(action: Callable[[], Any]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def drain(frame: Any, checkpoint: str) -> None:
    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
    assert writer.trigger(availableNow=True).start().awaitTermination(600)


def main() -> None:
    url, topic, group, directory, count = sys.argv[1:]
    records = int(count)
    spark: SparkSession = session("rates", master="local[8]", config=CONFIG)
    measured: dict[str, Any] = {}
    rows = spark.range(0, records, 1, 2).selectExpr(
        "CAST(id AS STRING) AS key", "named_struct('id', id, 'text', repeat('x', 60)) AS value"
    )
    rows.limit(10).write.format("sharequeue").options(url=url, topic=f"{topic}-warm").mode("append").save()
    sink = rows.write.format("sharequeue").options(url=url, topic=topic).mode("append")
    measured["sink"] = records / seconds(sink.save)
    rows.write.parquet(f"{directory}/parquet")

    def stream(name: str, **options: Any) -> Any:
        reader = spark.readStream.format("sharequeue").options(url=url, topics=topic, group=f"{group}-{name}")
        return reader.options(maxRecordsPerTrigger=20_000, **options).load()

    warm = stream("warm", parallelism=16).select("offset").mapInArrow(lambda batches: batches, "offset bigint")
    drain(warm, f"{directory}/warm")  # Python processes take a second of CPU each to start
    took = seconds(lambda: drain(stream("source", parallelism=2), f"{directory}/source"))
    measured["source, group"] = records / took
    log = spark.read.format("sharequeue").options(url=url, topics=topic, parallelism=2).load()
    measured["source, log"] = records / seconds(lambda: log.write.format("noop").mode("overwrite").save())
    parquet = spark.read.parquet(f"{directory}/parquet")
    measured["parquet"] = records / seconds(lambda: parquet.write.format("noop").mode("overwrite").save())
    measured["by_parallelism"] = {}
    for parallelism in (8, 1):
        waiting = (
            stream(f"wait{parallelism}", parallelism=parallelism).select("offset").mapInArrow(wait, "offset bigint")
        )
        measured["by_parallelism"][parallelism] = seconds(
            lambda waiting=waiting, parallelism=parallelism: drain(waiting, f"{directory}/wait{parallelism}")
        )
    print(json.dumps(measured), flush=True)


if __name__ == "__main__":
    main()
