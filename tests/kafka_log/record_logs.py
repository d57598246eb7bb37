"""The record log of a gateway on a real broker, with its loops running."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from sharequeue_gateway.kafka_log.log import KafkaRecordLog
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.reading.cache import BatchCache
from sharequeue_gateway.record_log.transactions.transactions import DEFAULTS

from sharequeue.protocol.types import TopicIdPartition
from tests.kafka_log.brokers import Brokers
from tests.kafka_log.clusters import cluster_of
from tests.storage.record_logs import Heard


@contextlib.asynccontextmanager
async def open_log(
    brokers: Brokers,
    database_url: str,
    heard: Heard | None = None,
    cache_bytes: int = 64 << 20,
    restarted: "asyncio.Queue[tuple[TopicIdPartition, int]] | None" = None,
) -> AsyncIterator[KafkaRecordLog]:
    async def restart(place: TopicIdPartition, offset: int) -> None:
        if restarted is not None:
            restarted.put_nowait((place, offset))

    database = await LogDatabase.open(database_url)
    async with cluster_of(brokers) as cluster:
        log = KafkaRecordLog(
            database,
            cluster,
            BatchCache(cache_bytes),
            heard or Heard(),
            values=lambda _: "auto",
            restart=restart,
            sweeps=lambda *_: True,
            reading_bytes=64 << 20,
            max_depth=64,
            transactions=DEFAULTS,
            scheduled=(1000, 1 << 20),
        )
        loops = asyncio.create_task(log.run(tuple))
        try:
            yield log
            assert not loops.done(), "a loop of the record log ended"
        finally:
            loops.cancel()
            await asyncio.wait([loops])
            await database.close()
