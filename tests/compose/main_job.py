"""The main job through a gateway: produce, fetch, acknowledge, redeliver, dead-letter;
and what crashes and restarts must leave."""

import time
from typing import Any, Final

import httpx

REPEATS_S: Final = 60
VALUES = [{"n": 0}, "one", [2], "three"]


def do_main_job(client: httpx.Client, name: str) -> None:
    """Offset 0 is accepted, 1 released and then accepted, 2 rejected; `holder` still holds 3 at the end."""
    # Long locks: the rest must not depend on how fast an engine restarts a container.
    ask(client, "PATCH", f"/v1/share-groups/{name}/config", {"config": {"share.record.lock.duration.ms": "300000"}})
    produced = ask(client, "POST", f"/v1/topics/{name}/records", {"records": [{"value": value} for value in VALUES]})
    assert [record["offset"] for record in produced["records"]] == [0, 1, 2, 3], produced

    (batch,) = fetch(client, name, "holder")["batches"]
    assert [record["value"] for record in batch["records"]] == VALUES, batch
    acknowledge(client, name, "holder", 0, ["accept", "release", "reject"], 1)

    (batch,) = fetch(client, name, "second")["batches"]
    assert (batch["first_offset"], batch["last_offset"], batch["delivery_count"]) == (1, 1, 2), batch
    acknowledge(client, name, "second", 1, ["accept"], 2)

    wait_for_topic(client, f"dlq.{name}")
    (batch,) = fetch(client, f"{name}-dead", "reader", topic=f"dlq.{name}")["batches"]
    assert [record["value"] for record in batch["records"]] == [VALUES[2]], batch


def check_held(client: httpx.Client, name: str) -> None:
    """The state after `do_main_job` is unchanged: settled records stay settled,
    `holder` holds offset 3 at its first delivery."""
    fetched = fetch(client, name, "second", max_wait_ms=0)
    assert fetched["batches"] == [], f"records that are settled or locked came again: {fetched}"
    (partition,) = ask(client, "GET", f"/v1/share-groups/{name}/in-flight?topic={name}")["partitions"]
    held = {batch["first_offset"]: batch for batch in partition["batches"] if batch["delivery_state"] == "ACQUIRED"}
    assert list(held) == [3], partition
    assert (held[3]["member_id"], held[3]["delivery_count"]) == ("holder", 1), partition


def finish(client: httpx.Client, name: str) -> None:
    """The holder accepts what it holds: nothing is left to do."""
    acknowledge(client, name, "holder", 3, ["accept"], 1)
    fetched = fetch(client, name, "second", max_wait_ms=0)
    assert fetched["batches"] == [], f"accepted records came again: {fetched}"
    (topic,) = ask(client, "GET", f"/v1/share-groups/{name}/offsets")["topics"]
    (partition,) = topic["partitions"]
    assert (partition["lag"], partition["log_end_offset"]) == (0, len(VALUES)), partition


def wait_for_topic(client: httpx.Client, name: str) -> None:
    """The gateway makes it with the first dead letter, after it has answered the reject."""
    deadline = time.monotonic() + REPEATS_S
    while client.get(f"/v1/topics/{name}").status_code == httpx.codes.NOT_FOUND:
        assert time.monotonic() < deadline, f"there is no topic {name}"
        time.sleep(0.2)


def fetch(
    client: httpx.Client, group: str, member_id: str, *, topic: str | None = None, max_wait_ms: int = 20_000
) -> dict[str, Any]:
    request = {"topics": [topic or group], "member_id": member_id, "max_wait_ms": max_wait_ms}
    return ask(client, "POST", f"/v1/share-groups/{group}/fetch", request)


def acknowledge(
    client: httpx.Client,
    name: str,
    member_id: str,
    first_offset: int,
    types: list[str],
    delivery_count: int,
    partition: int = 0,
) -> None:
    acknowledgement = {
        "topic": name,
        "partition": partition,
        "first_offset": first_offset,
        "last_offset": first_offset + len(types) - 1,
        "delivery_count": delivery_count,
        "types": types,
    }
    request = {"member_id": member_id, "acknowledgements": [acknowledgement]}
    answer = ask(client, "POST", f"/v1/share-groups/{name}/acknowledge", request)
    assert answer["results"] == [{"status": "applied"}], answer


def ask(client: httpx.Client, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The answer, after repeats of what surely did not happen and may happen now, as a client makes them."""
    deadline = time.monotonic() + REPEATS_S
    while True:
        answer = client.request(method, path, json=body)
        decoded: dict[str, Any] = answer.json()
        if answer.status_code in (httpx.codes.OK, httpx.codes.CREATED):
            return decoded
        again = decoded["retriable"] and decoded["definite"] and time.monotonic() < deadline
        assert again, f"{method} {path}: {answer.status_code} {answer.text}"
        time.sleep(0.2)
