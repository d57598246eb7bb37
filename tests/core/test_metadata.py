"""What a gateway knows of topics and group settings: changes that the feed tells of while answers are awaited, and when
applying them fails half-way.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.http.offsets_api import GroupsApi

from sharequeue.http.serving import Call
from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.protocol import apis, messages
from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.errors import ApiError, InvalidTopic, UnknownTopicOrPartition
from sharequeue.protocol.internal import (
    DescribeTopicsResponse,
    InitializeSharePartitionsResponse,
    MetadataChangesResponse,
)
from tests.core.coordinator_wire import CoordinatorWire

LIMIT = "share.delivery.count.limit"


def described(name: str, topic_id: str, partitions: int = 1) -> messages.Topic:
    return messages.Topic(name=name, topic_id=topic_id, partitions=partitions, config={"max.message.bytes": "1000"})


def changes_of(version: int, **told: Any) -> MetadataChangesResponse:
    return MetadataChangesResponse(version=version, **told)


async def without_a_coordinator() -> tuple[CoordinatorClient, Metadata]:
    """Metadata that heard of version 5 and knows the topic `orders`; nobody listens where it asks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        client = CoordinatorClient(f"http://127.0.0.1:{free.getsockname()[1]}", "group", deadline_s=0.2)
    metadata = Metadata(client, kafka_defaults=False, auto_create_topics=True)
    await metadata._apply(changes_of(5))
    metadata._learn(described("orders", "id-1"))
    return client, metadata


def test_a_reset_that_fails_forgets_nothing() -> None:
    async def run() -> None:
        client, metadata = await without_a_coordinator()
        gone: list[str] = []
        metadata.on_topic_deleted = gone.append
        with pytest.raises(ApiError):
            await metadata._apply(changes_of(9, reset=True))
        assert metadata._version == 5
        assert metadata.known_topic("orders") is metadata.known_topic_id("id-1") is not None
        assert gone == []
        await client.close()

    asyncio.run(run())


def test_changes_that_fail_half_way_are_applied_again() -> None:
    """A group's settings cannot be asked for: the next call must bring them again."""

    async def run() -> None:
        client, metadata = await without_a_coordinator()
        metadata._configs["g"] = ShareGroupConfig()
        changes = changes_of(7, topics=[described("orders", "id-1", 3)], group_ids=["g"])
        with pytest.raises(ApiError):
            await metadata._apply(changes)
        assert metadata._version == 5
        changes.group_ids = []
        await metadata._apply(changes)
        topic = metadata.known_topic("orders")
        assert topic is not None
        assert (metadata._version, topic.partitions) == (7, 3)
        await client.close()

    asyncio.run(run())


# Answers that are awaited while the feed tells of a change


def run(work: Callable[[CoordinatorWire, Metadata], Awaitable[None]], version: int = 5) -> None:
    async def main() -> None:
        async with CoordinatorWire().listening() as coordinator:
            client = CoordinatorClient(coordinator.url, "group")
            metadata = Metadata(client, kafka_defaults=False, auto_create_topics=True)
            if version >= 0:
                await metadata._apply(changes_of(version))
            await work(coordinator, metadata)
            await client.close()

    asyncio.run(main())


OLD = DescribeTopicsResponse(topics=[described("orders", "id-1"), described("other", "id-2")])
GONE = DescribeTopicsResponse(topics=[])
GROWN = DescribeTopicsResponse(topics=[described("orders", "id-1", 3)])
MADE_ANEW = DescribeTopicsResponse(topics=[described("orders", "id-3", 3)])


