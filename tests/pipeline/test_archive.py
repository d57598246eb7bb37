"""The job `archive`: a Delta table that others read, with every record once, also after a crash."""

import json
import os
import random
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from sharequeue_pipeline.archiving.delta_table import table_schema
from sharequeue_pipeline.archiving.table_files import TableTask, WrittenSegment, write_segment
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.jobs.archive import Archiver
from sharequeue_pipeline.jobs.operator_client import OperatorClient
from sharequeue_pipeline.options import source_options
from sharequeue_pipeline.ranges import Range

from tests.http.calls import Gateway, good
from tests.pipeline import delta_in_duckdb, delta_in_spark
from tests.pipeline.archive_run import archived, logged
from tests.pipeline.conftest import wait_for
from tests.pipeline.jobs import Jobs

DAY_MS = 86_400_000
TEXTS = ("--key-format", "string", "--value-format", "string")


def produce(gateway: Gateway, topic: str, records: list[dict[str, Any]]) -> None:
    good(gateway.http.post(f"/v1/topics/{topic}/records", json={"records": records}))


def many(gateway: Gateway, topic: str, count: int, partitions: int, seed: int) -> None:
    """Produce records of three dates and all kinds, in batches of many sizes."""
    gateway.create_topic(topic, partitions)
    chance = random.Random(seed)
    number = 0
    while number < count:
        size = min(chance.randint(1, 400), count - number)
        produce(gateway, topic, [_record(chance, each, partitions) for each in range(number, number + size)])
        number += size


def _record(chance: random.Random, number: int, partitions: int) -> dict[str, Any]:
    record: dict[str, Any] = {"partition": chance.randrange(partitions), "timestamp_ms": chance.randrange(3 * DAY_MS)}
    record |= chance.choice([{"key": f"k{number}"}, {}, {"key_base64": "/w=="}, {"key": ""}])
    record |= chance.choice([{"value": {"n": number}}, {"value": None}, {"value_base64": "AP8="}, {"value": "text"}])
    return record | chance.choice([{}, {}, {"headers": {"h": str(number), "g": ""}}])


@pytest.mark.soak
def test_a_delta_table_equals_the_log_after_every_run(
    jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path, seed: int
) -> None:
    many(gateway, name, 2000, 2, seed)
    words = ("archive", name, "--to", tmp_path)
    assert jobs.done(*words, "--segment-records", 400)["records"] == 2000
    for partition in (0, 1):
        assert archived(tmp_path, partition) == logged(gateway.http, name, partition)
    version = DeltaTable(tmp_path).version()
    assert jobs.done(*words)["records"] == 0
    assert DeltaTable(tmp_path).version() == version, "a run without new records makes no version"
    produce(gateway, name, [{"value": number, "partition": 1, "timestamp_ms": 5 * DAY_MS} for number in range(50)])
    DeltaTable(tmp_path).optimize.compact()
    again = jobs.done(*words, "--verify")
    assert (again["records"], again["verified_records"]) == (50, 2050)
    table = DeltaTable(tmp_path)
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    assert jobs.done(*words, "--verify")["verified_records"] == 2050
    assert archived(tmp_path, 1) == logged(gateway.http, name, 1)
    assert sorted(each["date"] for each in table.partitions()) == [
        "1970-01-01",
        "1970-01-02",
        "1970-01-03",
        "1970-01-06",
    ]


