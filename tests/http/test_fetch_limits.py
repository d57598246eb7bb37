"""The options of a fetch, over HTTP: its limits, its mode, its repetition (fetch_id), and answers without records."""

from concurrent.futures import ThreadPoolExecutor

from tests.http.calls import HANG_S, LONG_MS, Gateway, good, offsets, problem, ranges, wait_until, woken


def test_a_repeated_fetch_gets_the_same_records_without_a_new_delivery(gateway: Gateway, name: str) -> None:
    gateway.produce_batches(name, 4, 4)
    first = gateway.fetch(name, name, fetch_id="a", max_records=5)
    for _ in range(2):
        again = gateway.fetch(name, name, fetch_id="a", max_records=500)
        assert again["batches"] == first["batches"]
    assert ranges(first) == ["0-4×1"]
    assert gateway.acquire(name, name, fetch_id="b") == ["5-7×1"]


def test_a_repeated_fetch_gets_the_records_still_held(gateway: Gateway, name: str) -> None:
    gateway.produce_batches(name, 6)
    gateway.acquire(name, name, fetch_id="a")
    assert gateway.settle(name, name, 1, 2, "accept") == "applied"
    again = gateway.fetch(name, name, fetch_id="a")
    assert (ranges(again), offsets(again)) == (["0-0×1", "3-5×1"], [0, 3, 4, 5])
    assert gateway.settle(name, name, 0, 0, "accept") == "applied"
    assert gateway.settle(name, name, 3, 5, "release") == "applied"
    assert gateway.acquire(name, name, fetch_id="a") == ["3-5×2"]


def test_a_repeat_replaces_the_waiting_fetch(gateway: Gateway, name: str, background: ThreadPoolExecutor) -> None:
    gateway.create_topic(name)
    gateway.acquire(name, name)
    waiting = {"fetch_id": "a", "max_wait_ms": LONG_MS}
    with woken(gateway):
        first = background.submit(gateway.acquire, name, name, **waiting)
        wait_until(lambda: gateway.metrics()["sharequeue_waiting_fetches"] == 1)
        second = background.submit(gateway.acquire, name, name, **waiting)
        assert first.result(HANG_S) == []
        gateway.produce_batches(name, 2)
        assert second.result(HANG_S) == ["0-1×1"]
    assert gateway.acquire(name, name, fetch_id="a") == ["0-1×1"]


def test_a_repeat_applies_its_acknowledgements_once(gateway: Gateway, name: str) -> None:
    gateway.produce_batches(name, 2, 2)
    gateway.acquire(name, name, max_records=2)
    accept = {"topic": name, "partition": 0, "first_offset": 0, "last_offset": 1, "delivery_count": 1, "type": "accept"}
    for expected in ("applied", "ignored"):
        answer = gateway.fetch(name, name, fetch_id="b", acknowledgements=[accept])
        assert ranges(answer) == ["2-3×1"]
        assert [result["status"] for result in answer["acknowledgement_results"]] == [expected]
        assert answer["failed_count"] == 0


def test_without_records_only_ranges_are_answered(gateway: Gateway, name: str) -> None:
    gateway.produce_batches(name, 3, 3)
    answer = gateway.fetch(name, name, with_records=False)
    (batch,) = answer["batches"]
    assert "records" not in batch
    assert ranges(answer) == ["0-5×1"]
    read = gateway.read(name, offset=batch["first_offset"], max_records=batch["last_offset"] + 1)
    assert [record["value"] for record in read["records"]] == [0, 1, 2, 0, 1, 2]
    assert gateway.settle(name, name, 0, 5, "accept") == "applied"


def test_read_records_acquires_no_lock(gateway: Gateway, name: str) -> None:
    gateway.produce_batches(name, 3, 4)
    assert [record["offset"] for record in gateway.read(name, offset=1, max_records=4)["records"]] == [1, 2, 3, 4]
    partly = gateway.read(name, offset=2, max_bytes=1)
    assert ([record["offset"] for record in partly["records"]], partly["next_offset"]) == ([2], 3)
    at_the_end = gateway.read(name, offset=7)
    assert at_the_end == {"records": [], "next_offset": 7, "log_start_offset": 0, "log_end_offset": 7}
    beyond = gateway.http.get(f"/v1/topics/{name}/partitions/0/records", params={"offset": 8})
    problem(beyond, 422, "OFFSET_OUT_OF_RANGE", 1)
    assert gateway.acquire(name, name) == ["0-6×1"]


def test_read_records_refuses_invalid_queries_and_unknown_partitions(gateway: Gateway, name: str) -> None:
    gateway.produce_batches(name, 1)
    path = f"/v1/topics/{name}/partitions/0/records"
    for query in ({"offset": -1}, {"offset": "x"}, {"max_records": 0}, {"limit": 5}, {"offset": 2**63}):
        problem(gateway.http.get(path, params=query), 422, "INVALID_REQUEST", 42)
    problem(gateway.http.get(path, params={"isolation_level": "committed"}), 422, "INVALID_REQUEST", 42)
    for level in ("read_committed", "read_uncommitted"):
        assert len(good(gateway.http.get(path, params={"isolation_level": level}))["records"]) == 1
    for partition in ("x", "1" * 5000):
        problem(gateway.http.get(f"/v1/topics/{name}/partitions/{partition}/records"), 422, "INVALID_REQUEST", 42)
    problem(gateway.http.get(f"/v1/topics/{name}/partitions/1/records"), 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)
    problem(gateway.http.get("/v1/topics/nothing/partitions/0/records"), 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)
