"""Produce of an Arrow stream, as a client sees it: the records, their places, repeats, transactions and refusals."""

import time
from typing import Any

import pyarrow as pa
import pytest

from sharequeue.protocol.apis import ARROW_STREAM
from tests.http.calls import Gateway, good, problem

HEADERS = pa.map_(pa.string(), pa.string())


def body(compression: str | None = None, **columns: Any) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch(
        {name: each if isinstance(each, pa.Array) else pa.array(each) for name, each in columns.items()}
    )
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def produce(gateway: Gateway, topic: str, content: bytes, **headers: str) -> Any:
    all_headers = {"Content-Type": ARROW_STREAM, **{name.replace("_", "-"): text for name, text in headers.items()}}
    return gateway.http.post(f"/v1/topics/{topic}/records/arrow", content=content, headers=all_headers)


def values(gateway: Gateway, topic: str, partition: int = 0) -> list[Any]:
    return [record["value"] for record in gateway.read(topic, partition)["records"]]


def test_every_kind_of_record_is_stored_as_in_json(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    mixed = body(
        key=["schlüssel", None, ""],
        value=pa.array([b' {"kept" : 1.10} ', b"null", b"\x00\xff"], pa.binary()),
        value_is_json=[True, True, False],
        headers=pa.array([[("h", "x")], None, []], HEADERS),
        timestamp_ms=[5, 6, 7],
    )
    assert good(produce(gateway, name, mixed)) == {"batches": [{"partition": 0, "first_offset": 0, "last_offset": 2}]}
    keys = body(key=pa.array([b"\x00\xff", None], pa.binary()), value=["tab\t", None], timestamp_ms=[8, 9])
    good(produce(gateway, name, keys))
    assert gateway.read(name)["records"] == [
        {"offset": 0, "timestamp_ms": 5, "key": "schlüssel", "value": {"kept": 1.10}, "headers": {"h": "x"}},
        {"offset": 1, "timestamp_ms": 6, "key": None, "value": None},
        {"offset": 2, "timestamp_ms": 7, "key": "", "value_base64": "AP8="},
        {"offset": 3, "timestamp_ms": 8, "key_base64": "AP8=", "value": "tab\t"},
        {"offset": 4, "timestamp_ms": 9, "key": None, "value": None},
    ]


def test_a_repeat_with_a_key_is_stored_once(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, 2)
    content = body(key=["a", "b", "c", "d"], value=["1", "2", "3", "4"])
    first = produce(gateway, name, content, Idempotency_Key="k")
    assert good(produce(gateway, name, content, Idempotency_Key="k")) == good(first)
    assert sum(gateway.log_ends(name)) == 4
    other = produce(gateway, name, body(value=["other"]), Idempotency_Key="k")
    assert problem(other, 422, "INVALID_REQUEST", 42)["first_batches"] == good(first)["batches"]
    retention = {"Idempotency_Retention_Ms": "60000"}
    problem(produce(gateway, name, content, **retention), 422, "INVALID_REQUEST", 42)
    problem(produce(gateway, name, content, Idempotency_Key="x" * 129), 422, "INVALID_REQUEST", 42)
    assert sum(gateway.log_ends(name)) == 4


@pytest.mark.parametrize("content", [b"", b'{"records":[{"value":1}]}', body("zstd", value=["a"])])
def test_bytes_that_are_no_stream_change_nothing(gateway: Gateway, name: str, content: bytes) -> None:
    refused = problem(produce(gateway, name, content), 400, "INVALID_REQUEST", 42)
    assert refused["definite"]
    problem(gateway.http.get(f"/v1/topics/{name}"), 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)


def test_a_refused_record_refuses_all(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, max_message_bytes=1000)
    large = problem(produce(gateway, name, body(value=["a", "x" * 1001])), 413, "MESSAGE_TOO_LARGE", 10)
    assert large["errors"][0]["pointer"] == "/records/1"
    ahead = body(value=["a", "b"], timestamp_ms=[1, int(time.time() * 1000) + 7_200_000])
    late = problem(produce(gateway, name, ahead), 422, "INVALID_REQUEST", 42)
    assert late["errors"][0]["pointer"] == "/records/1/timestamp_ms"
    away = body(value=["a"], partition=[1])
    problem(produce(gateway, name, away), 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)
    deep = body(value=["[" * 65 + "]" * 65], value_is_json=[True])
    problem(produce(gateway, name, deep), 422, "INVALID_REQUEST", 42)
    problem(produce(gateway, "no topic", body(value=["a"])), 422, "INVALID_TOPIC_EXCEPTION", 17)
    assert gateway.log_ends(name) == [0]


def test_a_compressed_stream_may_become_as_large_as_a_request(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, max_message_bytes=50 * 1024 * 1024)
    most = 10 * 1024 * 1024
    large = body("lz4", value=["x" * most])
    assert len(large) < most / 200
    refused = problem(produce(gateway, name, large), 413, "MESSAGE_TOO_LARGE", 10)
    assert "(max_request_bytes)" in refused["detail"]
    assert refused["definite"]
    assert gateway.log_ends(name) == [0]
    good(produce(gateway, name, body("lz4", value=["x" * (most - 1000)])))
    assert gateway.log_ends(name) == [1]
