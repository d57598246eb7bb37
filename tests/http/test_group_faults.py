"""Groups over faults: a share coordinator that is away, restarts that members do not notice,
a full group (GI, HB, LG)."""

import asyncio
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from sharequeue.protocol import apis
from sharequeue.protocol.messages.leaders import GroupPartitionsRequest
from sharequeue.stack.stack import Stack
from sharequeue_http.calling.caller import Client
from tests.http.calls import HANG_S, LONG_MS, Gateway, Json, good, is_loading, problem, ranges, wait_until
from tests.http.membership import Member
from tests.outages import until_it_settles
from tests.storage.database import session

pytestmark = pytest.mark.three_programs


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return {"SHAREQUEUE_COORDINATOR_GROUP_MAX_SIZE": "2"}


@pytest.fixture
def restart(stack: Stack) -> Callable[[str], None]:
    """Kills a service as a crash would, and starts it again; returns when it is ready."""

    def restart(name: str) -> None:
        service = stack.service(name)
        service.kill()
        service.start()
        wait_until(service.ready)

    return restart


def away(stack: Stack, service: str) -> None:
    stack.service(service).kill()


def back(stack: Stack, service: str) -> None:
    stack.service(service).start()
    until_it_settles(stack)


def test_gi_001_a_failed_initialisation_succeeds_once_the_share_coordinator_is_back(
    stack: Stack, own_gateway: Gateway, name: str
) -> None:
    own_gateway.configure(name, share_assignment_interval_ms=0)
    own_gateway.create_topic(name, partitions=2)
    away(stack, "share coordinator")
    try:
        member = Member(own_gateway, name, "m1", name)
        assert member.beat()["assignment"] == {"topic_partitions": []}, "heartbeats do not need the share coordinator"
        member.beat()
    finally:
        back(stack, "share coordinator")
    wait_until(lambda: member.beat() and member.count == 2, 60)


def test_what_a_group_has_finished_is_never_guessed(stack: Stack, own_gateway: Gateway, name: str) -> None:
    """A key is unique until the group has finished its record, and the state of the group cannot be read."""
    unique = {"records": [{"key": "a", "value": 1}], "unique": {"until_group": name}}
    path = f"/v1/topics/{name}/records"
    first = good(own_gateway.http.post(path, json=unique))["records"]
    away(stack, "share coordinator")
    try:
        refused = problem(own_gateway.http.post(path, json=unique), 503, "COORDINATOR_NOT_AVAILABLE", 15)
        assert (refused["definite"], refused["retriable"]) == (True, True)
        assert name in refused["detail"]
        other = {**unique, "records": [{"key": "b", "value": 1}]}
        assert good(own_gateway.http.post(path, json=other))["records"] == [{"partition": 0, "offset": 1}], "a new key"
    finally:
        back(stack, "share coordinator")
    assert good(own_gateway.http.post(path, json=unique))["records"] == [{**first[0], "duplicate": True}]


def test_a_gateway_that_starts_does_not_wait_for_deleted_records(
    own_gateway: Gateway, restart: Callable[[str], None], name: str
) -> None:
    own_gateway.configure(name, share_partition_max_record_locks=8, share_partition_max_delayed_records=0)
    own_gateway.produce_batches(name, 8)
    own_gateway.acquire(name, name)
    assert own_gateway.settle(name, name, 0, 7, "release", delay_ms=3_600_000) == "applied"
    own_gateway.produce_batches(name, 1)
    restart("gateway")
    own_gateway.delete_records(name, 8)
    restart("gateway")
    assert own_gateway.acquire(name, name) == ["8-8×1"]


@pytest.mark.parametrize("begin", ["heartbeat", "fetch"])
def test_gi_005_an_initialisation_that_is_repeated_begins_where_it_would_have_begun(
    stack: Stack, own_gateway: Gateway, restart: Callable[[str], None], name: str, begin: str
) -> None:
    own_gateway.configure(name, share_auto_offset_reset="latest")
    own_gateway.produce_batches(name, 10)
    away(stack, "share coordinator")
    try:
        if begin == "heartbeat":
            Member(own_gateway, name, "m1", name).beat()
        else:
            assert own_gateway.try_fetch(name, name).status_code == 503
    finally:
        back(stack, "share coordinator")
    restart("group coordinator")

    def fetched() -> Json | None:
        response = own_gateway.try_fetch(name, name)
        return None if response.status_code == 503 or is_loading(response) else dict(good(response))

    assert ranges(wait_until(fetched)) == []
    own_gateway.produce_batches(name, 1)
    assert own_gateway.acquire(name, name) == ["10-10×1"]


