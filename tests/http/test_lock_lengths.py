"""The length of a lock over HTTP: brought by a fetch or a renewal, shown in each fetched batch."""

import pytest

from tests.http.calls import Gateway, acknowledge_range, good, outcomes, problem, wait_until

HOUR_MS = 3_600_000


def test_each_fetched_batch_names_the_length_of_its_lock(gateway: Gateway, name: str) -> None:
    gateway.produce_batches(name, 1, 1)
    (usual,) = gateway.fetch(name, name, max_records=1)["batches"]
    (short,) = gateway.fetch(name, name, max_records=1, lock_duration_ms=1000)["batches"]
    assert (short["lock_duration_ms"], usual["lock_duration_ms"]) == (1000, 30_000)
    assert 20_000 < usual["lock_expires_at_ms"] - short["lock_expires_at_ms"] < 50_000
    assert wait_until(lambda: gateway.acquire(name, name, member="m2")) == ["1-1×2"]


def test_a_renewal_may_bring_a_length_and_an_echoed_batch_keeps_its_own(gateway: Gateway, name: str) -> None:
    gateway.produce_batches(name, 2)
    (batch,) = gateway.fetch(name, name, lock_duration_ms=HOUR_MS, fetch_id="f")["batches"]
    echo = {field: value for field, value in batch.items() if field != "records"}
    good(gateway.try_acknowledge(name, [{**echo, "type": "renew"}]))
    shorter = acknowledge_range(name, 0, 0, "renew", lock_duration_ms=2 * HOUR_MS)
    good(gateway.try_acknowledge(name, [shorter]))
    repeated = gateway.fetch(name, name, fetch_id="f")["batches"]
    assert [entry["lock_duration_ms"] for entry in repeated] == [2 * HOUR_MS, HOUR_MS]
    good(gateway.try_acknowledge(name, [{**echo, "type": "accept"}]))


@pytest.mark.parametrize("lock_duration_ms", [0, 999, 12 * HOUR_MS + 1])
def test_a_length_out_of_bounds_is_refused_with_its_bounds(gateway: Gateway, name: str, lock_duration_ms: int) -> None:
    gateway.produce_batches(name, 1)
    refused = gateway.try_fetch(name, name, lock_duration_ms=lock_duration_ms)
    detail = problem(refused, 422, "INVALID_REQUEST", 42)["detail"]
    assert detail == f"lock_duration_ms must be in the range 1000 to {12 * HOUR_MS} inclusive, not {lock_duration_ms}"
    gateway.fetch(name, name)
    renewals = [
        acknowledge_range(name, 0, 0, "renew", lock_duration_ms=lock_duration_ms),
        acknowledge_range(name, 0, 0, "accept", lock_duration_ms=lock_duration_ms),
    ]
    assert outcomes(gateway.try_acknowledge(name, renewals)) == [42, "applied"]
