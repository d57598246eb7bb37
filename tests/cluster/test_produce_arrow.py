"""Arrow streams through several gateways: any of them appends, and a repeat at another one is known."""

from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any

import httpx
import pytest
from sharequeue_gateway.producing.partitioner import key_hash

from sharequeue.protocol.apis import ARROW_STREAM
from tests.cluster.calls import acknowledge, fetch, make_topic
from tests.http.calls import good
from tests.http.test_produce_arrow import body

PARTITIONS = 6
REQUESTS = 24
ROWS = 50


def produce_arrow(client: httpx.Client, topic: str, request: int) -> Any:
    content = body(
        key=[f"k{row}" for row in range(ROWS)], value=[f"{request}:{row}" + "x" * 9000 for row in range(ROWS)]
    )
    headers = {"Content-Type": ARROW_STREAM, "Idempotency-Key": f"{topic}:{request}"}
    return good(client.post(f"/v1/topics/{topic}/records/arrow", content=content, headers=headers))


@pytest.mark.soak
def test_streams_at_all_gateways_at_once_are_appended_once(clients: list[httpx.Client], name: str) -> None:
    """Each request goes to one gateway, and again to the next one: half of them at the same time, all of them later."""
    make_topic(clients[0], name, PARTITIONS)
    gateways = list(zip(range(REQUESTS), cycle(clients), cycle([*clients[1:], clients[0]])))
    with ThreadPoolExecutor(6) as pool:
        jobs = [
            pool.submit(produce_arrow, client, name, request)
            for request, first, second in gateways
            for client in ((first, second) if request % 2 else (first,))
        ]
        answers = [job.result() for job in jobs]
    later = [produce_arrow(second, name, request) for request, _, second in gateways]
    assert all(answer in later for answer in answers)

    expected = {
        (key_hash(b"k%d" % row) % PARTITIONS, f"k{row}", request) for request in range(REQUESTS) for row in range(ROWS)
    }
    found: list[tuple[int, str, int]] = []
    places: list[tuple[int, int]] = []
    while len(found) < len(expected):
        answer = fetch(clients[len(found) % 3], name, topics=[name], max_wait_ms=20_000)
        assert answer["batches"], f"{len(found)} of {len(expected)} records"
        acknowledge(clients[(len(found) + 1) % 3], name, answer)
        for batch in answer["batches"]:
            for record in batch["records"]:
                found.append((batch["partition"], record["key"], int(record["value"].partition(":")[0])))
                places.append((batch["partition"], record["offset"]))
    assert len(found) == len(expected)
    assert set(found) == expected
    for partition in range(PARTITIONS):
        offsets = sorted(offset for each, offset in places if each == partition)
        assert offsets == list(range(len(offsets)))
