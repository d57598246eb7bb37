"""The job `compact`: the last record of each key stays, and groups read on. Tombstones expire."""

import random
import time
from typing import Any

from tests.http.calls import Gateway, good, offsets
from tests.http.transactions_of_a_topic import Transactions
from tests.pipeline.jobs import Jobs
from tests.pipeline.proxy import Instead, Proxy

NOW_MS = int(time.time() * 1000)
HOUR_MS = 3_600_000


def produce(gateway: Gateway, topic: str, *records: tuple[str | None, Any] | tuple[str | None, Any, int]) -> None:
    """Produce one batch of (key, value) or (key, value, age in ms)."""
    body = [
        {
            **({} if key is None else {"key": key}),
            "value": value,
            "partition": 0,
            "timestamp_ms": NOW_MS - (age[0] if age else 0),
        }
        for key, value, *age in records
    ]
    good(gateway.http.post(f"/v1/topics/{topic}/records", json={"records": body}))


def left(gateway: Gateway, topic: str, partition: int = 0) -> list[tuple[int, str | None, Any]]:
    """(offset, key, value) of the records in the log."""
    records = gateway.read(topic, partition, max_records=100_000)["records"]
    return [(record["offset"], record.get("key"), record.get("value")) for record in records]


def test_many_keys_agree_with_a_dict(jobs: Jobs, gateway: Gateway, name: str, seed: int) -> None:
    """Two partitions, two compactions with appends in between, against a dict of the last values."""
    gateway.create_topic(name, 2, cleanup_policy="compact")
    chance = random.Random(seed)
    expected: dict[tuple[int, str], tuple[int, Any]] = {}
    for number in range(2):
        for _ in range(10):
            records = [
                {"key": f"k{chance.randrange(60)}", "value": chance.choice([None, number]), "partition": part}
                for part in (0, 1)
                for _ in range(chance.randint(1, 30))
            ]
            places = good(gateway.http.post(f"/v1/topics/{name}/records", json={"records": records}))["records"]
            for record, place in zip(records, places, strict=True):
                expected[place["partition"], str(record["key"])] = (place["offset"], record["value"])
        for partition in (0, 1):  # the newest batch is not compacted
            gateway.produce(name, "end", key="end", partition=partition)
        jobs.done("compact", name)
        for partition in (0, 1):
            wanted = sorted((*found, key) for (part, key), found in expected.items() if part == partition)
            found = [(offset, value, key) for offset, key, value in left(gateway, name, partition) if key != "end"]
            assert found == wanted


def test_expired_tombstones_are_removed(jobs: Jobs, gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, cleanup_policy="compact", delete_retention_ms=HOUR_MS)
    produce(gateway, name, ("old", 1, 9 * HOUR_MS), ("young", 1, 9 * HOUR_MS), ("kept", 1, 9 * HOUR_MS))
    produce(gateway, name, ("old", None, 2 * HOUR_MS), ("young", None, HOUR_MS // 2), ("alone", None, 5 * HOUR_MS))
    produce(gateway, name, ("end", 1))
    done = jobs.done("compact", name)["partitions"][0]
    assert (done["superseded"], done["tombstones"]) == (2, 2)
    assert left(gateway, name) == [(2, "kept", 1), (4, "young", None), (6, "end", 1)]


def test_a_tombstone_waits_for_every_group(jobs: Jobs, gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, cleanup_policy="compact", delete_retention_ms=0)
    produce(gateway, name, ("k", 1, HOUR_MS), ("l", 1, HOUR_MS))
    produce(gateway, name, ("k", None, HOUR_MS), ("l", None, HOUR_MS))
    produce(gateway, name, ("end", 1))
    group = f"{name}-g"
    gateway.acquire(group, name, max_records=3)
    assert gateway.settle(group, name, 0, 2, "accept") == "applied"
    assert jobs.done("compact", name)["partitions"][0]["tombstones"] == 1
    assert left(gateway, name) == [(3, "l", None), (4, "end", 1)]
    assert offsets(gateway.fetch(group, name)) == [3, 4]
    assert gateway.settle(group, name, 3, 4, "accept") == "applied"
    assert jobs.done("compact", name)["partitions"][0]["tombstones"] == 1
    assert left(gateway, name) == [(4, "end", 1)]


def test_a_run_killed_before_the_tombstones_revives_no_key(jobs: Jobs, gateway: Gateway, name: str) -> None:
    """The proxy lets only the first request pass. The deleted key must stay deleted."""
    gateway.create_topic(name, cleanup_policy="compact", delete_retention_ms=0)
    produce(gateway, name, ("k", 1, HOUR_MS))
    produce(gateway, name, ("k", None, HOUR_MS))
    produce(gateway, name, ("end", 1))
    sent: list[str] = []

    def rule(method: str, path: str, headers: dict[str, str]) -> Instead | None:
        if path.endswith("/replace-batches"):
            sent.append(path)
        return Instead(401, {}, b"killed") if len(sent) > 1 else None

    with Proxy(jobs.url).running() as proxy:
        proxy.rule = rule
        code, _ = Jobs(jobs.spark, proxy.url).refused("compact", name)
    assert code == 1
    assert left(gateway, name) == [(1, "k", None), (2, "end", 1)]
    jobs.done("compact", name)
    assert left(gateway, name) == [(2, "end", 1)]


def test_faults_are_one_line(jobs: Jobs, gateway: Gateway, name: str) -> None:
    assert jobs.refused("compact", name) == (1, f"sharequeue: there is no topic {name!r} at {jobs.url}")
    gateway.create_topic(name)
    assert jobs.refused("compact", name) == (
        1,
        f"sharequeue: topic {name!r} cannot be compacted: its cleanup.policy is not compact",
    )


def test_records_of_aborted_transactions_go_and_those_of_open_ones_stay(
    jobs: Jobs, gateway: Gateway, stack_database: str, name: str
) -> None:
    """An aborted record is not the last one of its key. Nothing from an open transaction on is compacted."""
    producer = Transactions(gateway, stack_database, name, cleanup_policy="compact")
    gateway.produce(name, "kept", key="a")
    producer.whole("xy", commit=False)
    producer.whole("z", commit=True)
    gateway.produce(name, "old", key="b")
    producer.send("o", producer.begin())
    gateway.produce(name, "newer", key="b")
    would = jobs.done("compact", name, "--dry-run")["partitions"][0]
    assert (would["aborted"], would["superseded"], would["compacted_before"]) == (2, 0, 6)
    assert len(left(gateway, name)) == 7
    done = jobs.done("compact", name)["partitions"][0]
    assert (done["aborted"], done["superseded"], done["records"]) == (2, 0, would["records"])
    assert [(offset, value) for offset, _, value in left(gateway, name)] == [
        (0, "kept"),
        (4, "z"),
        (6, "old"),
        (7, "o"),
        (8, "newer"),
    ]
    assert jobs.done("compact", name)["partitions"][0]["aborted"] == 0
