"""The job `audit` on its own stack: it names each difference that a test plants in the database, and no other."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession
from sharequeue_share_coordinator.share_state.row_format import decode_row

from sharequeue.cli import main
from sharequeue.stack.stack import temporary_stack
from tests.http.calls import Gateway, good, wait_until
from tests.http.database import sql

PLANTED = {"first_offset": 55, "last_offset": 70, "delivery_state": 0, "delivery_count": 1}


class Audited(NamedTuple):
    """A stack, its database and its cluster token."""

    gateway: Gateway
    url: str
    database: str
    token: str

    def sql(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        return sql(self.database, statement, *arguments)

    def run(self, *arguments: str, code: int, url: str | None = None) -> Result:
        options = ["--url", url or self.url, "--cluster-token", self.token]
        result = CliRunner().invoke(main, ["pipeline", "audit", *options, *arguments])
        assert result.exit_code == code, (result.output, result.exception)
        return result

    def differences(self, code: int) -> list[tuple[str, str]]:
        """(kind, detail) of all differences."""
        report = json.loads(self.run("--json", code=code).stdout)
        assert report["checked"]["share_partitions"] >= 2
        assert report["checked"]["restless"] == 0
        return [(entry["kind"], entry["detail"]) for entry in report["differences"]]


@pytest.fixture(scope="module")
def audited(
    tmp_path_factory: pytest.TempPathFactory,
    new_database: Callable[[], str],
    new_redis: Callable[[], str],
    spark: SparkSession,
) -> Iterator[Audited]:
    data_dir: Path = tmp_path_factory.mktemp("audited")
    database = new_database()
    with (
        temporary_stack(data_dir, postgres_url=database, redis_url=new_redis()) as stack,
        httpx.Client(base_url=stack.url, timeout=40) as http,
    ):
        (token,) = data_dir.rglob("cluster.token")
        audited = Audited(Gateway(http), stack.url, database, token.read_text().strip())
        traffic(audited.gateway)
        yield audited


def traffic(gateway: Gateway) -> None:
    """Two groups in the middle of a topic of two partitions; partition 0 is trimmed."""
    gateway.create_topic("orders", 2)
    for size in (10, 20, 30):
        gateway.produce_batches("orders", size)
    gateway.produce_batches("orders", 5, partition=1)
    assert gateway.acquire("g", "orders", topics=None, topic_partitions=[{"topic": "orders", "partitions": [0]}])
    assert gateway.settle("g", "orders", 0, 4, "accept") == "applied"
    assert gateway.settle("g", "orders", 10, 12, "accept") == "applied"
    assert gateway.settle("g", "orders", 20, 22, "release") == "applied"
    gateway.fetch("h", "orders")
    assert gateway.settle("h", "orders", 0, 29, "accept") == "applied"
    gateway.delete_records("orders", 3)


def test_the_services_own_writes_make_no_difference(audited: Audited) -> None:
    assert audited.differences(0) == []
    summary = audited.run("--no-records", code=0).stderr
    assert "0 differences in 3 share-partitions" in summary
    assert "(0 records read)" in summary
    report = json.loads(audited.run("--json", code=0).stdout)["checked"]
    assert report["records"] == 62
    assert report["batches"] == 4


def changed_row(audited: Audited, group: str, **fields: Any) -> tuple[int, bytes]:
    """Change the newest row of a group's state of partition 0. Returns: its number and its earlier content."""
    ((seq, record),) = audited.sql(
        """SELECT seq, record FROM share_state.share_records JOIN share_state.share_partitions USING (key_id)
           WHERE group_id = $1 AND partition = 0 ORDER BY seq DESC LIMIT 1""",
        group,
    )
    row = msgspec.to_builtins(decode_row(record))
    planted = msgspec.msgpack.encode({**row, **fields})  # as earlier releases wrote it
    audited.sql("UPDATE share_state.share_records SET record = $2 WHERE seq = $1", seq, planted)
    return seq, record


def put_back(audited: Audited, seq: int, record: bytes) -> None:
    audited.sql("UPDATE share_state.share_records SET record = $2 WHERE seq = $1", seq, record)


def test_a_planted_difference_in_state_is_named(audited: Audited) -> None:
    was = changed_row(audited, "g", start_offset=7)
    try:
        found = audited.differences(4)
        assert ("state answer", "start_offset: the rows come to 7, the share coordinator answers 5") in found
        assert {kind for kind, _ in found} <= {"state answer", "state batches"}
        table = audited.run("--no-records", code=4).stdout
        assert "g:orders:0" in table
        assert "start_offset: the rows come to 7" in table
    finally:
        put_back(audited, *was)
    assert audited.differences(0) == []


