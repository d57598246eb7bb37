"""A driver program for tests to kill: flights from a group, counted by carrier into one Parquet directory per batch.

Usage: flights_driver.py URL TOPIC GROUP DIRECTORY RECORDS_PER_TRIGGER MASTER ARCHIVE. It prints `batch N` when a batch
is written, and ends when all records are read. ARCHIVE has the packages that the workers of MASTER lack.
"""

import sys

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from sharequeue_pipeline import session

from tests.pipeline.driver import QUICK_JAVA, QUICK_SPARK

SCHEMA = "carrier STRING, distance DOUBLE, dep_delay DOUBLE"


def main() -> None:
    url, topic, group, directory, records, master, archive = sys.argv[1:]
    config = {
        **QUICK_SPARK,
        "spark.archives": f"{archive}#site",
        "spark.executorEnv.PYTHONPATH": "site",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.task.maxFailures": "20",
    }
    spark = session("flights", master=master, config=config)

    def write(frame: DataFrame, batch: int) -> None:
        counted = frame.groupBy("value.carrier").agg(
            f.count("*").alias("flights"),
            f.sum("value.distance").alias("distance"),
            f.sum("value.dep_delay").alias("delay"),
            f.count("value.dep_delay").alias("delays"),
            f.max("delivery_count").alias("deliveries"),
        )
        counted.write.mode("overwrite").parquet(f"{directory}/out/batch={batch}")
        print(f"batch {batch}", flush=True)

    options = {"url": url, "topics": topic, "group": group, "maxRecordsPerTrigger": records, "parallelism": 2}
    stream = spark.readStream.format("sharequeue").options(**options, valueFormat="string").load()
    writer = (
        stream.withColumn("value", f.from_json("value", SCHEMA))
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", f"{directory}/checkpoint")
    )
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
