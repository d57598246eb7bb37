"""Topics that are deleted and made again under their name: what names the old one changes nothing of the new one."""

from typing import Any

import pytest

from sharequeue.stack.stack import Stack
from tests.event_source import EventSource
from tests.http.calls import Gateway, Json, good, outcomes, ranges, wait_until
from tests.http.client_calls import consumers, in_event_loop
from tests.http.test_sessions_and_deleted_topics import WAITING
from tests.http.test_settling import commit, problem, values
from tests.http.test_transactions import begin

UNKNOWN_TOPIC_ID = 100
HELD = ["0-4 ACQUIRED×1"]


def again(gateway: Gateway, topic: str, **config: str) -> None:
    """Delete a topic, make it again, and produce five records."""
    assert gateway.http.delete(f"/v1/topics/{topic}").status_code == 204
    gateway.create_topic(topic, **config)
    gateway.produce(topic, *(f"new {number}" for number in range(5)))


def held(gateway: Gateway, topic: str) -> tuple[Json, Json]:
    """Acknowledgements of five records of a deleted topic, and of the five of its successor. `m1` holds the latter."""
    gateway.configure(topic, share_auto_offset_reset="earliest")
    gateway.create_topic(topic)
    gateway.produce(topic, *(f"old {number}" for number in range(5)))
    (old,) = gateway.fetch(topic, topic)["batches"]
    again(gateway, topic)
    (new,) = gateway.fetch(topic, topic)["batches"]
    assert old["topic_id"] != new["topic_id"] == gateway.describe_topic(topic)["topic_id"]
    return old | {"type": "accept"}, new | {"type": "accept"}


def test_an_acknowledgement_of_the_old_topic_settles_nothing(gateway: Gateway, name: str) -> None:
    old, new = held(gateway, name)
    answer = gateway.try_acknowledge(name, [old])
    assert (answer.status_code, outcomes(answer)) == (404, [UNKNOWN_TOPIC_ID])
    assert not answer.json()["results"][0].get("retriable")
    assert gateway.window(name, name) == (0, HELD)

    fetched = gateway.fetch(name, name, acknowledgements=[old])["acknowledgement_results"]
    assert [result["kafka_code"] for result in fetched] == [UNKNOWN_TOPIC_ID]
    assert gateway.window(name, name) == (0, HELD)

    both = gateway.try_acknowledge(
        name, [old | {"last_offset": 0}, new | {"last_offset": 0}, old, new | {"first_offset": 1}]
    )
    assert outcomes(both) == [UNKNOWN_TOPIC_ID, "applied", UNKNOWN_TOPIC_ID, "applied"]
    assert gateway.window(name, name) == (5, [])


def test_a_read_that_names_the_old_topic_is_refused(gateway: Gateway, name: str) -> None:
    gateway.produce(name, "old")
    old = gateway.describe_topic(name)["topic_id"]
    again(gateway, name)
    path = f"/v1/topics/{name}/partitions/0/records"
    for accept in ("application/json", "application/vnd.apache.arrow.stream"):
        refused = gateway.http.get(path, params={"topic_id": old}, headers={"Accept": accept})
        assert (refused.status_code, refused.json()["kafka_code"]) == (404, UNKNOWN_TOPIC_ID)
    new = gateway.describe_topic(name)["topic_id"]
    assert gateway.read(name, topic_id=new)["next_offset"] == 5


def test_atomic_acknowledgements_of_both_topics_are_of_two_share_partitions(gateway: Gateway, name: str) -> None:
    old, new = held(gateway, name)
    assert outcomes(gateway.try_acknowledge(name, [old, new], atomic=True)) == [UNKNOWN_TOPIC_ID, "applied"]


def test_an_acknowledgement_of_a_partition_that_only_the_old_topic_had_names_that_topic(
    gateway: Gateway, name: str
) -> None:
    gateway.create_topic(name, 3)
    gateway.produce(name, "old", partition=2)
    (old,) = gateway.fetch(name, name)["batches"]
    again(gateway, name)
    assert outcomes(gateway.try_acknowledge(name, [old | {"type": "accept"}])) == [UNKNOWN_TOPIC_ID]