def test_a_planted_state_behind_the_log_end_is_named(audited: Audited) -> None:
    was = changed_row(audited, "h", state_batches=[PLANTED])
    try:
        found = audited.differences(4)
        assert ("state and log", "the state batch 55-70 reaches behind the log end 60") in found
    finally:
        put_back(audited, *was)
    seq, record = changed_row(audited, "h")
    audited.sql("UPDATE share_state.share_records SET record = 'x' WHERE seq = $1", seq)
    try:
        assert any(kind == "state rows" and "cannot be read" in detail for kind, detail in audited.differences(4))
    finally:
        put_back(audited, seq, record)


def test_a_planted_difference_in_the_log_is_named(audited: Audited) -> None:
    where = "base_offset = 10 AND last_offset = 29"
    audited.sql(f"UPDATE log.record_batches SET record_count = 19 WHERE {where}")
    try:
        assert audited.differences(4) == [
            ("log", "the batch 10-29 has the record count 19, but 20 records can be read")
        ]
    finally:
        audited.sql(f"UPDATE log.record_batches SET record_count = 20 WHERE {where}")
    audited.sql(f"CREATE TABLE log.taken AS SELECT * FROM log.record_batches WHERE {where}")
    audited.sql(f"DELETE FROM log.record_batches WHERE {where}")
    try:
        assert ("log", "the log has no batch with the offsets 10 to 29") in audited.differences(4)
    finally:
        audited.sql("INSERT INTO log.record_batches SELECT * FROM log.taken")
        audited.sql("DROP TABLE log.taken")
    assert audited.differences(0) == []


def test_live_traffic_makes_no_difference(audited: Audited) -> None:
    """Two groups write to four share-partitions during the whole audit."""
    over = threading.Event()

    def work(group: str) -> int:
        settled = 0
        with httpx.Client(base_url=audited.url, timeout=40) as http:
            gateway = Gateway(http)
            while not over.is_set():
                gateway.produce("busy", *range(20), partition=settled % 2)
                for batch in gateway.fetch(group, "busy", max_records=15)["batches"]:
                    kind = "release" if settled % 5 == 0 else "accept"
                    first, last = batch["first_offset"], batch["last_offset"]
                    assert gateway.settle(group, "busy", first, last, kind, partition=batch["partition"]) == "applied"
                    settled += 1
        return settled

    audited.gateway.create_topic("busy", 2)
    with ThreadPoolExecutor(2) as executor:
        working = [executor.submit(work, group) for group in ("busy-a", "busy-b")]
        try:
            wait_until(lambda: audited.gateway.log_ends("busy")[0] > 100)
            report = json.loads(audited.run("--json", code=0).stdout)
        finally:
            over.set()
        assert min(future.result() for future in working) > 5
    assert report["differences"] == []
    assert report["checked"]["records"] > 100


def test_compaction_and_redriving_make_no_difference(audited: Audited) -> None:
    """There are offsets without records, acknowledged or archived in memory, and batches for one group only."""
    gateway = audited.gateway
    gateway.create_topic("compacted", cleanup_policy="compact")
    gateway.produce_batches("compacted", 10, 10, 10)
    assert gateway.acquire("c", "compacted", max_records=5) == ["0-4×1"]
    path = "/v1/topics/compacted/partitions/0"
    listed = good(gateway.http.get(f"{path}/batches"))["batches"]
    remove = [[{"first_offset": 0, "last_offset": 9}], [{"first_offset": 12, "last_offset": 15}]]
    batches = [
        {"base_offset": batch["base_offset"], "generation": batch["generation"], "remove": ranges}
        for batch, ranges in zip(listed, remove, strict=False)
    ]
    good(gateway.http.post(f"{path}/replace-batches", json={"batches": batches}))
    assert audited.differences(0) == []
    assert gateway.settle("c", "compacted", 0, 4, "accept") == "applied"
    wait_until(lambda: gateway.acquire("c", "compacted", max_records=100))
    assert gateway.settle("c", "compacted", 16, 19, "accept") == "applied"
    assert gateway.settle("c", "compacted", 20, 29, "reject") == "applied"
    wait_until(lambda: gateway.http.get("/v1/topics/dlq.c").status_code == 200 and gateway.log_ends("dlq.c") == [10])
    assert good(gateway.http.post("/v1/share-groups/c/dead-letters/redrive", json={}))["redriven"] == 10
    assert gateway.acquire("d", "compacted", max_records=3)
    assert audited.differences(0) == []


def test_faults_are_one_line(audited: Audited) -> None:
    refused = audited._replace(token="wrong").run(code=1).stderr
    assert refused.startswith(f"sharequeue: the gateway at {audited.url} refuses the token")
    assert refused.count("\n") == 1
    away = audited.run("--timeout", "1", code=3, url="http://127.0.0.1:9").stderr
    assert "cannot reach http://127.0.0.1:9" in away
    assert away.count("\n") == 1
