"""The news of appends between gateways, over Redis."""

import asyncio
from contextlib import AsyncExitStack

from sharequeue_gateway.cluster.append_news import AppendNews
from sharequeue_gateway.cluster.redis_client import RedisKeys, redis_client


async def test_a_late_report_of_an_earlier_append_does_not_hide_a_later_one(redis_url: str) -> None:
    """An append whose answer was lost is reported when it is looked up, perhaps after a later append."""
    heard: asyncio.Queue[tuple[str, int, int]] = asyncio.Queue()
    async with AsyncExitStack() as stack:
        here, there = redis_client(redis_url), redis_client(redis_url)
        stack.push_async_callback(here.aclose)
        stack.push_async_callback(there.aclose)
        keys = RedisKeys("of this test")
        sender, receiver = AppendNews(here, "here", keys), AppendNews(there, "there", keys)
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            listening = group.create_task(receiver.listen(lambda *news: heard.put_nowait(news)))
            while (await here.pubsub_numsub(keys.appended))[0][1] == 0:  # noqa: ASYNC110 - Redis knows it
                await asyncio.sleep(0.01)
            sender.gather("orders", 0, 14)
            sender.gather("orders", 0, 12)
            sender.gather("orders", 1, 3)
            publishing = group.create_task(sender.publish())
            assert {await heard.get(), await heard.get()} == {("orders", 0, 14), ("orders", 1, 3)}
            listening.cancel()
            publishing.cancel()
