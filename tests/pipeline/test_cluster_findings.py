"""What a data engineer once found wrong with the pipeline, on a cluster of two workers, with jobs that were killed.

`findings_driver.py` runs twice: its first run is killed with SIGKILL in the middle of two micro-batches and of a write.
A job of the command line is killed, too, and repeated.
"""

import contextlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway
from tests.pipeline import findings_driver
from tests.pipeline.conftest import wait_for
from tests.pipeline.driver import QUICK_JAVA, QUICK_SPARK, TOO_BUSY
from tests.pipeline.findings_driver import ROWS
from tests.pipeline.test_cluster import Cluster, kill, kill_executors, pack, run
from tests.pipeline.test_source import produce, settled

pytestmark = pytest.mark.soak

SKEWED = {0: 45_000, 1: 5000, 2: 5000, 3: 5000}
"""Records by partition."""
NAME = "findings"
TYPED = [
    {"id": 1, "amount": "12.5", "name": "a"},
    {"id": 2, "amount": 1.5, "name": 7},
    {"id": 3, "amount": 2.5, "name": {"first": "b"}},
    {"id": "x", "amount": 3, "name": None},
]
CSV_ROWS = 40_000


class Found(NamedTuple):
    """What the second run printed, and what was seen beside both runs."""

    results: dict[str, Any]
    written_before: int
    """Records of the write when the first run was killed."""
    worker_mib: int
    """The most memory that a Python worker of the second run took."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all tests here."""
    directory = tmp_path_factory.mktemp("cluster")
    made = Cluster(directory)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(directory / "work", ignore_errors=True)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages that the workers lack."""
    place = tmp_path_factory.mktemp("site") / "site.tar.gz"
    pack(place)
    return place


def produce_all(gateway: Gateway) -> None:
    for group in ("skewed", "rejecting", "turns"):
        gateway.configure(f"{NAME}-{group}", share_record_lock_duration_ms=3_600_000)
    gateway.create_topic(f"{NAME}-skewed", len(SKEWED))
    for partition, count in SKEWED.items():
        for start in range(0, count, 5000):
            values = [100_000 * partition + start + number for number in range(5000)]
            gateway.produce(f"{NAME}-skewed", *values, partition=partition)
    produce(gateway, f"{NAME}-rejecting", 100, partitions=2)
    produce(gateway, f"{NAME}-log-a", 50)
    produce(gateway, f"{NAME}-waiting", 10)
    gateway.create_topic(f"{NAME}-shuffled")
    gateway.produce(f"{NAME}-typed", *TYPED)
    gateway.create_topic(f"{NAME}-two", 2)
    for partition in (0, 1):
        for half in (0, 1):
            values = list(range(100 * partition + 25 * half, 100 * partition + 25 * half + 25))
            gateway.produce(f"{NAME}-two", *values, partition=partition, timestamp_ms=1000 * (1 + half))


def worker_peaks(cluster: Cluster) -> Iterator[int]:
    """MiB that each Python process of the executors took at most so far."""
    for worker in cluster.python_workers():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{worker.pid}/status").read_text())
            yield int(peak[1]) // 1024 if peak else 0


@pytest.fixture(scope="module")
def found(
    cluster: Cluster, archive: Path, stack: Stack, gateway: Gateway, tmp_path_factory: pytest.TempPathFactory
) -> Found:
    produce_all(gateway)
    directory = tmp_path_factory.mktemp("findings")
    log = directory / "driver.log"

    def start(which: str) -> subprocess.Popen[str]:
        words = (which, stack.url, NAME, directory, cluster.master, archive)
        return run(cluster, log, findings_driver.__file__, *words)

    first = start("first")

    def writes() -> bool:
        assert first.poll() is None, log.read_text()[-3000:]
        return sum(gateway.log_ends(f"{NAME}-shuffled")) > 0

    try:
        wait_for(writes, "the rows are being written", 600)
    finally:
        kill(first)
        kill_executors(cluster)
    assert first.stdout is not None
    too_busy = first.stdout.read().count("too busy")
    written_before = sum(gateway.log_ends(f"{NAME}-shuffled"))
    produce(gateway, f"{NAME}-log-a", 50, first=50)
    gateway.delete_records(f"{NAME}-log-a", 80)
    produce(gateway, f"{NAME}-log-b", 10)
    second, worker_mib = start("second"), 0

    def ended() -> bool:
        nonlocal worker_mib
        with contextlib.suppress(subprocess.TimeoutExpired):
            second.wait(0.3)
            return True
        worker_mib = max([worker_mib, *worker_peaks(cluster)])
        return False

    try:
        wait_for(ended, "the second run ends", 1800)
        printed, _ = second.communicate()
    finally:
        kill(second)
    assert second.returncode == 0, log.read_text()[-3000:]
    results = json.loads(printed.splitlines()[-1])
    results["too busy"] += too_busy
    print(log.read_text(), results, written_before, worker_mib, sep="\n")
    return Found(results, written_before, worker_mib)


def test_a_start_behind_the_end_is_refused(found: Found) -> None:
    expected = f"endingOffsets names offset 10 of {NAME}-two-0, before the offset 40 to begin at"
    assert expected in found.results["start behind end"]


def test_a_log_whose_unread_records_were_deleted_fails_the_query(found: Found) -> None:
    """The checkpoint comes from the run that was killed. With failOnDataLoss=false it continues, and counts."""
    expected = f"{NAME}-log-a-0: the offsets 50 to 79 were deleted before they were read; set failOnDataLoss=false"
    assert expected in found.results["deleted"]
    assert found.results["read by pattern"]["a"] == [*range(50), *range(80, 100)]
    assert found.results["lost"] == [30]


def test_a_field_that_does_not_fit_is_null(found: Found) -> None:
    assert [(row["id"], row["amount"], row["name"]) for row in found.results["typed"]] == [
        (1, None, "a"),
        (2, 1.5, "7"),
        (3, 2.5, '{"first":"b"}'),
        (None, 3.0, None),
    ]


def test_a_group_at_defaults_takes_few_micro_batches(found: Found) -> None:
    """With windows of 2,000 records a partition of 45,000 would take 23. Nothing is missing or there twice."""
    assert found.results["skewed"] == [60_000, 60_000]
    assert found.results["skewed batches"] <= 4
    assert found.results["partitions of the first skewed batch"] == list(SKEWED)


def test_a_kill_uses_up_no_delivery(found: Found, gateway: Gateway) -> None:
    assert found.results["skewed deliveries"] <= 1 + found.results["too busy"]
    assert settled(gateway, f"{NAME}-skewed", f"{NAME}-skewed")


def test_a_hot_partition_does_not_keep_the_others_waiting(found: Found) -> None:
    """It has 45,000 of 60,000 records. All others are read within the first half of the batches."""
    batches = found.results["turns"]
    assert sum(sum(batch.values()) for batch in batches) == 60_000
    assert {partition for batch in batches[len(batches) // 2 :] for partition in batch} == {"0"}


def test_offsets_mean_what_they_mean_in_kafka(found: Found) -> None:
    assert found.results["earliest and latest"] == sorted([*range(5), *range(145, 150)])
    assert "startingOffsets of spark.read cannot be latest" in found.results["latest as a start"]
    assert f"names offset -3 of {NAME}-two-0" in found.results["offset below -2"]
    assert f"names offset 51 of {NAME}-two-0, which ends at 50" in found.results["offset behind the log"]
    assert f"names no offset of {NAME}-two-1: name every partition" in found.results["omitted partition"]


def test_a_write_that_was_killed_and_repeated_in_another_order_writes_nothing_twice(found: Found) -> None:
    assert 0 < found.written_before < ROWS, "it was killed half-way"
    assert found.results["shuffled"] == [ROWS, ROWS]


def test_the_memory_of_a_task_that_writes_is_bounded(found: Found) -> None:
    """Its rows are 200 MiB. When a task kept all of them, they took 481 MiB."""
    assert 0 < found.worker_mib < 400


def test_progress_has_the_lag(found: Found) -> None:
    lags = found.results["lags"]
    assert [lag.keys() for lag in lags] == [{"0", "1", "2", "3"}] * len(lags)
    totals = [sum(lag.values()) for lag in lags]
    assert totals == sorted(totals, reverse=True)
    assert totals[-1] < totals[0] <= 60_000
    assert found.results["log ends"] == [{"log": {f"{NAME}-log-a": {"0": 100}, f"{NAME}-log-b": {"0": 10}}}]


def test_faults_in_options_are_one_line(found: Found) -> None:
    assert (
        "valueFormat=json is for writing: read JSON with valueFormat=string" in found.results["JSON without from_json"]
    )


def test_a_rejected_row_is_a_dead_letter_with_its_reason(found: Found, gateway: Gateway) -> None:
    """The run that rejected it was killed in the same batch. The next run accepts the others."""
    assert found.results["rejected again"] == 0
    assert found.results["accepted"] == [number for number in range(100) if number != 57]
    (letter,) = gateway.letters(f"dlq.{NAME}-rejecting", 1)
    assert letter["headers"]["__dlq.errors.reason"] == "no 57"
    wait_for(lambda: settled(gateway, f"{NAME}-rejecting", f"{NAME}-rejecting"), "the others are accepted")


def test_the_format_is_known_without_register(found: Found) -> None:
    assert (found.results["plain"], found.results["sql"]) == (len(TYPED), 6)


def test_a_read_begins_and_ends_at_times(found: Found) -> None:
    assert (found.results["from a time"], found.results["up to a time"]) == (50, 50)


def test_a_pattern_finds_topics_that_were_created_after_the_kill(found: Found) -> None:
    assert found.results["read by pattern"]["b"] == list(range(10))


def test_a_micro_batch_waits_for_enough_records(found: Found) -> None:
    assert found.results["first batch that waited"] == [20]


def test_a_csv_with_na_that_was_killed_has_nulls_and_is_quiet(
    cluster: Cluster, archive: Path, stack: Stack, gateway: Gateway, name: str, tmp_path: Path
) -> None:
    """The job of the command line: it finds the cluster's settings as Spark does, in SPARK_CONF_DIR."""
    padding = "x" * 200
    lines = [f"{number},{'NA' if number % 4 == 0 else number},{padding}" for number in range(CSV_ROWS)]
    (tmp_path / "rows.csv").write_text("\n".join(["id,delay,text", *lines, ""]))
    quick = {key: to for key, to in QUICK_SPARK.items() if key not in ("spark.log.level", "spark.ui.enabled")}
    quick |= {"spark.archives": f"{archive}#site", "spark.executorEnv.PYTHONPATH": "site"}
    quick |= {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": QUICK_JAVA}
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/spark-defaults.conf").write_text("".join(f"{key} {to}\n" for key, to in quick.items()))
    gateway.create_topic(name, 2)
    log = tmp_path / "job.log"

    def ingest() -> subprocess.Popen[str]:
        words = ["pipeline", "ingest", name, str(tmp_path / "rows.csv"), "--infer-schema", "--null-value", "NA"]
        words += ["--split-mib", "1", "--json", "--url", stack.url, "--master", cluster.master]
        program = str(Path(sys.executable).with_name("sharequeue"))
        return run(cluster, log, program, *words, SPARK_CONF_DIR=str(tmp_path / "conf"))

    first = ingest()
    try:
        wait_for(lambda: sum(gateway.log_ends(name)) > 0 or first.poll() is not None, "it writes", 600)
    finally:
        kill(first)
        kill_executors(cluster)
    before = sum(gateway.log_ends(name))
    assert 0 < before < CSV_ROWS, ("it was killed half-way", log.read_text()[-3000:])
    assert log.read_text() == "", "a job that was killed has said nothing"
    for _ in range(10):
        second = ingest()
        try:
            printed, _ = second.communicate(timeout=1200)
        finally:
            kill(second)
        said = log.read_text()
        if second.returncode == 0:
            break
        assert TOO_BUSY in said, said[-3000:]
        log.write_text("")
    assert said == "", "a job says nothing of Spark and Java"
    counts = json.loads(printed.splitlines()[-1])
    assert counts["records"] == counts["new"] + counts["known"] == CSV_ROWS
    assert counts["known"] >= before
    values = []
    for partition, end in enumerate(gateway.log_ends(name)):
        offset = 0
        while offset < end:
            page = gateway.read(name, partition, offset=offset, max_records=10_000)
            values += [record["value"] for record in page["records"]]
            offset = page["next_offset"]
    found = sorted((value["id"], value["delay"]) for value in values)
    assert found == [(number, None if number % 4 == 0 else number) for number in range(CSV_ROWS)]
