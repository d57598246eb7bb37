"""Groups that were empty for `group.share.empty.retention.ms`: deleted with their settings, unless they are in use."""

import pytest

from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, good, problem, wait_until
from tests.http.database import sql

MINUTE_MS = 60_000
LIMIT = "share.delivery.count.limit"


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return {"SHAREQUEUE_COORDINATOR_GROUP_SHARE_EMPTY_RETENTION_MS": str(10 * MINUTE_MS)}


class Groups:
    """The groups of a test as the stores have them."""

    def __init__(self, gateway: Gateway, database: str) -> None:
        self.gateway = gateway
        self._database = database

    def begin(self, group: str, topic: str) -> str:
        """A group that has fetched once, without a name, and found nothing."""
        self.gateway.configure(group, share_delivery_count_limit="7")
        good(self.gateway.http.post(f"/v1/share-groups/{group}/fetch", json={"topics": [topic], "max_wait_ms": 0}))
        wait_until(lambda: self.readers(group))
        return group

    def age(self, group: str, *, readers_minutes: int = 120) -> None:
        """Nobody has joined the group for an hour, and its readers were active so long ago."""
        change = "UPDATE log.readers SET active_at = now() - $2 * interval '1 minute' WHERE group_id = $1"
        sql(self._database, change, group, readers_minutes)
        sql(
            self._database,
            "UPDATE groups.share_groups SET used_at = now() - interval '1 hour' WHERE group_id = $1",
            group,
        )

    def unused_minutes(self, group: str) -> int:
        query = "SELECT extract(epoch FROM now() - used_at) / 60 FROM groups.share_groups WHERE group_id = $1"
        return round(sql(self._database, query, group)[0][0])

    def readers(self, group: str) -> int:
        return len(sql(self._database, "SELECT 1 FROM log.readers WHERE group_id = $1", group))

    def exists(self, group: str) -> bool:
        return self.gateway.http.get(f"/v1/share-groups/{group}").status_code == 200

    def limit(self, group: str) -> str:
        return str(good(self.gateway.http.get(f"/v1/share-groups/{group}/config"))[LIMIT])


@pytest.fixture
def groups(own_gateway: Gateway, database: str) -> Groups:
    return Groups(own_gateway, database)


def test_an_empty_group_is_deleted_with_its_settings_and_holds_the_log_no_more(groups: Groups, name: str) -> None:
    groups.gateway.create_topic(name)
    groups.begin(name, name)
    groups.age(name, readers_minutes=71)  # known to be unused for eleven minutes: a note may be an hour old
    wait_until(lambda: not groups.exists(name))
    assert groups.readers(name) == 0
    wait_until(lambda: groups.limit(name) == "5")
    problem(groups.gateway.http.get(f"/v1/share-groups/{name}/offsets"), 404, "GROUP_ID_NOT_FOUND", 69)
    assert groups.begin(name, name)
    assert groups.exists(name), "a group of its name begins anew"


def test_a_group_that_is_used_stays(groups: Groups, name: str) -> None:
    """By a lock, a session, a named member that was seen lately, a member that joined, or as the log's readers say."""
    gateway = groups.gateway
    gateway.produce_batches(name, 1)
    gateway.create_topic(f"{name}-empty")
    kinds = ("lock", "session", "seen", "joined", "read", "configured")
    used = [groups.begin(f"{name}-{kind}", f"{name}-empty") for kind in kinds]
    lock, session, seen, joined, read, configured = used
    assert gateway.acquire(lock, name, lock_duration_ms=3_600_000) == ["0-0×1"]
    gateway.fetch(session, f"{name}-empty", share_session_epoch=0)
    gateway.fetch(seen, f"{name}-empty")
    answer = {"member_id": "m1", "member_epoch": 0, "subscribed_topic_names": [name]}
    good(gateway.http.post(f"/v1/share-groups/{joined}/heartbeat", json=answer))
    unused = groups.begin(f"{name}-unused", f"{name}-empty")
    for group in (lock, session, seen, joined, unused):
        groups.age(group)
    groups.age(read, readers_minutes=69)
    groups.age(configured)
    gateway.configure(configured, share_delivery_count_limit="8")
    wait_until(lambda: not groups.exists(unused))
    for group in (lock, session, seen):
        wait_until(lambda group=group: groups.unused_minutes(group) == 0)  # looked at, and found in use
    wait_until(lambda: groups.unused_minutes(read) == 9)
    assert [group for group in used if not groups.exists(group)] == []
    assert {groups.limit(group) for group in (lock, session, seen, joined, read)} == {"7"}
    assert groups.limit(configured) == "8"


@pytest.mark.three_programs  # two of them are stopped, one after the other
def test_a_deletion_goes_on_after_a_crash_between_its_steps(groups: Groups, stack: Stack, name: str) -> None:
    """The state cannot be deleted, because no share coordinator runs. Then the group coordinator is killed."""
    groups.gateway.create_topic(name)
    groups.begin(name, name)
    states, coordinator = stack.service("share coordinator"), stack.service("group coordinator")
    states.stop()
    groups.age(name)
    deleting = "SELECT 1 FROM groups.share_group_topics WHERE group_id = $1 AND deleting"
    wait_until(lambda: sql(groups._database, deleting, name))
    coordinator.kill()
    assert groups.readers(name) == 1, "the log is held until the state is deleted"
    states.start()
    coordinator.start()
    wait_until(coordinator.ready)
    wait_until(lambda: not groups.exists(name))
    assert groups.readers(name) == 0
    wait_until(lambda: groups.limit(name) == "5")
