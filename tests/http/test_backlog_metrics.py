"""Backlog and age by group and topic, also of a group without workers, the records in flight by their state, and
samples of both over time."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from sharequeue.stack.stack import ServiceProcess, Stack, temporary_stack
from tests.http.calls import Gateway, acknowledge_range, good, wait_until, when_loaded
from tests.http.database import locked


@pytest.fixture(scope="module")
def own_stack(
    tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[], str], new_redis: Callable[[], str]
) -> Iterator[Stack]:
    settings = {
        "SHAREQUEUE_GATEWAY_BACKLOG_INTERVAL_MS": "200",
        "SHAREQUEUE_GATEWAY_FLOOR_INTERVAL_MS": "200",
        "SHAREQUEUE_GATEWAY_MAX_METRIC_PAIRS": "3",
        "SHAREQUEUE_GATEWAY_SHARE_PARTITION_IDLE_MS": "1000",
        "SHAREQUEUE_GATEWAY_RETENTION_INTERVAL_MS": "500",
    }
    stores = {"postgres_url": new_database(), "redis_url": new_redis()}
    data_dir: Path = tmp_path_factory.mktemp("stack")
    with temporary_stack(data_dir, **stores, gateways=2, settings=settings) as stack:
        yield stack


@pytest.fixture
def gateway(own_stack: Stack) -> Iterator[Gateway]:
    with httpx.Client(base_url=own_stack.url, timeout=30) as http:
        yield Gateway(http)


def samples(stack: Stack) -> dict[str, float]:
    """The samples of both gateways; a sample that both have for longer than a hand-over fails the test."""
    (found,) = wait_until(lambda: samples_apart(stack))
    return found


def samples_apart(stack: Stack) -> list[dict[str, float]]:
    """The same in a list, which is empty if both gateways have a sample."""
    found: dict[str, float] = {}
    for url in stack.urls:
        with httpx.Client(base_url=url, timeout=30) as http:
            of_one = {key: value for key, value in Gateway(http).metrics().items() if key.startswith(BACKLOG_FAMILIES)}
        if found.keys() & of_one.keys():
            return []
        found.update(of_one)
    return [found]


BACKLOG_FAMILIES = (
    "sharequeue_group_backlog",
    "sharequeue_group_oldest",
    "sharequeue_log_bytes",
    "sharequeue_group_open_dead_letters",
)


AGES = ("oldest_record", "oldest_delayed_record")


def backlog(stack: Stack, group: str, topic: str) -> float | None:
    return samples(stack).get(f'sharequeue_group_backlog_records{{group="{group}",topic="{topic}"}}')


@pytest.mark.soak
def test_a_group_whose_workers_are_gone_keeps_its_backlog_and_age(
    own_stack: Stack, gateway: Gateway, name: str
) -> None:
    gateway.produce(name, *range(10))
    gateway.acquire(name, name, max_records=4, acquire_mode="record_limit")
    gateway.settle(name, name, 0, 3, "accept")
    wait_until(lambda: backlog(own_stack, name, name) == 6)
    wait_until(lambda: gateway.metrics()["sharequeue_led_share_partitions"] == 0)
    gateway.produce(name, "more")
    wait_until(lambda: backlog(own_stack, name, name) == 7)
    age = f'sharequeue_group_oldest_record_seconds{{group="{name}",topic="{name}"}}'
    first = wait_until(lambda: samples(own_stack).get(age))
    wait_until(lambda: samples(own_stack).get(age, 0) >= first + 0.4)
    wait_until(lambda: samples(own_stack).get("sharequeue_log_bytes", 0) > 0)


def test_the_age_is_of_what_waits_for_a_worker_and_a_delay_has_its_own(
    own_stack: Stack, gateway: Gateway, name: str
) -> None:
    """A record that is delayed for an hour, or held by a long job, is no reason to page."""
    old, delayed = (f'sharequeue_group_{kind}_seconds{{group="{name}",topic="{name}"}}' for kind in AGES)
    hour_ago_ms = int(time.time() * 1000) - 3_600_000
    gateway.produce(name, "delayed", "held", timestamp_ms=hour_ago_ms)
    gateway.acquire(name, name, lock_duration_ms=600_000)
    gateway.settle(name, name, 0, 0, "release", delay_ms=3_000_000)
    wait_until(lambda: samples(own_stack).get(delayed, 0) >= 3600 and old not in samples(own_stack))
    gateway.produce(name, "new")
    wait_until(lambda: samples(own_stack).get(old, 3600) < 600)
    wait_until(lambda: samples(own_stack).get(delayed, 0) >= 3600)
    gateway.settle(name, name, 1, 1, "release")
    wait_until(lambda: samples(own_stack).get(old, 0) >= 3600)


def test_records_that_were_removed_are_no_backlog(own_stack: Stack, gateway: Gateway, name: str) -> None:
    gateway.produce(name, *range(10))
    gateway.acquire(name, name, max_records=1, acquire_mode="record_limit")
    wait_until(lambda: backlog(own_stack, name, name) == 10)
    gateway.http.post(f"/v1/topics/{name}/delete-records", json={"partitions": [{"partition": 0, "before_offset": 8}]})
    wait_until(lambda: backlog(own_stack, name, name) == 2)


def test_records_in_flight_are_counted_by_state(own_stack: Stack, gateway: Gateway, name: str) -> None:
    gateway.produce(name, *range(10))
    gateway.acquire(name, name, lock_duration_ms=600_000)
    gateway.settle(name, name, 1, 2, "accept")
    gateway.settle(name, name, 3, 5, "release", delay_ms=60_000)
    gateway.settle(name, name, 6, 6, "release")

    def states() -> dict[str, float]:
        found: dict[str, float] = {}
        for url in own_stack.urls:
            with httpx.Client(base_url=url, timeout=30) as http:
                of_one = Gateway(http).metrics()
            for state in ("held", "delayed", "retry", "dying", "finished"):
                sample = f'sharequeue_group_in_flight_records{{group="{name}",state="{state}",topic="{name}"}}'
                found[state] = found.get(state, 0) + of_one.get(sample, 0)
        return found

    assert states() == {"held": 4, "delayed": 3, "retry": 1, "dying": 0, "finished": 2}


def open_letters(stack: Stack, group: str, topic: str) -> float | None:
    return samples(stack).get(f'sharequeue_group_open_dead_letters{{group="{group}",topic="{topic}"}}')


def open_in_line(stack: Stack, group: str) -> str:
    """The column of open dead letters in the line of `sharequeue groups describe`."""
    command = [Path(sys.executable).with_name("sharequeue"), "groups", "describe", group, "--url", stack.url]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[1].split()[8]


def open_by_api(gateway: Gateway, group: str) -> list[int]:
    """By partition; an answer leaves a 0 out."""
    (topic,) = good(gateway.http.get(f"/v1/share-groups/{group}/offsets"))["topics"]
    return [partition.get("open_dead_letters", 0) for partition in topic["partitions"]]


def test_open_dead_letters_fall_with_redrives_and_removal(own_stack: Stack, gateway: Gateway, name: str) -> None:
    """And outlive the share-partition's leader, every service and the metric's gateway."""
    redrive = f"/v1/share-groups/{name}/dead-letters/redrive"
    gateway.produce(name, *range(10))
    gateway.acquire(name, name)
    gateway.settle(name, name, 0, 5, "reject", reason="broken")
    gateway.settle(name, name, 6, 9, "accept")
    wait_until(lambda: open_letters(own_stack, name, name) == 6)
    assert open_by_api(gateway, name) == [6]
    assert open_in_line(own_stack, name) == "6"

    assert good(gateway.http.post(redrive, json={"dry_run": True}))["matched"] == 6
    assert open_by_api(gateway, name) == [6]
    assert good(gateway.http.post(redrive, json={"max_records": 2}))["redriven"] == 2
    assert open_by_api(gateway, name) == [4]
    wait_until(lambda: open_letters(own_stack, name, name) == 4)

    for service in own_stack.services:
        service.kill()
        service.start()
    wait_until(lambda: all(service.ready() for service in own_stack.services), 90)
    wait_until(lambda: open_letters(own_stack, name, name) == 4, 60)
    assert open_by_api(gateway, name) == [4]

    trim = {"partitions": [{"partition": 0, "before_offset": 3}]}
    good(gateway.http.post(f"/v1/topics/dlq.{name}/delete-records", json=trim))
    assert open_by_api(gateway, name) == [3]
    assert good(gateway.http.post(redrive, json={"dry_run": True}))["matched"] == 3
    good(gateway.http.patch(f"/v1/topics/dlq.{name}", json={"config": {"retention.ms": "0"}}))
    wait_until(lambda: open_by_api(gateway, name) == [0], 90)
    wait_until(lambda: open_letters(own_stack, name, name) is None)
    assert open_in_line(own_stack, name) == "0"


def test_pairs_beyond_the_bound_are_added_up(own_stack: Stack, gateway: Gateway, name: str) -> None:
    gateway.produce(name, *range(50))
    for number in range(4):
        gateway.acquire(f"{name}-{number}", name, max_records=1, acquire_mode="record_limit")
    wait_until(lambda: (backlog(own_stack, "other", "other") or 0) >= 50)
    wait_until(lambda: sum(key.startswith("sharequeue_group_backlog_records") for key in samples(own_stack)) == 4)


def test_members_that_fetch_at_any_gateway_are_listed_without_joining(
    own_stack: Stack, gateway: Gateway, name: str
) -> None:
    gateway.produce(name, "one")
    gateway.acquire(name, name, member="w-1")
    with httpx.Client(base_url=own_stack.urls[1], timeout=30) as http:
        other = Gateway(http)
        other.acquire(name, name, member="w-2")
        other.acquire(name, name, member="w-1")

        def listed(asked: Gateway) -> bool:
            """A gateway that does not answer the asked one within two seconds is left out."""
            described = good(asked.http.get(f"/v1/share-groups/{name}"))
            members = sorted((member["member_id"], member["client_host"]) for member in described["workers"])
            ages = [member["seconds_ago"] for member in described["workers"]]
            both = [("w-1", "127.0.0.1"), ("w-2", "127.0.0.1")]
            return (members, described["work"]["workers"]) == (both, 2) and 0 <= min(ages) <= max(ages) <= 60

        for each in (gateway, other):
            wait_until(lambda each=each: listed(each))


def test_a_renewal_an_acknowledgement_and_a_commit_are_signs_of_life(
    own_stack: Stack, gateway: Gateway, name: str
) -> None:
    """A worker with a long job does not fetch. At the second gateway none of these members has."""
    gateway.produce(name, *range(3))
    for number in range(3):
        gateway.acquire(name, name, member=f"w-{number}", max_records=1, acquire_mode="record_limit")
    with httpx.Client(base_url=own_stack.urls[1], timeout=30) as http:
        other = Gateway(http)
        seen = f'sharequeue_group_fetching_members{{group="{name}"}}'
        assert seen not in other.metrics()
        assert other.settle(name, name, 0, 0, "renew", member="w-0") == "applied"
        assert other.metrics()[seen] == 1
        assert other.settle(name, name, 1, 1, "accept", member="w-1") == "applied"
        assert other.metrics()[seen] == 2
        transaction = good(http.post("/v1/transactions", json={}), 201)["transaction_id"]
        of_group = {"group_id": name, "member_id": "w-2", "acknowledgements": [acknowledge_range(name, 2, 2, "accept")]}
        good(http.post(f"/v1/transactions/{transaction}/commit", json={"acknowledgements": [of_group]}))
        assert other.metrics()[seen] == 3


def attention(url: str, group: str) -> dict[str, Any]:
    """What a gateway says of a group; nothing, if it does not list it, or cannot look at the groups now."""
    with httpx.Client(base_url=url, timeout=30) as http:
        query: dict[str, str | int] | None = {"page_size": 3}
        found = []
        while query is not None:
            answer = http.get("/v1/reports/attention", params=query)
            if answer.status_code == 503:
                return {}
            page = good(answer)
            found += [entry for entry in page["groups"] if entry["group_id"] == group]
            token = page.get("next_page_token")
            query = None if token is None else {"page_size": 3, "page_token": token}
    return dict(found[0]) if found else {}


def points(url: str, **query: object) -> list[dict[str, int]]:
    with httpx.Client(base_url=url, timeout=30) as http:
        return list(good(http.get("/v1/reports/samples", params=query))["points"])


def in_count(url: str, **query: object) -> int:
    return sum(point["in_count"] for point in points(url, **query))


def work(gateway: Gateway, name: str) -> None:
    """Ten records: three accepted, one rejected, two delayed, one given back, three held."""
    gateway.create_topic(name)
    gateway.fetch(name, name, max_wait_ms=0)  # it reads the topic before there are records
    gateway.produce(name, *range(10))
    gateway.acquire(name, name, lock_duration_ms=600_000)
    gateway.settle(name, name, 0, 2, "accept")
    gateway.settle(name, name, 3, 3, "reject")
    gateway.settle(name, name, 4, 5, "release", delay_ms=600_000)
    gateway.settle(name, name, 6, 6, "release")


def test_every_gateway_tells_which_groups_need_attention(own_stack: Stack, gateway: Gateway, name: str) -> None:
    work(gateway, name)
    with httpx.Client(base_url=own_stack.urls[1], timeout=30) as http:
        assert Gateway(http).settle(name, name, 7, 7, "renew") == "applied"  # the same worker calls another gateway
    wanted = {
        "reasons": ["dead_letters"],
        "held_count": 3,
        "delayed_count": 2,
        "open_dead_letters": 1,
        "worker_count": 1,
    }

    def seen() -> bool:
        entries = [attention(url, name) for url in own_stack.urls]
        return all(entry.items() >= {**wanted, "ready_count": 1, "backlog": 6}.items() for entry in entries)

    wait_until(seen)
    for url in own_stack.urls:
        with httpx.Client(base_url=url, timeout=30) as http:
            for group, listed in ((name, [name]), (f"{name}-other", [])):
                of_one = partial(http.get, "/v1/reports/attention", params={"group_id": group})
                page = good(wait_until(lambda ask=of_one: (answer := ask()).status_code != 503 and answer))
                assert [entry["group_id"] for entry in page["groups"]] == listed
                assert all(entry.items() >= wanted.items() for entry in page["groups"])
    for query in ({"page_token": "x"}, {"page_size": 0}):
        assert gateway.http.get("/v1/reports/attention", params=query).status_code == 422


def test_samples_are_of_the_cluster_of_groups_and_of_topics(own_stack: Stack, gateway: Gateway, name: str) -> None:
    before = in_count(own_stack.url)
    work(gateway, name)

    def seen(url: str, **query: object) -> bool:
        found = points(url, **query)
        sums = [sum(point[kind] for point in found) for kind in ("in_count", "out_count", "failed_count", "dead_count")]
        last = {kind: found[-1][kind] for kind in ("backlog", "held_count", "delayed_count")} if found else {}
        return sums == [10, 3, 4, 1] and last == {"backlog": 6, "held_count": 3, "delayed_count": 2}

    for url in own_stack.urls:
        wait_until(lambda url=url: seen(url, group_id=name) and seen(url, topic=name))
        assert in_count(url) >= before + 10
        now_ms = int(time.time() * 1000)
        for step_ms in (10_000, (now_ms + 60_000) // 1000):  # 1,000 steps of weeks end before the present hour does
            assert seen(url, group_id=name, from_ms=now_ms - 90_000_000, step_ms=step_ms), "the present hour, too"
    assert len(points(own_stack.url, from_ms=0)) <= 500
    assert points(own_stack.url, group_id=f"{name}-other") == []
    for wrong in (
        {"group_id": name, "topic": name},
        {"from_ms": 9, "to_ms": 8},
        {"step_ms": 1},
        {"topic": f"{name}-other"},
    ):
        assert 400 <= gateway.http.get("/v1/reports/samples", params=wrong).status_code < 500


def test_records_produced_while_the_log_is_read_are_counted(own_stack: Stack, gateway: Gateway, name: str) -> None:
    """Of a topic that the look does not see yet, which a group reads before it has records."""
    assert own_stack._postgres_url is not None
    with locked(own_stack._postgres_url, "log.dead_letter_sources") as looks:  # the look reads it after the backlogs
        wait_until(looks)
        gateway.create_topic(name)
        gateway.fetch(name, name, max_wait_ms=0)
        gateway.produce(name, *range(10))
    for query in ({"group_id": name}, {"topic": name}):
        wait_until(lambda query=query: in_count(own_stack.url, **query) == 10)


def test_a_topic_that_no_group_reads_has_samples_too(own_stack: Stack, gateway: Gateway, name: str) -> None:
    """Whichever gateway knows the topic, because records were produced there."""
    for number, url in enumerate(own_stack.urls):
        with httpx.Client(base_url=url, timeout=30) as http:
            Gateway(http).create_topic(f"{name}-{number}")
            Gateway(http).produce(f"{name}-{number}", "a", "b")
        wait_until(lambda topic=f"{name}-{number}": in_count(own_stack.url, topic=topic) == 2)


def sampler_and_other(stack: Stack) -> tuple[ServiceProcess, ServiceProcess]:
    """The gateway that takes the samples, and the other one."""
    gateways = [service for url in stack.urls for service in stack.services if service.url == url]
    with httpx.Client(base_url=gateways[0].url, timeout=30) as http:
        takes = any(line.startswith("sharequeue_log_bytes") for line in Gateway(http).metrics())
    first, second = gateways if takes else reversed(gateways)
    return first, second


def test_what_a_gateway_counted_is_in_the_samples_if_its_answer_is_lost(
    own_stack: Stack, gateway: Gateway, name: str
) -> None:
    gateway.create_topic(name, partitions=8)
    gateway.fetch(name, name, max_wait_ms=0)
    in_count(own_stack.url)  # one of them has looked
    sampler, other = sampler_and_other(own_stack)
    with httpx.Client(base_url=other.url, timeout=30) as http:
        for partition in range(8):  # one of the two appends to a partition, and counts its records
            Gateway(http).produce(name, partition, partition=partition)
    os.kill(other.pid, signal.SIGSTOP)
    try:
        for _ in range(2):  # the first look may have begun before
            looked_ms = attention(sampler.url, name).get("at_ms", 0)
            wait_until(lambda before=looked_ms: attention(sampler.url, name).get("at_ms", 0) > before)
    finally:
        os.kill(other.pid, signal.SIGCONT)
    wait_until(lambda: in_count(sampler.url, group_id=name) == 8)


def test_another_gateway_takes_the_samples_of_one_that_was_killed(
    own_stack: Stack, gateway: Gateway, name: str
) -> None:
    work(gateway, name)
    wait_until(lambda: attention(own_stack.url, name).get("backlog") == 6)  # the floor is raised: nobody fetches later
    wait_until(lambda: in_count(own_stack.url, group_id=name) == 10)
    killed, left = sampler_and_other(own_stack)
    killed.kill()
    try:
        with httpx.Client(base_url=left.url, timeout=30) as http:
            produced = when_loaded(
                lambda: http.post(f"/v1/topics/{name}/records", json={"records": [{"value": 1}] * 5})
            )
            assert len(good(produced)["records"]) == 5
        wait_until(lambda: attention(left.url, name).get("backlog") == 11)
        wait_until(lambda: points(left.url, group_id=name)[-1]["backlog"] == 11)
        assert in_count(left.url, group_id=name) == 15, "also what came before the first look of the other gateway"
    finally:
        killed.start()
        wait_until(killed.ready)