def test_gi_023_gi_025_a_failed_deletion_is_finished_by_the_next_call(
    stack: Stack,
    own_gateway: Gateway,
    restart: Callable[[str], None],
    background: ThreadPoolExecutor,
    name: str,
) -> None:
    """A topic's offsets are deleted, a group is deleted, another one is reset, all while no state can be changed."""
    forgetful, gone, steady = f"{name}-1", f"{name}-2", f"{name}-3"
    own_gateway.produce_batches(name, 4)
    for group in (forgetful, gone, steady):
        assert own_gateway.acquire(group, name, max_records=2) == ["0-1×1"]
        assert own_gateway.settle(group, name, 0, 1, "accept") == "applied"
    away(stack, "share coordinator")
    try:
        refused = [
            background.submit(own_gateway.try_delete_offsets, forgetful, name),
            background.submit(own_gateway.try_delete_group, gone),
            background.submit(own_gateway.try_reset, steady, "latest", name),
        ]
        for response in (future.result() for future in refused):
            assert response.status_code == 503, response.text
        assert [future.result().json()["definite"] for future in refused[:2]] == [False, False]
        for group in (forgetful, gone, steady):
            assert good(own_gateway.http.get(f"/v1/share-groups/{group}"))["state"] == "Empty"
    finally:
        back(stack, "share coordinator")
    restart("group coordinator")
    assert own_gateway.acquire(steady, name) == ["2-3×1"], "a reset that failed leaves the group where it was"
    assert own_gateway.try_delete_offsets(forgetful, name).status_code == 204
    problem(own_gateway.try_delete_offsets(forgetful, name), 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)
    assert own_gateway.try_delete_group(gone).status_code == 204
    for group in (forgetful, gone):
        assert own_gateway.acquire(group, name) == ["0-3×1"]


@pytest.mark.parametrize("forgotten", ["group", "topic"])
def test_a_poll_during_its_groups_deletion_does_not_recreate_the_group(
    stack: Stack, own_gateway: Gateway, background: ThreadPoolExecutor, name: str, forgotten: str
) -> None:
    """The share coordinator is paused, so that the deletion has begun when the poll asks for its partition."""
    own_gateway.create_topic(name, partitions=2)
    first, second = ([{"topic": name, "partitions": [partition]}] for partition in (0, 1))
    own_gateway.fetch(name, topic_partitions=first)
    share_coordinator = stack.service("share coordinator").pid
    os.kill(share_coordinator, signal.SIGSTOP)
    try:
        delete = own_gateway.try_delete_group if forgotten == "group" else own_gateway.try_delete_offsets
        named = [name] if forgotten == "group" else [name, name]
        deleted = background.submit(delete, *named, force=True)
        wait_until(lambda: asyncio.run(deletion_begun(stack, name)))
        poll = background.submit(own_gateway.fetch, name, topic_partitions=second, max_wait_ms=LONG_MS)
        wait_until(lambda: asyncio.run(fetches_under_way(stack, name)) == 1)
    finally:
        os.kill(share_coordinator, signal.SIGCONT)
    assert deleted.result(60).status_code == 204
    answer = poll.result(HANG_S)
    assert (answer["batches"], answer["errors"]) == ([], [])
    if forgotten == "group":
        problem(own_gateway.http.get(f"/v1/share-groups/{name}"), 404, "GROUP_ID_NOT_FOUND", 69)
    else:
        assert own_gateway.offsets(name) == {}


async def deletion_begun(stack: Stack, group: str) -> bool:
    """Whether a group's first stage of being deleted, or of forgetting a topic, is stored."""
    assert stack._postgres_url is not None
    async with session(stack._postgres_url) as database:
        row = "SELECT 1 FROM groups.share_group_topics WHERE group_id = $1 AND deleting"
        return bool(await database.fetchval(row, group))


async def fetches_under_way(stack: Stack, group: str) -> int:
    """As the gateway tells the group coordinator."""
    client = Client(stack.url, cluster_token=(stack._data_dir / "cluster.token").read_text().strip())
    try:
        usage = await client.call(apis.GROUP_USAGE, GroupPartitionsRequest(partitions={}), path={"group": group})
        return int(usage.waiting_fetches)
    finally:
        await client.close()


def test_lg_007_lag_is_the_same_after_restarts(own_gateway: Gateway, restart: Callable[[str], None], name: str) -> None:
    own_gateway.produce_batches(name, 10)
    own_gateway.acquire(name, name)
    own_gateway.settle(name, name, 0, 3, "accept")
    own_gateway.settle(name, name, 6, 6, "accept")
    assert own_gateway.offsets(name)[name, 0][1] == 5
    for service in ("group coordinator", "share coordinator"):
        restart(service)
        wait_until(lambda: own_gateway.http.get(f"/v1/share-groups/{name}/offsets").status_code == 200)
        assert own_gateway.offsets(name)[name, 0][1] == 5


def test_lg_005_lag_counts_from_the_reset_offset(own_gateway: Gateway, name: str) -> None:
    own_gateway.configure(name, share_auto_offset_reset="latest")
    own_gateway.produce_batches(name, 100)
    assert own_gateway.acquire(name, name) == []
    own_gateway.produce_batches(name, 5)
    assert own_gateway.acquire(name, name) == ["100-104×1"]
    own_gateway.settle(name, name, 100, 104, "accept")
    assert own_gateway.offsets(name)[name, 0][1] == 0
    own_gateway.reset(name, "offset", name, offset=40)
    assert own_gateway.offsets(name) == {(name, 0): (40, 65)}


def test_lg_009_finished_records_are_not_lag_wherever_the_stored_start_is(own_gateway: Gateway, name: str) -> None:
    own_gateway.produce_batches(name, 10)
    own_gateway.acquire(name, name)
    own_gateway.settle(name, name, 0, 9, "accept")
    assert own_gateway.offsets(name)[name, 0] == (10, 0)
    assert own_gateway.reset(name, "current", dry_run=True) == {(name, 0): 10}
