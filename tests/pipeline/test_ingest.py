"""The job `ingest`: rows become records, by the columns that options name. A repeated run writes nothing twice."""

import datetime
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.jobs import ingest

from tests.http.calls import Gateway
from tests.pipeline.jobs import Jobs
from tests.pipeline.proxy import Instead, Proxy


def records_of(gateway: Gateway, topic: str, partitions: int = 1) -> list[dict[str, Any]]:
    return [
        {**record, "partition": partition}
        for partition in range(partitions)
        for record in gateway.read(topic, partition, max_records=100_000)["records"]
    ]


@pytest.mark.soak
def test_parquet_columns_become_records(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    at = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    table = pa.table({"id": [1, 2], "who": ["a", None], "part": [1, 0], "at": [at, at], "blob": [b"\xff", b"x"]})
    pq.write_table(table, tmp_path / "rows.parquet")
    words = ("--key", "id", "--partition", "part", "--timestamp", "at", "--header", "from=who", "--create", 2)
    report = jobs.done("ingest", name, tmp_path / "rows.parquet", *words, "--value", "who")
    assert (report["topic"], report["files"], report["records"]) == (name, 1, 2)
    second, first = records_of(gateway, name, 2)
    assert (first["key"], first["value"], first["headers"], first["partition"]) == ("1", "a", {"from": "a"}, 1)
    assert (second["key"], second["value"], second.get("headers"), second["partition"]) == ("2", None, None, 0)
    assert first["timestamp_ms"] == at.timestamp() * 1000
    jobs.done("ingest", name, tmp_path / "rows.parquet", "--value", "blob", "--partition", "part")
    assert [r["value_base64"] for r in records_of(gateway, name, 2) if "value_base64" in r] == ["eA==", "/w=="]
    jobs.done("ingest", name, tmp_path / "rows.parquet")
    whole = next(r["value"] for r in records_of(gateway, name, 2) if isinstance(r.get("value"), dict))
    assert (whole["id"], whole["who"], whole["part"]) == (1, "a", 1)


def test_csv_columns_become_records(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.tsv"
    file.write_text("id\tname\n1\ta b\n2\t\n")
    jobs.done("ingest", name, file, "--create", 1, "--delimiter", "\t", "--key", "name")
    assert [(r["key"], r["value"]) for r in records_of(gateway, name)] == [
        ("a b", {"id": "1", "name": "a b"}),
        (None, {"id": "2", "name": None}),
    ]
    jobs.done("ingest", name, file, "--delimiter", "\t", "--schema", "id INT, name STRING", "--value", "id")
    assert [r["value"] for r in records_of(gateway, name)][2:] == [1, 2]


def test_ndjson_values_stay_byte_for_byte(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    lines = ['{"id" : 12345678901234567890123, "x":1.10,"t":"2026-01-02T00:00:00Z"}', '{"x":null,"id":"k","t":5}']
    with gzip.open(tmp_path / "rows.jsonl.gz", "wt") as file:
        file.write("\n\n".join(lines) + "\n")
    jobs.done("ingest", name, tmp_path / "rows.jsonl.gz", "--create", 1, "--key", "id", "--timestamp", "t")
    text = gateway.http.get(f"/v1/topics/{name}/partitions/0/records").text
    assert all(f'"value":{line}' in text for line in lines)
    found = records_of(gateway, name)
    assert [record["key"] for record in found] == ["12345678901234567890123", "k"]
    assert [record["timestamp_ms"] for record in found] == [1767312000000, 5]
    jobs.done("ingest", name, tmp_path / "rows.jsonl.gz", "--key", "id", "--value", "x")
    assert (
        '"key":"12345678901234567890123","value":1.10'
        in gateway.http.get(f"/v1/topics/{name}/partitions/0/records").text
    )
    assert records_of(gateway, name)[3]["value"] is None, "null is a tombstone"


ALONE = """
import sys
from importlib.metadata import packages_distributions, requires
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

found, wanted = set(), [Requirement("sharequeue[spark]")]
while wanted:
    each = wanted.pop()
    if (canonicalize_name(each.name), *sorted(each.extras)) not in found:
        found.add((canonicalize_name(each.name), *sorted(each.extras)))
        wanted += [
            needed
            for needed in map(Requirement, requires(each.name) or [])
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in each.extras or {""})
        ]
names = {name for name, *_ in found}
for module, owners in packages_distributions().items():
    if not names & set(map(canonicalize_name, owners)) and module != "packaging":
        sys.modules.setdefault(module, None)
from sharequeue.cli import main
main()
"""
"""The command line, in a Python that cannot import what `sharequeue[spark]` does not install."""


@pytest.mark.soak
def test_the_extra_spark_installs_all_that_an_ingest_of_ndjson_needs(
    jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.ndjson").write_text('{"id":1}\n{"id":2}\n')
    words = ["pipeline", "ingest", name, str(tmp_path / "rows.ndjson"), "--create", "1", "--master", "local[1]"]
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *words, "--url", jobs.url],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [record["value"] for record in records_of(gateway, name)] == [{"id": 1}, {"id": 2}]


def test_a_repeated_run_writes_nothing_twice(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    """The first run fails half-way. The second has another number of task slots. The third writes nothing."""
    gateway.create_topic(name, 2)
    for number in range(3):
        lines = (json.dumps({"id": f"{number}-{row}", "pad": "x" * 1500}) for row in range(2000))
        (tmp_path / f"{number}.ndjson").write_text("\n".join(lines))
    passed: list[str] = []

    def rule(method: str, path: str, headers: dict[str, str]) -> Instead | None:
        if method == "POST" and "idempotency-key" in headers:
            passed.append(headers["idempotency-key"])
            if len(passed) > 2:
                return Instead(401, {}, b"no more")
        return None

    with Proxy(jobs.url).running() as proxy:
        proxy.rule = rule
        code, line = Jobs(jobs.spark, proxy.url).refused("ingest", name, tmp_path, "--format", "ndjson", "--key", "id")
        assert (code, "LOGIN_WANTED: " in line and "with 401 (no content type): 'no more'" in line) == (1, True)
    written = sum(gateway.log_ends(name))
    assert 0 < written < 6000
    other_slots = {"spark.sql.leafNodeDefaultParallelism": 7, "spark.sql.files.openCostInBytes": 1}
    for setting, value in other_slots.items():
        jobs.spark.conf.set(setting, value)
    try:
        for known in (written, 6000):
            report = jobs.done("ingest", name, tmp_path, "--format", "ndjson", "--key", "id")
            assert (report["records"], report["new"], report["known"]) == (6000, 6000 - known, known)
            assert sum(gateway.log_ends(name)) == 6000
    finally:
        for setting in other_slots:
            jobs.spark.conf.unset(setting)
    keys = [record["key"] for record in records_of(gateway, name, 2)]
    assert sorted(keys) == sorted({f"{number}-{row}" for number in range(3) for row in range(2000)})
    jobs.done("ingest", name, tmp_path, "--format", "ndjson", "--key", "id", "--write-id", "again")
    assert sum(gateway.log_ends(name)) == 12_000


def test_a_text_of_csv_stands_for_null(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    """Without it, a column of numbers with NA is text."""
    (tmp_path / "rows.csv").write_text("id,delay\n1,63\n2,NA\n")
    words = ("ingest", name, tmp_path / "rows.csv", "--infer-schema", "--create", 1)
    result = jobs.run(*words, "--null-value", "NA")
    assert "2 records of 1 files: 2 new, 0 known" in result.stdout
    assert [r["value"] for r in records_of(gateway, name)] == [{"id": 1, "delay": 63}, {"id": 2, "delay": None}]
    assert jobs.done(*words)["new"] == 2, "another reading of the file is another write"
    assert records_of(gateway, name)[2]["value"] == {"id": 1, "delay": "63"}


def test_rows_of_a_file_keep_their_order(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("n\n" + "\n".join(str(row * 7919 % 5003) for row in range(5003)))
    jobs.done("ingest", name, tmp_path / "rows.csv", "--create", 1, "--value", "n")
    assert [r["value"] for r in records_of(gateway, name)] == [str(row * 7919 % 5003) for row in range(5003)]


def test_faults_are_one_line(jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("a,b\n1,2\n")
    assert jobs.refused("ingest", name, file) == (1, f"sharequeue: there is no topic {name!r} at {jobs.url}")
    gateway.create_topic(name)
    assert jobs.refused("ingest", name, file, "--key", "c") == (
        1,
        "sharequeue: there is no column 'c': the columns are a, b",
    )
    assert jobs.refused("ingest", name, tmp_path / "what") == (
        1,
        "sharequeue: the file names do not give one format: add --format parquet | csv | ndjson",
    )
    code, line = jobs.refused("ingest", name, tmp_path / "no.parquet")
    assert (code, "Path does not exist" in line, len(line) < 300) == (1, True, True)
    (tmp_path / "bad.ndjson").write_text('{"a":1}\n{"a":\n')
    code, line = jobs.refused("ingest", name, tmp_path / "bad.ndjson")
    assert (code, line.startswith("sharequeue: '{\"a\":' is not a JSON object")) == (1, True), line
    (tmp_path / "less.ndjson").write_text('{"a":1}\n')
    assert jobs.refused("ingest", name, tmp_path / "less.ndjson", "--key", "b") == (
        1,
        "sharequeue: '{\"a\":1}' has no field 'b'",
    )
    jobs.url = "http://127.0.0.1:9"
    code, line = jobs.refused("ingest", name, file, "--timeout", 1)
    assert (code, "cannot reach http://127.0.0.1:9" in line) == (3, True)


@pytest.mark.parametrize(
    ("files", "kind"),
    [(["a.csv", "B.CSV.gz"], "csv"), (["x/y.jsonl"], "ndjson"), (["*.parquet"], "parquet"), (["a.tsv.bz2"], "csv")],
)
def test_file_names_give_the_format(files: list[str], kind: str) -> None:
    assert ingest.format_of(files) == kind


@pytest.mark.parametrize("files", [["a"], ["a.csv", "b.parquet"], ["gz"], ["data/"]])
def test_file_names_without_one_format_are_refused(files: list[str]) -> None:
    with pytest.raises(PipelineError, match="add --format"):
        ingest.format_of(files)
