"""Three real brokers, of which the leader of a partition is killed, and its follower in office paused."""

import asyncio
import itertools
import uuid

import pytest

from sharequeue.repeats import Every
from sharequeue_kafka.cluster import Place
from sharequeue_kafka.fetching import FetchedPart
from sharequeue_kafka.following import Following
from sharequeue_kafka.producing import IdempotentProducer
from sharequeue_kafka.transactions import TransactionalSlots
from tests.kafka_log.brokers import Brokers
from tests.kafka_log.clusters import cluster_of, new, new_topic, read

DEADLINE_S = 300  # for a hang
PATIENCE_MS = 120_000  # a broker that comes back is in sync only after a while


@pytest.mark.soak
def test_calls_go_on_when_leaders_are_killed_and_paused(three_brokers: Brokers) -> None:
    """Appends, transactions and news; afterwards each append is there once, where its answer said."""

    async def play() -> None:
        async with cluster_of(three_brokers, call_timeout_ms=PATIENCE_MS) as cluster:
            _, (place, keyed) = await new_topic(cluster, 2)
            producer = IdempotentProducer(cluster, timeout_ms=PATIENCE_MS)
            slots = TransactionalSlots(cluster, [f"slot-{uuid.uuid4()}"], timeout_ms=PATIENCE_MS)
            plain: dict[int, bytes] = {}
            in_transactions: dict[int, bytes] = {}
            progress = asyncio.Event()
            heard: dict[Place, FetchedPart] = {}
            following = Following(cluster, lambda part: heard.__setitem__(part.place, part))
            running = [asyncio.create_task(following.run())]
            following.follow(place, 0)
            following.follow(keyed, 0)

            async def append() -> None:
                for number in itertools.count():
                    value = f"plain-{number}"
                    plain[await producer.append(place, [new(value)])] = value.encode()
                    progress.set()

            async def append_in_transactions() -> None:
                for number in itertools.count():
                    value = f"keyed-{number}"
                    offsets = await slots.append(await slots.take(), {keyed: [new(value)]})
                    in_transactions[offsets[keyed]] = value.encode()
                    progress.set()

            async def both_go_on(appending: list[asyncio.Task[None]]) -> None:
                wanted = (len(plain) + 10, len(in_transactions) + 10)
                async with asyncio.timeout(DEADLINE_S):
                    while len(plain) < wanted[0] or len(in_transactions) < wanted[1]:
                        progress.clear()
                        waiting = asyncio.create_task(progress.wait())
                        await asyncio.wait([waiting, *appending], return_when=asyncio.FIRST_COMPLETED)
                        waiting.cancel()
                        for task in appending:
                            if task.done():
                                task.result()

            appending = [asyncio.create_task(append()), asyncio.create_task(append_in_transactions())]
            await both_go_on(appending)
            killed = (await cluster.leader(place)).node
            three_brokers.kill(killed)
            await both_go_on(appending)
            await asyncio.to_thread(three_brokers.start, killed)
            paused = (await cluster.leader(place)).node
            three_brokers.pause(paused)
            await both_go_on(appending)
            three_brokers.resume(paused)
            await both_go_on(appending)
            for task in appending:
                task.cancel()
            await asyncio.gather(*appending, return_exceptions=True)
            records = {each.offset: each.value for each in await read(cluster, place)}
            assert plain.items() <= records.items()
            assert len({*records.values()}) == len(records)
            committed = {each.offset: each.value for each in await read(cluster, keyed, committed=True)}
            assert in_transactions.items() <= committed.items()
            assert len({*committed.values()}) == len(committed)
            leader = await cluster.leader(place)
            assert leader.epoch > 0
            assert (await cluster.end_of_epoch(place, 0))[0] == 0
            async with asyncio.timeout(DEADLINE_S):
                async for _ in Every(0.05, at_once=True):
                    if heard[place].high_watermark == max(records) + 1:
                        break
            running[0].cancel()
            await asyncio.gather(producer.close(), slots.close())

    asyncio.run(play())
