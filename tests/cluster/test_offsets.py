"""The offsets of a group, asked of any gateway, at any leader."""

import httpx

from tests.cluster.calls import acknowledge, fetch, make_topic, produce

PARTITIONS = 6


def test_every_gateway_answers_a_groups_offsets(clients: list[httpx.Client], name: str) -> None:
    """A reset to `current` continues there: no finished record is delivered again."""
    make_topic(clients[0], name, PARTITIONS)
    for partition in range(PARTITIONS):
        produce(clients[0], name, partition, 5)
    answers = []
    while (
        sum(batch["last_offset"] - batch["first_offset"] + 1 for a in answers for batch in a["batches"])
        < 5 * PARTITIONS
    ):
        answers.append(fetch(clients[0], name, member_id="m", topics=[name], max_wait_ms=1000))
    for answer in answers:
        acknowledge(clients[0], name, answer)
    for client in clients:
        listed = client.get(f"/v1/share-groups/{name}/offsets").json()["topics"][0]["partitions"]
        assert [(entry["start_offset"], entry["lag"]) for entry in listed] == [(5, 0)] * PARTITIONS
        body = {"to": "current", "topics": [{"topic": name}]}
        response = client.post(f"/v1/share-groups/{name}/offsets/reset", json=body)
        assert response.status_code == 200, response.text
        (reset,) = response.json()["topics"]
        assert [entry["start_offset"] for entry in reset["partitions"]] == [5] * PARTITIONS
        assert fetch(client, name, member_id="m", topics=[name], max_wait_ms=0)["batches"] == []
        assert client.delete(f"/v1/share-groups/{name}/members/m").status_code in (204, 404)