@pytest.mark.parametrize(
    ("told", "now"),
    [
        pytest.param({"deleted_topic_ids": ["id-1"]}, GONE, id="deleted"),
        pytest.param({"topics": GROWN.topics}, GROWN, id="altered"),
        pytest.param({"deleted_topic_ids": ["id-1"], "topics": MADE_ANEW.topics}, MADE_ANEW, id="made anew"),
        pytest.param({"topics": GROWN.topics}, GONE, id="altered, then deleted before it is asked again"),
    ],
)
@pytest.mark.parametrize("by_id", [False, True], ids=["by name", "by id"])
def test_a_topic_that_changes_while_it_is_asked_for_is_asked_for_again(
    told: dict[str, Any], now: DescribeTopicsResponse, by_id: bool
) -> None:
    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        asking = asyncio.create_task(
            metadata.topics_by_id(["id-1", "id-2"]) if by_id else metadata.ask_for({"orders": 0})
        )
        answer = await coordinator.asked(apis.DESCRIBE_TOPICS)
        await metadata._apply(changes_of(6, **told))
        assert metadata.known_topic("orders") is None
        answer.set_result(OLD)
        await coordinator.told(apis.DESCRIBE_TOPICS, now)
        await asking
        known = [topic for topic in metadata.topics() if topic.name == "orders"]
        assert [(topic.topic_id, topic.partitions) for topic in known] == [
            (topic.topic_id, topic.partitions) for topic in now.topics
        ]
        assert metadata.known_topic("orders") is next(iter(known), None)
        assert metadata.known_topic_id("id-2") is not None, "what did not change is taken from the first answer"

    run(work)


def test_a_topic_that_is_deleted_while_it_is_asked_for_is_not_there() -> None:
    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        asking = asyncio.create_task(metadata.topic("orders"))
        answer = await coordinator.asked(apis.DESCRIBE_TOPICS)
        await metadata._apply(changes_of(6, deleted_topic_ids=["id-1"]))
        answer.set_result(OLD)
        await coordinator.told(apis.DESCRIBE_TOPICS, GONE)
        with pytest.raises(UnknownTopicOrPartition):
            await asking

    run(work)


@pytest.mark.parametrize("api", [apis.CREATE_TOPIC, apis.UPDATE_TOPIC], ids=["made", "altered"])
def test_a_topic_that_is_deleted_before_its_making_or_change_is_answered_is_not_known(api: apis.Api) -> None:
    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        path = {"topic": "orders"} if api is apis.UPDATE_TOPIC else {}
        changing = asyncio.create_task(metadata.change_topic(api, b"{}", **path))
        answer = await coordinator.asked(api)
        await metadata._apply(changes_of(6, deleted_topic_ids=["id-1"]))
        answer.set_result(described("orders", "id-1"))
        assert b'"id-1"' in await changing
        assert metadata.known_topic("orders") is metadata.known_topic_id("id-1") is None

    run(work)


@pytest.mark.parametrize("told", [{"group_ids": ["g"]}, {"reset": True}], ids=["a change", "a reset"])
@pytest.mark.parametrize("initialize", [True, False], ids=["initialised", "asked for"])
def test_settings_that_change_while_they_are_asked_for_are_asked_for_again(
    told: dict[str, Any], initialize: bool
) -> None:
    """And once more if they change again meanwhile."""

    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        asking: asyncio.Task[Any]
        if initialize:
            asking = asyncio.create_task(metadata.initialize("g", {"id-1": [0]}))
            answer = await coordinator.asked(apis.INITIALIZE_SHARE_PARTITIONS)
            old: Any = InitializeSharePartitionsResponse(config={LIMIT: "3"}, topics=[])
        else:
            asking = asyncio.create_task(metadata.learn_config("g"))
            answer = await coordinator.asked(apis.GET_SHARE_GROUP_CONFIG)
            old = {LIMIT: "3"}
        await metadata._apply(changes_of(6, **told))
        answer.set_result(old)
        answer = await coordinator.asked(apis.GET_SHARE_GROUP_CONFIG)
        await metadata._apply(changes_of(7, **told))
        answer.set_result({LIMIT: "4"})
        await coordinator.told(apis.GET_SHARE_GROUP_CONFIG, {LIMIT: "5"})
        await asking
        config = metadata.config("g")
        assert config is not None
        assert config.delivery_count_limit == 5

    run(work)


