"""Each partition with records is served within twice as many fetches as there are partitions."""

from collections import Counter

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


@pytest.mark.parametrize("partitions", [12, 20], ids=["looked at each", "with an index"])
def test_single_records_come_from_each_partition_in_turn(gateway: Gateway, name: str, partitions: int) -> None:
    fill(gateway, name, partitions, records=3)
    for _ in range(3):
        taken: Counter[int] = Counter()
        for _ in range(partitions):
            take(gateway, name, taken, topics=[name], max_records=1)
        assert taken == dict.fromkeys(range(partitions), 1)


def test_held_records_keep_no_partition_at_the_front(gateway: Gateway, name: str) -> None:
    partitions = 20  # so many have an index
    fill(gateway, name, partitions, records=2)
    for _ in range(2):
        batches = [gateway.fetch(name, name, max_records=1)["batches"][0] for _ in range(partitions)]
        assert sorted(batch["partition"] for batch in batches) == [*range(partitions)]
