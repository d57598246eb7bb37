"""The memory of the largest bodies without records, when they hold very many short values: each becomes up to twenty
times its size, so such a body has at most 1 MiB."""

import msgspec
import pytest

from bench.processes import peak_resident_bytes, reset_peak, resident_bytes
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, problem, wait_until

pytestmark = pytest.mark.soak  # bars of memory
JSON = {"Content-Type": "application/json"}
VALUES = 90_000
"""As many as go into 1 MiB in each form here."""
MOST = 32 * 1024 * 1024
"""Bytes that a request may cost."""
FETCH = "/v1/share-groups/g/fetch"
RESET = "/v1/share-groups/g/offsets/reset"
NAMED = [{"topic": "a", "partitions": [999] * VALUES}]
SETTINGS = {str(number): "" for number in range(VALUES)}

BODIES = {
    "topics": ("POST", FETCH, {"topics": ["a"] * VALUES}, "/topics", 1000),
    "partitions": ("POST", FETCH, {"topic_partitions": NAMED}, "/topic_partitions/0/partitions", 20_000),
    "topics without partitions": (
        "POST",
        FETCH,
        {"topic_partitions": [{"topic": "a", "partitions": []}] * (VALUES // 3)},
        "/topic_partitions",
        1000,
    ),
    "forgotten partitions": ("POST", FETCH, {"forgotten_topics": NAMED}, "/forgotten_topics/0/partitions", 20_000),
    "partitions to reset": ("POST", RESET, {"to": "latest", "topics": NAMED}, "/topics/0/partitions", 20_000),
    "topics to reset": ("POST", RESET, {"to": "latest", "topics": [{"topic": "a"}] * (VALUES // 2)}, "/topics", 1000),
    "settings of a new topic": ("POST", "/v1/topics", {"name": "t", "config": SETTINGS}, "/config", 100),
    "settings of a topic": ("PATCH", "/v1/topics/t", {"config": SETTINGS}, "/config", 100),
    "settings of a group": ("PATCH", "/v1/share-groups/g/config", {"config": SETTINGS}, "/config", 100),
    "settings to reset": ("PATCH", "/v1/share-groups/g/config", {"reset": ["a"] * VALUES}, "/reset", 100),
}


@pytest.mark.parametrize(("method", "path", "request_body", "pointer", "limit"), BODIES.values(), ids=BODIES.keys())
def test_short_values_cost_at_most_32_mebibytes(
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
    assert len(body) <= 1 << 20
    assert peak_resident_bytes(service.pid) - before <= MOST


def test_names_of_a_heartbeat_cost_at_most_32_mebibytes(stack: Stack, own_gateway: Gateway) -> None:
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
        assert peak_resident_bytes(pid) - resident <= MOST
