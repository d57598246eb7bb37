"""Membership over HTTP: heartbeats (HB), how share-partitions come to be assigned (GI, AS), how members go."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.messages.share_state import PartitionState
from sharequeue.stack.stack import Stack
from tests.http.calls import LONG_MS, Gateway, Json, good, problem, wait_until, woken
from tests.http.membership import NO_ASSIGNMENT, Member, describe

# Joining and leaving


def test_gi_001_gi_007_hb_003_a_first_member_is_assigned_all_initialised_partitions(
    gateway: Gateway, name: str
) -> None:
    topics = [f"{name}-a", f"{name}-b"]
    for topic in topics:
        gateway.create_topic(topic, partitions=2)
    member = Member(gateway, name, "m1", *topics)
    assert member.beat()["assignment"] == NO_ASSIGNMENT
    assert member.epoch == 2
    member.beat_until_assigned(**{topic: [0, 1] for topic in topics})
    assert member.epoch == 3
    assert member.beat() == {"member_id": "m1", "member_epoch": 3, "heartbeat_interval_ms": 5000}
    assert gateway.offsets(name) == {(topic, p): (-1, -1) for topic in topics for p in (0, 1)}


def test_a_fetch_whose_state_is_deleted_while_it_loads_may_try_again(
    gateway: Gateway, shared_stack: Stack, name: str
) -> None:
    """The partition had been initialised, so the client did nothing wrong: 42 is not answered as 121."""
    gateway.create_topic(name)
    Member(gateway, name, "m1", name).beat_until_assigned(**{name: [0]})
    token = (shared_stack._data_dir / "cluster.token").read_text().strip()

    async def delete_state() -> None:
        client = ShareStateClient(shared_stack.addresses["share coordinator"], cluster_token=token)
        try:
            topic_id = gateway.describe_topic(name)["topic_id"]
            await client.state(apis.DELETE_STATE, name, {topic_id: [PartitionState(partition=0)]})
        finally:
            await client.close()

    asyncio.run(delete_state())
    problem(gateway.try_fetch(name, name), 503, "COORDINATOR_NOT_AVAILABLE", 15)


# New, grown and deleted topics


def test_gi_003_the_assignment_follows_new_grown_and_deleted_topics(gateway: Gateway, name: str) -> None:
    gateway.configure(name, share_assignment_interval_ms=0)
    topics = [f"{name}-a", f"{name}-b"]
    member = Member(gateway, name, "m1", *topics)
    gateway.create_topic(topics[0])
    member.beat_until_assigned(**{topics[0]: [0]})
    gateway.create_topic(topics[1])
    member.beat_until_assigned(**{topics[0]: [0], topics[1]: [0]})
    good(gateway.http.patch(f"/v1/topics/{topics[1]}", json={"partitions": 3}))
    member.beat_until_assigned(**{topics[0]: [0], topics[1]: [0, 1, 2]})
    assert gateway.http.delete(f"/v1/topics/{topics[0]}").status_code == 204
    member.beat_until_assigned(**{topics[1]: [0, 1, 2]})
    member.beat(subscribed_topic_names=[topics[0]])
    assert member.assigned == {}


# Taking a member out


def test_an_evicted_member_holds_nothing(gateway: Gateway, name: str) -> None:
    gateway.produce_batches(name, 4)
    member = Member(gateway, name, "m1", name)
    member.beat_until_assigned(**{name: [0]})
    assert gateway.acquire(name, name, max_records=3, share_session_epoch=0) == ["0-2×1"]
    assert gateway.http.delete(f"/v1/share-groups/{name}/members/m1").status_code == 204
    assert gateway.window(name, name) == (0, ["0-2 AVAILABLE×1", "3-3 AVAILABLE×0"])
    assert describe(gateway, name)["state"] == "Empty"
    problem(gateway.try_fetch(name, share_session_epoch=1), 404, "SHARE_SESSION_NOT_FOUND", 122)
    problem(member.try_beat(), 404, "UNKNOWN_MEMBER_ID", 25)
    problem(gateway.http.delete(f"/v1/share-groups/{name}/members/m1"), 404, "UNKNOWN_MEMBER_ID", 25)


def test_a_member_that_only_fetched_can_be_evicted(gateway: Gateway, name: str) -> None:
    gateway.produce_batches(name, 2)
    assert gateway.acquire(name, name, member="m7") == ["0-1×1"]
    assert gateway.http.delete(f"/v1/share-groups/{name}/members/m7").status_code == 204
    assert gateway.acquire(name, name, member="m8") == ["0-1×2"]
    problem(gateway.http.delete(f"/v1/share-groups/{name}-no/members/m7"), 404, "GROUP_ID_NOT_FOUND", 69)
    problem(gateway.http.delete(f"/v1/share-groups/{name}/members/{'x' * 37}"), 422, "INVALID_REQUEST", 42)


# Time


def test_ee_009_a_dead_member_leaves_at_the_session_timeout_and_its_records_at_lock_expiry(
    gateway: Gateway, name: str
) -> None:
    """Killed without closing: its records wait for their lock, its membership for the session timeout."""
    groups = [f"{name}-membership-ends-first", f"{name}-locks-end-first"]
    gateway.configure(groups[0], share_session_timeout_ms=1000, share_heartbeat_interval_ms=500)
    gateway.configure(groups[1], share_record_lock_duration_ms=1000)
    gateway.produce_batches(name, 3)
    for group in groups:
        Member(gateway, group, "m1", name).beat()
        assert gateway.acquire(group, name, share_session_epoch=0) == ["0-2×1"]
    wait_until(lambda: not describe(gateway, groups[0])["members"])
    assert gateway.window(groups[0], name) == (0, ["0-2 ACQUIRED×1"])
    assert gateway.settle(groups[0], name, 0, 2, "accept") == "applied"
    assert gateway.acquire(groups[1], name, member="m2", max_wait_ms=LONG_MS) == ["0-2×2"]
    assert [member["member_id"] for member in describe(gateway, groups[1])["members"]] == ["m1"]


@pytest.mark.parametrize("session", [{}, {"share_session_epoch": 0}], ids=["alone", "in a session"])
def test_a_waiting_fetch_of_a_member_that_leaves_gets_nothing(
    gateway: Gateway, background: ThreadPoolExecutor, name: str, session: Json
) -> None:
    gateway.create_topic(name)
    before = gateway.metrics()["sharequeue_waiting_fetches"]
    with woken(gateway):
        waiting = background.submit(gateway.fetch, name, name, member="leaver", max_wait_ms=LONG_MS, **session)
        wait_until(lambda: gateway.metrics()["sharequeue_waiting_fetches"] == before + 1)
        gateway.http.delete(f"/v1/share-groups/{name}/members/leaver")
        assert waiting.result()["batches"] == []
    gateway.produce(name, "for the others")
    assert gateway.acquire(name, name, member="other") == ["0-0×1"]
