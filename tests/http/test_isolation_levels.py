"""What a group with `share.isolation.level` sees of transactions. Their rows are written by SQL, beside the gateway."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from sharequeue.protocol.apis import ARROW_STREAM
from tests.http.calls import HANG_S, LONG_MS, Gateway, good, wait_until, woken
from tests.http.transactions_of_a_topic import Transactions


@pytest.fixture
def producer(gateway: Gateway, shared_database: str, name: str) -> Transactions:
    return Transactions(gateway, shared_database, name)


def fetched(gateway: Gateway, group: str, wanted: str, **fields: Any) -> list[dict[str, Any]]:
    """Fetch until so many values have come, as the gateway learns of what SQL has written within half a second.

    Returns: the batches that were acquired.
    """
    batches: list[dict[str, Any]] = []

    def there() -> bool:
        batches.extend(gateway.fetch(group, group, max_wait_ms=500, **fields)["batches"])
        return len(values(batches)) >= len(wanted)

    wait_until(there)
    assert values(batches) == wanted
    return batches


def values(batches: list[dict[str, Any]]) -> str:
    return "".join(record["value"] for batch in batches for record in batch["records"])


def read_committed(gateway: Gateway, group: str) -> None:
    gateway.configure(group, share_isolation_level="read_committed")


@pytest.mark.parametrize(("commit", "rest"), [(True, "xyfg"), (False, "fg")])
def test_the_end_of_a_transaction_wakes_a_waiting_fetch(
    gateway: Gateway, producer: Transactions, name: str, commit: bool, rest: str, background: ThreadPoolExecutor
) -> None:
    read_committed(gateway, name)
    transaction = producer.begin()
    producer.send("xy", transaction)
    gateway.produce(name, *"fg")
    with woken(gateway):
        waiting = background.submit(gateway.fetch, name, name, max_wait_ms=LONG_MS)
        wait_until(lambda: gateway.metrics()["sharequeue_waiting_fetches"] == 1)
        producer.end(transaction, commit=commit)
        received = values(waiting.result(HANG_S)["batches"])
    while len(received) < len(rest):
        received += values(gateway.fetch(name, name, max_wait_ms=LONG_MS)["batches"])
    assert received == rest


def test_tx_005_an_aborted_record_is_not_delivered_again_after_the_level_was_changed(
    gateway: Gateway, producer: Transactions, name: str
) -> None:
    producer.whole("3", commit=True)
    producer.whole("4", commit=False)
    for batch in fetched(gateway, name, "34"):
        assert gateway.settle(name, name, batch["first_offset"], batch["last_offset"], "release") == "applied"
    read_committed(gateway, name)
    for text, commit in (("5", True), ("6", False), ("7", False), ("8", True)):
        producer.whole(text, commit=commit)
    batches = fetched(gateway, name, "358")
    assert [batch["delivery_count"] for batch in batches] == [2, 1, 1]
    assert gateway.acquire(name, name, max_wait_ms=700) == []


def test_records_of_an_open_transaction_wait_in_the_window_after_the_level_was_changed(
    gateway: Gateway, producer: Transactions, name: str
) -> None:
    transaction = producer.begin()
    producer.send("ab", transaction)
    (batch,) = fetched(gateway, name, "ab")
    assert gateway.settle(name, name, batch["first_offset"], batch["last_offset"], "release") == "applied"
    read_committed(gateway, name)
    assert gateway.acquire(name, name, max_wait_ms=700) == []
    producer.end(transaction, commit=True)
    (batch,) = fetched(gateway, name, "ab")
    assert batch["delivery_count"] == 2
    gateway.configure(name, share_isolation_level="read_uncommitted")
    producer.send("cd", producer.begin())
    fetched(gateway, name, "cd")


def test_a_dead_letter_of_an_aborted_record_has_no_copy_for_a_read_committed_group(
    gateway: Gateway, producer: Transactions, name: str
) -> None:
    producer.whole("a", commit=False)
    producer.whole("b", commit=True)
    fetched(gateway, name, "ab")
    read_committed(gateway, name)
    for offset in (0, 2):
        assert gateway.settle(name, name, offset, offset, "reject") == "applied"
    assert [letter.get("value") for letter in gateway.letters(f"dlq.{name}", 2)] == [None, "b"]
    answer = good(gateway.http.post(f"/v1/share-groups/{name}/dead-letters/redrive", json={"to": "retry"}))
    assert (answer["redriven"], answer["skipped_count"]) == (1, 1)
    fetched(gateway, name, "b", member="m2")


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_arrow_answers_have_no_markers_first_last_or_alone(
    gateway: Gateway, producer: Transactions, name: str, level: str
) -> None:
    """The log: a, marker, b, c, marker."""
    producer.whole("a", commit=True)
    producer.whole("bc", commit=True)
    path = f"/v1/topics/{name}/partitions/0/records"

    def read(offset: int) -> tuple[list[bytes], int]:
        answer = gateway.http.get(
            path, params={"offset": offset, "isolation_level": level}, headers={"Accept": ARROW_STREAM}
        )
        assert answer.status_code == 200, answer.text
        found = pa.ipc.open_stream(answer.content)
        return found.read_all().to_pydict()["value"], int(found.schema.metadata[b"next_offset"])

    wait_until(lambda: gateway.log_ends(name) == [5])
    assert read(0) == ([b'"a"', b'"b"', b'"c"'], 5)
    assert read(1) == ([b'"b"', b'"c"'], 5)
    assert read(4) == ([], 5)
    page = gateway.read(name, isolation_level=level, offset=4)
    assert (page["records"], page["next_offset"]) == ([], 5)


def test_the_lag_and_the_latest_start_are_by_the_log_end(gateway: Gateway, producer: Transactions, name: str) -> None:
    """As in Kafka, whatever the level of the group. `stable_lag` counts up to the last stable offset."""
    read_committed(gateway, name)
    gateway.configure(name, share_auto_offset_reset="latest")
    transaction = producer.begin()
    producer.send("ab", transaction)
    wait_until(lambda: gateway.log_ends(name) == [2])
    assert gateway.acquire(name, name) == []
    assert gateway.offsets(name)[name, 0] == (2, 0), "not at the last stable offset, 0"
    producer.send("c")
    wait_until(lambda: gateway.offsets(name)[name, 0] == (2, 1))
    (offsets,) = good(gateway.http.get(f"/v1/share-groups/{name}/offsets"))["topics"][0]["partitions"]
    assert (offsets["last_stable_offset"], offsets["stable_lag"]) == (0, 0)
    producer.end(transaction, commit=True)
    fetched(gateway, name, "c")
