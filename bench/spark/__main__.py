"""`make spark-bench`: reads and writes of Spark here, on a Kafka broker with Spark's connector, and on Parquet.

One session runs all, one part after the other: reads beside Kafka's, the log beside Parquet, and writes beside Kafka's.
A part has rounds, and in each round the sides take turns. The first rounds warm up and do not count: Java compiles the
code of both sides until about the sixth one. A run also pays for what the one before it left to do: Java's garbage, and
what a store still does about earlier writes. So every second round goes backwards, writes come last, and Parquet comes
without Kafka.
"""

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import httpx
import psutil
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from sharequeue_pipeline import session

from sharequeue.stack.stack import Stack, temporary_stack
from tests.kafka.kafka import Kafka, make
from tests.pipeline.driver import TOO_BUSY

HERE: Final = Path(__file__).parent
JARS: Final = HERE.parents[1] / "dist/spark-connector"
CONNECTOR: Final = "spark-sql-kafka-0-10_2.13,spark-token-provider-kafka-0-10_2.13,kafka-clients,commons-pool2"
COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
TOPIC: Final = "measured"
BYTES: Final = 1024
PARTITIONS: Final = 4
CONFIG: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "3g",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.chunkBase64String.enabled": "false",  # else every value has line ends, which JSON escapes
}


VALUES: Final = {
    "random": f"base64(concat({', '.join(f'unhex(sha2(concat(id, {n}), 512))' for n in range(BYTES * 3 // 4 // 64))}))",
    "repeating": "substring(concat(sha2(CAST(id AS STRING), 512), repeat(sha2(CAST(id + 7 AS STRING), 512), 7)), "
    f"1, {BYTES})",
}
"""Values of 1 KiB. LZ4 makes nothing of the random ones, and a quarter of those that repeat, as of usual JSON."""


TRIES: Final = 10
"""Of a run."""


class Measure(NamedTuple):
    """What a run took: seconds, and CPU seconds of Spark and of the service that it used."""

    seconds: float
    cpu: float


PARTS: Final = (
    ("kafka batch", "log batch", "kafka stream", "log stream", "group stream"),
    ("log batch", "parquet"),
    ("kafka write", "write", "transactional write"),
)
"""The runs of each part, in the order of the first round."""


class Row(NamedTuple):
    """A row of the table: the two runs, which of their numbers is compared, and the bar of the ratio."""

    name: str
    ours: str
    other: str
    bar: float
    cpu: bool = False


ROWS: Final = (
    Row("batch read of the log / Kafka's source", "log batch", "kafka batch", 0.6),
    Row("stream of the log / Kafka's", "log stream", "kafka stream", 0.9),
    Row("group stream, defaults / Kafka's stream", "group stream", "kafka stream", 1.0),
    Row("write / Kafka's sink", "write", "kafka write", 1.3),
    Row("write in a transaction / Kafka's sink", "transactional write", "kafka write", 1.3),
    Row("batch read of the log / Parquet, CPU", "log batch", "parquet", 2.0, cpu=True),
)


def connector() -> str:
    """The jars of Spark's Kafka connector, fetched by Maven."""
    if not JARS.exists():
        words = [
            "mvn",
            "--quiet",
            "--batch-mode",
            COPY,
            f"-DincludeArtifactIds={CONNECTOR}",
            f"-DoutputDirectory={JARS}",
        ]
        subprocess.run(words, cwd=HERE, check=True)
    return ",".join(map(str, sorted(JARS.glob("*.jar"))))


def cpu_seconds(directory: Path, service: str | None) -> float:
    """CPU seconds of Spark and of the service that it uses, "kafka", "stack" or none; ended processes are included."""
    this = psutil.Process()
    spark = {this, *families(each for each in this.children() if "SparkSubmit" in " ".join(words_of(each)))}
    kafka = families(named(directory / "kafka"))
    stack = families([this, *named(directory / "stack")]) - spark - kafka
    total = 0.0
    for each in spark | {"kafka": kafka, "stack": stack, None: set()}[service]:
        with contextlib.suppress(psutil.Error):
            times = each.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def named(directory: Path) -> list[psutil.Process]:
    """The processes that name a directory: PostgreSQL is below none of this program."""
    return [each for each in psutil.process_iter() if str(directory) in " ".join(words_of(each))]