@pytest.mark.soak
def test_pandas_and_duckdb_read_texts(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    records = [{"key": f"k{n}", "value": {"id": n, "total": n / 4}, "timestamp_ms": n} for n in range(5)]
    produce(gateway, name, [*records, {"value": "12"}, {"value": None}])
    report = jobs.done("archive", name, "--to", tmp_path, *TEXTS, "--verify")
    assert (report["records"], report["verified_records"]) == (7, 7)
    frame = DeltaTable(tmp_path).to_pandas().sort_values("offset")
    assert list(frame.columns) == ["partition", "offset", "timestamp", "key", "value", "headers", "date"]
    assert frame["value"][4:6].tolist() == ['{"id":4,"total":1.0}', "12"]
    assert frame["value"].isna().tolist() == 6 * [False] + [True]
    assert frame["key"][:5].tolist() == [f"k{n}" for n in range(5)]
    select = "count(*), sum(CAST(value->>'id' AS INT)) FILTER (key IS NOT NULL), max(timestamp)::DATE > '2000-01-01'"
    assert delta_in_duckdb.query(tmp_path, select) == "[(7, 10, True)]"


def stage(jobs: Jobs, topic: str, root: Path, last: int) -> list[WrittenSegment]:
    """What the tasks of a run do: write files for the offsets up to `last`, for which no commit comes."""
    options = source_options({"topics": topic, "url": jobs.url})
    task = TableTask(options, table_schema("binary", "binary"), str(root), Range(topic, 0, 0, last))
    return [write_segment(task)]


def test_a_crash_between_write_and_commit_commits_once(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    produce(gateway, name, [{"value": number} for number in range(100)])
    words = ("archive", name, "--to", tmp_path)
    ((left,),) = [each.files for each in stage(jobs, name, tmp_path, 59)]  # then the run is killed
    assert (tmp_path / left.path).exists()
    assert jobs.done(*words, "--verify")["records"] == 100
    assert [row[0] for row in archived(tmp_path, 0)] == list(range(100))
    assert jobs.done(*words)["records"] == 0, "the commit itself says that it happened"
    removed = DeltaTable(tmp_path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    assert [Path(each).name for each in removed] == [Path(left.path).name]
    assert jobs.done(*words, "--verify")["verified_records"] == 100


def test_of_two_runs_at_once_one_commits(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    produce(gateway, name, [{"value": number} for number in range(10)])
    words = ("archive", name, "--to", tmp_path)
    options = source_options({"topics": name, "url": jobs.url})

    def archiver() -> Archiver:
        return Archiver(jobs.spark, options, str(tmp_path), OperatorClient(options.gateway).describe(name))

    first, second = archiver(), archiver()
    first.run(1000)
    with pytest.raises(PipelineError, match=f"another run writes {name} to {tmp_path}"):
        second.run(1000)
    assert jobs.done(*words, "--verify")["records"] == 0
    assert [row[0] for row in archived(tmp_path, 0)] == list(range(10))


def test_delete_records_stops_at_the_slowest_group(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    produce(gateway, name, [{"value": number} for number in range(100)])
    gateway.acquire(name, name, max_records=50)
    gateway.settle(name, name, 0, 29, "accept")
    words = ("archive", name, "--to", tmp_path)
    report = jobs.done(*words, "--delete-records")
    assert (report["partitions"][0]["deleted_before"], report["verified_records"]) == (30, 30)
    assert gateway.describe_topic(name)["partitions"][0]["log_start_offset"] == 30
    produce(gateway, name, [{"value": number} for number in range(100, 120)])
    gateway.delete_records(name, 110)
    result = jobs.run(*words, "--json")
    assert json.loads(result.stdout)["partitions"][0]["gaps"] == [{"first_offset": 100, "last_offset": 109}]
    assert "offsets 100 to 109 left the log before they were archived" in result.stderr
    assert [row[0] for row in archived(tmp_path, 0)] == [*range(100), *range(110, 120)]
    assert jobs.done(*words, "--verify")["verified_records"] == 10


def test_delete_records_without_groups_deletes_all_archived_records(
    jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path
) -> None:
    produce(gateway, name, [{"value": number} for number in range(10)])
    report = jobs.done("archive", name, "--to", tmp_path, "--delete-records")
    assert report["partitions"][0]["deleted_before"] == 10
    produce(gateway, name, [{"value": 10}])
    assert jobs.done("archive", name, "--to", tmp_path)["records"] == 1
    assert [row[0] for row in archived(tmp_path, 0)] == list(range(11))


def test_a_table_that_differs_from_the_log_keeps_the_log(
    jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path
) -> None:
    produce(gateway, name, [{"value": number} for number in range(10)])
    words = ("archive", name, "--to", tmp_path)
    jobs.done(*words)
    DeltaTable(tmp_path).delete('"offset" = 7')
    code, line = jobs.refused(*words, "--delete-records")
    assert (code, "it has 9 records and the log 10 of partition 0 between the offsets 0 and 9" in line) == (1, True), (
        line
    )
    assert gateway.describe_topic(name)["partitions"][0]["log_start_offset"] == 0


def test_faults_are_one_line(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    missing = f"sharequeue: there is no topic {name!r} at {jobs.url}"
    assert jobs.refused("archive", name, "--to", tmp_path) == (1, missing)
    produce(gateway, name, [{"value": {"id": 1}}])
    words = ("archive", name, "--to", tmp_path / "table")
    assert jobs.done(*words)["records"] == 1
    code, line = jobs.refused("archive", name, "--to", tmp_path / "table", *TEXTS)
    assert (code, "has other columns" in line) == (1, True), line
    jobs.done("archive", name, "--to", tmp_path / "forgets")
    forgets = DeltaTable(tmp_path / "forgets")
    forgets.alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 1 days"})
    code, line = jobs.refused("archive", name, "--to", tmp_path / "forgets")
    assert (code, "forgets how far it is archived" in line) == (1, True), line
    gateway.http.delete(f"/v1/topics/{name}")
    produce(gateway, name, [{"value": 1}])
    code, line = jobs.refused(*words)
    assert (code, f"is not an archive of the topic {name!r}" in line) == (1, True), line
    (tmp_path / "file").touch()
    code, line = jobs.refused("archive", name, "--to", tmp_path / "file")
    assert (code, "cannot be opened" in line) == (1, True), line
    usage = jobs.run("archive", name, "--to", tmp_path / "texts", *TEXTS, "--delete-records")
    assert (usage.exit_code, "--delete-records needs --value-format binary" in usage.output) == (2, True)


def test_the_oldest_deltalake_has_all_that_an_archive_imports() -> None:
    """Version 1.6.0 has no RemoveAction."""
    program = "import deltalake.transaction as given; del given.RemoveAction; import sharequeue_pipeline.jobs.archive"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_archive_ends_at_the_last_stable_offset(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    produce(gateway, name, [{"value": "before"}])
    transaction = good(gateway.http.post("/v1/transactions", json={"timeout_ms": 600_000}), 201)["transaction_id"]
    record = {"records": [{"value": "within"}]}
    good(gateway.http.post(f"/v1/topics/{name}/records", json=record, headers={"Transaction-Id": transaction}))
    produce(gateway, name, [{"value": "behind"}])
    assert jobs.done("archive", name, "--to", tmp_path, "--verify")["records"] == 1
    good(gateway.http.post(f"/v1/transactions/{transaction}/commit", json={}))
    again = jobs.done("archive", name, "--to", tmp_path, "--verify")
    assert (again["records"], again["verified_records"]) == (2, 3)
    assert archived(tmp_path, 0) == logged(gateway.http, name, 0)


def test_the_archive_passes_a_marker_that_is_alone_or_first(
    jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path
) -> None:
    gateway.create_topic(name)
    transaction = good(gateway.http.post("/v1/transactions", json={}), 201)["transaction_id"]
    record = {"records": [{"value": "deleted"}]}
    good(gateway.http.post(f"/v1/topics/{name}/records", json=record, headers={"Transaction-Id": transaction}))
    good(gateway.http.post(f"/v1/transactions/{transaction}/commit", json={}))
    gateway.delete_records(name, 1)
    assert jobs.done("archive", name, "--to", tmp_path, "--verify")["records"] == 0
    produce(gateway, name, [{"value": "behind"}])
    assert jobs.done("archive", name, "--to", tmp_path, "--verify")["records"] == 1
    assert [row[:1] for row in archived(tmp_path, 0)] == [(2,)]
    assert archived(tmp_path, 0) == logged(gateway.http, name, 0, 1)


def command(url: str, topic: str, root: Path, segment_records: int) -> list[str]:
    words = ["archive", topic, "--to", str(root), "--url", url, "--segment-records", str(segment_records)]
    return [str(Path(sys.executable).with_name("sharequeue")), "pipeline", *words, "--master", "local[1]"]


def killed_half_way(url: str, topic: str, root: Path, segment_records: int, count: int) -> int:
    """Run the job as a process group, and kill it when half is archived. Returns: how many records are archived."""
    words = command(url, topic, root, segment_records)
    process = subprocess.Popen(words, start_new_session=True, stderr=subprocess.PIPE, text=True)

    def done() -> int:
        return DeltaTable(root).count() if DeltaTable.is_deltatable(str(root)) else 0

    def half() -> bool:
        assert process.poll() is None, f"it ended before half was done: {process.stderr and process.stderr.read()}"
        return done() >= count / 2

    try:
        wait_for(half, "half of the archive", 600)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stderr is not None
        assert process.stderr.read() == "", "a job without faults says nothing, and neither does its Java"
        process.stderr.close()
    return done()  # a wave may have ended before the kill


def produce_many(gateway: Gateway, topic: str, count: int) -> None:
    """Produce numbers to two partitions, 5,000 per request."""
    gateway.create_topic(topic, 2)

    def send(first: int) -> None:
        records = [{"key": str(n), "value": {"n": n, "pad": "x" * 60}} for n in range(first, first + 5000)]
        produce(gateway, topic, records)

    with ThreadPoolExecutor(2) as executor:
        list(executor.map(send, range(0, count, 5000)))


@pytest.mark.soak
def test_a_killed_run_is_completed_by_the_next(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    count, segment_records = 15_000, 500
    produce_many(gateway, name, count)
    before = killed_half_way(jobs.url, name, tmp_path, segment_records, count)
    assert 0 < before < count
    report = jobs.done("archive", name, "--to", tmp_path, "--segment-records", segment_records, "--verify")
    assert (report["records"], report["verified_records"]) == (count - before, count)
    for partition in (0, 1):
        assert archived(tmp_path, partition) == logged(gateway.http, name, partition)


@pytest.mark.soak
def test_spark_reads_the_table(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    """With the newest Spark for which there is a Delta package."""
    produce(gateway, name, [{"value": {"id": n}, "timestamp_ms": n} for n in range(5)])
    jobs.done("archive", name, "--to", tmp_path / "table", *TEXTS)
    columns = ("count(*)", "sum(get_json_object(value, '$.id'))", "max(date)")
    assert delta_in_spark.first_row(tmp_path / "table", tmp_path, *columns) == "5 10.0 1970-01-01"
