"""Share sessions over HTTP: families SS and SR, and renewal (RN), which sessions carry."""

from concurrent.futures import ThreadPoolExecutor

from tests.http.calls import (
    HANG_S,
    LONG_MS,
    Gateway,
    acknowledge_range,
    outcomes,
    problem,
    woken,
)

NO_LIMITS = {"max_records": 0, "max_bytes": 0, "min_bytes": 0, "max_wait_ms": 0}


def only(topic: str, *partitions: int) -> list[dict[str, object]]:
    return [{"topic": topic, "partitions": list(partitions)}]


def two_partitions(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, partitions=2)
    gateway.produce_batches(name, 10, partition=0)
    gateway.produce_batches(name, 10, partition=1)


def test_ss_007_a_repeated_epoch_is_refused(gateway: Gateway, name: str) -> None:
    """Without a fetch_id; the acknowledgements of the refused request are not applied."""
    gateway.produce_batches(name, 2)
    gateway.acquire(name, name, share_session_epoch=0)
    assert gateway.acquire(name, share_session_epoch=1) == []
    accept = [acknowledge_range(name, 0, 1, "accept")]
    for epoch in (1, 3):
        refused = gateway.try_fetch(name, share_session_epoch=epoch, acknowledgements=accept)
        problem(refused, 409, "INVALID_SHARE_SESSION_EPOCH", 123)
        refused = gateway.try_acknowledge(name, accept, share_session_epoch=epoch)
        problem(refused, 409, "INVALID_SHARE_SESSION_EPOCH", 123)
    assert gateway.window(name, name) == (0, ["0-1 ACQUIRED×1"])
    assert gateway.acquire(name, share_session_epoch=2) == []


def test_ss_013_forgotten_partitions_can_be_acknowledged(gateway: Gateway, name: str) -> None:
    two_partitions(gateway, name)
    assert sorted(gateway.acquire(name, name, share_session_epoch=0)) == ["0-9×1", "1:0-9×1"]
    for partition in (0, 1):
        gateway.produce_batches(name, 10, partition=partition)
    assert gateway.acquire(name, share_session_epoch=1, forgotten_topics=only(name, 0)) == ["1:10-19×1"]
    assert gateway.acquire(name, share_session_epoch=2, max_wait_ms=500) == []
    expected = [(5, 9, ["applied"]), (0, 5, [121])]
    for epoch, (first, last, outcome) in enumerate(expected, start=3):
        accept = [acknowledge_range(name, first, last, "accept")]
        assert outcomes(gateway.try_acknowledge(name, accept, share_session_epoch=epoch)) == outcome


# Closing


def test_sr_011_closing_wakes_a_waiting_fetch(gateway: Gateway, name: str, background: ThreadPoolExecutor) -> None:
    two_partitions(gateway, name)
    assert len(gateway.acquire(name, name, share_session_epoch=0)) == 2
    waiting = [
        background.submit(
            gateway.acquire, name, member=f"m{number}", topic_partitions=only(name, number), max_wait_ms=LONG_MS
        )
        for number in (0, 1)
    ]
    with woken(gateway):
        gateway.fetch(name, share_session_epoch=-1, member="m1")
        assert [answer.result(HANG_S) for answer in waiting] == [["0-9×2"], ["1:0-9×2"]]


def test_sr_013_closing_releases_nothing_of_forgotten_partitions(gateway: Gateway, name: str) -> None:
    two_partitions(gateway, name)
    gateway.acquire(name, name, share_session_epoch=0)
    gateway.fetch(name, share_session_epoch=1, forgotten_topics=only(name, 0))
    gateway.fetch(name, share_session_epoch=-1)
    assert gateway.acquire(name, name, member="m2", max_wait_ms=LONG_MS) == ["1:0-9×2"]
    assert gateway.window(name, name) == (0, ["0-9 ACQUIRED×1"])
    assert gateway.settle(name, name, 0, 9, "accept") == "applied"


def test_closing_acknowledges_first(gateway: Gateway, name: str) -> None:
    gateway.produce_batches(name, 4)
    gateway.acquire(name, name, share_session_epoch=0)
    accept = [acknowledge_range(name, 0, 1, "accept")]
    closed = gateway.fetch(name, share_session_epoch=-1, acknowledgements=accept)
    assert (closed["acknowledgement_results"], closed["batches"]) == ([{"status": "applied"}], [])
    assert gateway.acquire(name, name, member="m2", max_wait_ms=LONG_MS) == ["2-3×2"]


# Renewal


def expiry_ms(gateway: Gateway, name: str, first: int = 0) -> int:
    batches = gateway.in_flight(name)[0]["batches"]
    return next(batch["lock_expires_at_ms"] for batch in batches if batch["first_offset"] == first)


def test_rn_011_is_renew_ack_fetches_nothing(gateway: Gateway, name: str) -> None:
    gateway.produce_batches(name, 1)
    gateway.acquire(name, name, share_session_epoch=0)
    gateway.produce_batches(name, 1)
    renew = {"acknowledgements": [acknowledge_range(name, 0, 0, "renew")], "is_renew_ack": True}
    misuse = gateway.try_fetch(name, share_session_epoch=1, **renew, max_bytes=1)
    assert "max_bytes" in problem(misuse, 422, "INVALID_REQUEST", 42)["detail"]
    answer = gateway.fetch(name, share_session_epoch=1, **renew, **NO_LIMITS)
    assert answer["acknowledgement_results"] == [{"status": "applied"}]
    assert (answer["batches"], answer["acquisition_lock_timeout_ms"]) == ([], 30_000)
    assert gateway.acquire(name, share_session_epoch=2) == ["1-1×1"]


def test_a_renewal_in_a_fetch_without_is_renew_ack_is_refused(gateway: Gateway, name: str) -> None:
    gateway.produce_batches(name, 1)
    gateway.acquire(name, name)
    before_ms = expiry_ms(gateway, name)
    answer = gateway.fetch(name, name, acknowledgements=[acknowledge_range(name, 0, 0, "renew")])
    (result,) = answer["acknowledgement_results"]
    assert (result["status"], result["kafka_code"], answer["failed_count"]) == ("failed", 42, 1)
    assert expiry_ms(gateway, name) == before_ms
