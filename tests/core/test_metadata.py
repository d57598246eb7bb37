"""What a gateway knows of topics, when applying the change feed fails half-way."""

import asyncio
import socket

import pytest
from sharequeue_gateway.metadata import Metadata

from sharequeue.coordinators import CoordinatorClient
from sharequeue.protocol import messages
from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.errors import ApiError
from sharequeue.protocol.internal import MetadataChangesResponse


def described(name: str, topic_id: str, partitions: int = 1) -> messages.Topic:
    return messages.Topic(name=name, topic_id=topic_id, partitions=partitions, config={"max.message.bytes": "1000"})


async def without_a_coordinator() -> tuple[CoordinatorClient, Metadata]:
    """Metadata that heard of version 5 and knows the topic `orders`; nobody listens where it asks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        client = CoordinatorClient(f"http://127.0.0.1:{free.getsockname()[1]}", "group", deadline_s=0.2)
    metadata = Metadata(client, kafka_defaults=False, auto_create_topics=True)
    await metadata._apply(MetadataChangesResponse(version=5))
    metadata.learn(described("orders", "id-1"))
    return client, metadata


def test_a_reset_that_fails_forgets_nothing() -> None:
    async def run() -> None:
        client, metadata = await without_a_coordinator()
        gone: list[str] = []
        metadata.on_topic_deleted = gone.append
        with pytest.raises(ApiError):
            await metadata._apply(MetadataChangesResponse(version=9, reset=True))
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
        changes = MetadataChangesResponse(version=7, topics=[described("orders", "id-1", 3)], group_ids=["g"])
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
