"""A client of Spark Connect: `connect.py URL TOPIC GROUP DIRECTORY`.
It writes, reads the log, and streams from a group."""

import sys

from pyspark.sql import DataFrame, SparkSession
from sharequeue_pipeline import PipelineError, register, settle


def main() -> None:
    url, topic, group, directory = sys.argv[1:]
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    assert register(spark) is spark
    rows = spark.range(20).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("sharequeue").options(url=url, topic=topic).mode("append").save()
    print("read", spark.read.format("sharequeue").options(url=url, topics=topic).load().count())
    stream = (
        spark.readStream.format("sharequeue").options(url=url, topics=topic, group=group, valueFormat="string").load()
    )
    writer = stream.select("value").writeStream.format("parquet").option("path", f"{directory}/out")
    query = writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()
    assert query.awaitTermination(900)
    print("streamed", spark.read.parquet(f"{directory}/out").distinct().count())
    frame: DataFrame = spark.read.format("sharequeue").options(url=url, topics=topic).load()
    try:
        settle(frame, "reject")
    except PipelineError as fault:
        print("settle", fault)


if __name__ == "__main__":
    main()
