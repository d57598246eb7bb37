"""What a proxy before a stack must pass on: fetches that wait, streams without a buffer, large bodies, ids as they were
encoded, `Host` for pages of the public name, and a hang-up."""

import json
import ssl
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from sharequeue.stack.stack import Stack
from tests.debian import programs
from tests.http.calls import wait_until

PAGE: Final = Path(__file__).parents[2] / "docs" / "proxy.md"
NAME: Final = "queue.example.org"
MEMBER: Final = {"topics": ["orders"], "member_id": "w-1"}


def certificate(home: Path) -> ssl.SSLContext:
    """Write queue.pem and queue.key. Returns: what trusts them."""
    names = f"subjectAltName=DNS:{NAME},IP:127.0.0.1"
    options = ("-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={NAME}", "-addext", names)
    files = ("-keyout", home / "queue.key", "-out", home / "queue.pem")
    subprocess.run(
        [programs("openssl", ("openssl",), home) / "openssl", "req", *options, *files], check=True, capture_output=True
    )
    return ssl.create_default_context(cafile=str(home / "queue.pem"))


def answers(client: httpx.Client, status: int = 200) -> bool:
    try:
        return client.get("/readyz").status_code == status
    except httpx.TransportError:
        return False


def produce(client: httpx.Client, *values: Any) -> None:
    records = {"records": [{"value": value} for value in values]}
    client.post("/v1/topics/orders/records", json=records).raise_for_status()


def fetch(client: httpx.Client, group: str, wait_ms: int = 0) -> list[dict[str, Any]]:
    path = f"/v1/share-groups/{group}/fetch"
    answer = client.post(path, json={**MEMBER, "max_wait_ms": wait_ms})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["batches"]
    return found


def check_work(client: httpx.Client) -> None:
    """A record is produced, fetched and accepted; an id may hold a sign that is encoded."""
    produce(client, "one")
    (batch,) = fetch(client, "billing%25eu")
    (record,) = batch.pop("records")
    assert record["value"] == "one"
    done = {"member_id": "w-1", "acknowledgements": [{**batch, "type": "accept"}]}
    answer = client.post("/v1/share-groups/billing%25eu/acknowledge", json=done).raise_for_status()
    assert answer.json()["failed_count"] == 0
    assert [group["group_id"] for group in client.get("/v1/share-groups").json()["groups"]] == ["billing%eu"]
    assert "'a/b'" in client.delete("/v1/share-groups/billing%25eu/members/a%2Fb").text


def check_waiting(client: httpx.Client) -> None:
    """A fetch waits at the gateway, and gets the record that is produced then."""
    assert fetch(client, "waiting") != []
    found: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: found.extend(fetch(client, "waiting", 30_000)))
    waiting.start()
    time.sleep(1)  # it may wait by then; if it does not, it gets the record at once
    produce(client, "two")
    waiting.join(60)
    assert [batch["records"][0]["value"] for batch in found] == ["two"]


def check_stream(client: httpx.Client) -> None:
    """An event arrives while the stream stays open: nothing holds it back."""
    path = "/v1/share-groups/streaming/stream?topic=orders&member_id=desk-1"
    with client.stream("GET", path, headers={"Accept": "text/event-stream"}) as answer:
        assert answer.status_code == 200
        events = (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: {"))
        before = next(events)["batches"]
        assert [record["value"] for batch in before for record in batch["records"]] == ["one", "two"]
        produce(client, "three")
        (batch,) = next(events)["batches"]
        assert [record["value"] for record in batch["records"]] == ["three"]


def check_bodies(client: httpx.Client) -> None:
    """Nearly as large as `max_request_bytes`, and larger."""
    produce(client, *["x" * 900_000] * 11)
    records = {"records": [{"value": "x" * 900_000}] * 12}
    assert client.post("/v1/topics/orders/records", json=records).status_code == 413


def check_pages(client: httpx.Client, other_name: int) -> None:
    """A page of the public name may call, a page of another site may not; another name is refused."""
    body = {"records": [{"value": "four"}]}
    for origin, status in ((f"https://{client.headers['host']}", 200), ("https://example.com", 403)):
        answer = client.post("/v1/topics/pages/records", json=body, headers={"Origin": origin})
        assert answer.status_code == status, answer.text
    assert client.get("/v1/topics", headers={"Host": "example.com"}).status_code == other_name


def check_hang_up(client: httpx.Client, stack: Stack) -> None:
    """A waiting fetch whose client hung up acquires nothing."""
    path, topic = "/v1/share-groups/gone/fetch", {"topics": ["later"], "member_id": "w-1"}
    client.post("/v1/topics", json={"name": "later"}).raise_for_status()
    with httpx.Client(timeout=60) as gateways:
        with pytest.raises(httpx.ReadTimeout):
            client.post(path, json={**topic, "max_wait_ms": 30_000}, timeout=2)
        waiting = "sharequeue_waiting_fetches 0"
        wait_until(lambda: all(waiting in gateways.get(f"{url}/metrics").text for url in stack.urls))
        body = {"records": [{"value": "five"}]}
        gateways.post(f"{stack.url}/v1/topics/later/records", json=body).raise_for_status()
        answer = gateways.post(f"{stack.url}{path}", json={**topic, "member_id": "w-2", "max_wait_ms": 0})
        (batch,) = answer.json()["batches"]
        assert batch["delivery_count"] == 1


def check_all(client: httpx.Client, stack: Stack, *, other_name: int = 421) -> None:
    """`client`: of the proxy, by its public name. `other_name`: the status that another name gets."""
    check_work(client)
    check_waiting(client)
    check_stream(client)
    check_bodies(client)
    check_pages(client, other_name)
    check_hang_up(client, stack)
