"""readRecords as Arrow and as stored: the same records as JSON answers; which media type is answered when."""

import base64
import json
import struct
from typing import Any

import lz4.block
import pyarrow as pa
import pytest

from sharequeue.protocol import record_runs
from sharequeue.protocol.apis import ARROW_STREAM, RECORD_RUNS
from tests.http.calls import Gateway, good, problem
from tests.http.test_transactions import begin
from tests.http.test_transactions import end as end_transaction


def read(gateway: Gateway, topic: str, accept: str | None = ARROW_STREAM, **query: Any) -> Any:
    headers = {} if accept is None else {"Accept": accept}
    return gateway.http.get(f"/v1/topics/{topic}/partitions/0/records", params=query, headers=headers)


def table(response: Any) -> pa.Table:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == ARROW_STREAM
    return pa.ipc.open_stream(response.content).read_all()


def produce(gateway: Gateway, topic: str, records: list[dict[str, Any]]) -> None:
    body = '{"records":[' + ",".join(record if isinstance(record, str) else json.dumps(record) for record in records)
    headers = {"Content-Type": "application/json"}
    good(gateway.http.post(f"/v1/topics/{topic}/records", content=body + "]}", headers=headers))


def test_every_kind_of_record_is_in_an_arrow_answer(gateway: Gateway, name: str) -> None:
    raw = base64.b64encode(b"\x00\xff").decode()
    records: list[Any] = [
        {"key": "schlüssel", "value": {"a": [1, None]}, "headers": {"h": "x", "i": ""}, "timestamp_ms": 5},
        {"key_base64": raw, "value_base64": raw, "timestamp_ms": 6},
        {"tombstone": True, "timestamp_ms": 7},
        '{"value": {"kept" : 1.10, "big":12345678901234567890123} , "timestamp_ms":8}',
        {"value": "null", "timestamp_ms": 9},
        {"value_base64": base64.b64encode(b"null").decode(), "timestamp_ms": 10},
        {"value_base64": "", "key": "", "timestamp_ms": 11},
    ]
    produce(gateway, name, records)
    columns = table(read(gateway, name)).to_pydict()
    assert columns["offset"] == list(range(7))
    assert columns["timestamp_ms"] == list(range(5, 12))
    assert columns["key"] == ["schlüssel".encode(), b"\x00\xff", None, None, None, None, b""]
    assert columns["value"] == [
        b'{"a": [1, null]}',
        b"\x00\xff",
        None,
        b'{"kept" : 1.10, "big":12345678901234567890123}',
        b'"null"',
        b"null",
        b"",
    ]
    assert columns["value_is_json"] == [True, False, True, True, True, False, False]
    assert columns["headers"] == [[("h", "x"), ("i", "")], *([[]] * 6)]