def test_an_acknowledgement_without_an_id_goes_by_name(gateway: Gateway, name: str) -> None:
    _, new = held(gateway, name)
    assert outcomes(gateway.try_acknowledge(name, [new | {"topic_id": None}])) == ["applied"]


@pytest.mark.parametrize("topic_id", ["", "x" * 1000])
def test_an_id_of_no_topic_is_refused(gateway: Gateway, name: str, topic_id: str) -> None:
    _, new = held(gateway, name)
    answer = gateway.try_acknowledge(name, [new | {"topic_id": topic_id}])
    assert outcomes(answer) == [UNKNOWN_TOPIC_ID]
    assert len(answer.json()["results"][0]["detail"]) < 150
    assert gateway.window(name, name) == (0, HELD)


def test_a_commit_and_records_settle_nothing_of_the_new_topic(gateway: Gateway, name: str) -> None:
    old, new = held(gateway, name)
    gateway.create_topic(f"{name}-out")
    refused = problem(commit(gateway, begin(gateway)["transaction_id"], name, old), 409, 48)
    assert [result["kafka_code"] for result in refused["results"]] == [UNKNOWN_TOPIC_ID]

    def carry(what: Json) -> Any:
        return gateway.try_acknowledge(name, [what], produce=[{"topic": f"{name}-out", "records": [{"value": 1}]}])

    refused = problem(carry(old), 409, 121)
    assert [result["kafka_code"] for result in refused["results"]] == [UNKNOWN_TOPIC_ID]
    assert (gateway.window(name, name), values(gateway, f"{name}-out")) == ((0, HELD), [])
    good(carry(new))
    assert (gateway.window(name, name), values(gateway, f"{name}-out")) == ((5, []), [1])


@in_event_loop
async def test_the_client_settles_no_record_of_the_new_topic(gateway: Gateway, shared_stack: Stack, name: str) -> None:
    gateway.configure(name, share_auto_offset_reset="earliest")
    gateway.create_topic(name)
    gateway.produce(name, *range(5))
    async with consumers(shared_stack, name, name, acknowledgement="deferred") as consumer:
        old = await consumer.poll(30_000)
        again(gateway, name)
        new = await consumer.poll(30_000)
        assert [record.value for record in new] == [f"new {number}" for number in range(5)]
        for record in old:
            consumer.acknowledge(record)
        assert {failure.code for failure in (await consumer.commit()).failures} == {"UNKNOWN_TOPIC_ID"}
        assert gateway.window(name, name) == (0, HELD)
        for record in new:
            consumer.acknowledge(record)
        assert await consumer.commit() == {(name, 0): 5}


def test_a_stream_has_all_its_room_for_the_new_topic(gateway: Gateway, shared_stack: Stack, name: str) -> None:
    """Another topic keeps it open. What it was sent of the deleted one is not held any more."""
    other = f"{name}-other"
    for topic in (name, other):
        gateway.create_topic(topic)
    gateway.configure(name, share_auto_offset_reset="earliest")
    gateway.produce(name, *range(5))
    waiting = gateway.metrics()[WAITING]
    source = EventSource(shared_stack.url, name, f"{name},{other}", window=10)
    try:
        assert ranges(source.next().data) == ["0-4×1"]
        wait_until(lambda: gateway.metrics()[WAITING] == waiting + 1)
        again(gateway, name)
        gateway.produce(name, *range(5, 10))
        seen: list[int] = []
        while len(seen) < 10:  # a problem of the deleted topic may come first
            for batch in source.next().data.get("batches", ()):
                assert batch["delivery_count"] == 1, "it holds ten: no lock ends first"
                seen += range(batch["first_offset"], batch["last_offset"] + 1)
        assert seen == [*range(10)]
    finally:
        source.cut()
