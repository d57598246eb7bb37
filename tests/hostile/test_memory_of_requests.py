"""The memory of the largest requests about records: commits of 10,000 acknowledgements that succeed or fail, and
replacements of batches.

Each row restarts the gateway, makes one small request of the same kind, because its code is used for the first time,
and measures the large one. What the gateway needs for any such request, however small, is the allowance FIXED.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest

from bench.processes import peak_resident_bytes, reset_peak, resident_bytes
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, Json, good, wait_until

pytestmark = pytest.mark.soak  # bars of memory

JSON = {"Content-Type": "application/json"}
MOST = 12
"""How many times its size a commit may cost."""
FIXED = 256 * 1024
"""Bytes that a request of any size may cost beside that: pages of the heap, a thread, buffers of connections."""
MOST_OF_REPLACEMENTS = 7.5
"""Of a replacement, without FIXED."""
FAULTS = 4
"""How many times its size the answer of a request that fails may have, beside FAULTS_FIXED."""
FAULTS_FIXED = 64 * 1024
RECORDS = 10_000
RECORD = {"key": "k", "value": 1}


class Request(NamedTuple):
    """A large request, and a small one of its kind. `check`: that the answer is the one of this row."""

    path: str
    body: bytes
    small: bytes
    check: Callable[[httpx.Response], None]
    small_path: str = ""


Prepare = Callable[[Gateway, str], Request]


# Acknowledgements in a transaction


def hold_all(gateway: Gateway, name: str) -> None:
    """Have m1 hold RECORDS records, and one more."""
    gateway.create_topic(name)
    gateway.configure(name, share_record_lock_duration_ms=600_000, share_partition_max_record_locks=RECORDS)
    gateway.produce(name, *range(RECORDS))
    held = gateway.fetch(name, name, max_records=RECORDS)["batches"]
    assert sum(batch["last_offset"] - batch["first_offset"] + 1 for batch in held) == RECORDS


def settled(name: str, offset: int, **fields: Any) -> Json:
    return {"topic": name, "partition": 0, "first_offset": offset, "last_offset": offset, "type": "accept"} | fields


def refused(status: int) -> Callable[[httpx.Response], None]:
    def check(response: httpx.Response) -> None:
        assert response.status_code == status, response.text[:1000]
        results = response.json()["results"]
        assert len(results) == RECORDS
        assert {result["status"] for result in results} == {"failed"}

    return check


TRANSACTIONS = {
    "applied": (lambda number: {}, good),
    "the last one refused": (
        lambda number: {"delivery_count": 7} if number == RECORDS - 1 else {},
        refused(409),
    ),
    "each of one of 900 unknown topics": (
        lambda number: {"topic": f"nothing-{number % 900:06}"},
        refused(409),
    ),
    "of records of another delivery": (lambda number: {"delivery_count": 7}, refused(409)),
    "accepted and released in turn": (lambda number: {"type": "release"} if number % 2 else {}, good),
    "released with a delay of their own": (lambda number: {"type": "release", "delay_ms": 600_000 + number}, good),
}


def commit(kind: str) -> Prepare:
    fields, check = TRANSACTIONS[kind]

    def prepare(gateway: Gateway, name: str) -> Request:
        hold_all(gateway, name)

        def body(numbers: list[int], member: str) -> bytes:
            wanted = [settled(name, number) | fields(number) for number in numbers]
            mine = {"group_id": name, "member_id": member, "acknowledgements": wanted}
            return msgspec.json.encode({"acknowledgements": [mine]})

        ids = [good(gateway.http.post("/v1/transactions", json={}), 201)["transaction_id"] for _ in range(2)]
        large, small = [f"/v1/transactions/{transaction_id}/commit" for transaction_id in ids]
        return Request(large, body(list(range(RECORDS)), "m1"), body([0], "m2"), check, small)

    return prepare


# Replacements


def replacement(batches: int, records: int) -> Prepare:
    def prepare(gateway: Gateway, name: str) -> Request:
        gateway.create_topic(name, cleanup_policy="compact")
        for _ in range(batches + 1):
            good(gateway.http.post(f"/v1/topics/{name}/records", json={"records": [RECORD] * records}))
        path = f"/v1/topics/{name}/partitions/0"
        listed = good(gateway.http.get(f"{path}/batches", params={"max_batches": batches, "offset": 0}))["batches"]
        wanted = [
            {
                "base_offset": batch["base_offset"],
                "generation": batch["generation"],
                "remove": [
                    {"first_offset": offset, "last_offset": offset}
                    for offset in range(batch["base_offset"], batch["last_offset"] + 1)
                ],
            }
            for batch in listed
        ]

        def check(response: httpx.Response) -> None:
            assert [batch["record_count"] for batch in good(response)["batches"]] == [0] * batches

        small = msgspec.json.encode({"batches": [{**wanted[0], "generation": 7}]})
        return Request(f"{path}/replace-batches", msgspec.json.encode({"batches": wanted}), small, check)

    return prepare


ROWS: dict[str, Prepare] = {
    **{f"a commit, {kind}": commit(kind) for kind in TRANSACTIONS},
    "a replacement of 1,000 batches without 10 ranges each": replacement(1000, 10),
    "a replacement of 2 batches without 9,000 ranges each": replacement(2, 9000),
}


def measure(stack: Stack, gateway: Gateway, request: Request) -> tuple[httpx.Response, int]:
    """Make a large request. Returns: the answer, and how far the gateway's memory grew."""
    service = stack.service("gateway")
    service.stop()
    service.start()
    wait_until(service.ready)
    gateway.http.post(request.small_path or request.path, content=request.small, headers=JSON, timeout=60)
    reset_peak(service.pid)
    before = resident_bytes(service.pid)
    response = gateway.http.post(request.path, content=request.body, headers=JSON, timeout=60)
    return response, peak_resident_bytes(service.pid) - before


@pytest.mark.parametrize("row", ROWS)
def test_a_request_costs_at_most_some_times_its_size(stack: Stack, own_gateway: Gateway, name: str, row: str) -> None:
    request = ROWS[row](own_gateway, name)
    response, grown = measure(stack, own_gateway, request)
    request.check(response)
    if response.status_code >= 400:
        assert len(response.content) <= FAULTS * len(request.body) + FAULTS_FIXED
    size = len(request.body)
    assert grown <= (MOST_OF_REPLACEMENTS * size if row.startswith("a replacement") else MOST * size + FIXED)
