"""The memory of bodies that hold very many short values: each becomes ten times its size,
so they are counted before."""

import msgspec
import pytest

from bench.processes import peak_resident_bytes, reset_peak, resident_bytes
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, problem, wait_until

pytestmark = pytest.mark.soak  # bars of memory
JSON = {"Content-Type": "application/json"}
VALUES = 190_000
"""Fewer than any body may have."""
MOST = 6
"""How many times its size a request may cost."""
FETCH = "/v1/share-groups/g/fetch"
RESET = "/v1/share-groups/g/offsets/reset"
NAMED = [{"topic": "a", "partitions": [999] * VALUES}]
SETTINGS = {str(number): "" for number in range(VALUES)}

BODIES = {
    "topics": ("POST", FETCH, {"topics": ["a"] * VALUES}, "/topics", 1000),
    "partitions": ("POST", FETCH, {"topic_partitions": NAMED}, "/topic_partitions", 22_000),
    "topics without partitions": (
        "POST",
        FETCH,
        {"topic_partitions": [{"topic": "a", "partitions": []}] * (VALUES // 2)},
        "/topic_partitions",
        1000,
    ),
    "forgotten partitions": ("POST", FETCH, {"forgotten_topics": NAMED}, "/forgotten_topics", 22_000),
    "partitions to reset": ("POST", RESET, {"to": "latest", "topics": NAMED}, "/topics", 22_000),
    "topics to reset": ("POST", RESET, {"to": "latest", "topics": [{"topic": "a"}] * VALUES}, "/topics", 1000),
    "settings of a new topic": ("POST", "/v1/topics", {"name": "t", "config": SETTINGS}, "", 1000),
    "settings of a topic": ("PATCH", "/v1/topics/t", {"config": SETTINGS}, "", 1000),
    "settings of a group": ("PATCH", "/v1/share-groups/g/config", {"config": SETTINGS}, "", 1000),
    "settings to reset": ("PATCH", "/v1/share-groups/g/config", {"reset": ["a"] * VALUES}, "", 1000),
}


@pytest.mark.parametrize(("method", "path", "request_body", "pointer", "limit"), BODIES.values(), ids=BODIES.keys())
def test_short_values_cost_at_most_six_times_their_size(
    stack: Stack, own_gateway: Gateway, method: str, path: str, request_body: object, pointer: str, limit: int
) -> None:
    service = stack.service("gateway")
    service.stop()
    service.start()
    wait_until(service.ready)
    body = msgspec.json.encode(request_body)
    reset_peak(service.pid)
    before = resident_bytes(service.pid)
    response = own_gateway.http.request(method, path, content=body, headers=JSON, timeout=60)
    document = problem(response, 422, "INVALID_REQUEST", 42)
    assert (document["errors"][0]["pointer"], document["limit"]) == (pointer, limit)
    assert peak_resident_bytes(service.pid) - before <= MOST * len(body)


def test_names_of_a_heartbeat_cost_at_most_six_times_their_size(stack: Stack, own_gateway: Gateway) -> None:
    names = ["a"] * 20_000
    url = "/v1/share-groups/g/heartbeat"
    own_gateway.http.post(url, json={"member_id": "m", "subscribed_topic_names": ["a"]})  # the code is used once
    own_gateway.http.post(url, json={"member_id": "m", "subscribed_topic_names": "a"})
    body = msgspec.json.encode({"member_id": "m", "subscribed_topic_names": names})
    pids = [stack.service(service).pid for service in ("gateway", "group coordinator")]
    for pid in pids:
        reset_peak(pid)
    before = [resident_bytes(pid) for pid in pids]
    problem(own_gateway.http.post(url, content=body, headers=JSON), 422, "INVALID_REQUEST", 42)
    for pid, resident in zip(pids, before, strict=True):
        assert peak_resident_bytes(pid) - resident <= MOST * len(body)
