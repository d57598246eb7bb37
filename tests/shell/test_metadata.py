"""The gateway's cache of topics and group settings: changes that the feed reports while lookups are in progress, or
that cannot be applied.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.http.answers.page_tokens import PageTokens
from sharequeue_gateway.http.groups.offsets_api import GroupsApi
from sharequeue_gateway.record_log.removing.readers import Readers

from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.protocol import apis
from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.errors import InvalidTopic, StorageError, UnknownTopicOrPartition
from sharequeue.protocol.messages.cluster import (
    DescribeTopicsResponse,
    InitializeSharePartitionsResponse,
    MetadataChangesResponse,
)
from sharequeue.protocol.messages.topics import Topic
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import ApiError
from tests.shell.coordinator_wire import CoordinatorWire

LIMIT = "share.delivery.count.limit"


def described(name: str, topic_id: str, partitions: int = 1) -> Topic:
    return Topic(name=name, topic_id=topic_id, partitions=partitions, config={"max.message.bytes": "1000"})


def changes_of(version: int, **changed: Any) -> MetadataChangesResponse:
    return MetadataChangesResponse(version=version, **changed)


class Heard:
    """Notes the topics that the feed deleted."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    def topic_deleted(self, topic_id: str) -> None:
        self.deleted.append(topic_id)

    def group_changed(self, group_id: str, config: ShareGroupConfig) -> None:
        pass


def run(
    work: Callable[[CoordinatorWire, Metadata], Awaitable[None]], *, follow: bool = True, events: Heard | None = None
) -> None:
    """Run a test with metadata that follows the feed from version 5, or that does not follow it yet."""

    async def main() -> None:
        async with CoordinatorWire().listening() as coordinator:
            client = CoordinatorClient(coordinator.url, "group", deadline_s=1)
            metadata = Metadata(client, kafka_defaults=False, auto_create_topics=True)
            if follow:
                async with following(metadata, events):
                    assert await coordinator.change(changes_of(5)) == 5
                    await work(coordinator, metadata)
            else:
                await work(coordinator, metadata)
            await client.close()

    asyncio.run(main())


@contextlib.asynccontextmanager
async def following(metadata: Metadata, events: Heard | None = None) -> AsyncIterator[None]:
    task = asyncio.create_task(metadata.follow(events or Heard(), lambda generation: None))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def know(coordinator: CoordinatorWire, metadata: Metadata, topic: Topic) -> None:
    """Have a topic looked up, so that it is known."""
    found = DescribeTopicsResponse(topics=[topic])
    await asyncio.gather(metadata.topic(topic.name), coordinator.answer(apis.DESCRIBE_TOPICS, found))


async def know_config(coordinator: CoordinatorWire, metadata: Metadata) -> None:
    """Have the settings of group g looked up, so that they are known."""
    await asyncio.gather(metadata.learn_config("g"), coordinator.answer(apis.INITIALIZE_SHARE_PARTITIONS, stored({})))


def stored(config: dict[str, str]) -> InitializeSharePartitionsResponse:
    return InitializeSharePartitionsResponse(config=config)


def test_a_group_coordinator_is_asked_only_where_a_produce_may_create_a_topic() -> None:
    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        none = DescribeTopicsResponse(topics=[])
        asking = asyncio.create_task(metadata.would_create("orders"))
        await coordinator.answer(apis.DESCRIBE_TOPICS, none)
        assert await asking
        coordinator.away = True
        with pytest.raises(ApiError):
            await metadata.would_create("orders")
        assert not await metadata.would_create("no topic")
        client = CoordinatorClient(coordinator.url, "group", deadline_s=1)
        assert not await Metadata(client, kafka_defaults=False, auto_create_topics=False).would_create("orders")
        await client.close()

    run(work, follow=False)


# Changes that cannot be applied at first


def test_a_reset_that_fails_forgets_nothing() -> None:
    events = Heard()

    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        await know(coordinator, metadata, described("orders", "id-1"))
        coordinator.away = True
        assert await coordinator.change(changes_of(9, reset=True)) == 5
        assert metadata.by_name.get("orders") is metadata.known_topic_id("id-1") is not None
        assert events.deleted == []

    run(work, events=events)


