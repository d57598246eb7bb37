"""Redriving dead letters: selection, repetition, receivers, and the redriven records."""

from pathlib import Path
from typing import Any

import pytest
from sharequeue_gateway.http.answers.page_tokens import PageTokens

from tests.http.calls import Gateway, Json, good, problem, wait_until


def redrive(gateway: Gateway, group: str, **fields: Any) -> Json:
    return dict(good(gateway.http.post(f"/v1/share-groups/{group}/dead-letters/redrive", json=fields)))


def dead(gateway: Gateway, group: str, topic: str, count: int, **fields: Any) -> None:
    """Have the group reject the next records of a topic; returns when their dead letters are written."""
    answer = gateway.fetch(group, topic, max_records=count)
    for batch in answer["batches"]:
        first, last = batch["first_offset"], batch["last_offset"]
        assert gateway.settle(group, topic, first, last, "reject", partition=batch["partition"], **fields) == "applied"
    under_way = {"ACQUIRED", "ARCHIVING"}

    def written() -> bool:
        states = {
            batch["delivery_state"]
            for partition in gateway.in_flight(group, topic=topic)
            for batch in partition["batches"]
        }
        return not states & under_way

    wait_until(written)


def records(gateway: Gateway, group: str, topic: str) -> list[tuple[Any, Any, Json, int]]:
    """The records that the group fetches: (key, value, headers, delivery count)."""
    return [
        (record["key"], record["value"], record.get("headers", {}), batch["delivery_count"])
        for batch in gateway.fetch(group, topic)["batches"]
        for record in batch["records"]
    ]


def test_dead_letters_are_redriven_only_to_their_group(gateway: Gateway, name: str) -> None:
    other = f"{name}-other"
    gateway.produce(name, {"n": 1}, key="k", headers={"trace": "x"})
    assert len(records(gateway, other, name)) == 1
    assert gateway.settle(other, name, 0, 0, "accept") == "applied"
    dead(gateway, name, name, 1, reason="broken")
    assert redrive(gateway, name, dry_run=True) == {"matched": 1, "redriven": 0}
    assert redrive(gateway, name) == {"matched": 1, "redriven": 1}
    headers = {"trace": "x", "__redrive.group": name}
    gateway.produce(name, "after", headers={})
    assert records(gateway, other, name) == [(None, "after", {}, 1)]
    assert records(gateway, name, name) == [("k", {"n": 1}, headers, 1), (None, "after", {}, 1)]
    assert redrive(gateway, name) == {"matched": 0, "redriven": 0}


def test_records_of_many_batches_and_partitions_are_redriven_unchanged(gateway: Gateway, name: str) -> None:
    """Redriving looks again at a few batches that it read; each record's own headers are in its batch alone."""
    gateway.create_topic(name, 12)
    for number in range(3 * 12):
        pair = [
            {"partition": number % 12, "value": f"{number} {half}", "headers": {"n": f"{number} {half}"}}
            for half in range(2)
        ]
        good(gateway.http.post(f"/v1/topics/{name}/records", json={"records": pair}))
    dead(gateway, name, name, 100)
    assert redrive(gateway, name) == {"matched": 72, "redriven": 72}
    found = {value: headers["n"] for _, value, headers, _ in records(gateway, name, name)}
    assert found == {f"{number} {half}": f"{number} {half}" for number in range(36) for half in range(2)}


def test_another_group_skips_redriven_records_for_good(gateway: Gateway, name: str) -> None:
    """Nothing but redriven records behind the group, more than one fetch takes: it waits, and goes on with the next."""
    other = f"{name}-other"
    gateway.produce_batches(name, 5)
    gateway.acquire(other, name)
    gateway.settle(other, name, 0, 4, "accept")
    for _ in range(3):
        dead(gateway, name, name, 5)
        assert redrive(gateway, name)["redriven"] == 5
    assert gateway.acquire(other, name, max_records=2) == []
    gateway.produce(name, "new")
    assert gateway.acquire(other, name, max_records=2) == ["20-20×1"]
    assert gateway.settle(other, name, 20, 20, "accept") == "applied"
    assert gateway.offsets(other)[name, 0][1] == 0


def test_redriving_to_the_source_reaches_every_group(gateway: Gateway, name: str) -> None:
    other = f"{name}-other"
    gateway.produce(name, 7)
    gateway.acquire(other, name)
    gateway.settle(other, name, 0, 0, "accept")
    dead(gateway, name, name, 1)
    assert redrive(gateway, name, to="source") == {"matched": 1, "redriven": 1}
    for group in (name, other):
        assert records(gateway, group, name) == [(None, 7, {}, 1)]
    assert redrive(gateway, name, to="retry") == {"matched": 0, "redriven": 0}