def families(roots: Iterable[psutil.Process]) -> set[psutil.Process]:
    """Processes, and all below them."""
    return {each for root in roots for each in (root, *below_of(root))}


def words_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def below_of(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


class Bench:
    """The runs. Each has names of its own for groups and checkpoints."""

    def __init__(
        self, spark: SparkSession, stack: Stack, kafka: Kafka, directory: Path, records: int, values: str
    ) -> None:
        self._spark = spark
        self._values = VALUES[values]
        self._stack = stack
        self._kafka = kafka
        self._directory = directory
        self._records = records
        self.runs: dict[str, Callable[[], None]] = {
            "kafka batch": lambda: self._noop(self._of_kafka(spark.read)),
            "log batch": lambda: self._noop(self._of_log(spark.read)),
            "parquet": lambda: self._noop(spark.read.parquet(f"{directory}/parquet")),
            "kafka stream": lambda: self._drain(self._of_kafka(spark.readStream, maxOffsetsPerTrigger=100_000)),
            "log stream": lambda: self._drain(self._of_log(spark.readStream, mode="log")),
            "group stream": lambda: self._drain(self._of_log(spark.readStream, group=f"g-{uuid.uuid4().hex}")),
            "kafka write": self._kafka_write,
            "write": self._write,
            "transactional write": lambda: self._write(transactional="true"),
        }
        self.batches: dict[str, int] = {}
        self._running = ""

    def measure(self, name: str) -> Measure:
        """Measure a run. It is repeated if it meets Spark's limit of 10 s for the start of a Python process."""
        for left in reversed(range(TRIES)):
            try:
                return self._measured(name)
            except PySparkException as fault:
                if TOO_BUSY not in str(fault) or not left:
                    raise
                print(f"{name}: Python took more than 10 s to start; again", file=sys.stderr)
        raise AssertionError

    def _measured(self, name: str) -> Measure:
        self._running = name
        service = None if name == "parquet" else "kafka" if name.startswith("kafka") else "stack"
        before, began = cpu_seconds(self._directory, service), time.perf_counter()
        self.runs[name]()
        took = time.perf_counter() - began
        return Measure(took, cpu_seconds(self._directory, service) - before)

    def rows(self) -> DataFrame:
        """The records to write."""
        frame = self._spark.range(0, self._records, 1, PARTITIONS)
        return frame.selectExpr("CAST(id AS STRING) AS key", f"{self._values} AS value")

    def fill(self) -> None:
        self._topic(TOPIC)
        self._write(TOPIC)
        self._kafka_write(TOPIC)
        self.rows().write.parquet(f"{self._directory}/parquet")

    def _topic(self, name: str) -> None:
        answer = httpx.post(f"{self._stack.url}/v1/topics", json={"name": name, "partitions": PARTITIONS})
        answer.raise_for_status()
        self._kafka.create_topic(name, PARTITIONS)

    def _of_kafka(self, reader: Any, **options: Any) -> DataFrame:
        options = {"kafka.bootstrap.servers": self._kafka.address, "subscribe": TOPIC, **options}
        frame: DataFrame = reader.format("kafka").options(startingOffsets="earliest", **options).load()
        return frame

    def _of_log(self, reader: Any, **options: Any) -> DataFrame:
        frame: DataFrame = reader.format("sharequeue").options(url=self._stack.url, topics=TOPIC, **options).load()
        return frame

    def _noop(self, frame: DataFrame) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def _drain(self, frame: DataFrame) -> None:
        writer = frame.writeStream.format("noop")
        writer = writer.option("checkpointLocation", f"{self._directory}/{uuid.uuid4().hex}")
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        progress = [each for each in query.recentProgress if each["numInputRows"]]
        read = sum(each["numInputRows"] for each in progress)
        assert read == self._records, f"{self._running}: {read} records"
        self.batches[self._running] = len(progress)

    def _write(self, topic: str | None = None, **options: Any) -> None:
        if topic is None:
            topic = uuid.uuid4().hex
            self._topic(topic)
        self.rows().write.format("sharequeue").options(url=self._stack.url, topic=topic, **options).mode(
            "append"
        ).save()

    def _kafka_write(self, topic: str | None = None) -> None:
        if topic is None:
            topic = uuid.uuid4().hex
            self._topic(topic)
        options = {"kafka.bootstrap.servers": self._kafka.address, "kafka.compression.type": "lz4", "topic": topic}
        self.rows().write.format("kafka").options(**options).mode("append").save()


@click.command()
@click.option("--records", default=200_000, show_default=True)
@click.option("--values", type=click.Choice(list(VALUES)), default="random", show_default=True, help="What LZ4 meets.")
@click.option("--rounds", default=5, show_default=True, help="Rounds that count.")
@click.option("--warm-up", default=5, show_default=True, help="Rounds before them, which do not count.")
@click.option("--only", help="Runs with these words in their names, with commas between.")
@click.option("--json", "as_json", is_flag=True, help="Print all numbers as JSON.")
def main(records: int, values: str, rounds: int, warm_up: int, only: str | None, as_json: bool) -> None:
    """Measure, and compare each ratio with its bar."""
    make()
    config = {**CONFIG, "spark.jars": connector()}
    with tempfile.TemporaryDirectory(prefix="sharequeue-spark-") as folder:
        directory = Path(folder)
        directory.chmod(0o755)  # another user runs PostgreSQL there
        with (
            closing(Kafka(directory / "kafka")) as kafka,
            temporary_stack(directory / "stack") as stack,
        ):
            spark = session("bench", master="local[2]", config=config)
            bench = Bench(spark, stack, kafka, directory, records, values)
            bench.fill()
            measured: list[dict[str, list[Measure]]] = []
            for part in PARTS:
                wanted = [name for name in part if only is None or any(word in name for word in only.split(","))]
                measured.append({name: [] for name in wanted})
                for number in range(warm_up + rounds):
                    for name in wanted[:: -1 if number % 2 else 1]:
                        found = bench.measure(name)
                        print(f"round {number}: {name}: {found.seconds:.2f} s, CPU {found.cpu:.2f} s", file=sys.stderr)
                        if number >= warm_up:
                            measured[-1][name].append(found)
            show(kafka.version, measured, bench.batches, as_json)
            spark.stop()


def show(version: str, measured: list[dict[str, list[Measure]]], batches: dict[str, int], as_json: bool) -> None:
    """Print the table of docs/benchmarks.md. `measured`: by part and run.

    Medians, also of the ratios of the rounds: a host that becomes slower in the middle slows both runs of a round.
    """
    if as_json:
        print(json.dumps({"kafka": version, "measured": measured, "batches": batches}))
        return
    print(f"Kafka {version}; medians of the rounds; batches of a stream: {batches}\n")
    print(
        "| run | s | other, s | ratio | bar | CPU, s | other, CPU s |\n| --- | ---: | ---: | ---: | --- | ---: | ---: |"
    )
    for part in measured:
        middle = {name: Measure(*map(statistics.median, zip(*found, strict=True))) for name, found in part.items()}
        for row in ROWS:
            if row.ours in middle and row.other in middle:
                ours, other, at = middle[row.ours], middle[row.other], 1 if row.cpu else 0
                pairs = zip(part[row.ours], part[row.other], strict=True)
                ratio = statistics.median(mine[at] / theirs[at] for mine, theirs in pairs)
                print(
                    f"| {row.name} | {ours.seconds:.2f} | {other.seconds:.2f} | {ratio:.2f} | at most {row.bar} "
                    f"| {ours.cpu:.1f} | {other.cpu:.1f} |"
                )


if __name__ == "__main__":
    main()
