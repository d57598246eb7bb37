"""Watches whether Redis may evict locks: their records would come again at once after a crash of a gateway."""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Final

from redis.asyncio import Redis

from sharequeue.repeats import Every
from sharequeue_gateway.cluster.redis_client import LOST
from sharequeue_gateway.locks.lock_writer import heed_cancellation
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

LOOK_PAUSE_S: Final = 10.0
ANSWER_S: Final = 5.0
NO_EVICTION: Final = "noeviction"


@dataclass(eq=False)
class Eviction:
    """Looks at `maxmemory-policy`. `told`: what is wrong with it, for `/readyz`."""

    _redis: Redis
    told: str | None = field(init=False, default=None)

    async def run(self) -> None:
        """Look again and again: an operator may change the policy. Never returns."""
        async for _ in Every(LOOK_PAUSE_S, at_once=True):
            await self._look()
            heed_cancellation()

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                memory = await self._redis.info("memory")
        except LOST:  # it is away, or this user may not ask
            return
        policy = memory.get("maxmemory_policy", NO_EVICTION)
        told = None
        if policy != NO_EVICTION:
            told = f"Redis may evict locks, its maxmemory-policy is {policy}: set it to {NO_EVICTION}, or a crash of a"
            told += " gateway delivers held records again"
            if told != self.told:
                log.warning(told, extra=fields(policy=policy))
        self.told = told
