"""`compact --to`: a Delta table of the last record of each key, which others read, with every change once."""

import base64
import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.jobs.latest_table import LatestTable
from sharequeue_pipeline.jobs.operator_client import OperatorClient
from sharequeue_pipeline.options import source_options

from tests.http.calls import Gateway, good
from tests.pipeline import delta_in_duckdb, delta_in_spark, schemas
from tests.pipeline.jobs import Jobs
from tests.pipeline.test_compact import HOUR_MS, left, produce

State = dict[tuple[int, str | None], tuple[int, str | None]]


def table_state(root: Path) -> State:
    """(offset, value) by partition and key; records without a key by their offset."""
    found: State = {}
    for row in DeltaTable(root).to_pyarrow_table().to_pylist():
        key = f"offset {row['offset']}" if row["key"] is None else row["key"].decode()
        assert (row["partition"], key) not in found
        found[row["partition"], key] = (row["offset"], None if row["value"] is None else row["value"].decode())
    return found


class Model:
    """What a table must hold: records in their order, and the last one of each key."""

    def __init__(self, gateway: Gateway, name: str) -> None:
        self._gateway, self._name = gateway, name
        self._offset = 0
        self.state: State = {}

    def produce(self, *records: tuple[str | None, Any] | tuple[str | None, Any, int]) -> None:
        produce(self._gateway, self._name, *records)
        for key, value, *_ in records:
            named = f"offset {self._offset}" if key is None else key
            if value is None and key is not None:
                self.state.pop((0, named), None)
            else:
                self.state[0, named] = (
                    self._offset,
                    None if value is None else json.dumps(value, separators=(",", ":")),
                )
            self._offset += 1


@pytest.mark.soak
def test_a_table_has_the_last_record_of_each_key_after_every_run(
    jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path, seed: int
) -> None:
    """Before the log is compacted, so it knows of tombstones that this run removes."""
    chance = random.Random(seed)
    gateway.create_topic(name, cleanup_policy="compact", delete_retention_ms=0)
    model = Model(gateway, name)
    model.produce(("a", 1), ("b", 1), (None, "no key"), ("a", 2), ("gone", None))
    report = jobs.done("compact", name, "--to", tmp_path)
    assert (report["table"]["records"], report["table"]["malformed_values"]) == (5, 0)
    assert table_state(tmp_path) == model.state
    for _ in range(2):
        records: list[Any] = [
            (chance.choice(["a", "b", "c", "d", None]), chance.choice([None, 1, 2]), HOUR_MS) for _ in range(30)
        ]
        model.produce(*(each if each[0] is not None else (None, 3) for each in records))
        jobs.done("compact", name, "--to", tmp_path)
        assert table_state(tmp_path) == model.state
    model.produce(("b", None, HOUR_MS), ("d", 7))
    model.produce(("end", 1))
    done = jobs.done("compact", name, "--to", tmp_path)
    assert done["partitions"][0]["tombstones"] >= 1
    assert table_state(tmp_path) == model.state
    assert len(left(gateway, name)) < 68
    version = DeltaTable(tmp_path).version()
    assert jobs.done("compact", name, "--to", tmp_path)["table"] == {
        "records": 0,
        "malformed_values": 0,
        "table_version": version,
    }
    table = DeltaTable(tmp_path)
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    model.produce(("a", None), ("new", 1))
    jobs.done("compact", name, "--to", tmp_path)
    assert table_state(tmp_path) == model.state


def latest(jobs: Jobs, name: str, root: Path) -> LatestTable:
    options = source_options({"topics": name, "url": jobs.url})
    described = OperatorClient(options.gateway).describe(name)
    return LatestTable(jobs.spark, options, str(root), described)


def test_a_run_that_ends_between_two_merges_is_continued(
    jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path
) -> None:
    """Each segment is in the table with its offsets, or neither is. Segments without a change count too."""
    gateway.create_topic(name, cleanup_policy="compact")
    model = Model(gateway, name)
    model.produce(("a", 1), ("b", 1), ("c", None), ("d", None), ("a", 2), ("b", None), (None, 5), ("c", 3), ("a", None))
    merges = latest(jobs, name, tmp_path).merges(2)
    assert [next(merges).next_offset for _ in range(3)] == [2, 4, 6]
    merges.close()  # type: ignore[attr-defined]  # a generator: the run ends here
    assert table_state(tmp_path) == {(0, "a"): (4, "2")}
    assert latest(jobs, name, tmp_path).run(2)["records"] == 3
    assert table_state(tmp_path) == model.state == {(0, "offset 6"): (6, "5"), (0, "c"): (7, "3")}


