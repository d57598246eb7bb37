"""Dead letters over HTTP (family DQ): written, parked, or waiting until they can be written."""

import json
import time
from typing import Any

import pytest

from tests.http.calls import CLOCKS_APART_MS, LONG_MS, Gateway, acknowledge_range, good, outcomes, wait_until
from tests.http.database import refused_dead_letters, sql
from tests.http.test_transactions import begin, end, produce
from tests.kafka_log.on_kafka import ON_KAFKA

REJECTED = "Offset rejected by client."


def sources(found: list[dict[str, Any]]) -> list[int]:
    return [int(letter["headers"]["__dlq.errors.offset"]) for letter in found]


def reject(gateway: Gateway, name: str, first: int, last: int, **fields: Any) -> None:
    assert gateway.settle(name, name, first, last, "reject", **fields) == "applied"


def test_dq_001_the_headers_name_the_source_of_a_dead_letter(gateway: Gateway, name: str) -> None:
    gateway.configure(name, errors_deadletterqueue_copy_record_enable=False)
    gateway.produce(name, *range(5), key="k", headers={"own": "not copied"})
    gateway.acquire(name, name)
    reject(gateway, name, 0, 4)
    found = gateway.letters(f"dlq.{name}", 5)
    for offset, letter in enumerate(found):
        assert (letter["offset"], letter["key"], letter["value"]) == (offset, None, None)
        assert letter["headers"] == {
            "__dlq.errors.topic": name,
            "__dlq.errors.topic.id": gateway.describe_topic(name)["topic_id"],
            "__dlq.errors.partition": "0",
            "__dlq.errors.offset": str(offset),
            "__dlq.errors.group": name,
            "__dlq.errors.delivery.count": "1",
            "__dlq.errors.message": REJECTED,
        }
    wait_until(lambda: gateway.window(name, name) == (5, []))
    assert gateway.metrics()[f'sharequeue_dead_letter_records_total{{group="{name}"}}'] == 5


def test_a_dead_letter_is_no_part_of_the_transaction_of_its_client(gateway: Gateway, name: str) -> None:
    """The client writes to the topic of dead letters, too, and aborts."""
    gateway.produce(name, *range(3))
    gateway.acquire(name, name)
    reject(gateway, name, 0, 0)
    gateway.letters(f"dlq.{name}", 1)
    transaction = begin(gateway)["transaction_id"]
    good(produce(gateway, f"dlq.{name}", transaction, "aborted"))
    reject(gateway, name, 1, 2)
    gateway.letters(f"dlq.{name}", 4)
    assert good(end(gateway, transaction, "abort"))["partitions"] == 1
    committed = {"isolation_level": "read_committed", "offset": 1}
    page = gateway.http.get(f"/v1/topics/dlq.{name}/partitions/0/records", params=committed)
    assert sources(good(page)["records"]) == [1, 2]


