"""One SparkSession and one stack for all modules here. Each test has topics, groups and checkpoints of its own."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from sharequeue_pipeline import session

from sharequeue.stack.stack import Stack, temporary_stack
from tests.http.calls import Gateway
from tests.pipeline import warm_python
from tests.pipeline.driver import QUICK_SPARK
from tests.pipeline.driver_process import Driver
from tests.pipeline.jobs import Jobs
from tests.pipeline.proxy import Proxy


@pytest.fixture(scope="package")
def spark_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home for Spark: settings for short runs in `conf`, and no archive of PySpark.

    Without the archive, workers import the installed package, which is already compiled.
    """
    home = tmp_path_factory.mktemp("spark")
    for part in ("bin", "jars"):
        (home / part).symlink_to(Path(pyspark.__path__[0]) / part)
    (home / "conf").mkdir()
    (home / "conf" / "spark-defaults.conf").write_text("".join(f"{name} {to}\n" for name, to in QUICK_SPARK.items()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(home))
        patch.setenv("PYSPARK_PYTHON", str(warm_python.write(home)))
        yield home


@pytest.fixture(scope="package")
def spark(spark_home: Path) -> Iterator[SparkSession]:
    """Local Spark. Each slot is a Python process."""
    spark = session("sharequeue tests", master="local[2]", config={"spark.sql.streaming.stopTimeout": "60s"})
    yield spark
    spark.stop()


@pytest.fixture(scope="package")
def stack_database(new_database: Callable[[], str]) -> str:
    """The database of the stack, for tests that write into it beside the services."""
    return new_database()


@pytest.fixture(scope="package")
def stack(
    tmp_path_factory: pytest.TempPathFactory, stack_database: str, new_redis: Callable[[], str]
) -> Iterator[Stack]:
    """The three services, which no test here stops."""
    stores = {"postgres_url": stack_database, "redis_url": new_redis()}
    with temporary_stack(tmp_path_factory.mktemp("stack"), **stores) as stack:
        yield stack


@pytest.fixture(scope="package")
def gateway(stack: Stack) -> Iterator[Gateway]:
    limits = httpx.Limits(keepalive_expiry=2.5)
    with httpx.Client(base_url=stack.url, timeout=40, limits=limits) as http:
        yield Gateway(http)


class Pipeline:
    """Shortcuts to sources, sinks and queries of the stack."""

    def __init__(self, spark: SparkSession, url: str, directory: Path) -> None:
        self.spark = spark
        self.url = url
        self.directory = directory
        self.queries: list[StreamingQuery] = []

    def read(self, **options: Any) -> DataFrame:
        return self.spark.read.format("sharequeue").options(url=self.url, **options).load()

    def stream(self, **options: Any) -> DataFrame:
        return self.spark.readStream.format("sharequeue").options(url=self.url, **options).load()

    def write(self, frame: DataFrame, **options: Any) -> None:
        frame.write.format("sharequeue").options(url=self.url, **options).mode("append").save()

    def start(self, frame: DataFrame, checkpoint: str = "checkpoint", **trigger: Any) -> StreamingQuery:
        """A query that appends to Parquet at `out`; `trigger` as for `DataStreamWriter.trigger`."""
        writer = frame.writeStream.format("parquet").option("path", str(self.directory / "out"))
        writer = writer.option("checkpointLocation", str(self.directory / checkpoint))
        return self.started((writer.trigger(**trigger) if trigger else writer).start())

    def started(self, query: StreamingQuery) -> StreamingQuery:
        self.queries.append(query)
        return query

    def drain(self, frame: DataFrame, checkpoint: str = "checkpoint") -> None:
        """Run a query until it has read all available records."""
        query = self.start(frame, checkpoint, availableNow=True)
        assert query.awaitTermination(120)

    def out(self) -> DataFrame:
        return self.spark.read.parquet(str(self.directory / "out"))


@pytest.fixture
def pipeline(spark: SparkSession, stack: Stack, tmp_path: Path) -> Iterator[Pipeline]:
    pipeline = Pipeline(spark, stack.url, tmp_path)
    yield pipeline
    for query in pipeline.queries:
        query.stop()


@pytest.fixture
def proxy(pipeline: Pipeline) -> Iterator[Proxy]:
    """A proxy between the pipeline and the gateway."""
    with Proxy(pipeline.url).running() as proxy:
        pipeline.url = proxy.url
        yield proxy


def wait_for(condition: Callable[[], Any], what: str, timeout_s: float = 60) -> Any:
    """Wait until the condition is true. Returns: its value."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(0.05)
    return found


@pytest.fixture
def jobs(spark: SparkSession, stack: Stack) -> Jobs:
    """The command line of the jobs."""
    return Jobs(spark, stack.url)


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    """Starts drivers, and kills them after the test."""
    started: list[Driver] = []

    def run(*arguments: Any) -> Driver:
        started.append(Driver(tmp_path, *map(str, arguments)))
        return started[-1]

    yield run
    for one in started:
        one.kill()
