"""A fetch with `priority` takes records of the first of its topics that has some, and lets no lower one starve."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from sharequeue.client import ShareConsumer
from sharequeue.stack.stack import Stack
from tests.http.calls import LONG_MS, Gateway, Json, acknowledge_range, good, problem, wait_until, woken
from tests.http.client_calls import in_event_loop


@pytest.fixture
def topics(gateway: Gateway, name: str) -> list[str]:
    """Three topics in the order of priority. By name they would come in another order."""
    made = [f"{name}.{end}" for end in ("z", "m", "a")]
    for topic, partitions in zip(made, (1, 3, 2), strict=True):
        gateway.create_topic(topic, partitions)
    return made


def given(gateway: Gateway, group: str, topics: list[str] | None, **fields: object) -> list[str]:
    """The topics of a fetch's batches."""
    named = {} if topics is None else {"topics": topics}
    answer = gateway.fetch(group, **{"priority": True, **named, **fields})
    return [batch["topic"] for batch in answer["batches"]]


def test_records_come_from_the_first_topic_that_has_some(gateway: Gateway, name: str, topics: list[str]) -> None:
    first, second, third = topics
    for topic in (third, second):
        gateway.produce(topic, *range(3), partition=1)
    assert given(gateway, name, topics, max_records=1) == [second]
    gateway.produce(first, 1)
    assert given(gateway, name, topics) == [first], "not filled up with others"
    assert given(gateway, name, topics) == [second]
    assert given(gateway, name, topics) == [third]
    assert given(gateway, name, topics) == []


@pytest.mark.parametrize("idle", [0, 1])
def test_none_starves(gateway: Gateway, name: str, topics: list[str], idle: int) -> None:
    """Of 100 fetches that could all be served from the first topic. `idle`: so many lower ones have no records."""
    for topic in (topics[0], *topics[1 + idle :]):
        gateway.produce(topic, *range(100), partition=0)
    taken = Counter(given(gateway, name, topics, max_records=1)[0] for _ in range(100))
    lower = topics[1 + idle :]
    assert taken == {topics[0]: 90, **dict.fromkeys(lower, 10 // len(lower))}


def test_a_record_of_any_topic_wakes_a_waiting_fetch(
    gateway: Gateway, name: str, topics: list[str], background: ThreadPoolExecutor
) -> None:
    given(gateway, name, topics)
    for topic in topics:
        before = gateway.metrics()["sharequeue_waiting_fetches"]
        with woken(gateway):
            answer = background.submit(given, gateway, name, topics, max_wait_ms=LONG_MS)
            wait_until(lambda before=before: gateway.metrics()["sharequeue_waiting_fetches"] > before)
            gateway.produce(topic, 1)
            assert answer.result() == [topic]


def test_a_share_session_keeps_the_order_and_has_its_share_while_it_acknowledges(
    gateway: Gateway, name: str, topics: list[str]
) -> None:
    """The first topic is made after the session was opened. Acknowledgements take each second epoch."""
    urgent = f"{name}.urgent"
    named = [urgent, *topics[1:]]
    assert given(gateway, name, named, share_session_epoch=0) == []
    gateway.create_topic(urgent)
    for topic in (*topics[1:], urgent):
        gateway.produce(topic, *range(50), partition=0)
    taken: Counter[str] = Counter()
    for turn in range(40):
        answer = gateway.fetch(name, share_session_epoch=1 + 2 * turn, priority=True, max_records=1)
        (batch,) = answer["batches"]
        taken[batch["topic"]] += 1
        accept: Json = acknowledge_range(batch["topic"], batch["first_offset"], batch["first_offset"], "accept")
        good(gateway.try_acknowledge(name, [accept], share_session_epoch=2 + 2 * turn))
    assert taken == {urgent: 36, topics[1]: 2, topics[2]: 2}


def test_priority_with_min_bytes_is_refused_and_changes_nothing(gateway: Gateway, name: str, topics: list[str]) -> None:
    gateway.fetch(name, topics=topics, share_session_epoch=0)
    refused = gateway.try_fetch(name, share_session_epoch=1, priority=True, min_bytes=2)
    found = problem(refused, 422, "INVALID_REQUEST", 42)
    assert [each["pointer"] for each in found["errors"]] == ["/min_bytes"]
    gateway.fetch(name, share_session_epoch=1, priority=True, min_bytes=1)


def test_a_stream_with_priority_is_refused(gateway: Gateway, name: str, topics: list[str]) -> None:
    query = {"topic": topics[0], "priority": "true"}
    accept = {"accept": "text/event-stream"}
    answer = gateway.http.get(f"/v1/share-groups/{name}/stream", params=query, headers=accept)
    assert "priority" in problem(answer, 422, "INVALID_REQUEST", 42)["detail"]


@pytest.mark.parametrize("joins", [False, True])
@in_event_loop
async def test_a_consumer_takes_its_topics_in_order(
    shared_stack: Stack, gateway: Gateway, name: str, topics: list[str], joins: bool
) -> None:
    gateway.configure(name, share_assignment_interval_ms=0)
    for topic in reversed(topics):
        gateway.produce(topic, 1, 2, partition=0)
    async with ShareConsumer(shared_stack.url, name, topics, priority=True, max_records=1) as consumer:
        if joins:
            consumer.subscribe(topics)
        seen = [record.topic for _ in topics for _ in "12" for record in await consumer.poll()]
    assert seen == [topic for topic in topics for _ in "12"]