def test_a_dead_letter_topic_that_is_not_there_yet_says_when_it_is_made(gateway: Gateway, name: str) -> None:
    answer = gateway.http.get(f"/v1/topics/dlq.{name}/partitions/0/records")
    assert (answer.status_code, answer.json()["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
    made = "a group's dead-letter topic is made with its first dead letter"
    assert answer.json()["detail"] == f"there is no topic 'dlq.{name}'; {made}"


def test_the_reasons_of_earlier_deliveries_are_in_flight_and_in_the_dead_letter(gateway: Gateway, name: str) -> None:
    gateway.produce(name, 1, 2)
    begun_ms = time.time() * 1000 - CLOCKS_APART_MS
    gateway.acquire(name, name)
    assert gateway.settle(name, name, 0, 1, "release", reason="busy", delay_ms=0) == "applied"
    assert gateway.acquire(name, name) == ["0-1×2"]
    assert gateway.settle(name, name, 0, 0, "release", reason="größer", delay_ms=3_600_000) == "applied"
    waiting, held = gateway.in_flight(name)[0]["batches"]
    assert (waiting["reason"], held.get("reason")) == ("größer", None)
    for batch in (waiting, held):
        assert [given["reason"] for given in batch["earlier_reasons"]] == ["busy"]
    assert begun_ms < waiting["earlier_reasons"][0]["at_ms"] <= waiting["reason_at_ms"] < begun_ms + 600_000
    reject(gateway, name, 1, 1, reason="closed")
    (letter,) = gateway.letters(f"dlq.{name}", 1)
    reasons = json.loads(letter["headers"]["__dlq.errors.reasons"])
    assert [given["reason"] for given in reasons] == ["busy", "closed"]
    assert reasons[0] == held["earlier_reasons"][0]
    assert letter["headers"]["__dlq.errors.reason"] == "closed"
    letters = f"/v1/share-groups/{name}/dead-letters"
    listed = wait_until(lambda: good(gateway.http.get(letters))["dead_letters"])  # in Kafka its row follows it
    path = f"/v1/share-groups/{name}/topics/{name}/partitions/0/records/1"
    life = wait_until(lambda: good(gateway.http.get(path)).get("dead_letters"))  # its state follows its letter
    assert [each["reasons"] for each in (*listed, *life)] == [reasons, reasons]


def test_reasons_that_do_not_fit_into_the_dead_letter_topic_are_left_out(gateway: Gateway, name: str) -> None:
    gateway.create_topic(f"dlq.{name}", errors_deadletterqueue_group_enable=True, max_message_bytes=2500)
    gateway.produce(name, 1)
    gateway.acquire(name, name)
    assert gateway.settle(name, name, 0, 0, "release", reason="x" * 1000, delay_ms=0) == "applied"
    gateway.acquire(name, name)
    reject(gateway, name, 0, 0, reason="y" * 1000)
    (letter,) = gateway.letters(f"dlq.{name}", 1)
    assert letter["headers"]["__dlq.errors.reason"] == "y" * 1000
    assert "__dlq.errors.reasons" not in letter["headers"]


def test_dead_letters_carry_the_headers_of_the_record(gateway: Gateway, name: str) -> None:
    gateway.produce(name, 1, headers={"trace": "x", "__dlq.errors.topic": "of an earlier life"})
    gateway.produce(name, 2)
    gateway.acquire(name, name)
    reject(gateway, name, 0, 1)
    kept, none = gateway.letters(f"dlq.{name}", 2)
    own = {header: text for header, text in kept["headers"].items() if header.startswith("__dlq.source.")}
    assert own == {
        "__dlq.source.header.trace": "x",
        "__dlq.source.header.__dlq.errors.topic": "of an earlier life",
    }
    assert kept["headers"]["__dlq.errors.topic"] == name
    assert not any(header.startswith("__dlq.source.") for header in none["headers"])


def test_dq_005_the_dead_letter_topic_is_created(gateway: Gateway, name: str) -> None:
    gateway.configure(name, errors_deadletterqueue_topic_name=f"{name}-dead")
    gateway.produce_batches(name, 5)
    gateway.acquire(name, name)
    reject(gateway, name, 0, 4)
    assert len(gateway.letters(f"{name}-dead", 5)) == 5
    assert gateway.describe_topic(f"{name}-dead")["config"]["errors.deadletterqueue.group.enable"] == "true"


def test_dq_007_dead_letters_are_in_offset_order(gateway: Gateway, name: str) -> None:
    """Of each source partition, in the partition with its number modulo those of the dead-letter topic."""
    gateway.create_topic(f"dlq.{name}", partitions=2, errors_deadletterqueue_group_enable=True)
    gateway.create_topic(name, partitions=3)
    for partition in range(3):
        gateway.produce_batches(name, *[50] * 10, partition=partition)
    seen = 0
    while seen < 1500:
        answer = gateway.fetch(name, name, max_records=700, max_wait_ms=LONG_MS)
        rejections = [
            {
                **acknowledge_range(name, batch["first_offset"], batch["last_offset"], "reject"),
                "partition": batch["partition"],
            }
            for batch in answer["batches"]
        ]
        seen += sum(len(batch["records"]) for batch in answer["batches"])
        assert set(outcomes(gateway.try_acknowledge(name, rejections))) == {"applied"}
    of_p1 = gateway.letters(f"dlq.{name}", 500, partition=1)
    assert sources(of_p1) == list(range(500))
    others = gateway.letters(f"dlq.{name}", 1000, partition=0)
    for source in ("0", "2"):
        assert sources([each for each in others if each["headers"]["__dlq.errors.partition"] == source]) == list(
            range(500)
        )


def test_single_records_that_die_together_share_an_append(gateway: Gateway, name: str) -> None:
    """One append each would take longer the more workers reject, and would keep the window full for that time."""
    gateway.produce_batches(name, 600)
    gateway.acquire(name, name, max_records=600)
    assert gateway.settle(name, name, 0, 599, " ".join(["reject accept"] * 300)) == "applied"
    found = gateway.letters(f"dlq.{name}", 300)
    assert sources(found) == list(range(0, 600, 2))
    assert [letter["value"] for letter in found] == list(range(0, 600, 2))
    batches = good(gateway.http.get(f"/v1/topics/dlq.{name}/partitions/0/batches"))["batches"]
    assert [batch["record_count"] for batch in batches] == [300]
    wait_until(lambda: gateway.window(name, name) == (600, []))


def test_dq_009_a_permanently_refused_dead_letter_is_parked(gateway: Gateway, name: str) -> None:
    """The topic accepts no dead letters of groups."""
    destination = f"{name}-dead"
    gateway.create_topic(destination)
    gateway.configure(name, errors_deadletterqueue_topic_name=destination)
    gateway.produce_batches(name, 4)
    gateway.acquire(name, name)
    reject(gateway, name, 0, 2)

    def parked() -> int:
        return int(gateway.in_flight(name)[0].get("parked_dead_letters", 0))

    assert wait_until(parked) == 3
    cause = f"topic '{destination}' takes no dead letters: its errors.deadletterqueue.group.enable is not true"
    assert gateway.in_flight(name)[0]["parked_cause"] == cause
    wait_until(lambda: gateway.window(name, name) == (3, ["3-3 ACQUIRED×1"]))
    assert gateway.acquire(name, name, member="m2") == []
    assert gateway.metrics()[f'sharequeue_parked_dead_letter_records_total{{group="{name}"}}'] == 3
    assert gateway.log_ends(destination) == [0]


def test_dq_011_without_dead_letters_rejected_records_are_archived_at_once(gateway: Gateway, name: str) -> None:
    gateway.produce_batches(name, 10)
    gateway.acquire(name, name)
    reject(gateway, name, 0, 4)
    gateway.letters(f"dlq.{name}", 5)
    gateway.configure(name, errors_deadletterqueue_topic_name="")
    reject(gateway, name, 5, 9)
    wait_until(lambda: gateway.window(name, name) == (10, []))  # the letters are read before their state is written
    assert len(gateway.letters(f"dlq.{name}", 5)) == 5
    assert gateway.acquire(name, name) == []


def test_dq_017_dq_019_a_dead_letter_that_cannot_be_written_waits_and_is_counted(
    gateway: Gateway, name: str, shared_database: str
) -> None:
    """The record stays ARCHIVING until its dead letter is written."""
    gateway.produce_batches(name, 4)
    gateway.acquire(name, name)

    def shown() -> Any:
        return gateway.in_flight(name)[0].get("dead_letters")

    with refused_dead_letters(shared_database, name, 1, 2):
        reject(gateway, name, 1, 2, delivery_count=1, reason="bad")
        assert gateway.settle(name, name, 0, 0, "accept") == "applied"
        (waiting,) = wait_until(shown)
        assert (waiting["first_offset"], waiting["last_offset"]) == (1, 2)
        assert waiting["attempts"] >= 1
        assert waiting["last_error"].startswith("dead letters cannot be written: PostgreSQL refuses")
        assert waiting["next_attempt_at_ms"] > 0
        assert gateway.window(name, name) == (1, ["1-2 ARCHIVING×1", "3-3 ACQUIRED×1"])
        readiness = good(gateway.http.get("/readyz"))
        assert (readiness["status"], "dead letters" in readiness["dependencies"]) == ("degraded", True)
        metrics = gateway.metrics()
        assert metrics["sharequeue_dead_letters_pending"] == 2
        assert metrics[f'sharequeue_failed_dead_letter_writes_total{{group="{name}"}}'] >= 1
        assert gateway.acquire(name, name, member="m2") == []
        assert gateway.settle(name, name, 1, 2, "reject") == 121
        assert gateway.settle(name, name, 1, 2, "reject", delivery_count=1) == "applied"
    found = gateway.letters(f"dlq.{name}", 2)
    assert sources(found) == [1, 2]
    assert found[0]["headers"]["__dlq.errors.reason"] == "bad"
    wait_until(lambda: gateway.window(name, name) == (3, ["3-3 ACQUIRED×1"]))
    assert good(gateway.http.get("/readyz"))["status"] == "ready"
    assert gateway.metrics()["sharequeue_dead_letters_pending"] == 0


def test_a_range_that_cannot_be_written_stops_no_other(gateway: Gateway, name: str, shared_database: str) -> None:
    gateway.produce_batches(name, 10)
    gateway.acquire(name, name)
    with refused_dead_letters(shared_database, name, 0):
        assert gateway.settle(name, name, 0, 9, " ".join(["reject accept"] * 5)) == "applied"
        assert sources(gateway.letters(f"dlq.{name}", 4)) == [2, 4, 6, 8]
    assert sources(gateway.letters(f"dlq.{name}", 5)) == [2, 4, 6, 8, 0]
    wait_until(lambda: gateway.window(name, name) == (10, []))


def test_a_record_too_large_for_the_topic_is_copied_as_headers_only(gateway: Gateway, name: str) -> None:
    gateway.create_topic(f"dlq.{name}", errors_deadletterqueue_group_enable=True, max_message_bytes=600)
    gateway.produce(name, "x" * 700, "y")
    gateway.acquire(name, name)
    reject(gateway, name, 0, 1)
    assert [letter["value"] for letter in gateway.letters(f"dlq.{name}", 2)] == [None, "y"]


def test_headers_too_large_for_the_topic_are_parked_with_the_record(
    gateway: Gateway, name: str, shared_database: str
) -> None:
    gateway.create_topic(f"dlq.{name}", errors_deadletterqueue_group_enable=True, max_message_bytes=600)
    gateway.produce(name, "a", "b")
    gateway.acquire(name, name)
    for offset, reason in ((0, "long" * 200), (1, "short")):
        reject(gateway, name, offset, offset, reason=reason)
    assert sources(gateway.letters(f"dlq.{name}", 1)) == [1]
    wait_until(lambda: gateway.window(name, name) == (2, []))
    assert gateway.in_flight(name)[0]["parked_dead_letters"] == 1
    ((cause, record),) = sql(
        shared_database,
        "SELECT cause, record FROM log.dead_letter_sources WHERE group_id = $1 AND record IS NOT NULL",
        name,
    )
    assert cause == f"the headers alone exceed the 600 bytes that topic 'dlq.{name}' takes"
    assert b'"value":"a"' in record


@pytest.mark.parametrize("purged", [False, True])
def test_a_record_that_was_deleted_after_its_rejection_is_copied_until_it_is_purged(
    gateway: Gateway, name: str, shared_database: str, purged: bool
) -> None:
    gateway.produce(name, "deleted")
    gateway.produce(name, "still there")
    gateway.acquire(name, name)
    with refused_dead_letters(shared_database, name, 0):
        reject(gateway, name, 0, 1)
        wait_until(lambda: gateway.in_flight(name)[0].get("dead_letters"))
        gateway.delete_records(name, 1)
        if purged:
            topic_id = gateway.describe_topic(name)["topic_id"]
            sql(shared_database, "DELETE FROM log.record_batches WHERE topic_id = $1 AND base_offset = 0", topic_id)
    letters = gateway.letters(f"dlq.{name}", 2)
    gone = purged or ON_KAFKA  # which keeps nothing below its log start
    assert [letter["value"] for letter in letters] == [None if gone else "deleted", "still there"]


def test_large_dead_letters_are_written_one_mebibyte_at_a_time(
    gateway: Gateway, name: str, shared_database: str
) -> None:
    value = "x" * 400_000
    gateway.produce(name, *[value] * 12)
    gateway.acquire(name, name)
    reject(gateway, name, 0, 11)
    found = gateway.letters(f"dlq.{name}", 12)
    assert sources(found) == list(range(12))
    assert all(letter["value"] == value for letter in found)
    if ON_KAFKA:  # an offset after each append is the end of its transaction
        assert [letter["offset"] for letter in found] == [index + index // 2 for index in range(12)]
        return
    topic_id = gateway.describe_topic(f"dlq.{name}")["topic_id"]
    sizes = sql(
        shared_database,
        "SELECT record_count FROM log.record_batches WHERE topic_id = $1 ORDER BY base_offset",
        topic_id,
    )
    assert sizes == [(2,)] * 6


def test_what_a_group_rejects_from_its_own_dead_letter_topic_stays_there_alone(gateway: Gateway, name: str) -> None:
    """The group would get a further dead letter again and again, for ever."""
    own = f"dlq.{name}"
    gateway.produce(name, 1)
    gateway.acquire(name, name)
    reject(gateway, name, 0, 0)
    gateway.letters(own, 1)
    assert gateway.acquire(name, own, max_wait_ms=LONG_MS) == ["0-0×1"]
    assert gateway.settle(name, own, 0, 0, "reject") == "applied"
    end = 2 if ON_KAFKA else 1  # the end of a transaction has an offset there
    wait_until(lambda: gateway.window(name, own)[1] == [])
    assert gateway.log_ends(own) == [end]


def test_letters_that_their_topic_refuses_are_parked_without_the_others(gateway: Gateway, name: str) -> None:
    """On Kafka a compacted topic takes no record without a key."""
    gateway.create_topic(f"dlq.{name}", errors_deadletterqueue_group_enable=True, cleanup_policy="compact")
    keys = [None, "a", None, "b", "c"]
    for key in keys:
        gateway.produce(name, "x", key=key)
    gateway.acquire(name, name)
    reject(gateway, name, 0, 4)
    taken = [offset for offset, key in enumerate(keys) if key or not ON_KAFKA]
    assert sources(gateway.letters(f"dlq.{name}", len(taken))) == taken
    wait_until(lambda: gateway.window(name, name) == (5, []))
    assert gateway.in_flight(name)[0].get("parked_dead_letters", 0) == len(keys) - len(taken)
