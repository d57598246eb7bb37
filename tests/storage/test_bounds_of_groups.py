"""How many topics, groups and share-partitions there may be, and what is kept in memory of those that nobody uses."""

import asyncio

import pytest
from sharequeue_coordinator.groups import registry
from sharequeue_coordinator.share_group.heartbeat import Heartbeat

from sharequeue_http.forms.errors import Throttled
from tests.storage.group_coordinators import running, until


def beat(*names: str) -> Heartbeat:
    return Heartbeat("m", 0, None, frozenset(names), "", "")


async def test_a_topic_above_the_limit_is_refused(database_url: str) -> None:
    async with running(database_url, max_topics=1) as coordinator:
        await coordinator.topics.create("first", 1, {})
        with pytest.raises(Throttled, match=r"there are 1 topics, and max_topics of the group coordinator"):
            await coordinator.topics.create("second", 1, {})
        await coordinator.topics.delete("first")
        await coordinator.topics.create("second", 1, {})


async def test_a_group_above_the_limit_is_refused_and_those_that_exist_go_on(database_url: str) -> None:
    async with running(database_url, max_groups=1) as coordinator:
        await coordinator.members.heartbeat("first", beat("none"))
        with pytest.raises(Throttled, match=r"there are 1 groups, and max_groups of the group coordinator"):
            await coordinator.members.heartbeat("second", beat("none"))
        await coordinator.members.heartbeat("first", beat("none", "another"))
    async with running(database_url, max_groups=1) as coordinator:
        watching = asyncio.create_task(coordinator.sessions.watch())
        try:
            await until(lambda: coordinator.sessions._totals._groups == 1)  # those of before count too
            with pytest.raises(Throttled):
                await coordinator.members.heartbeat("second", beat("none"))
        finally:
            watching.cancel()


async def test_share_partitions_above_the_limit_are_refused(database_url: str) -> None:
    async with running(database_url, max_share_partitions=15) as coordinator:
        await coordinator.topics.create("t", 10, {})
        await coordinator.members.heartbeat("first", beat("t"))
        with pytest.raises(Throttled, match=r"all groups have 10 share-partitions, and max_share_partitions"):
            await coordinator.members.heartbeat("second", beat("t"))
        await coordinator.members.heartbeat("first", beat("t"))


async def test_a_group_that_nobody_uses_is_loaded_again(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "KEEP_UNUSED_S", 0.0)
    async with running(database_url) as coordinator:
        await coordinator.members.heartbeat("used", beat("none"))
        await coordinator.members.heartbeat("unused", beat("none"))
        left = Heartbeat("m", -1, None, None, "", "")
        await coordinator.members.heartbeat("unused", left)
        before = [await coordinator.groups.find(group) for group in ("used", "unused")]
        coordinator.groups.forget_unused()
        after = [await coordinator.groups.find(group) for group in ("used", "unused")]
        assert after[0] is before[0]
        assert after[1] is not before[1]
        assert after[1].machine.epochs == before[1].machine.epochs
