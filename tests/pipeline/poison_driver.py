"""A driver program: it reads a group, and its Python worker dies at one record.

Usage: poison_driver.py URL TOPIC GROUP DIRECTORY POISON MASTER [ARCHIVE]. POISON is the value of that record. The
program starts the query again after each failure and prints `failure`. It ends when a query has read all records.
ARCHIVE has the packages that the workers of MASTER lack.
"""

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

from pyspark.errors import StreamingQueryException

from tests.pipeline.driver import session_on

MOST_FAILURES = 30


def dies_at(poison: bytes) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """A function for mapInArrow. This file runs as a program, so workers get the function and need no file."""

    def run(batches: Iterable[Any]) -> Iterable[Any]:
        for batch in batches:
            if poison in batch.column("value").to_pylist():
                os._exit(1)
            yield batch

    return run


def main() -> None:
    url, topic, group, directory, poison, *master = sys.argv[1:]
    spark = session_on(*master)
    options = {"url": url, "topics": topic, "group": group, "parallelism": 2}
    rows = spark.readStream.format("sharequeue").options(**options).load().select("value")
    writer = rows.mapInArrow(dies_at(poison.encode()), "value binary").writeStream.format("parquet")
    writer = writer.options(path=f"{directory}/out", checkpointLocation=f"{directory}/checkpoint")
    for _ in range(MOST_FAILURES):
        try:
            writer.trigger(availableNow=True).start().awaitTermination()
            return
        except StreamingQueryException as fault:
            print("failure", str(fault).splitlines()[0], flush=True)
    raise SystemExit("the query fails again and again")


if __name__ == "__main__":
    main()
