"""The main job through a gateway: produce, fetch, acknowledge, redeliver, dead-letter;
and what crashes and restarts must leave."""

from typing import Any

import httpx

VALUES = [{"n": 0}, "one", [2], "three"]


def do_main_job(client: httpx.Client, name: str) -> None:
    """Offset 0 is accepted, 1 released and then accepted, 2 rejected; `holder` still holds 3 at the end."""
    # Long locks: the rest must not depend on how fast an engine restarts a container.
    _ask(client, "PATCH", f"/v1/share-groups/{name}/config", {"share.record.lock.duration.ms": 300_000})
    produced = _ask(client, "POST", f"/v1/topics/{name}/records", {"records": [{"value": value} for value in VALUES]})
    assert [record["offset"] for record in produced["records"]] == [0, 1, 2, 3], produced

    (batch,) = _fetch(client, name, "holder")["batches"]
    assert [record["value"] for record in batch["records"]] == VALUES, batch
    _acknowledge(client, name, "holder", 0, ["accept", "release", "reject"], 1)

    (batch,) = _fetch(client, name, "second")["batches"]
    assert (batch["first_offset"], batch["last_offset"], batch["delivery_count"]) == (1, 1, 2), batch
    _acknowledge(client, name, "second", 1, ["accept"], 2)

    (batch,) = _fetch(client, f"{name}-dead", "reader", topic=f"dlq.{name}")["batches"]
    assert [record["value"] for record in batch["records"]] == [VALUES[2]], batch


def check_held(client: httpx.Client, name: str) -> None:
    """The state after `do_main_job` is unchanged: settled records stay settled,
    `holder` holds offset 3 at its first delivery."""
    fetched = _fetch(client, name, "second", max_wait_ms=0)
    assert fetched["batches"] == [], f"records that are settled or locked came again: {fetched}"
    (partition,) = _ask(client, "GET", f"/v1/share-groups/{name}/in-flight?topic={name}")["partitions"]
    held = {batch["first_offset"]: batch for batch in partition["batches"] if batch["delivery_state"] == "ACQUIRED"}
    assert list(held) == [3], partition
    assert (held[3]["member_id"], held[3]["delivery_count"]) == ("holder", 1), partition


def finish(client: httpx.Client, name: str) -> None:
    """The holder accepts what it holds: nothing is left to do."""
    _acknowledge(client, name, "holder", 3, ["accept"], 1)
    fetched = _fetch(client, name, "second", max_wait_ms=0)
    assert fetched["batches"] == [], f"accepted records came again: {fetched}"
    (topic,) = _ask(client, "GET", f"/v1/share-groups/{name}/offsets")["topics"]
    (partition,) = topic["partitions"]
    assert (partition["lag"], partition["log_end_offset"]) == (0, len(VALUES)), partition


def _fetch(
    client: httpx.Client, group: str, member_id: str, *, topic: str | None = None, max_wait_ms: int = 20_000
) -> dict[str, Any]:
    request = {"topics": [topic or group], "member_id": member_id, "max_wait_ms": max_wait_ms}
    return _ask(client, "POST", f"/v1/share-groups/{group}/fetch", request)


def _acknowledge(
    client: httpx.Client, name: str, member_id: str, first_offset: int, types: list[str], delivery_count: int
) -> None:
    acknowledgement = {
        "topic": name,
        "partition": 0,
        "first_offset": first_offset,
        "last_offset": first_offset + len(types) - 1,
        "delivery_count": delivery_count,
        "types": types,
    }
    request = {"member_id": member_id, "acknowledgements": [acknowledgement]}
    answer = _ask(client, "POST", f"/v1/share-groups/{name}/acknowledge", request)
    assert answer["results"] == [{"status": "applied"}], answer


def _ask(client: httpx.Client, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    answer = client.request(method, path, json=body)
    assert answer.status_code == httpx.codes.OK, f"{method} {path}: {answer.status_code} {answer.text}"
    decoded: dict[str, Any] = answer.json()
    return decoded