def test_redriving_follows_filters_and_limits(gateway: Gateway, name: str) -> None:
    topics = [f"{name}-a", f"{name}-b"]
    for topic in topics:
        gateway.produce(topic, *range(4))
    dead(gateway, name, topics[0], 2, reason="too large")
    dead(gateway, name, topics[0], 2, reason="too small")
    dead(gateway, name, topics[1], 4, reason="too large")

    def matched(**fields: Any) -> int:
        return int(redrive(gateway, name, dry_run=True, **fields)["matched"])

    assert matched() == 8
    assert matched(topic=topics[1]) == 4
    assert matched(reason="large") == 6
    assert matched(reason="rejected by client") == 8
    assert matched(topic=topics[0], reason="small") == 2
    assert matched(before_ms=1) == 0
    assert matched(max_records=3) == 3
    for _ in range(2):
        answer = redrive(gateway, name, max_records=3)
        assert (answer["matched"], answer["redriven"]) == (3, 3)
    assert redrive(gateway, name) == {"matched": 2, "redriven": 2}
    found = [value for topic in topics for _, value, _, _ in records(gateway, name, topic)]
    assert sorted(found) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_page_begins_where_the_last_one_ended(gateway: Gateway, name: str) -> None:
    """Through the partitions of the dead-letter topic, then the parked dead letters; none is read twice."""
    letters, other = f"{name}-letters", f"{name}-other"
    gateway.create_topic(letters, 3, errors_deadletterqueue_group_enable=True)
    gateway.configure(name, errors_deadletterqueue_topic_name=letters)
    gateway.create_topic(name, 3)
    for partition in range(3):
        gateway.produce_batches(name, 4, partition=partition)
    dead(gateway, name, name, 12)
    gateway.create_topic(other)
    gateway.configure(name, errors_deadletterqueue_topic_name=other)
    gateway.produce_batches(name, 3)
    dead(gateway, name, name, 3)
    gateway.configure(name, errors_deadletterqueue_topic_name=letters)

    def pages(**fields: Any) -> list[int]:
        answer = redrive(gateway, name, max_records=2, **fields)
        matched = [answer["matched"]]
        while token := answer.get("next_page_token"):
            answer = redrive(gateway, name, max_records=2, page_token=token, **fields)
            matched.append(answer["matched"])
        return matched

    assert pages(dry_run=True) == [2] * 7 + [1], "records that were not redriven are not matched again"
    assert pages() == [2] * 7 + [1]
    assert redrive(gateway, name) == {"matched": 0, "redriven": 0}


def test_a_page_token_of_a_deleted_topic_begins_at_the_new_topics_start(gateway: Gateway, name: str) -> None:
    """The page begins at the start of the new topic."""
    gateway.produce(name, 1, 2, 3)
    dead(gateway, name, name, 3)
    token = redrive(gateway, name, max_records=2)["next_page_token"]
    assert gateway.http.delete(f"/v1/topics/dlq.{name}").status_code == 204
    dead(gateway, name, name, 2)
    assert redrive(gateway, name, page_token=token) == {"matched": 2, "redriven": 2}


def test_an_invalid_page_token_is_refused_and_one_beyond_the_end_finds_nothing(
    gateway: Gateway, shared_data_dir: Path, name: str
) -> None:
    path = f"/v1/share-groups/{name}/dead-letters/redrive"
    problem(gateway.http.post(path, json={"page_token": "x"}), 422, "INVALID_REQUEST", 42)
    gateway.produce(name, 1)
    dead(gateway, name, name, 1)
    letters = gateway.describe_topic(f"dlq.{name}")["topic_id"]

    def token(partition: int, offset: int) -> str:
        return PageTokens((shared_data_dir / "cluster.token").read_text()).token((False, letters, partition, offset, 0))

    problem(gateway.http.post(path, json={"page_token": token(0, 2**63 - 1)}), 422, "INVALID_REQUEST", 42)
    for beyond in (token(0, 2**63 - 2), token(2**31 - 1, 0)):
        assert redrive(gateway, name, page_token=beyond) == {"matched": 0, "redriven": 0}


def test_a_dead_letter_without_record_or_copy_is_skipped(gateway: Gateway, name: str) -> None:
    gateway.configure(name, errors_deadletterqueue_copy_record_enable=False)
    gateway.produce(name, 1, 2)
    dead(gateway, name, name, 2)
    gateway.delete_records(name, 1)
    assert redrive(gateway, name) == {"matched": 2, "redriven": 1, "skipped_count": 1}
    assert records(gateway, name, name) == [(None, 2, {"__redrive.group": name}, 1)]


def test_redriving_a_group_without_dead_letters_does_nothing(gateway: Gateway, name: str) -> None:
    assert redrive(gateway, name) == {"matched": 0, "redriven": 0}
    path = f"/v1/share-groups/{name}/dead-letters/redrive"
    problem(gateway.http.post(path, json={"topic": f"{name}-no"}), 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)


@pytest.mark.parametrize("to", ["retry", "source"])
def test_a_record_that_left_the_log_is_redriven_with_its_headers(gateway: Gateway, name: str, to: str) -> None:
    own = {"trace": "x", "content-type": "text/plain"}
    gateway.produce(name, "a", headers=own)
    gateway.produce(name, None, headers=own)
    dead(gateway, name, name, 2)
    gateway.delete_records(name, 2)
    assert redrive(gateway, name, to=to) == {"matched": 2, "redriven": 2}
    headers = {**own, "__redrive.group": name} if to == "retry" else own
    assert [(value, found) for _, value, found, _ in records(gateway, name, name)] == [("a", headers), (None, headers)]
