"""Resets of groups: nobody joins during one, and a reset that has begun is not answered as refused."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from sharequeue_coordinator.coordinator import GroupCoordinator
from sharequeue_coordinator.groups import share_states
from sharequeue_coordinator.share_group.heartbeat import Heartbeat
from sharequeue_coordinator.share_group.initialization import Initialization

from sharequeue.protocol.errors import UnknownMemberId
from sharequeue.protocol.messages.cluster import AlterShareGroupOffsetsRequest
from sharequeue_http.forms.errors import CoordinatorNotAvailable
from tests.storage.group_coordinators import running, until

Change = Callable[[GroupCoordinator, str], Awaitable[None]]
DEADLINE_S = 2.0
"""How long the share coordinator, which is not there, is waited for."""


async def delete(coordinator: GroupCoordinator, topic_id: str) -> None:
    await coordinator.group_admin.delete("g", force=True)


async def reset(coordinator: GroupCoordinator, topic_id: str) -> None:
    request = AlterShareGroupOffsetsRequest(offsets={topic_id: {0: 0}}, force=True)
    await coordinator.group_admin.alter_offsets("g", request)


def joining(member_id: str) -> Heartbeat:
    return Heartbeat(member_id, 0, None, frozenset({"t"}), "", "")


@pytest.mark.parametrize("changing", [delete, reset])
async def test_nobody_joins_a_group_during_its_reset(
    database_url: str, monkeypatch: pytest.MonkeyPatch, changing: Change
) -> None:
    """Evicted members rejoin at once: without a lock a forced reset would be refused, and a group deleted by half."""
    monkeypatch.setattr(share_states, "DEADLINE_S", 0.1)
    async with running(database_url) as coordinator:
        topic = await coordinator.topics.create("t", 1, {})
        groups = coordinator.groups
        await coordinator.members.heartbeat("g", joining("m1"))
        group = await groups.find("g")
        await until(lambda: not group.lock.locked())
        await groups.decide(
            group, lambda machine: machine.initialized([Initialization(topic.topic_id, frozenset({0}), -1, 1)])
        )
        monkeypatch.setattr(share_states, "DEADLINE_S", DEADLINE_S)
        setting = asyncio.create_task(changing(coordinator, topic.topic_id))
        await until(lambda: not group.machine.members)
        with pytest.raises(CoordinatorNotAvailable):
            await coordinator.members.heartbeat("g", joining("m1"))
        with pytest.raises(UnknownMemberId):
            await coordinator.members.heartbeat("g", Heartbeat("m1", 2, None, None, "", ""))
        with pytest.raises(CoordinatorNotAvailable) as failed:
            await setting
        assert not failed.value.definite
        await coordinator.members.heartbeat("g", joining("m1"))
