"""Membership over HTTP: heartbeats (HB), how share-partitions come to be assigned (GI, AS), how members go."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.messages.share_state import PartitionState
from sharequeue.stack.stack import Stack
from tests.http.calls import LONG_MS, Gateway, Json, good, problem, wait_until, woken
from tests.http.membership import NO_ASSIGNMENT, Member, describe, settle

# Joining and leaving


def test_hb_001_a_member_of_a_missing_topic_is_assigned_nothing(gateway: Gateway, name: str) -> None:
    assert Member(gateway, name, "m1", name).beat() == {
        "member_id": "m1",
        "member_epoch": 2,
        "heartbeat_interval_ms": 5000,
        "assignment": NO_ASSIGNMENT,
    }


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


def test_gi_029_a_partition_never_fetched_has_no_lag(gateway: Gateway, name: str) -> None:
    gateway.produce_batches(name, 3)
    Member(gateway, name, "m1", name).beat_until_assigned(**{name: [0]})
    assert gateway.offsets(name) == {(name, 0): (-1, -1)}
    assert gateway.acquire(name, topic_partitions=[{"topic": name, "partitions": [0]}]) == ["0-2×1"]
    assert gateway.offsets(name) == {(name, 0): (0, 3)}


def test_hb_005_a_member_that_left_can_rejoin_under_its_id(gateway: Gateway, name: str) -> None:
    member = Member(gateway, name, "m1", name)
    joined = member.beat()["member_epoch"]
    left = good(member.try_beat(member_epoch=-1))
    assert left == {"member_id": "m1", "member_epoch": -1, "heartbeat_interval_ms": 0}
    member.epoch = 0
    again = member.beat()
    assert again["member_epoch"] == joined + 2
    assert again["assignment"] == NO_ASSIGNMENT


def test_hb_007_hb_027_members_share_partitions_and_take_over_a_leavers(gateway: Gateway, name: str) -> None:
    gateway.configure(name, share_assignment_interval_ms=0)
    gateway.create_topic(name, partitions=3)
    one, two = Member(gateway, name, "m1", name), Member(gateway, name, "m2", name)
    settle(one, two, partitions=3)
    assert sorted((one.count, two.count)) == [1, 2]
    before = describe(gateway, name)["group_epoch"]
    good(two.try_beat(member_epoch=-1))
    after = describe(gateway, name)
    assert after["group_epoch"] == before + 1
    assert [member["member_id"] for member in after["members"]] == ["m1"]
    kept = one.assigned[name]
    one.beat_until_assigned(**{name: [0, 1, 2]})
    assert set(kept) <= {0, 1, 2}


def test_as_017_a_new_member_takes_no_more_than_its_share(gateway: Gateway, name: str) -> None:
    gateway.configure(name, share_assignment_interval_ms=0)
    gateway.create_topic(name, partitions=6)
    members = [Member(gateway, name, f"m{number}", name) for number in range(3)]
    settle(*members, partitions=6)
    before = [set(member.assigned[name]) for member in members]
    members.append(Member(gateway, name, "m9", name))
    settle(*members, partitions=6)
    assert sorted(member.count for member in members) == [1, 1, 2, 2]
    assert all(set(member.assigned[name]) <= earlier for member, earlier in zip(members, before, strict=False))


def test_as_015_more_members_than_partitions_share_one(gateway: Gateway, name: str) -> None:
    gateway.configure(name, share_assignment_interval_ms=0)
    gateway.create_topic(name)
    members = [Member(gateway, name, f"m{number}", name) for number in range(3)]
    settle(*members, partitions=1)
    assert [member.assigned for member in members] == [{name: [0]}] * 3


def test_a_fetch_whose_state_is_deleted_while_it_loads_may_try_again(
    gateway: Gateway, shared_stack: Stack, name: str
) -> None:
    """The partition had been initialised, so the client did nothing wrong: 42 is not answered as 121."""
    gateway.create_topic(name)
    Member(gateway, name, "m1", name).beat_until_assigned(**{name: [0]})
    token = (shared_stack._data_dir / "cluster.token").read_text().strip()

    async def delete_state() -> None:
        client = ShareStateClient(shared_stack.service("share coordinator").url, cluster_token=token)
        try:
            topic_id = gateway.describe_topic(name)["topic_id"]
            await client.state(apis.DELETE_STATE, name, {topic_id: [PartitionState(partition=0)]})
        finally:
            await client.close()

    asyncio.run(delete_state())
    problem(gateway.try_fetch(name, name), 503, "COORDINATOR_NOT_AVAILABLE", 15)


# Refusals


def test_hb_013_unknown_members_and_groups_are_refused(gateway: Gateway, name: str) -> None:
    stranger = Member(gateway, name, "m9", name)
    for epoch in (3, -1):
        problem(stranger.try_beat(member_epoch=epoch), 404, "GROUP_ID_NOT_FOUND", 69)
    Member(gateway, name, "m1", name).beat()
    for epoch in (3, -1):
        problem(stranger.try_beat(member_epoch=epoch), 404, "UNKNOWN_MEMBER_ID", 25)
    problem(gateway.http.get(f"/v1/share-groups/{name}-no"), 404, "GROUP_ID_NOT_FOUND", 69)


def test_a_wrong_epoch_is_fenced_and_the_previous_one_is_accepted(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    member = Member(gateway, name, "m1", name)
    member.beat_until_assigned(**{name: [0]})
    problem(member.try_beat(member_epoch=member.epoch + 1), 409, "FENCED_MEMBER_EPOCH", 110)
    answer = good(member.try_beat(member_epoch=member.epoch - 1))
    assert answer["member_epoch"] == member.epoch
    assert answer["assignment"]["topic_partitions"][0]["partitions"] == [0]
    assert good(member.try_beat(member_epoch=0, subscribed_topic_names=[name]))["assignment"]["topic_partitions"]


@pytest.mark.parametrize(
    "fields",
    [
        {"member_epoch": 0, "subscribed_topic_names": None},
        {"member_epoch": 0, "subscribed_topic_names": []},
        {"member_epoch": -2},
        {"rack_id": ""},
    ],
)
def test_invalid_heartbeats_are_refused(gateway: Gateway, name: str, fields: Json) -> None:
    problem(Member(gateway, name, "m1", name).try_beat(**fields), 422, "INVALID_REQUEST", 42)


@pytest.mark.parametrize(
    "fields",
    [
        {"member_id": "x" * 37},
        {"member_id": ""},
        {"member_id": None},
        {"member_epoch": "0"},
        {"subscribed_topic_names": "t"},
        {"topics": ["t"]},
    ],
)
def test_hb_017_heartbeats_that_break_the_schema_are_refused(gateway: Gateway, name: str, fields: Json) -> None:
    problem(Member(gateway, name, "m1", name).try_beat(**fields), 422, "INVALID_REQUEST", 42)


def test_hb_023_a_heartbeat_with_topics_gets_the_assignment(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    member = Member(gateway, name, "m1", name)
    member.beat_until_assigned(**{name: [0]})
    epoch = member.epoch
    answer = member.beat(subscribed_topic_names=[name])
    assert answer["member_epoch"] == epoch
    assert answer["assignment"]["topic_partitions"][0]["partitions"] == [0]


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


def test_rs_007_a_partition_added_later_begins_at_0(gateway: Gateway, name: str) -> None:
    gateway.configure(name, share_assignment_interval_ms=0, share_auto_offset_reset="latest")
    gateway.create_topic(name)
    member = Member(gateway, name, "m1", name)
    member.beat_until_assigned(**{name: [0]})
    good(gateway.http.patch(f"/v1/topics/{name}", json={"partitions": 2}))
    gateway.produce_batches(name, 2, partition=1)
    member.beat_until_assigned(**{name: [0, 1]})
    assert gateway.acquire(name, topic_partitions=[{"topic": name, "partitions": [0, 1]}]) == ["1:0-1×1"]


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


def test_gi_027_a_group_with_members_cannot_be_reset(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    member = Member(gateway, name, "m1", name)
    member.beat_until_assigned(**{name: [0]})
    for refused in (
        gateway.try_delete_group(name),
        gateway.try_reset(name, "latest", name),
        gateway.try_delete_offsets(name, name),
    ):
        assert "members: 1" in problem(refused, 409, "NON_EMPTY_GROUP", 68)["detail"]
    member.beat()
    gateway.reset(name, "latest", name, force=True)
    problem(member.try_beat(), 404, "UNKNOWN_MEMBER_ID", 25)
    assert gateway.try_delete_group(name, force=True).status_code == 204
    problem(member.try_beat(), 404, "GROUP_ID_NOT_FOUND", 69)
    member.epoch = 0
    epoch = member.beat()["member_epoch"]
    assert epoch > 4, "the epochs of a deleted group go on"


# Time


def test_hb_015_a_member_without_heartbeats_is_removed_at_the_session_timeout(gateway: Gateway, name: str) -> None:
    """A session has the length that the group's settings had at the last heartbeat."""
    gateway.configure(name, share_session_timeout_ms=60_000, share_heartbeat_interval_ms=500)
    lost, kept = Member(gateway, name, "m1", name), Member(gateway, name, "m2", name)
    assert lost.beat()["heartbeat_interval_ms"] == 500
    kept.beat()
    before = describe(gateway, name)["group_epoch"]
    gateway.configure(name, share_session_timeout_ms=1000)
    lost.beat()
    gateway.configure(name, share_session_timeout_ms=60_000)

    def gone() -> bool:
        kept.beat()
        return [member["member_id"] for member in describe(gateway, name)["members"]] == ["m2"]

    wait_until(gone)
    assert describe(gateway, name)["group_epoch"] == before + 1
    problem(lost.try_beat(), 404, "UNKNOWN_MEMBER_ID", 25)


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


def test_hb_025_assignments_wait_for_the_assignment_interval(gateway: Gateway, name: str) -> None:
    gateway.configure(name, share_assignment_interval_ms=0)
    gateway.create_topic(name, partitions=2)
    one, two = Member(gateway, name, "m1", name), Member(gateway, name, "m2", name)
    one.beat_until_assigned(**{name: [0, 1]})
    gateway.configure(name, share_assignment_interval_ms=60_000)
    joined = two.beat()
    assert (joined["member_epoch"], joined["assignment"]) == (one.epoch, NO_ASSIGNMENT)
    for _ in range(5):
        two.beat()
    assert not two.assigned
    gateway.configure(name, share_assignment_interval_ms=1000)
    wait_until(lambda: two.beat() and two.assigned)
    assert (two.count, two.epoch) == (1, one.epoch + 1)
