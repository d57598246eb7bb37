"""Many new groups subscribe to a topic of 10,000 partitions: the group coordinator takes little memory for them,
others go on, and such a group can be reset."""

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest

from sharequeue.stack.stack import Stack
from tests.http.calls import HANG_S, Gateway, good

PARTITIONS = 10_000
AT_ONCE = 8
FIRST = 2 * AT_ONCE
"""Groups before the measurement: the topic is in memory then, and room for as many heartbeats at once."""
DEADLINE_S = 300.0


def beat(client: httpx.Client, group: str, topic: str) -> httpx.Response:
    body = {"member_id": "m", "member_epoch": 0, "subscribed_topic_names": [topic]}
    return client.post(f"/v1/share-groups/{group}/heartbeat", json=body)


@pytest.mark.soak
@pytest.mark.parametrize(("groups", "most_mib"), [(50, 50), (1000, 150)], ids=["few", "many"])
def test_groups_on_a_wide_topic_stop_nobody(
    client: httpx.Client, stack: Stack, name: str, groups: int, most_mib: int
) -> None:
    """Each took 7.9 MiB once."""
    gateway = Gateway(client)
    gateway.create_topic(name, PARTITIONS)
    gateway.create_topic(f"{name}-narrow")
    coordinator = psutil.Process(stack.service("group coordinator").pid)
    over = threading.Event()

    def others() -> int:
        beats = 0
        while not over.wait(0.2):
            good(beat(client, f"{name}-other", f"{name}-narrow"))
            beats += 1
        return beats

    def join(number: int) -> int:
        return beat(client, f"{name}-{number}", name).status_code

    with ThreadPoolExecutor(AT_ONCE + 1) as pool:
        assert set(pool.map(join, range(FIRST))) == {200}
        before = coordinator.memory_info().rss
        beating = pool.submit(others)
        try:
            assert set(pool.map(join, range(FIRST, FIRST + groups))) == {200}
            more_mib = (coordinator.memory_info().rss - before) >> 20
            assert more_mib < most_mib
            reset = {"topics": [{"topic": name}], "to": "earliest", "force": True}
            url = f"/v1/share-groups/{name}-{groups // 2}/offsets/reset"
            assert good(client.post(url, json=reset, timeout=DEADLINE_S))["errors"] == []
        finally:
            over.set()
        assert beating.result(HANG_S) > 0
    print(f"{more_mib} MiB for {groups} groups")
    client.delete(f"/v1/topics/{name}", timeout=DEADLINE_S)