def test_problems_are_json_with_arrow_accepted(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    problem(read(gateway, name, offset=1), 422, "OFFSET_OUT_OF_RANGE", 1)
    problem(read(gateway, f"{name}-no"), 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)


@pytest.mark.parametrize(
    ("accept", "answered"),
    [
        (None, "application/json"),
        ("*/*", "application/json"),
        ("text/html", "application/json"),
        ("application/*;q=0.9, text/html", "application/json"),
        ("Application/Vnd.Apache.Arrow.Stream", ARROW_STREAM),
        (f"application/json;q=0.5, {ARROW_STREAM}", ARROW_STREAM),
        (f"{ARROW_STREAM}, application/json;q=0.9", ARROW_STREAM),
        (f"{ARROW_STREAM};q=0.5, application/json", "application/json"),
        (f"application/json, {ARROW_STREAM}, application/problem+json", "application/json"),
        (f"{ARROW_STREAM};q=0.5, application/json;q=0.5", "application/json"),
        (f"{ARROW_STREAM}, */*", ARROW_STREAM),
        (f"{ARROW_STREAM};q=0", "application/json"),
        (f"{RECORD_RUNS}, {ARROW_STREAM};q=0.9", RECORD_RUNS),
        (f"{RECORD_RUNS.upper()};q=0.5, application/json;q=0.4", RECORD_RUNS),
        (f"{RECORD_RUNS};q=0.9, {ARROW_STREAM}", ARROW_STREAM),
        (f"{RECORD_RUNS};q=0.5, application/json;q=0.5", "application/json"),
        (f"application/json, {RECORD_RUNS}", "application/json"),
        (f"{RECORD_RUNS};q=0", "application/json"),
        (f"{ARROW_STREAM};q=x", "application/json"),
    ],
)
def test_the_accept_header_chooses_the_format(gateway: Gateway, accept: str | None, answered: str) -> None:
    produce(gateway, "arrow-accept", [{"value": 1}])
    assert read(gateway, "arrow-accept", accept, max_records=1).headers["content-type"] == answered


def runs(response: Any) -> tuple[list[Any], dict[str, int], int]:
    """The records of an answer as stored, its offsets, and how many runs are packed.

    Each record is read at the places that the answer names.
    """
    assert response.headers["content-type"] == RECORD_RUNS
    body = response.content
    records, packed = [], 0
    for found in record_runs.runs_of(body):
        run, data = found, body
        if isinstance(run, record_runs.PackedRun):
            block = body[run.block_at : run.block_at + run.size]
            packed += 1
            data = lz4.block.decompress(block, uncompressed_size=run.stored_bytes)
            run = record_runs.run_of(run.base_offset, data)
        ends = struct.unpack_from(f"<{run.record_count}I", data, run.ends_at)
        offsets: Any = range(run.base_offset, run.base_offset + run.record_count)
        if run.offsets_at >= 0:
            offsets = struct.unpack_from(f"<{run.record_count}Q", data, run.offsets_at)
        begin = run.records_at
        for offset, end in zip(offsets, ends, strict=True):
            record = json.loads(data[begin : run.records_at + end - run.before - 1])
            assert record["offset"] == offset
            records.append(record)
            begin = run.records_at + end - run.before
        assert begin == run.records_at + run.size + 1
    return records, record_runs.bounds_of(body)._asdict(), packed


def test_packed_runs_end_at_the_last_stable_offset_and_leave_aborted_records_out(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    kinds = {"plain": None, "aborted": "abort", "committed": "commit", "open": "nothing"}
    for kind, how in kinds.items():
        transaction = begin(gateway)["transaction_id"] if how is not None else None
        headers = {} if transaction is None else {"Transaction-Id": transaction}
        records = {"records": [{"value": kind + "x" * 10_000}] * 2}
        good(gateway.http.post(f"/v1/topics/{name}/records", json=records, headers=headers))
        if transaction is not None and how != "nothing":
            good(end_transaction(gateway, transaction, how))
    for level, expected in (
        ("read_committed", ["plain", "plain", "committed", "committed"]),
        ("read_uncommitted", [kind for kind in kinds for _ in range(2)]),
    ):
        records, offsets, packed = runs(read(gateway, name, RECORD_RUNS, isolation_level=level))
        assert [record["value"].rstrip("x") for record in records] == expected
        assert packed == len(expected) // 2
        as_json = good(read(gateway, name, None, isolation_level=level))
        assert records == as_json.pop("records")
        assert offsets == as_json


def test_records_below_the_log_start_are_not_sent_in_a_packed_run(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    for _ in range(2):
        produce(gateway, name, [{"value": "x" * 10_000}] * 3)
    gateway.delete_records(name, 2)
    records, _, packed = runs(read(gateway, name, RECORD_RUNS, offset=2))
    assert ([record["offset"] for record in records], packed) == ([2, 3, 4, 5], 1)
    problem(read(gateway, name, RECORD_RUNS, offset=1), 422, "OFFSET_OUT_OF_RANGE", 1)


def test_an_answer_as_stored_has_the_records_of_the_json_answer(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, cleanup_policy="compact")
    for first in range(0, 60, 20):
        produce(gateway, name, [{"value": first + index, "key": f"k{index}"} for index in range(20)])
    for text in ("x" * 200_000, "y", "z" * 300_000):  # large batches are compressed
        produce(gateway, name, [{"value": text}, {"value": text}])
    listed = good(gateway.http.get(f"/v1/topics/{name}/partitions/0/batches"))["batches"][0]
    remove = [{"first_offset": 3, "last_offset": 8}]
    batch = {"base_offset": 0, "generation": listed["generation"], "remove": remove}
    good(gateway.http.post(f"/v1/topics/{name}/partitions/0/replace-batches", json={"batches": [batch]}))
    for query, wholly in (
        ({}, 2),
        ({"offset": 5, "max_records": 30}, 0),
        ({"offset": 60}, 2),
        ({"offset": 60, "max_records": 2}, 1),
        ({"offset": 60, "max_records": 1}, 0),
        ({"offset": 61}, 1),
        ({"offset": 61, "max_records": 4}, 0),
        ({"offset": 66}, 0),
        ({"offset": 1, "max_records": 4}, 0),
        ({"max_bytes": 200}, 0),
        ({"offset": 60, "max_bytes": 10_000}, 0),
    ):
        as_json = good(read(gateway, name, None, **query))
        records, offsets, packed = runs(read(gateway, name, RECORD_RUNS, **query))
        assert records == as_json.pop("records")
        assert (offsets, packed) == (as_json, wholly)