def test_of_two_runs_at_once_one_commits(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    gateway.create_topic(name, cleanup_policy="compact")
    Model(gateway, name).produce(("a", 1), ("b", 1))
    first, second = latest(jobs, name, tmp_path), latest(jobs, name, tmp_path)
    first.run(10)
    with pytest.raises(PipelineError, match=f"another run writes {name} to {tmp_path}"):
        second.run(10)
    assert table_state(tmp_path) == {(0, "a"): (0, "1"), (0, "b"): (1, "1")}


def test_pandas_and_duckdb_read_typed_columns(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    """A malformed value is null, and deletes nothing."""
    gateway.create_topic(name, cleanup_policy="compact")
    schemas.write(tmp_path / "schemas")

    def avro(key: str, total: str) -> dict[str, Any]:
        value = schemas.avro(1, schemas.FIRST, {"id": 1, "total": Decimal(total), "gone": ""})
        return {"key": key, "value_base64": base64.b64encode(value).decode()}

    records = [
        avro("a", "2"),
        avro("b", "1.5"),
        avro("c", "3"),
        avro("a", "9.25"),
        {"key": "b", "value": None},
        {"key": "c", "value": 5},
    ]
    good(gateway.http.post(f"/v1/topics/{name}/records", json={"records": records}))
    typed = ("--key-format", "string", "--value-format", "avro", "--value-schema", "1")
    words = ("compact", name, "--to", tmp_path / "table", *typed, "--schema-registry", tmp_path / "schemas")
    assert jobs.done(*words)["table"]["malformed_values"] == 1
    frame = DeltaTable(tmp_path / "table").to_pandas().set_index("key").sort_index()
    assert list(frame.index) == ["a", "c"]
    assert frame.loc["a", "value"] == {"id": 1, "total": Decimal("9.25"), "gone": ""}
    assert frame.loc["c", "value"] is None
    select = "count(*), sum(value.total), count(DISTINCT key)"
    assert delta_in_duckdb.query(tmp_path / "table", select) == "[(2, Decimal('9.25'), 2)]"


LATEST = ("count(*)", "sum(offset)", "sum(CAST(value AS INT))", "min(key)", "max(key)")


def changed_twice(jobs: Jobs, gateway: Gateway, name: str, table: Path) -> str:
    """Make a table and merge changes into it. Returns: the row of LATEST that a reader must find."""
    words = ("--to", table, "--key-format", "string", "--value-format", "string")
    gateway.create_topic(name, cleanup_policy="compact")
    for change in (1, 2):
        records: list[Any] = [(f"k{n}", change + n) for n in range(4 * change - 4, 40, change)]
        produce(gateway, name, *records, (f"k{change}", None), ("k39", 5))
        jobs.done("compact", name, *words)
    rows = DeltaTable(table).to_pyarrow_table(columns=["key", "offset", "value"]).to_pylist()
    assert {row["key"] for row in rows} == {f"k{n}" for n in range(40) if n not in (1, 2)}
    assert len(DeltaTable(table).history()) > 2
    total = sum(int(row["value"]) for row in rows)
    return f"{len(rows)} {sum(row['offset'] for row in rows)} {total} k0 k9"


def test_spark_reads_the_files_of_the_table(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    """The Parquet files that delta-rs names: the Spark of this environment has no Delta package yet."""
    expected = changed_twice(jobs, gateway, name, tmp_path)
    frame = jobs.spark.read.option("basePath", str(tmp_path)).parquet(*DeltaTable(tmp_path).file_uris())
    assert frame.columns == ["offset", "timestamp", "key", "value", "headers", "partition"]
    assert " ".join(map(str, frame.selectExpr(*LATEST).collect()[0])) == expected


@pytest.mark.soak
def test_spark_reads_the_table(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    """With the newest Spark for which there is a Delta package."""
    expected = changed_twice(jobs, gateway, name, tmp_path / "table")
    assert delta_in_spark.first_row(tmp_path / "table", tmp_path, *LATEST) == expected


def test_faults_are_one_line(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    gateway.create_topic(name, cleanup_policy="compact")
    produce(gateway, name, ("a", 1))
    assert jobs.done("archive", name, "--to", tmp_path / "archive")["records"] == 1
    code, line = jobs.refused("compact", name, "--to", tmp_path / "archive")
    assert (code, "is not a table of the latest records of the topic" in line) == (1, True), line
    usage = jobs.run("compact", name, "--key-format", "string")
    assert (usage.exit_code, "need --to" in usage.output) == (2, True)
    usage = jobs.run("compact", name, "--to", tmp_path / "x", "--dry-run")
    assert (usage.exit_code, "leave out --dry-run" in usage.output) == (2, True)
