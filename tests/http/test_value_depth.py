"""Values that nest deeply: refused when they are produced, or carried by everything."""

import json
from typing import Any

import pyarrow as pa
import pytest

from sharequeue.client import ValueUndecodable, sync
from sharequeue.protocol.apis import ARROW_STREAM
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, good, problem, wait_until, when_loaded

MOST = 500
"""The most that a service may allow."""


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return {"SHAREQUEUE_GATEWAY_MAX_VALUE_DEPTH": str(MOST)}


def nested(depth: int) -> bytes:
    return b'{"a":[' * (depth // 2) + b"[]" * (depth % 2) + b"]}" * (depth // 2)


def try_produce(gateway: Gateway, topic: str, *records: bytes) -> Any:
    body = b'{"records":[' + b",".join(records) + b"]}"
    return gateway.http.post(f"/v1/topics/{topic}/records", content=body, headers={"Content-Type": "application/json"})


def value(text: bytes) -> bytes:
    return b'{"value":%b}' % text


def test_a_value_nested_too_deeply_is_refused_by_its_place(own_gateway: Gateway, name: str) -> None:
    fine = [value(nested(depth)) for depth in (1, MOST - 1, MOST)]
    good(try_produce(own_gateway, name, *fine))
    refused = problem(try_produce(own_gateway, name, *fine, value(nested(MOST + 1))), 422, "INVALID_REQUEST", 42)
    assert refused["errors"] == [
        {"pointer": "/records/3/value", "detail": f"nested deeper than {MOST} levels (max_value_depth)"}
    ]
    assert (refused["limit"], refused["definite"], refused["retriable"]) == (MOST, True, False)
    assert "record 3" in refused["detail"]
    assert own_gateway.log_ends(name) == [len(fine)]


def test_the_deepest_value_is_carried(own_gateway: Gateway, name: str) -> None:
    """Through a fetch, its dead letter and its way back, and as Arrow: each decodes the records."""
    deepest = nested(MOST)
    good(try_produce(own_gateway, name, value(b"1"), value(deepest)))
    assert deepest in when_loaded(lambda: own_gateway.try_fetch(name, name)).content
    assert own_gateway.settle(name, name, 0, 1, "reject") == "applied"
    wait_until(lambda: own_gateway.offsets(name)[name, 0] == (2, 0))
    good(own_gateway.http.post(f"/v1/share-groups/{name}/dead-letters/redrive", json={}))
    assert [record["value"] for record in own_gateway.read(name)["records"][2:]] == [1, json.loads(deepest)]
    answer = own_gateway.http.get(f"/v1/topics/{name}/partitions/0/records", headers={"Accept": ARROW_STREAM})
    assert pa.ipc.open_stream(answer.content).read_all()["value"].to_pylist()[3] == deepest


@pytest.mark.parametrize("number", ["1e400", "9" * 5000])
def test_a_number_that_python_has_not_costs_its_own_record_alone(
    own_gateway: Gateway, stack: Stack, name: str, number: str
) -> None:
    body = b'{"records":[{"value":1},{"value":%b},{"value":2}]}' % number.encode()
    headers = {"Content-Type": "application/json"}
    assert own_gateway.http.post(f"/v1/topics/{name}/records", content=body, headers=headers).status_code == 200
    with sync.ShareConsumer(stack.url, name, [name], acknowledgement="explicit") as consumer:
        first, strange, last = consumer.poll()
        assert (first.value, strange.json, last.value) == (1, number.encode(), 2)
        with pytest.raises(ValueUndecodable, match=f"the value of {name}-0 offset 1 cannot be decoded: "):
            strange.value  # noqa: B018 - reading it is what fails
        for record, word in ((first, "accept"), (strange, "reject"), (last, "accept")):
            consumer.acknowledge(record, word)
        assert consumer.commit() == {(name, 0): 3}
    wait_until(lambda: own_gateway.offsets(name)[name, 0] == (3, 0))
