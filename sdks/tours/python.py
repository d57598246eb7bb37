"""requests or httpx, in a session, through produce, fetch and acknowledge.
Arguments: which, the gateway's URL, a topic."""

import sys
from typing import Any

import httpx
import requests

kind, url, topic = sys.argv[1:]
client: Any = requests.Session() if kind == "requests" else httpx.Client()


def call(path: str, body: Any) -> Any:
    """The answer. Raises: the client's error of a status that is not 200."""
    answer = client.post(f"{url}/v1/{path}", json=body, timeout=30)
    answer.raise_for_status()
    return answer.json()


with client:
    call(f"topics/{topic}/records", {"records": [{"value": "one"}, {"value": "two"}]})
    fetch = {"topics": [topic], "member_id": kind, "max_wait_ms": 5000}
    (batch,) = call(f"share-groups/{topic}/fetch", fetch)["batches"]
    assert [record["value"] for record in batch["records"]] == ["one", "two"], batch
    names = ("topic", "topic_id", "partition", "first_offset", "last_offset", "delivery_count")
    accept = {**{name: batch[name] for name in names}, "type": "accept"}
    accepted = call(f"share-groups/{topic}/acknowledge", {"member_id": kind, "acknowledgements": [accept]})
    assert accepted["failed_count"] == 0, accepted
    assert call(f"share-groups/{topic}/fetch", {**fetch, "max_wait_ms": 0})["batches"] == []