def test_changes_that_failed_half_way_are_applied_again() -> None:
    """A group's settings cannot be looked up: the next call of the feed must bring the same changes again."""

    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        await know(coordinator, metadata, described("orders", "id-1"))
        await know_config(coordinator, metadata)
        changes = changes_of(7, topics=[described("orders", "id-1", 3)], group_ids=["g"])
        coordinator.away = True
        assert await coordinator.change(changes) == 5
        coordinator.away = False
        applied, _ = await asyncio.gather(
            coordinator.change(changes), coordinator.answer(apis.INITIALIZE_SHARE_PARTITIONS, stored({LIMIT: "4"}))
        )
        assert applied == 7
        topic, config = metadata.by_name.get("orders"), metadata.config("g")
        assert topic is not None
        assert config is not None
        assert (topic.partitions, config.delivery_count_limit) == (3, 4)

    run(work)


# Changes during a lookup


OLD = DescribeTopicsResponse(topics=[described("orders", "id-1"), described("other", "id-2")])
GONE = DescribeTopicsResponse(topics=[])
GROWN = DescribeTopicsResponse(topics=[described("orders", "id-1", 3)])
RECREATED = DescribeTopicsResponse(topics=[described("orders", "id-3", 3)])


@pytest.mark.parametrize(
    ("changed", "now"),
    [
        pytest.param({"deleted_topic_ids": ["id-1"]}, GONE, id="deleted"),
        pytest.param({"topics": GROWN.topics}, GROWN, id="altered"),
        pytest.param({"deleted_topic_ids": ["id-1"], "topics": RECREATED.topics}, RECREATED, id="recreated"),
        pytest.param({"topics": GROWN.topics}, GONE, id="altered, then deleted before it is asked again"),
    ],
)
@pytest.mark.parametrize("by_id", [False, True], ids=["by name", "by id"])
def test_a_topic_that_changes_during_its_lookup_is_looked_up_again(
    changed: dict[str, Any], now: DescribeTopicsResponse, by_id: bool
) -> None:
    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        asking = asyncio.create_task(
            metadata.topics_by_id(["id-1", "id-2"]) if by_id else metadata.ask_for({"orders": 0})
        )
        answer = await coordinator.expect(apis.DESCRIBE_TOPICS)
        assert await coordinator.change(changes_of(6, **changed)) == 6
        assert metadata.by_name.get("orders") is None
        answer.set_result(OLD)
        await coordinator.answer(apis.DESCRIBE_TOPICS, now)
        await asking
        known = [topic for topic in metadata.topics() if topic.name == "orders"]
        assert [(topic.topic_id, topic.partitions) for topic in known] == [
            (topic.topic_id, topic.partitions) for topic in now.topics
        ]
        assert metadata.by_name.get("orders") is next(iter(known), None)
        assert metadata.known_topic_id("id-2") is not None, "unchanged topics are taken from the first answer"

    run(work)


def test_a_topic_deleted_during_its_lookup_is_unknown() -> None:
    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        asking = asyncio.create_task(metadata.topic("orders"))
        answer = await coordinator.expect(apis.DESCRIBE_TOPICS)
        assert await coordinator.change(changes_of(6, deleted_topic_ids=["id-1"])) == 6
        answer.set_result(OLD)
        await coordinator.answer(apis.DESCRIBE_TOPICS, GONE)
        with pytest.raises(UnknownTopicOrPartition):
            await asking

    run(work)


@pytest.mark.parametrize("api", [apis.CREATE_TOPIC, apis.UPDATE_TOPIC], ids=["created", "altered"])
def test_a_topic_deleted_before_its_creation_or_change_is_answered_is_unknown(api: Api) -> None:
    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        path = {"topic": "orders"} if api is apis.UPDATE_TOPIC else {}
        changing = asyncio.create_task(metadata.change_topic(api, b"{}", **path))
        answer = await coordinator.expect(api)
        assert await coordinator.change(changes_of(6, deleted_topic_ids=["id-1"])) == 6
        answer.set_result(described("orders", "id-1"))
        assert b'"id-1"' in await changing
        assert metadata.by_name.get("orders") is metadata.known_topic_id("id-1") is None

    run(work)


