"""The memory of the largest replacements of batches: as many ranges to remove as one request may have."""

import msgspec
import pytest

from bench.processes import peak_resident_bytes, reset_peak, resident_bytes
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, good, wait_until

JSON = {"Content-Type": "application/json"}
MOST = 6
"""How many times its size a request may cost."""
RECORD = {"key": "k", "value": 1}


@pytest.mark.parametrize(("batches", "records"), [(1000, 90), (10, 9000)], ids=["many batches", "large batches"])
def test_a_replacement_costs_at_most_six_times_its_size(
    stack: Stack, own_gateway: Gateway, name: str, batches: int, records: int
) -> None:
    own_gateway.create_topic(name, cleanup_policy="compact")
    for _ in range(batches + 1):
        good(own_gateway.http.post(f"/v1/topics/{name}/records", json={"records": [RECORD] * records}))
    service = stack.service("gateway")
    service.stop()
    service.start()
    wait_until(service.ready)
    path = f"/v1/topics/{name}/partitions/0"
    listed = good(own_gateway.http.get(f"{path}/batches", params={"max_batches": batches, "offset": 0}))["batches"]
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
    body = msgspec.json.encode({"batches": wanted})
    reset_peak(service.pid)
    before = resident_bytes(service.pid)
    replaced = good(own_gateway.http.post(f"{path}/replace-batches", content=body, headers=JSON, timeout=60))
    assert [batch["record_count"] for batch in replaced["batches"]] == [0] * batches
    assert peak_resident_bytes(service.pid) - before <= MOST * len(body)
