"""The main job through the three services: produce, fetch, acknowledge, redeliver, dead-letter."""

import httpx

from tests.http.calls import Gateway, when_loaded


def test_a_record_is_accepted_released_and_rejected(gateway: Gateway, name: str) -> None:
    client: httpx.Client = gateway.http
    values = [{"n": 1}, "two", [3, 4]]
    produced = client.post(f"/v1/topics/{name}/records", json={"records": [{"value": value} for value in values]})
    assert produced.status_code == 200, produced.text
    assert [record["offset"] for record in produced.json()["records"]] == [0, 1, 2]

    fetched = when_loaded(
        lambda: client.post(f"/v1/share-groups/{name}/fetch", json={"topics": [name], "member_id": "m1"})
    ).json()
    (batch,) = fetched["batches"]
    assert [record["value"] for record in batch["records"]] == values
    acknowledgement = {"topic": name, "partition": 0, "first_offset": 0, "last_offset": 2}
    answer = client.post(
        f"/v1/share-groups/{name}/acknowledge",
        json={
            "member_id": "m1",
            "acknowledgements": [{**acknowledgement, "types": ["accept", "release", "reject"], "reason": "bad"}],
        },
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["results"] == [{"status": "applied"}]

    again = client.post(f"/v1/share-groups/{name}/fetch", json={"topics": [name], "member_id": "m2"}).json()
    (batch,) = again["batches"]
    assert (batch["first_offset"], batch["last_offset"], batch["delivery_count"]) == (1, 1, 2)

    Gateway(client).letters(f"dlq.{name}", 1)
    dead = when_loaded(
        lambda: client.post(f"/v1/share-groups/{name}-dlq/fetch", json={"topics": [f"dlq.{name}"]})
    ).json()
    (record,) = dead["batches"][0]["records"]
    assert record["value"] == [3, 4]
    assert record["headers"]["__dlq.errors.reason"] == "bad"
