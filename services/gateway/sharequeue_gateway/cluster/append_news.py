"""Tells the other gateways of appends, through Redis, so that fetches that wait there wake up at once.

Only a hint: each gateway looks for the ends of the partitions it waits for every half second as well.
"""

import asyncio
import logging
from typing import Final

import msgspec
from redis.asyncio import Redis

from sharequeue.log import fields
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.redis_client import LOST
from sharequeue_gateway.record_log.log import RecordLog

log = logging.getLogger(__name__)

CHANNEL: Final = "sharequeue:appended"
RETRY_PAUSE_S: Final = 1.0


class News(msgspec.Struct, array_like=True):
    """What one gateway appended: log ends by topic id and partition."""

    node_id: str
    ends: list[tuple[str, int, int]]


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(News).decode


class AppendNews:
    """Publishes appends of this gateway and hears of those of others. With one gateway it does nothing."""

    def __init__(self, redis: Redis, cluster: Cluster, record_log: RecordLog) -> None:
        self._redis = redis
        self._cluster = cluster
        self._record_log = record_log
        self._gathered: dict[tuple[str, int], int] = {}
        self._wake = asyncio.Event()

    def appended(self, topic_id: str, partition: int, log_end_offset: int) -> None:
        """Records were appended here; told with the next message."""
        if not self._cluster.alone:
            self._gathered[topic_id, partition] = log_end_offset
            self._wake.set()

    async def publish(self) -> None:
        """Send what was gathered, for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            gathered, self._gathered = self._gathered, {}
            news = News(self._cluster.me.node_id, [(*place, end) for place, end in gathered.items()])
            try:
                await self._redis.publish(CHANNEL, _encode(news))
            except LOST as fault:
                log.info("other gateways hear of appends by looking", extra=fields(cause=repr(fault)))

    async def listen(self) -> None:
        """Hear what others appended, for ever."""
        while True:
            try:
                async with self._redis.pubsub(ignore_subscribe_messages=True) as channel:
                    await channel.subscribe(CHANNEL)
                    while True:
                        message = await channel.get_message(timeout=30.0)
                        if message is not None:
                            self._hear(_decode(message["data"]))
            except (*LOST, msgspec.DecodeError) as fault:
                log.info("not told of other gateways' appends", extra=fields(cause=repr(fault)))
                await asyncio.sleep(RETRY_PAUSE_S)

    def _hear(self, news: News) -> None:
        if news.node_id != self._cluster.me.node_id:
            for topic_id, partition, log_end_offset in news.ends:
                self._record_log.heard_of(topic_id, partition, log_end_offset)
