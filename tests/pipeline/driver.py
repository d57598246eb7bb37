"""A driver program for tests to kill. It reads a group into one Parquet directory per batch; a repeat overwrites it.

Usage: driver.py URL TOPIC GROUP DIRECTORY RECORDS_PER_TRIGGER STUCK_AT. It prints `java HOME`, then `batch N` when
a batch begins. It never leaves batch STUCK_AT.
"""

import sys
import threading
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from sharequeue_pipeline import session
from sharequeue_pipeline.spark_version import reaches

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""Options for short runs, which spend most of their CPU on compiling and verifying classes."""
QUICK_SPARK = {
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.codegen.wholeStage": "false",  # compiling a plan takes longer than a few rows
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # without Hadoop's native library, each file starts a process for chmod and one for readlink
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming."
    + ("checkpointing." if reaches(pyspark.__version__, (4, 1)) else "")
    + "FileSystemBasedCheckpointFileManager",
}

TOO_BUSY = "Python worker failed to connect back"
"""Spark gives the Python that plans a stream 10 s to start, and ends the query otherwise. No setting changes that."""


def start(
    spark: SparkSession, url: str, topic: str, group: str, directory: str, records: int, stuck_at: int = -1
) -> Any:
    """Start the query, here or in another program."""

    def write(frame: DataFrame, batch: int) -> None:
        print(f"batch {batch}", flush=True)
        frame.write.mode("overwrite").parquet(f"{directory}/out/batch={batch}")
        if batch == stuck_at:
            threading.Event().wait()

    options = {"url": url, "topics": topic, "group": group, "maxRecordsPerTrigger": records, "parallelism": 2}
    stream = spark.readStream.format("sharequeue").options(**options).load()
    writer = stream.selectExpr("CAST(value AS STRING) AS value", "delivery_count").writeStream.foreachBatch(write)
    return writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()


def main() -> None:
    url, topic, group, directory, records, stuck_at = sys.argv[1:]
    spark = session("driver", master="local[2]", config=QUICK_SPARK)
    assert spark.sparkContext._jvm is not None
    print(f"java {spark.sparkContext._jvm.System.getProperty('java.home')}", flush=True)
    start(spark, url, topic, group, directory, int(records), int(stuck_at)).awaitTermination()


if __name__ == "__main__":
    main()
