"""Many large produces at once: those without room are refused before they are read, all others are appended."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest

from bench.processes import peak_resident_bytes, reset_peak
from sharequeue.protocol.apis import ARROW_STREAM
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, good, problem, wait_until
from tests.http.database import locked
from tests.http.test_produce_arrow import body as arrow
from tests.sharequeue_http.raw import Raw, head

MIB = 1 << 20
ROOM = 16 * MIB
IN_HAND = "sharequeue_produce_bytes"
JSON = "Content-Type: application/json"


SETTINGS = {
    "SHAREQUEUE_GATEWAY_MAX_PRODUCE_BYTES": str(ROOM),
    "SHAREQUEUE_GATEWAY_MAX_REQUEST_BYTES": str(2 * ROOM),
    "SHAREQUEUE_GATEWAY_RECORD_CACHE_BYTES": str(MIB),
}


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return SETTINGS


@pytest.fixture
def topic(own_gateway: Gateway, name: str) -> str:
    own_gateway.create_topic(name, max_message_bytes=50 * MIB)
    return name


def until_in_hand(gateway: Gateway, size: int) -> None:
    wait_until(lambda: gateway.metrics()[IN_HAND] == size)


def produce(gateway: Gateway, topic: str, size: int, **headers: str) -> httpx.Response:
    path = f"{gateway.http.base_url}/v1/topics/{topic}/records/raw"
    return httpx.post(path, content=b"x" * size, headers=headers, timeout=60, verify=False)


@pytest.mark.parametrize("keyed", [False, True])
def test_each_large_produce_is_appended_or_definitely_refused(
    own_gateway: Gateway, stack: Stack, topic: str, keyed: bool
) -> None:
    """Twenty of 4 MiB, with room for four: none ends in doubt, and the gateway's memory stays with the room."""
    process = psutil.Process(stack.service("gateway").pid)
    before = process.memory_info().rss
    peaks = []

    def one(number: int) -> httpx.Response:
        headers = {"Idempotency-Key": f"key {number}"} if keyed else {}
        answer = produce(own_gateway, topic, 4 * MIB, **headers)
        peaks.append(process.memory_info().rss)
        return answer

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(one, range(20)))
    counts = Counter(answer.status_code for answer in answers)
    assert counts[200] >= 4
    assert set(counts) <= {200, 429}
    for answer in answers:
        if answer.status_code == 429:
            refused = problem(answer, 429, "THROTTLING_QUOTA_EXCEEDED", 89)
            assert (refused["definite"], refused["retriable"]) == (True, True)
            assert answer.headers["retry-after"] == "1"
    assert own_gateway.log_ends(topic) == [counts[200]]
    assert max(peaks) - before < 12 * ROOM
    until_in_hand(own_gateway, 0)


@pytest.mark.soak
def test_a_crowd_of_compressed_streams_takes_room_for_what_they_become(
    own_gateway: Gateway, stack: Stack, topic: str
) -> None:
    """Two hundred of 40 KB that become 9 MiB each, with room for about two."""
    process = psutil.Process(stack.service("gateway").pid)
    content = arrow("lz4", value=["x" * 9 * MIB])
    assert len(content) < 64 * 1024
    url, headers = f"{own_gateway.http.base_url}/v1/topics/{topic}/records/arrow", {"Content-Type": ARROW_STREAM}
    good(httpx.post(url, content=arrow(value=["first"]), headers=headers, timeout=60))
    before = process.memory_info().rss
    reset_peak(process.pid)
    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda _: httpx.post(url, content=content, headers=headers, timeout=60), range(200)))
    counts = Counter(answer.status_code for answer in answers)
    assert counts[200] >= 1
    assert counts[429] >= 1
    assert set(counts) <= {200, 429}
    assert own_gateway.log_ends(topic) == [1 + counts[200]]
    assert peak_resident_bytes(process.pid) - before < 12 * ROOM
    until_in_hand(own_gateway, 0)


def test_a_compressed_stream_that_is_alone_may_become_more_than_the_room(own_gateway: Gateway, topic: str) -> None:
    url = f"{own_gateway.http.base_url}/v1/topics/{topic}/records/arrow"
    content = arrow("lz4", value=["x" * (ROOM + MIB)])
    good(httpx.post(url, content=content, headers={"Content-Type": ARROW_STREAM}, timeout=60))
    until_in_hand(own_gateway, 0)


def test_a_produce_without_room_is_refused_before_its_body_is_read(
    own_gateway: Gateway, database: str, topic: str
) -> None:
    """While an append waits for its commit; a body on its way takes no room from others."""
    target = f"POST /v1/topics/{topic}/records"
    with Raw(own_gateway.port) as slow, ThreadPoolExecutor(1) as background:
        slow.send(head(target, JSON, f"Content-Length: {10 * MIB}"), b"{" + b" " * 8 * MIB)
        assert own_gateway.metrics()[IN_HAND] == 0
        with locked(database, "log.record_batches"):
            waiting = background.submit(produce, own_gateway, topic, 9 * MIB)
            until_in_hand(own_gateway, 9 * MIB)
            with Raw(own_gateway.port) as refused:
                refused.send(head(target, JSON, f"Content-Length: {9 * MIB}"))
                answer = refused.answer("POST")
                assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        good(waiting.result())
    until_in_hand(own_gateway, 0)
    assert own_gateway.log_ends(topic) == [1]