@pytest.mark.parametrize("feed_first", [True, False], ids=["before the answer", "behind the answer"])
def test_a_topic_shows_its_change_although_the_feed_names_an_earlier_one(feed_first: bool) -> None:
    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        await know(coordinator, metadata, described("orders", "id-1"))
        earlier, now = described("orders", "id-1", partitions=2), described("orders", "id-1", partitions=3)
        changing = asyncio.create_task(metadata.change_topic(apis.UPDATE_TOPIC, b"{}", topic="orders"))
        answer = await coordinator.expect(apis.UPDATE_TOPIC)
        feed = changes_of(6, topics=[earlier])
        if feed_first:
            assert await coordinator.change(feed) == 6
            answer.set_result(now)
            await coordinator.answer(apis.DESCRIBE_TOPICS, DescribeTopicsResponse(topics=[now]))
            await changing
        else:
            answer.set_result(now)
            await changing
            followed = asyncio.create_task(coordinator.change(feed))
            await coordinator.answer(apis.DESCRIBE_TOPICS, DescribeTopicsResponse(topics=[now]))
            assert await followed == 6
        known = metadata.by_name.get("orders")
        assert known is not None
        assert known.partitions == 3

    run(work)


@pytest.mark.parametrize("changed", [{"group_ids": ["g"]}, {"reset": True}], ids=["a change", "a reset"])
@pytest.mark.parametrize("initialize", [True, False], ids=["initialised", "asked for"])
def test_settings_that_change_during_their_lookup_are_looked_up_again(
    changed: dict[str, Any], initialize: bool
) -> None:
    """And once more if they change again during the second lookup."""

    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        asking: asyncio.Task[Any]
        if initialize:
            asking = asyncio.create_task(metadata.initialize("g", {"id-1": [0]}))
            answer = await coordinator.expect(apis.INITIALIZE_SHARE_PARTITIONS)
            old = stored({LIMIT: "3"})
        else:
            asking = asyncio.create_task(metadata.learn_config("g"))
            answer = await coordinator.expect(apis.INITIALIZE_SHARE_PARTITIONS)
            old = stored({LIMIT: "3"})
        assert await coordinator.change(changes_of(6, **changed)) == 6
        answer.set_result(old)
        answer = await coordinator.expect(apis.INITIALIZE_SHARE_PARTITIONS)
        assert await coordinator.change(changes_of(7, **changed)) == 7
        answer.set_result(stored({LIMIT: "4"}))
        await coordinator.answer(apis.INITIALIZE_SHARE_PARTITIONS, stored({LIMIT: "5"}))
        await asking
        config = metadata.config("g")
        assert config is not None
        assert config.delivery_count_limit == 5

    run(work)


MAX_LOCK, MAX_LIMIT = "group.share.max.record.lock.duration.ms", "group.share.max.delivery.count.limit"


def test_service_wide_settings_that_change_are_in_force_for_all_groups() -> None:
    """A group coordinator was started again with other ones. A lookup that fails is repeated with the next answer."""

    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        await asyncio.gather(
            metadata.learn_config("g"), coordinator.answer(apis.INITIALIZE_SHARE_PARTITIONS, stored({LIMIT: "9"}))
        )
        assert metadata.configs["g"].delivery_count_limit == 9
        changes = changes_of(6, service={MAX_LIMIT: 7, MAX_LOCK: 40_000})
        coordinator.away = True
        await coordinator.change(changes)
        coordinator.away = False
        await asyncio.gather(
            coordinator.change(changes), coordinator.answer(apis.INITIALIZE_SHARE_PARTITIONS, stored({LIMIT: "9"}))
        )
        assert metadata.configs["g"].delivery_count_limit == 7
        assert metadata.lock_bounds == (1000, 40_000)

    run(work)


def test_service_wide_settings_come_with_a_lookup_before_the_feed() -> None:
    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        answer = InitializeSharePartitionsResponse(config={LIMIT: "9"}, service={MAX_LIMIT: 7})
        await asyncio.gather(metadata.learn_config("g"), coordinator.answer(apis.INITIALIZE_SHARE_PARTITIONS, answer))
        assert metadata.configs["g"].delivery_count_limit == 7

    run(work, follow=False)


