"""Calls of gateways, one function for each that the tests need."""

import httpx

from tests.http.calls import LOADING, when_loaded

MOVING = frozenset({LOADING, "NOT_LEADER_OR_FOLLOWER"})
"""While the gateways agree on a generation, a partition may have no leader for a moment."""


def make_topic(client: httpx.Client, name: str, partitions: int) -> str:
    response = client.post("/v1/topics", json={"name": name, "partitions": partitions})
    assert response.status_code == 201, response.text
    topic_id: str = response.json()["topic_id"]
    return topic_id


def produce(client: httpx.Client, topic: str, partition: int, count: int) -> None:
    records = [{"value": index, "partition": partition} for index in range(count)]
    response = client.post(f"/v1/topics/{topic}/records", json={"records": records})
    assert response.status_code == 200, response.text


def fetch(client: httpx.Client, group: str, **body: object) -> dict:
    response = when_loaded(lambda: client.post(f"/v1/share-groups/{group}/fetch", json=body), MOVING)
    assert response.status_code == 200, response.text
    answer: dict = response.json()
    others = [error for error in answer["errors"] if error["code"] != LOADING]
    assert others == [], others
    return answer


def acknowledgements_of(answer: dict, kind: str) -> list[dict]:
    return [
        {name: value for name, value in batch.items() if name != "records"} | {"type": kind}
        for batch in answer["batches"]
    ]


def acknowledge(client: httpx.Client, group: str, answer: dict, kind: str = "accept") -> None:
    body = {"member_id": answer["member_id"], "acknowledgements": acknowledgements_of(answer, kind)}
    response = client.post(f"/v1/share-groups/{group}/acknowledge", json=body)
    assert response.status_code == 200, response.text
    assert response.json()["failed_count"] == 0, response.json()


def places(answer: dict) -> set[tuple[int, int]]:
    return {
        (batch["partition"], offset)
        for batch in answer["batches"]
        for offset in range(batch["first_offset"], batch["last_offset"] + 1)
    }


def dead_letters(client: httpx.Client, group: str) -> list[dict]:
    response = client.get(f"/v1/topics/dlq.{group}/partitions/0/records")
    return [] if response.status_code == 404 else response.json()["records"]
