"""A value too deep for every decoder passes from its leader through all other gateways."""

import httpx
import pytest

from sharequeue.stack.stack import Stack
from tests.cluster.calls import make_topic
from tests.http.database import append_behind

PARTITIONS = 6
TOO_DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.soak
def test_any_gateway_answers_with_a_deep_value(stack: Stack, clients: list[httpx.Client], name: str) -> None:
    """Each partition holds one of them and one that is flat; every answer is over all leaders."""
    database_url: str = stack.service("gateway").environment["SHAREQUEUE_GATEWAY_DATABASE_URL"]
    topic_id = make_topic(clients[0], name, PARTITIONS)
    for partition in range(PARTITIONS):
        append_behind(database_url, topic_id, 0, TOO_DEEP, b"1", partition=partition)
    for number, client in enumerate(clients):
        body = {"topics": [name], "max_records": 2 * PARTITIONS, "max_wait_ms": 5000, "member_id": "m1"}
        deep = flat = 0
        for _ in range(PARTITIONS):  # what is not loaded yet comes with a later answer
            answer = client.post(f"/v1/share-groups/{name}-{number}/fetch", json=body)
            assert answer.status_code == 200, answer.text
            deep += answer.content.count(TOO_DEEP)
            flat += answer.content.count(b'"value":1}')
            if flat == PARTITIONS:
                break
        assert deep == flat == PARTITIONS