def test_an_unknown_partition_is_looked_up() -> None:
    """Another gateway knows it already; the feed reports it to this one a moment later."""

    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        await know(coordinator, metadata, described("orders", "id-1"))
        assert (await metadata.topic_with("orders", 0)).partitions == 1
        asking = asyncio.create_task(metadata.topic_with("orders", 2))
        await coordinator.answer(apis.DESCRIBE_TOPICS, GROWN)
        assert (await asking).partitions == 3
        asking = asyncio.create_task(metadata.topic_with("orders", 3))
        await coordinator.answer(apis.DESCRIBE_TOPICS, GROWN)
        with pytest.raises(UnknownTopicOrPartition, match="no partition 3; it has 3"):
            await asking
        with pytest.raises(UnknownTopicOrPartition, match="no partition -1"):
            await metadata.topic_with("orders", -1)

    run(work)


def test_all_unknown_topics_are_looked_up_in_one_call() -> None:
    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        await know(coordinator, metadata, described("orders", "id-1"))
        asking = asyncio.create_task(metadata.ask_for({"orders": 2, "other": 0, "missing": 0, "no name": 0}))
        await coordinator.answer(apis.DESCRIBE_TOPICS, DescribeTopicsResponse(topics=[*GROWN.topics, OLD.topics[1]]))
        await asking
        assert metadata.known_topic_with("orders", 2).topic_id == "id-1"
        assert metadata.known_topic_with("other", 0).topic_id == "id-2"
        with pytest.raises(UnknownTopicOrPartition, match="no topic 'missing'"):
            metadata.known_topic_with("missing", 0)
        with pytest.raises(InvalidTopic):
            metadata.known_topic_with("no name", 0)
        await metadata.ask_for({"orders": 1, "no name": 0})  # nothing to ask

    run(work)


@pytest.mark.parametrize("log_away", [False, True])
def test_a_settings_change_succeeds_though_the_later_lookup_fails(log_away: bool) -> None:
    """The coordinator is away when the gateway looks up the new settings; the feed will report them later. The log's
    database may be away too: of a setting that it must have, the outcome is not definite then."""

    async def query(*_: object) -> None:
        if log_away:
            raise StorageError("the record log cannot be used", definite=True)

    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        nowhere: Any = None
        await know_config(coordinator, metadata)
        call = Call(nowhere, {"group": "g"}, b"{}", None, "request-1")
        client = CoordinatorClient(coordinator.url, "group")
        api = GroupsApi(client, metadata, nowhere, Readers(query), nowhere, nowhere, PageTokens("secret"), nowhere)
        if log_away:
            hold = Call(nowhere, {"group": "g"}, b'{"config":{"retention.hold":"false"}}', None, "request-0")
            holding = asyncio.create_task(api.update_share_group_config(hold))
            await coordinator.answer(apis.UPDATE_SHARE_GROUP_CONFIG, {"retention.hold": "false"})
            with pytest.raises(StorageError) as failed:
                await holding
            assert not failed.value.definite
        updating = asyncio.create_task(api.update_share_group_config(call))
        await coordinator.answer(apis.UPDATE_SHARE_GROUP_CONFIG, {LIMIT: "3"})
        coordinator.away = True
        assert (await updating).body == b'{"share.delivery.count.limit":"3"}'
        await client.close()

    run(work)


def test_a_lookup_is_kept_when_only_other_groups_and_topics_change() -> None:
    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        asking = asyncio.create_task(metadata.learn_config("g"))
        answer = await coordinator.expect(apis.INITIALIZE_SHARE_PARTITIONS)
        assert await coordinator.change(changes_of(6, group_ids=["h"], deleted_topic_ids=["id-1"])) == 6
        answer.set_result(stored({LIMIT: "3"}))
        assert (await asking).delivery_count_limit == 3

    run(work)


def test_topics_known_before_the_feed_are_looked_up_again_when_it_begins() -> None:
    """The first answer of the feed has no changes, only the version from which it reports them."""

    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        asking = asyncio.create_task(metadata.topic("orders"))
        await coordinator.answer(apis.DESCRIBE_TOPICS, OLD)
        await asking
        async with following(metadata):
            await asyncio.gather(coordinator.change(changes_of(6)), coordinator.answer(apis.DESCRIBE_TOPICS, GROWN))
        topic = metadata.by_name.get("orders")
        assert topic is not None
        assert topic.partitions == 3
        assert metadata.by_name.get("other") is None

    run(work, follow=False)
