"""Topics that are deleted at one group coordinator while another, which has not heard of it, changes a group."""

from contextlib import AsyncExitStack

import pytest
from sharequeue_coordinator.groups import share_states
from sharequeue_coordinator.share_group.heartbeat import Heartbeat

from sharequeue.protocol.errors import KAFKA_CODES
from tests.storage.group_coordinators import group_of, two


@pytest.fixture(autouse=True)
def _no_share_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    """No share coordinator runs here; calls of it fail soon."""
    monkeypatch.setattr(share_states, "DEADLINE_S", 0.1)


async def test_a_joining_member_keeps_the_topics_that_exist(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        (first, _), (second, ownership) = await two(stack, database_url)
        group = group_of(ownership)
        stays, goes = [await first.topics.create(name, 1, {}) for name in ("stays", "goes")]
        await second.metadata.catch_up()
        await first.topics.delete("goes")
        assert second.metadata.known([], [goes.topic_id]), "the deletion is not known here yet"
        names = frozenset({"stays", "goes"})
        answer = await second.members.heartbeat(group, Heartbeat("m", 0, None, names, "", ""))
        assert answer.member_epoch == 2
        assert (await second.groups.find(group)).machine.topics.keys() == {stays.topic_id}


async def test_other_topics_are_initialised_when_one_is_deleted_during_it(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        (first, _), (second, ownership) = await two(stack, database_url)
        group_id = group_of(ownership)
        stays, goes = [await first.topics.create(name, 1, {}) for name in ("stays", "goes")]
        asked = {topic.topic_id: [0] for topic in (stays, goes)}
        await second.initializer.initialize(group_id, asked)
        group = await second.groups.find(group_id)
        begun = await second.groups.decide(group, lambda machine: machine.initialize(asked, [stays, goes]))
        await first.topics.delete("goes")
        await second.groups.decide(group, lambda machine: machine.initialized(begun.initializations))
        assert {topic_id: topic.initialized for topic_id, topic in group.machine.topics.items()} == {
            stays.topic_id: {0}
        }


async def test_only_the_deleted_topic_cannot_be_initialised(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        (first, _), (second, ownership) = await two(stack, database_url)
        group = group_of(ownership)
        stays, goes = [await first.topics.create(name, 1, {}) for name in ("stays", "goes")]
        await second.metadata.catch_up()
        await first.topics.delete("goes")
        faults = await second.initializer.initialize(group, {stays.topic_id: [0], goes.topic_id: [0]})
        codes = {place: KAFKA_CODES[fault.error] for place, fault in faults.items()}
        assert codes == {(stays.topic_id, 0): 15, (goes.topic_id, 0): 3}, "15: there is no share coordinator to ask"
