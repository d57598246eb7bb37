"""The record log of a gateway on a real broker, with its loops running."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterable

from sharequeue_gateway.kafka_log.log import KafkaRecordLog
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.log import LogListener
from sharequeue_gateway.record_log.reading.cache import BatchCache

from sharequeue.protocol.types import TopicIdPartition
from sharequeue_kafka.cluster import KafkaCluster
from tests.kafka_log.brokers import Brokers
from tests.kafka_log.clusters import cluster_of
from tests.storage.record_logs import Heard


class LogOfTest(KafkaRecordLog):
    """It deletes topics in Kafka too, which group coordinators do elsewhere."""

    cluster: KafkaCluster

    async def delete_topic(self, topic_id: str, partitions: int) -> None:
        await self.cluster.delete_topic(topic_id)
        await super().delete_topic(topic_id, partitions)


class KafkaRecordLogs:
    """Two that are open at once stand for two gateways."""

    def __init__(self, brokers: Brokers, database_url: str) -> None:
        self._brokers = brokers
        self._database_url = database_url

    async def new_topic(self) -> str:
        async with cluster_of(self._brokers) as cluster:
            configs = {"max.message.bytes": "10000000"}
            return (await cluster.create_topic(f"suite-{uuid.uuid4().hex[:8]}", 8, configs=configs)).id

    @contextlib.asynccontextmanager
    async def open(
        self,
        *,
        cache_bytes: int = 64 << 20,
        listener: LogListener | None = None,
        interest: Callable[[], Iterable[TopicIdPartition]] = tuple,
        restarted: "asyncio.Queue[tuple[TopicIdPartition, int]] | None" = None,
        name: str = "",
    ) -> AsyncIterator[LogOfTest]:
        """`name`: of the gateway. `restarted`: gets where the groups of a log that was cut are to start."""

        async def restart(place: TopicIdPartition, offset: int) -> None:
            if restarted is not None:
                restarted.put_nowait((place, offset))

        database = await LogDatabase.open(self._database_url)
        async with cluster_of(self._brokers) as cluster:
            log = LogOfTest(
                database,
                cluster,
                BatchCache(cache_bytes),
                listener or Heard(),
                values=lambda _: "auto",
                restart=restart,
                sweeps=lambda *_: True,
                reading_bytes=64 << 20,
                max_depth=64,
                name=name or f"test-{uuid.uuid4().hex[:8]}",
            )
            log.cluster = cluster
            loops = asyncio.create_task(log.run(interest))
            try:
                yield log
                assert not loops.done(), "a loop of the record log ended"
            finally:
                loops.cancel()
                await asyncio.wait([loops])
                await database.close()


def open_log(
    brokers: Brokers,
    database_url: str,
    heard: Heard | None = None,
    cache_bytes: int = 64 << 20,
    restarted: "asyncio.Queue[tuple[TopicIdPartition, int]] | None" = None,
    name: str = "",
) -> contextlib.AbstractAsyncContextManager[LogOfTest]:
    return KafkaRecordLogs(brokers, database_url).open(
        cache_bytes=cache_bytes, listener=heard, restarted=restarted, name=name
    )
