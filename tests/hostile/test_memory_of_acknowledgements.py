"""The memory of the largest acknowledgements: 1,000 reasons, each with an emoji.

A str with an emoji has four bytes for each character, so a reason must not become one before it is needed.
"""

import msgspec
import pytest

from bench.processes import peak_resident_bytes, reset_peak, resident_bytes
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, acknowledge_range, good, wait_until

pytestmark = pytest.mark.soak  # bars of memory

JSON = {"Content-Type": "application/json"}
RECORDS = 1000
MOST = 10
"""How many times its size a request may cost, which is 1 MiB at most."""


def reason(offset: int) -> str:
    return f"{offset:06} {'x' * 740} 😀"


@pytest.mark.parametrize("how", ["each alone", "atomic", "with a fetch"])
def test_reasons_cost_at_most_ten_times_their_size(stack: Stack, own_gateway: Gateway, name: str, how: str) -> None:
    service = stack.service("gateway")
    service.stop()
    service.start()
    wait_until(service.ready)
    own_gateway.create_topic(name)
    own_gateway.configure(name, share_record_lock_duration_ms=600_000, share_partition_max_record_locks=RECORDS)
    own_gateway.produce(name, *range(RECORDS))
    held = own_gateway.fetch(name, name, max_records=RECORDS)["batches"]
    assert sum(batch["last_offset"] - batch["first_offset"] + 1 for batch in held) == RECORDS
    fields = {"topic_id": held[0]["topic_id"], "delivery_count": 1, "delay_ms": 600_000}
    settled = [
        acknowledge_range(name, offset, offset, "release", reason=reason(offset), **fields) for offset in range(RECORDS)
    ]
    request = {"member_id": "m1", "acknowledgements": settled, "atomic": how == "atomic"}
    call = "acknowledge"
    if how == "with a fetch":
        call = "fetch"
        request |= {"topics": [name], "max_wait_ms": 0}
    body = msgspec.json.encode(request)
    reset_peak(service.pid)
    before = resident_bytes(service.pid)
    answer = good(own_gateway.http.post(f"/v1/share-groups/{name}/{call}", content=body, headers=JSON, timeout=60))
    assert answer["failed_count"] == 0
    assert peak_resident_bytes(service.pid) - before <= MOST * len(body)
    batches = own_gateway.in_flight(name)[0]["batches"]
    assert [batch["reason"] for batch in batches] == [reason(offset) for offset in range(RECORDS)]
