"""Each partition with records is served within twice as many fetches as there are partitions,
in any pattern of fetches."""

from collections import Counter
from collections.abc import Callable

import pytest

from tests.http.calls import Gateway, good

RECORDS = 200
AT_ONCE = 10


def fill(gateway: Gateway, topic: str, partitions: int, records: int = RECORDS) -> None:
    """A topic with a backlog in each partition: one batch of so many records."""
    gateway.create_topic(topic, partitions)
    for partition in range(partitions):
        gateway.produce(topic, *range(records), partition=partition)


def take(gateway: Gateway, group: str, taken: Counter[int], **fields: object) -> None:
    """Fetch, count what each partition gave, and accept it."""
    answer = gateway.fetch(group, **{"max_records": AT_ONCE, **fields})
    for batch in answer["batches"]:
        taken[batch["partition"]] += batch["last_offset"] - batch["first_offset"] + 1
    accept = [
        {name: value for name, value in batch.items() if name != "records"} | {"type": "accept"}
        for batch in answer["batches"]
    ]
    if accept:
        assert good(gateway.try_acknowledge(group, accept))["failed_count"] == 0


@pytest.mark.parametrize(("groups", "partitions"), [(1, 2), (2, 2), (3, 3), (2, 4), (6, 6)])
def test_groups_polled_in_turn_have_their_own_turns(gateway: Gateway, name: str, groups: int, partitions: int) -> None:
    """With one counter for all, each group would get the same remainder, so the same partition, every time."""
    fill(gateway, name, partitions)
    taken = [Counter[int]() for _ in range(groups)]
    for _ in range(2 * partitions):
        for group in range(groups):
            take(gateway, f"{name}-{group}", taken[group], topics=[name])
    assert [sorted(of_group.items()) for of_group in taken] == [
        [(partition, 2 * AT_ONCE) for partition in range(partitions)]
    ] * groups


@pytest.mark.parametrize("topics", [2, 3])
def test_topics_polled_in_turn_have_their_own_turns(gateway: Gateway, name: str, topics: int) -> None:
    names = [f"{name}-{topic}" for topic in range(topics)]
    taken = {topic: Counter[int]() for topic in names}
    for topic in names:
        fill(gateway, topic, topics)
    for _ in range(topics):
        for topic in names:
            take(gateway, name, taken[topic], topics=[topic])
    assert all(set(of_topic) == set(range(topics)) for of_topic in taken.values())


@pytest.mark.parametrize("partitions", [2, 3, 4, 6])
def test_ss_028_a_session_that_fetches_then_acknowledges_serves_each_partition(
    gateway: Gateway, name: str, partitions: int
) -> None:
    """Its fetches have the epochs 0, 2, 4: by the epoch alone,
    half of an even number of partitions would get nothing."""
    fill(gateway, name, partitions)
    taken: Counter[int] = Counter()
    for turn in range(2 * partitions):
        named = {"topics": [name]} if turn == 0 else {}
        answer = gateway.fetch(name, max_records=AT_ONCE, share_session_epoch=2 * turn, **named)
        (batch,) = answer["batches"]
        taken[batch["partition"]] += batch["last_offset"] - batch["first_offset"] + 1
        accept = {key: value for key, value in batch.items() if key != "records"} | {"type": "accept"}
        epoch = 2 * turn + 1
        assert good(gateway.try_acknowledge(name, [accept], share_session_epoch=epoch))["failed_count"] == 0
    assert taken == dict.fromkeys(range(partitions), 2 * AT_ONCE)


def test_single_records_come_from_each_partition_in_turn(gateway: Gateway, name: str) -> None:
    partitions = 12
    fill(gateway, name, partitions, records=3)
    for _ in range(3):
        taken: Counter[int] = Counter()
        for _ in range(partitions):
            take(gateway, name, taken, topics=[name], max_records=1)
        assert taken == dict.fromkeys(range(partitions), 1)


def other_partitions(name: str, turn: int) -> dict[str, object]:
    return {"topic_partitions": [{"topic": name, "partitions": [2, turn % 2]}]}


def all_or_some(name: str, turn: int) -> dict[str, object]:
    return {"topics": [name]} if turn % 2 else {"topic_partitions": [{"topic": name, "partitions": [0, 3]}]}


def two_members(name: str, turn: int) -> dict[str, object]:
    return {"topics": [name], "member": f"m{turn % 2}"}


@pytest.mark.parametrize("pattern", [other_partitions, all_or_some, two_members])
def test_fetches_that_name_different_partitions_starve_none(
    gateway: Gateway, name: str, pattern: Callable[[str, int], dict[str, object]]
) -> None:
    partitions = 4
    fill(gateway, name, partitions)
    taken: Counter[int] = Counter()
    named: set[int] = set()
    for turn in range(2 * partitions):
        request = pattern(name, turn)
        for entry in request.get("topic_partitions", [{"partitions": range(partitions)}]):  # type: ignore[attr-defined]
            named.update(entry["partitions"])
        answer = gateway.fetch(name, max_records=AT_ONCE, **request)
        taken.update(batch["partition"] for batch in answer["batches"])
    assert set(taken) == named
