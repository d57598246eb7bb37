"""Settings that go with an empty group: not those that changed while it was deleted."""

from functools import partial

import pytest
from sharequeue_coordinator.coordinator import GroupCoordinator
from sharequeue_coordinator.groups import store
from sharequeue_coordinator.share_group import offsets
from sharequeue_coordinator.share_group.heartbeat import Heartbeat

from tests.storage.database import session
from tests.storage.group_coordinators import running

LIMIT = "share.delivery.count.limit"
HOUR_MS = 3_600_000


async def empty_group(coordinator: GroupCoordinator, database_url: str, group: str) -> None:
    """A group with a setting, whose only member left two hours ago."""
    await coordinator.group_configs.update(group, {LIMIT: "7"}, [])
    await coordinator.members.heartbeat(group, Heartbeat("m", 0, None, frozenset({"none"}), "", ""))
    await coordinator.members.heartbeat(group, Heartbeat("m", -1, None, None, "", ""))
    async with session(database_url) as admin:
        change = "UPDATE groups.share_groups SET used_at = now() - interval '2 hours' WHERE group_id = $1"
        await admin.execute(change, group)


@pytest.mark.parametrize("changed", [False, True], ids=["as they were", "changed meanwhile"])
async def test_settings_go_with_the_group_unless_they_changed(database_url: str, changed: bool) -> None:
    async with running(database_url) as coordinator:
        await empty_group(coordinator, database_url, "g")
        assert await coordinator.query(store.unused_groups, HOUR_MS) == ["g"]
        group = await coordinator.groups.find("g")
        if changed:
            await coordinator.group_configs.update("g", {LIMIT: "8"}, [])
            assert await coordinator.query(store.unused_groups, HOUR_MS) == []
        version = coordinator.metadata.feed.version
        await coordinator.groups.decide(group, partial(offsets.group_deleted, unused_ms=HOUR_MS))
        assert await coordinator.group_configs.stored("g") == ({LIMIT: "8"} if changed else {})
        await coordinator.metadata.catch_up()
        _, groups = coordinator.metadata.feed.after(version) or ((), ())
        assert list(groups) == ([] if changed else ["g"]), "gateways hear that the settings are gone"
        assert await coordinator.query(store.unused_groups, HOUR_MS) == []


async def test_who_joins_or_leaves_uses_the_group(database_url: str) -> None:
    async with running(database_url) as coordinator:
        for group in ("joins", "stays", "unused"):
            await empty_group(coordinator, database_url, group)
        joining = Heartbeat("m", 0, None, frozenset({"none"}), "", "")
        await coordinator.members.heartbeat("joins", joining)
        await coordinator.members.heartbeat("joins", Heartbeat("m", -1, None, None, "", ""))
        await coordinator.members.heartbeat("stays", joining)
        async with session(database_url) as admin:
            await admin.execute(
                "UPDATE groups.share_groups SET used_at = now() - interval '2 hours' WHERE group_id = 'stays'"
            )
        assert await coordinator.query(store.unused_groups, HOUR_MS) == ["unused"]


async def test_a_group_that_no_gateway_answers_for_stays(database_url: str) -> None:
    """Whether it is in use is not known without a gateway."""
    async with running(database_url) as coordinator:
        await empty_group(coordinator, database_url, "g")
        coordinator.empty_groups._retention_ms = HOUR_MS
        await coordinator.empty_groups.look()
        assert (await coordinator.groups.find("g")).machine.exists
