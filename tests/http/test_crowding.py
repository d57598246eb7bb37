"""`max_delayed_runs`: a bound over all share-partitions of a gateway, which those above their equal part feel."""

import pytest

from tests.http.calls import Gateway, wait_until

LIMITED = "max_delayed_runs"


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return {"SHAREQUEUE_GATEWAY_MAX_DELAYED_RUNS": "20"}


def test_new_records_wait_where_more_than_the_equal_part_is_in_flight(own_gateway: Gateway, name: str) -> None:
    gateway, crowd, small = own_gateway, f"{name}-crowd", f"{name}-small"
    gateway.produce(name, *range(60))
    for group, records in ((crowd, 60), (small, 4)):
        gateway.acquire(group, name, max_records=records, acquire_mode="record_limit")
        for offset in range(0, records, 2):
            assert gateway.settle(group, name, offset, offset, "release", delay_ms=3_600_000) == "applied"
    gateway.produce(name, "new")
    wait_until(lambda: gateway.in_flight(crowd)[0].get("limited_by") == LIMITED)
    assert gateway.acquire(crowd, name) == []
    assert "limited_by" not in gateway.in_flight(small)[0]
    assert gateway.acquire(small, name, max_records=1, acquire_mode="record_limit") == ["4-4×1"]
    for offset in range(1, 60, 2):
        assert gateway.settle(crowd, name, offset, offset, "accept") == "applied"
    gateway.http.delete(f"/v1/share-groups/{small}", params={"force": True}).raise_for_status()
    wait_until(lambda: gateway.in_flight(crowd)[0].get("limited_by") == LIMITED)
    gateway.configure(crowd, share_partition_max_record_locks=100)
    assert gateway.acquire(crowd, name) == [], "30 delayed and 30 finished runs are still above 20"
