"""1,000 new groups subscribe to a topic of 10,000 partitions: the group coordinator takes little memory for them,
others go on, and such a group can be reset."""

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest

from sharequeue.stack.stack import Stack
from tests.http.calls import HANG_S, Gateway, good

PARTITIONS = 10_000
GROUPS = 1000
MOST_MIB = 150
DEADLINE_S = 300.0


def beat(client: httpx.Client, group: str, topic: str) -> httpx.Response:
    body = {"member_id": "m", "member_epoch": 0, "subscribed_topic_names": [topic]}
    return client.post(f"/v1/share-groups/{group}/heartbeat", json=body)


@pytest.mark.soak
def test_groups_on_a_wide_topic_stop_nobody(client: httpx.Client, stack: Stack, name: str) -> None:
    gateway = Gateway(client)
    gateway.create_topic(name, PARTITIONS)
    gateway.create_topic(f"{name}-narrow")
    group_coordinator = psutil.Process(stack.service("group coordinator").pid)
    over = threading.Event()

    def others() -> int:
        beats = 0
        while not over.wait(0.2):
            good(beat(client, f"{name}-other", f"{name}-narrow"))
            beats += 1
        return beats

    with ThreadPoolExecutor(17) as pool:
        beating = pool.submit(others)
        try:
            joined = list(pool.map(lambda number: beat(client, f"{name}-{number}", name).status_code, range(GROUPS)))
            assert joined == [200] * GROUPS
            assert group_coordinator.memory_info().rss < MOST_MIB << 20
            reset = {"topics": [{"topic": name}], "to": "earliest", "force": True}
            with httpx.Client(base_url=stack.url, timeout=DEADLINE_S, verify=False) as patient:
                for number in (0, GROUPS // 2, GROUPS - 1):
                    assert (
                        good(patient.post(f"/v1/share-groups/{name}-{number}/offsets/reset", json=reset))["errors"]
                        == []
                    )
        finally:
            over.set()
        assert beating.result(HANG_S) > 0
    assert good(client.get(f"/v1/share-groups/{name}-0/offsets"))["topics"][0]["partitions"] != []
    assert group_coordinator.memory_info().rss < MOST_MIB << 20
