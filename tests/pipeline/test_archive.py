"""The job `archive`: the archive equals the log, also after a crash, and the log loses only verified segments."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharequeue_pipeline.archiving.checksum import Checksum
from sharequeue_pipeline.archiving.segments import SCHEMA

from tests.http.calls import Gateway, good
from tests.pipeline.archive_run import archived, logged
from tests.pipeline.conftest import Pipeline, wait_for
from tests.pipeline.jobs import Jobs

DAY_MS = 86_400_000


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


def manifest(root: Path, topic: str) -> dict[str, Any]:
    return dict(json.loads((root / "_manifests" / f"{topic}.json").read_text()))


def test_the_archive_equals_the_log_after_every_run(
    jobs: Jobs, pipeline: Pipeline, gateway: Gateway, name: str, tmp_path: Path, seed: int
) -> None:
    many(gateway, name, 3000, 2, seed)
    first = jobs.done("archive", name, "--to", tmp_path, "--segment-records", 400)
    assert first["records"] == 3000
    for partition in (0, 1):
        assert archived(tmp_path, name, partition) == logged(gateway.http, name, partition)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.parquet")}
    assert jobs.done("archive", name, "--to", tmp_path)["records"] == 0
    produce(gateway, name, [{"value": number, "partition": 1} for number in range(50)])
    again = jobs.done("archive", name, "--to", tmp_path, "--verify")
    assert (again["records"], again["verified_records"]) == (50, 3050)
    assert archived(tmp_path, name, 1) == logged(gateway.http, name, 1)
    assert all(file.stat().st_mtime_ns == at for file, at in before.items()), "archived files stay as they are"
    frame = pipeline.spark.read.parquet(str(tmp_path))
    assert frame.count() == 3050
    assert {"topic", "partition", "date"} < set(frame.columns)


def test_leftovers_of_an_unfinished_run_are_removed(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    produce(gateway, name, [{"value": number, "timestamp_ms": 0} for number in range(10)])
    directory = tmp_path / f"topic={name}" / "partition=0" / "date=1970-01-01"
    for left in (directory / f"{3:020d}-{9:020d}.parquet", tmp_path / "_staging" / name / "x" / "part"):
        left.parent.mkdir(parents=True)
        left.write_bytes(b"broken")
    (directory / "of-somebody-else.txt").write_text("stays")
    report = jobs.done("archive", name, "--to", tmp_path)
    assert (report["records"], report["removed_files"]) == (10, 1)
    assert [file.name for file in directory.iterdir() if file.suffix == ".parquet"] == [f"{0:020d}-{9:020d}.parquet"]
    assert (directory / "of-somebody-else.txt").exists()
    assert archived(tmp_path, name, 0) == logged(gateway.http, name, 0)


def test_delete_records_stops_at_the_slowest_group(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    produce(gateway, name, [{"value": number} for number in range(1000)])
    gateway.acquire(f"{name}-a", name, max_records=650)
    gateway.settle(f"{name}-a", name, 0, 649, "accept")
    gateway.acquire(f"{name}-b", name, max_records=900)
    gateway.settle(f"{name}-b", name, 0, 349, "accept")
    words = ("archive", name, "--to", tmp_path, "--segment-records", 100, "--delete-records")
    report = jobs.done(*words)
    assert report["partitions"][0]["deleted_before"] == 300, "whole segments, below the slowest group"
    assert report["verified_records"] == 300
    assert gateway.describe_topic(name)["partitions"][0]["log_start_offset"] == 300
    assert "deleted_before" not in jobs.done(*words)["partitions"][0]
    assert len(archived(tmp_path, name, 0)) == 1000
    gateway.settle(f"{name}-b", name, 350, 899, "accept")
    assert jobs.done(*words)["partitions"][0]["deleted_before"] == 600
    for group in ("a", "b"):
        for batch in gateway.fetch(f"{name}-{group}", name, max_records=1000)["batches"]:
            gateway.settle(f"{name}-{group}", name, batch["first_offset"], batch["last_offset"], "accept")
    assert jobs.done(*words)["partitions"][0]["deleted_before"] == 1000


def test_delete_records_without_groups_deletes_all_archived_records(
    jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path
) -> None:
    produce(gateway, name, [{"value": number} for number in range(10)])
    report = jobs.done("archive", name, "--to", tmp_path, "--delete-records")
    assert report["partitions"][0]["deleted_before"] == 10
    produce(gateway, name, [{"value": 10}])
    assert jobs.done("archive", name, "--to", tmp_path)["records"] == 1
    assert [row[0] for row in archived(tmp_path, name, 0)] == list(range(11))


@pytest.mark.parametrize("plant", ["changed", "gone", "short"])
def test_a_damaged_file_keeps_the_log(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path, plant: str) -> None:
    produce(gateway, name, [{"value": number} for number in range(10)])
    jobs.done("archive", name, "--to", tmp_path)
    (file,) = tmp_path.rglob("*.parquet")
    table = pq.ParquetFile(file).read()
    if plant == "changed":
        values = [value.replace(b"7", b"8") for value in table["value"].to_pylist()]
        pq.write_table(table.set_column(3, SCHEMA.field("value"), [values]), file)
    elif plant == "short":
        pq.write_table(table.slice(0, 9), file)
    else:
        file.unlink()
    for option in ("--delete-records", "--verify"):
        code, line = jobs.refused("archive", name, "--to", tmp_path, option)
        assert (code, str(file.name) in line) == (1, True)
        assert ("cannot be read" if plant == "gone" else "is not what was archived") in line
    assert gateway.describe_topic(name)["partitions"][0]["log_start_offset"] == 0


def test_a_manifest_that_differs_from_the_log_keeps_the_log(
    jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path
) -> None:
    """The files agree with the manifest, but not with the log: they are of another log."""
    produce(gateway, name, [{"value": number, "timestamp_ms": 1} for number in range(5)])
    produce(gateway, f"{name}-2", [{"value": number, "timestamp_ms": 1} for number in (0, 1, 2, 4, 3)])
    for topic in (name, f"{name}-2"):
        jobs.done("archive", topic, "--to", tmp_path)
    ours, theirs = manifest(tmp_path, name), manifest(tmp_path, f"{name}-2")
    (old,), (new,) = (each["partitions"]["0"]["segments"] for each in (ours, theirs))
    old["files"][0]["checksum"] = new["files"][0]["checksum"]
    (tmp_path / new["files"][0]["path"]).rename(tmp_path / old["files"][0]["path"])
    (tmp_path / "_manifests" / f"{name}.json").write_text(json.dumps(ours))
    code, line = jobs.refused("archive", name, "--to", tmp_path, "--delete-records")
    assert (code, "differs from the log" in line) == (1, True), line
    assert gateway.describe_topic(name)["partitions"][0]["log_start_offset"] == 0


def test_offsets_trimmed_before_archiving_are_a_gap(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    produce(gateway, name, [{"value": number} for number in range(10)])
    jobs.done("archive", name, "--to", tmp_path)
    produce(gateway, name, [{"value": number} for number in range(10, 20)])
    gateway.delete_records(name, 13)
    result = jobs.run("archive", name, "--to", tmp_path, "--json")
    assert json.loads(result.stdout)["partitions"][0]["gaps"] == [{"first_offset": 10, "last_offset": 12}]
    assert "offsets 10 to 12 left the log before they were archived" in result.stderr
    assert [row[0] for row in archived(tmp_path, name, 0)] == [*range(10), *range(13, 20)]


def test_faults_are_one_line(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    assert jobs.refused("archive", name, "--to", tmp_path) == (
        1,
        f"sharequeue: there is no topic {name!r} at {jobs.url}",
    )
    produce(gateway, name, [{"value": 1}])
    (tmp_path / "file").touch()
    code, line = jobs.refused("archive", name, "--to", tmp_path / "file")
    assert (code, "cannot be written" in line) == (1, True)
    jobs.done("archive", name, "--to", tmp_path)
    gateway.http.delete(f"/v1/topics/{name}")
    produce(gateway, name, [{"value": 1}])
    code, line = jobs.refused("archive", name, "--to", tmp_path)
    assert (code, "belongs to an earlier topic" in line) == (1, True)
    (tmp_path / "_manifests" / f"{name}.json").write_text("{")
    code, line = jobs.refused("archive", name, "--to", tmp_path)
    assert (code, "cannot be read" in line) == (1, True)


def test_a_second_run_at_once_is_refused(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    from sharequeue_pipeline.archiving.manifest import Archive  # noqa: PLC0415

    produce(gateway, name, [{"value": 1}])
    with Archive(str(tmp_path), name).locked():
        code, line = jobs.refused("archive", name, "--to", tmp_path)
    assert (code, line) == (1, f"sharequeue: another run archives {name} to {tmp_path}")
    assert jobs.done("archive", name, "--to", tmp_path)["records"] == 1


# A crash


def command(url: str, topic: str, root: Path, segment_records: int) -> list[str]:
    words = ["archive", topic, "--to", str(root), "--url", url, "--segment-records", str(segment_records)]
    return [str(Path(sys.executable).with_name("sharequeue")), "pipeline", *words, "--master", "local[1]"]


def killed_half_way(url: str, topic: str, root: Path, segment_records: int, count: int) -> int:
    """Run the job as a process group, and kill it when half is archived. Returns: the number of archived records."""
    words = command(url, topic, root, segment_records)
    process = subprocess.Popen(words, start_new_session=True, stderr=subprocess.PIPE, text=True)

    def done() -> int:
        try:
            partitions = manifest(root, topic)["partitions"].values()
        except FileNotFoundError:
            return 0
        return sum(segment["records"] for partition in partitions for segment in partition.get("segments", ()))

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


@pytest.fixture
def crash(gateway: Gateway, jobs: Jobs, name: str, tmp_path: Path) -> Callable[[int, int], None]:
    """Produce records, kill a run half-way, run again, compare with the log."""

    def run(count: int, segment_records: int) -> None:
        started = time.monotonic()
        produce_many(gateway, name, count)
        produced = time.monotonic()
        before = killed_half_way(jobs.url, name, tmp_path, segment_records, count)
        killed = time.monotonic()
        report = jobs.done("archive", name, "--to", tmp_path, "--segment-records", segment_records, "--verify")
        ended = time.monotonic()
        assert report["records"] == count - before
        assert 0 < before < count
        total = 0
        for partition in (0, 1):
            rows = archived(tmp_path, name, partition)
            assert rows == logged(gateway.http, name, partition)
            total += len(rows)
        assert total == count
        print(
            f"\n{count} records: produced in {produced - started:.1f} s, {before} archived when killed after "
            f"{killed - produced:.1f} s, the other {count - before} archived and all verified in {ended - killed:.1f} s"
        )

    return run


def test_a_killed_run_is_completed_by_the_next(crash: Callable[[int, int], None]) -> None:
    crash(15_000, 500)


@pytest.mark.soak
def test_a_killed_run_over_a_million_records_is_completed_by_the_next(crash: Callable[[int, int], None]) -> None:
    crash(1_000_000, 20_000)


# Checksums

_rows = st.lists(
    st.fixed_dictionaries(
        {
            "timestamp": st.integers(0, 10**12),
            "key": st.none() | st.binary(max_size=3),
            "value": st.none() | st.binary(max_size=3),
            "value_is_json": st.booleans(),
            "headers": st.lists(st.tuples(st.text(max_size=2), st.text(max_size=2)), max_size=2),
        }
    ),
    min_size=1,
    max_size=8,
)


def of(rows: list[dict[str, Any]], *cuts: int) -> str:
    table = pa.Table.from_pylist([{"offset": number, **row} for number, row in enumerate(rows)], schema=SCHEMA)
    edges = [0, *sorted(cuts), len(rows)]
    checksum = Checksum()
    for first, last in pairwise(edges):
        for batch in table.slice(first, last - first).to_batches():
            checksum.add(batch)
    assert checksum.rows == len(rows)
    return checksum.hexdigest()


@given(_rows, st.data())
def test_a_checksum_depends_on_contents_and_not_on_cuts(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    whole = of(rows)
    assert of(rows, *data.draw(st.lists(st.integers(0, len(rows)), max_size=3))) == whole
    changed = [dict(row) for row in rows]
    place = data.draw(st.integers(0, len(rows) - 1))
    field = data.draw(st.sampled_from(sorted(rows[0])))
    changed[place][field] = data.draw(st.sampled_from([row[field] for row in rows]) | st.sampled_from(_others(field)))
    assert (of(changed) == whole) == (changed == rows)
    assert of(rows[:-1]) != whole if len(rows) > 1 else True


def _others(field: str) -> list[Any]:
    return {
        "timestamp": [0, 1],
        "key": [None, b"", b"\0"],
        "value": [None, b"", b"\0"],
        "value_is_json": [True, False],
        "headers": [[], [("", "")], [("a", "b"), ("a", "b")]],
    }[field]


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
    assert archived(tmp_path, name, 0) == logged(gateway.http, name, 0)


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
    assert [row[:1] for row in archived(tmp_path, name, 0)] == [(2,)]
    assert archived(tmp_path, name, 0) == logged(gateway.http, name, 0, 1)
