"""A cluster for one test: topics of its own, foreign records, and what a reader sees."""

import contextlib
import uuid
from collections.abc import AsyncIterator, Sequence

from aiokafka import AIOKafkaProducer

from sharequeue.repeats import Every
from sharequeue_kafka.batches import KafkaRecord, read_batches
from sharequeue_kafka.cluster import KafkaCluster, Place
from sharequeue_kafka.fetching import Fetching
from sharequeue_kafka.producing import NewRecord
from sharequeue_kafka.settings import KafkaSettings
from tests.kafka_log.brokers import Brokers


@contextlib.asynccontextmanager
async def cluster_of(brokers: Brokers, **settings: int) -> AsyncIterator[KafkaCluster]:
    cluster = KafkaCluster(KafkaSettings(brokers.address, **settings))  # type: ignore[arg-type]
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.close()


async def new_topic(cluster: KafkaCluster, partitions: int = 1, **configs: str) -> tuple[str, Sequence[Place]]:
    """Make a topic, and answer its name and places."""
    named = {key.replace("_", "."): value for key, value in configs.items()}
    topic = await cluster.create_topic(f"topic-{uuid.uuid4().hex[:8]}", partitions, configs=named)
    return topic.name, [Place(topic.id, number) for number in range(partitions)]


@contextlib.asynccontextmanager
async def foreign(brokers: Brokers, **options: object) -> AsyncIterator[AIOKafkaProducer]:
    """A producer that is not ours."""
    producer = AIOKafkaProducer(bootstrap_servers=brokers.address, acks="all", **options)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def read(
    cluster: KafkaCluster, place: Place, offset: int = 0, *, committed: bool = False, max_bytes: int = 1 << 20
) -> list[KafkaRecord]:
    """Read from an offset to the end; with `committed` when no transaction is open, its markers written."""
    fetching, records = Fetching(cluster), []
    async for _ in Every(0.01, at_once=True):
        part = await fetching.fetch(place, offset, 1, committed)
        if not committed or part.last_stable == part.high_watermark:
            break
    while True:
        part = await fetching.fetch(place, offset, max_bytes, committed)
        batches = list(read_batches(part.batches, part.aborted))
        if not batches:
            return records
        records += [record for batch in batches for record in batch.records if record.offset >= offset]
        offset = batches[-1].last_offset + 1


def new(value: str, key: bytes | None = None) -> NewRecord:
    return key, value.encode(), [], 1_000
