"""The group coordinator's topics in Kafka: its calls, and what others make, change and delete."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable

import asyncpg
import pytest
from sharequeue_coordinator.coordinator import GroupCoordinator
from sharequeue_coordinator.metadata import store
from sharequeue_coordinator.metadata.store import TopicRow

from sharequeue.protocol.errors import (
    InvalidConfig,
    InvalidPartitions,
    StorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from sharequeue.repeats import Every
from sharequeue.service.settings import SettingsError
from sharequeue_kafka.cluster import KafkaCluster
from sharequeue_kafka.settings import KafkaSettings
from tests.kafka_log.brokers import Brokers
from tests.kafka_log.clusters import cluster_of
from tests.storage.group_coordinators import instance

DEADLINE_S = 60  # for a hang


@contextlib.asynccontextmanager
async def topics_in(
    brokers: Brokers, database_url: str, shown: str
) -> AsyncIterator[tuple[GroupCoordinator, KafkaCluster]]:
    """A group coordinator that follows a cluster, and another client of the cluster."""
    async with (
        cluster_of(brokers) as kafka,
        cluster_of(brokers) as elsewhere,
        instance(database_url, "node", kafka=kafka, kafka_topics=shown) as (coordinator, _),
    ):
        await coordinator.topics.bind()
        following = [asyncio.create_task(loop()) for loop in coordinator.topics.loops]
        try:
            yield coordinator, elsewhere
        finally:
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        async for _ in Every(0.05, at_once=True):
            if condition():
                return


def test_a_topic_of_ours_is_a_topic_of_kafka(kafka: Brokers, database_url: str) -> None:
    async def play() -> None:
        name = f"ours-{uuid.uuid4().hex[:8]}"
        async with topics_in(kafka, database_url, "ours-*") as (coordinator, elsewhere):
            given = {"retention.ms": "60000", "segment.ms": "70000", "errors.deadletterqueue.group.enable": "true"}
            made = await coordinator.topics.create(name, 2, given)
            assert given.items() <= made.config.items()
            assert made.config["retention.unsettled"] == "delete"
            (theirs,) = await elsewhere.topics([name])
            assert (theirs.id, len(theirs.partitions)) == (made.topic_id, 2)
            with pytest.raises(TopicAlreadyExists):
                await coordinator.topics.create(name, 2, {})
            with pytest.raises(InvalidConfig, match=r"unknown\.of\.kafka"):
                await coordinator.topics.create(f"{name}-2", 1, {"unknown.of.kafka": "1"})
            changed = await coordinator.topics.update(name, 3, {"segment.ms": "80000"}, ["retention.ms"])
            assert (changed.partitions, changed.config["segment.ms"]) == (3, "80000")
            assert changed.config["errors.deadletterqueue.group.enable"] == "true"
            with pytest.raises(InvalidConfig, match=r"no\.such"):
                await coordinator.topics.update(name, None, {}, ["no.such"])
            with pytest.raises(InvalidPartitions):
                await coordinator.topics.update(name, 1, {}, [])
            await coordinator.topics.delete(name)
            with pytest.raises(UnknownTopicOrPartition):
                coordinator.metadata.topic(name)
            await until(lambda: name not in coordinator.metadata.by_name)
            assert await elsewhere.topics([name]) == []

    asyncio.run(play())


def test_topics_that_others_make_change_and_delete_are_noticed(kafka: Brokers, database_url: str) -> None:
    async def play() -> None:
        name = f"theirs-{uuid.uuid4().hex[:8]}"
        async with topics_in(kafka, database_url, "theirs-*") as (coordinator, elsewhere):
            metadata = coordinator.metadata
            made = await elsewhere.create_topic(name, 1, configs={"retention.ms": "60000"})
            await elsewhere.create_topic(f"hidden-{name}", 1)
            (seen,) = await metadata.describe_topics([name, f"hidden-{name}"], [])  # at once
            assert (seen.topic_id, seen.config["retention.ms"]) == (made.id, "60000")
            await elsewhere.add_partitions(name, 2)
            await elsewhere.incremental_alter_configs(name, {"retention.ms": "70000"})
            await until(lambda: metadata.by_name[name].config["retention.ms"] == "70000")
            await until(lambda: metadata.by_name[name].partitions == 2)
            await elsewhere.delete_topic(made.id)
            again = await elsewhere.again(lambda: elsewhere.create_topic(name, 1))
            await until(lambda: name in metadata.by_name and metadata.by_name[name].topic_id == again.id)
            assert made.id not in metadata.by_id
            await elsewhere.delete_topic(again.id)
            await until(lambda: name not in metadata.by_name)

    asyncio.run(play())


def test_one_look_sees_a_topic_that_has_grown_and_was_set(kafka: Brokers, database_url: str) -> None:
    async def play() -> None:
        name = f"both-{uuid.uuid4().hex[:8]}"
        async with cluster_of(kafka) as cluster, instance(database_url, "node", kafka=cluster) as (coordinator, _):
            await cluster.create_topic(name, 1)
            await coordinator.metadata.describe_topics([name], [])
            await cluster.add_partitions(name, 2)
            await cluster.incremental_alter_configs(name, {"retention.ms": "70000"})
            async for _ in Every(0.05, at_once=True):  # the controller has it, a broker learns it
                if (await cluster.describe_configs([name]))[name]["retention.ms"].value == "70000":
                    break
            (look,) = [asyncio.create_task(loop()) for loop in coordinator.topics.loops]
            await until(lambda: coordinator.metadata.by_name[name].config["retention.ms"] == "70000")
            assert coordinator.metadata.by_name[name].partitions == 2
            look.cancel()

    asyncio.run(play())


def test_a_topic_of_more_partitions_than_are_allowed_takes_settings(kafka: Brokers, database_url: str) -> None:
    async def play() -> None:
        name = f"wide-{uuid.uuid4().hex[:8]}"
        async with topics_in(kafka, database_url, "wide-*") as (coordinator, elsewhere):
            await elsewhere.create_topic(name, 101)
            await coordinator.metadata.describe_topics([name], [])
            changed = await coordinator.topics.update(name, None, {"retention.ms": "60000"}, [])
            assert (changed.partitions, changed.config["retention.ms"]) == (101, "60000")
            with pytest.raises(InvalidPartitions):
                await coordinator.topics.update(name, 102, {}, [])

    asyncio.run(play())


def test_a_database_belongs_to_one_log(kafka: Brokers, database_url: str) -> None:
    async def play() -> None:
        async with topics_in(kafka, database_url, "none"):
            pass
        async with instance(database_url, "node") as (coordinator, _):
            with pytest.raises(SettingsError, match="Kafka cluster"):
                await coordinator.topics.bind()
        connection = await asyncpg.connect(database_url)
        await connection.execute("UPDATE groups.record_log SET kafka_cluster_id = 'another'")
        with pytest.raises(SettingsError, match="cluster another"):
            async with topics_in(kafka, database_url, "none"):
                pass
        await connection.execute("DELETE FROM groups.record_log")
        await connection.execute(
            "INSERT INTO groups.topics (topic_id, name, partitions) VALUES (gen_random_uuid(), 'kept', 1)"
        )
        await connection.close()
        with pytest.raises(SettingsError, match="PostgreSQL"):
            async with topics_in(kafka, database_url, "none"):
                pass

    asyncio.run(play())


def test_without_kafka_calls_say_so_and_known_topics_stay(database_url: str) -> None:
    async def play() -> None:
        kafka = KafkaCluster(KafkaSettings("127.0.0.1:1", call_timeout_ms=500))
        async with instance(database_url, "node", kafka=kafka) as (coordinator, _):
            metadata, topics = coordinator.metadata, coordinator.topics
            known = TopicRow(str(uuid.uuid4()), "known", 1, {"retention.ms": "5"})
            await coordinator.query(store.insert_topic, await metadata.lead(), known)
            await metadata.catch_up()
            (described,) = await metadata.describe_topics(["known"], [])
            assert described.config["retention.ms"] == "5"
            for call in (
                metadata.describe_topics(["other"], []),
                topics.create("other", 1, {}),
                topics.update("known", 2, {"retention.ms": "6"}, []),
                topics.delete("known"),
            ):
                with pytest.raises(StorageError, match=r"Kafka cannot do it now.*127\.0\.0\.1:1"):
                    await call
            assert metadata.by_name == {"known": known}
        await kafka.close()

    asyncio.run(play())
