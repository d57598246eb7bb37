"""Values that nest deeply: refused when they are produced, and carried by everything once they are in the log."""

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from sharequeue.client import ValueUndecodable, sync
from sharequeue.protocol.apis import ARROW_STREAM
from sharequeue.protocol.messages.records import RecordPage
from sharequeue.stack.stack import Stack
from sharequeue_http.forms import nesting
from tests.http.calls import Gateway, good, problem, wait_until, when_loaded
from tests.http.database import append_behind

MOST = 64


@pytest.fixture(scope="module")
def stack(shared_stack: Stack) -> Stack:
    """The shared stack: no test here stops a service."""
    return shared_stack


def nested(depth: int) -> bytes:
    return b'{"a":[' * (depth // 2) + b"[]" * (depth % 2) + b"]}" * (depth // 2)


TOO_DEEP = nested(100_000)
"""Deeper than any recursive decoder accepts, at any recursion limit of Python."""


def try_produce(gateway: Gateway, topic: str, *records: bytes) -> Any:
    body = b'{"records":[' + b",".join(records) + b"]}"
    return gateway.http.post(f"/v1/topics/{topic}/records", content=body, headers={"Content-Type": "application/json"})


def value(text: bytes) -> bytes:
    return b'{"value":%b}' % text


def test_a_value_nested_too_deeply_is_refused_by_its_place(gateway: Gateway, name: str) -> None:
    fine = [value(nested(depth)) for depth in (1, MOST - 1, MOST)]
    good(try_produce(gateway, name, *fine))
    refused = problem(try_produce(gateway, name, *fine, value(nested(MOST + 1))), 422, "INVALID_REQUEST", 42)
    assert refused["errors"] == [
        {"pointer": "/records/3/value", "detail": f"nested deeper than {MOST} levels (max_value_depth)"}
    ]
    assert (refused["limit"], refused["definite"], refused["retriable"]) == (MOST, True, False)
    assert "record 3" in refused["detail"]
    assert gateway.log_ends(name) == [len(fine)]


def deep_topic(gateway: Gateway, database_url: str, name: str) -> None:
    """A topic whose records are 1, one that is too deep, with a key, and 2."""
    topic_id = gateway.create_topic(name)["topic_id"]
    append_behind(database_url, topic_id, 0, b"1")
    append_behind(database_url, topic_id, 1, TOO_DEEP, key=b'"k"')
    append_behind(database_url, topic_id, 2, b"2")
    wait_until(lambda: gateway.log_ends(name) == [3])


def read(gateway: Gateway, topic: str) -> Any:
    """The answer of readRecords, by a decoder without a limit of depth."""
    answer = gateway.http.get(f"/v1/topics/{topic}/partitions/0/records")
    assert answer.status_code == 200
    return nesting.decode(msgspec.json.Decoder(RecordPage), answer.content).records


def test_dead_letters_and_redriving_carry_a_deep_value(gateway: Gateway, name: str, shared_database: str) -> None:
    deep_topic(gateway, shared_database, name)
    answer = when_loaded(
        lambda: gateway.http.post(f"/v1/share-groups/{name}/fetch", json={"topics": [name], "member_id": "m1"})
    )
    assert TOO_DEEP in answer.content
    assert gateway.settle(name, name, 0, 2, "reject") == "applied"
    wait_until(lambda: gateway.offsets(name)[name, 0] == (3, 0))
    letters = read(gateway, f"dlq.{name}")
    assert [(letter.key, bytes(letter.value)) for letter in letters] == [(None, b"1"), ("k", TOO_DEEP), (None, b"2")]
    assert gateway.http.get("/readyz").json()["dependencies"].get("dead letters") is None
    redriven = good(gateway.http.post(f"/v1/share-groups/{name}/dead-letters/redrive", json={}))
    assert redriven["redriven"] == 3
    assert [bytes(record.value) for record in read(gateway, name)[3:]] == [b"1", TOO_DEEP, b"2"]


def test_arrow_answers_carry_a_deep_value(gateway: Gateway, name: str, shared_database: str) -> None:
    deep_topic(gateway, shared_database, name)
    answer = gateway.http.get(f"/v1/topics/{name}/partitions/0/records", headers={"Accept": ARROW_STREAM})
    assert answer.status_code == 200
    assert pa.ipc.open_stream(answer.content).read_all()["value"].to_pylist() == [b"1", TOO_DEEP, b"2"]


@pytest.mark.parametrize("number", ["1e400", "9" * 5000])
def test_a_number_that_python_has_not_costs_its_own_record_alone(
    gateway: Gateway, stack: Stack, name: str, number: str
) -> None:
    body = b'{"records":[{"value":1},{"value":%b},{"value":2}]}' % number.encode()
    headers = {"Content-Type": "application/json"}
    assert gateway.http.post(f"/v1/topics/{name}/records", content=body, headers=headers).status_code == 200
    with sync.ShareConsumer(stack.url, name, [name], acknowledgement="explicit") as consumer:
        first, strange, last = consumer.poll()
        assert (first.value, strange.json, last.value) == (1, number.encode(), 2)
        with pytest.raises(ValueUndecodable, match=f"the value of {name}-0 offset 1 cannot be decoded: "):
            strange.value  # noqa: B018 - reading it is what fails
        for record, word in ((first, "accept"), (strange, "reject"), (last, "accept")):
            consumer.acknowledge(record, word)
        assert consumer.commit() == {(name, 0): 3}
    wait_until(lambda: gateway.offsets(name)[name, 0] == (3, 0))
