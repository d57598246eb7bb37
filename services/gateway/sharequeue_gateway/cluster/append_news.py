"""Reports appends to the other gateways through Redis, so that the fetches that wait there wake up at once.

A message is only a hint: every half second, each gateway also reads the ends of the partitions that its fetches wait
for.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec
from redis.asyncio import Redis

from sharequeue.repeats import APPEND_NEWS, REDIS_SILENT
from sharequeue_gateway.cluster.redis_client import LOST, RedisKeys, asking
from sharequeue_http.log import Tally, fields

log = logging.getLogger(__name__)


class News(msgspec.Struct, array_like=True):
    """The appends of one gateway: log ends by topic id and partition."""

    node_id: str
    ends: list[tuple[str, int, int]]


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(News).decode


class AppendNews:
    """Publishes the appends of this gateway (`node_id`), and receives those of the others."""

    def __init__(self, redis: Redis, node_id: str, keys: RedisKeys) -> None:
        self._redis = redis
        self._channel = keys.appended
        self._node_id = node_id
        self._gathered: dict[tuple[str, int], int] = {}
        self._wake = asyncio.Event()
        self._deaf = Tally(log, logging.INFO, "cannot receive the appends of other gateways")

    def gather(self, topic_id: str, partition: int, log_end_offset: int) -> None:
        """Note that this gateway appended records: the next message reports them. Calls may come in any order."""
        place = (topic_id, partition)
        self._gathered[place] = max(log_end_offset, self._gathered.get(place, 0))
        self._wake.set()

    async def publish(self) -> None:
        """Send the gathered appends. Never returns."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            gathered, self._gathered = self._gathered, {}
            news = News(self._node_id, [(*place, end) for place, end in gathered.items()])
            try:
                await self._redis.publish(self._channel, _encode(news))
                await APPEND_NEWS.pause()
            except LOST as fault:
                log.info(
                    "cannot announce appends: other gateways find them by reading log ends",
                    extra=fields(cause=f"{fault!r}: {fault}"),
                )

    async def listen(self, hear_of: Callable[[str, int, int], None]) -> None:
        """Call `hear_of` with topic id, partition and log end for each append of another gateway. Never returns."""
        while True:
            try:
                async with self._redis.pubsub(ignore_subscribe_messages=True) as channel:
                    with asking():
                        await channel.subscribe(self._channel)
                    while True:
                        with asking():
                            message = await channel.get_message(timeout=30.0)
                        if message is None:
                            continue
                        news = _decode(message["data"])
                        if news.node_id != self._node_id:
                            for topic_id, partition, log_end_offset in news.ends:
                                hear_of(topic_id, partition, log_end_offset)
            except (*LOST, msgspec.DecodeError) as fault:
                self._deaf.note("", cause=f"{fault!r}: {fault}")
                await REDIS_SILENT.pause()