def test_a_partition_that_is_not_known_is_asked_for() -> None:
    """Another gateway has heard of it; the feed tells this one a moment later."""

    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        metadata._learn(described("orders", "id-1"))
        assert (await metadata.topic_with("orders", 0)).partitions == 1
        asking = asyncio.create_task(metadata.topic_with("orders", 2))
        await coordinator.told(apis.DESCRIBE_TOPICS, GROWN)
        assert (await asking).partitions == 3
        asking = asyncio.create_task(metadata.topic_with("orders", 3))
        await coordinator.told(apis.DESCRIBE_TOPICS, GROWN)
        with pytest.raises(UnknownTopicOrPartition, match="no partition 3; it has 3"):
            await asking
        with pytest.raises(UnknownTopicOrPartition, match="no partition -1"):
            await metadata.topic_with("orders", -1)

    run(work)


def test_all_that_is_not_known_is_asked_for_at_once() -> None:
    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        metadata._learn(described("orders", "id-1"))
        asking = asyncio.create_task(metadata.ask_for({"orders": 2, "other": 0, "missing": 0, "no name": 0}))
        await coordinator.told(apis.DESCRIBE_TOPICS, DescribeTopicsResponse(topics=[*GROWN.topics, OLD.topics[1]]))
        await asking
        assert metadata.known_topic_with("orders", 2).topic_id == "id-1"
        assert metadata.known_topic_with("other", 0).topic_id == "id-2"
        with pytest.raises(UnknownTopicOrPartition, match="no topic 'missing'"):
            metadata.known_topic_with("missing", 0)
        with pytest.raises(InvalidTopic):
            metadata.known_topic_with("no name", 0)
        await metadata.ask_for({"orders": 1, "no name": 0})  # nothing to ask

    run(work)


def test_settings_that_were_changed_are_not_told_as_refused() -> None:
    """They are changed, and the group coordinator is away when it is asked what is in force now: the feed will tell."""

    async def hang_up(coordinator: CoordinatorWire) -> None:
        while True:
            await coordinator.told(apis.GET_SHARE_GROUP_CONFIG, None)

    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        nowhere: Any = None
        metadata._configs["g"] = ShareGroupConfig()
        call = Call(nowhere, {"group": "g"}, b"{}", None, "request-1")
        client = CoordinatorClient(coordinator.url, "group")
        updating = asyncio.create_task(GroupsApi(client, metadata, nowhere).update_config(call))
        await coordinator.told(apis.UPDATE_SHARE_GROUP_CONFIG, {LIMIT: "3"})
        going_away = asyncio.create_task(hang_up(coordinator))
        assert (await updating).body == b'{"share.delivery.count.limit":"3"}'
        going_away.cancel()
        await client.close()

    run(work)


def test_what_others_ask_for_meanwhile_is_kept() -> None:
    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        asking = asyncio.create_task(metadata.learn_config("g"))
        answer = await coordinator.asked(apis.GET_SHARE_GROUP_CONFIG)
        await metadata._apply(changes_of(6, group_ids=["h"], deleted_topic_ids=["id-1"]))
        answer.set_result({LIMIT: "3"})
        assert (await asking).delivery_count_limit == 3

    run(work)


def test_what_was_asked_for_before_the_feed_is_asked_for_again_when_it_begins() -> None:
    """Its first answer says only from which version on it tells."""

    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        asking = asyncio.create_task(metadata.topic("orders"))
        await coordinator.told(apis.DESCRIBE_TOPICS, OLD)
        await asking
        applying = asyncio.create_task(metadata._apply(changes_of(6)))
        await coordinator.told(apis.DESCRIBE_TOPICS, GROWN)
        await applying
        topic = metadata.known_topic("orders")
        assert topic is not None
        assert topic.partitions == 3
        assert metadata.known_topic("other") is None

    run(work, version=-1)
