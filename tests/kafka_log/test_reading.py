"""Reads by offset on a real broker: all codecs, gaps, log starts that move, histories that part, and news."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sharequeue.repeats import Every
from sharequeue_kafka.batches import read_batches
from sharequeue_kafka.cluster import Place
from sharequeue_kafka.errors import KafkaError
from sharequeue_kafka.fetching import FetchedPart, Fetching
from sharequeue_kafka.following import Following
from sharequeue_kafka.producing import Appended
from tests.kafka_log.brokers import Brokers
from tests.kafka_log.clusters import cluster_of, foreign, new_topic, read

DEADLINE_S = 60  # for a hang


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_of_any_producer(kafka: Brokers, codec: str | None) -> None:
    headers = [("a", b"1"), ("a", b"\xff"), ("", None)]

    async def play() -> None:
        async with cluster_of(kafka) as cluster, foreign(kafka, compression_type=codec) as producer:
            name, (place,) = await new_topic(cluster, max_message_bytes="4000000")
            await producer.send_and_wait(name, None, b"gone", timestamp_ms=7)
            await producer.send_and_wait(name, b"x" * 1_000_000, headers=headers, timestamp_ms=8)
            await producer.send_and_wait(name, b"", timestamp_ms=9)
            records = await read(cluster, place)
            assert [tuple(each) for each in records] == [
                (0, 7, b"gone", None, []),
                (1, 8, None, b"x" * 1_000_000, headers),
                (2, 9, None, b"", []),
            ]
            assert [each.offset for each in await read(cluster, place, 2)] == [2]

    asyncio.run(play())


def test_many_reads_of_a_moment_are_few_fetches_and_all_are_answered(kafka: Brokers) -> None:
    async def play() -> None:
        async with cluster_of(kafka) as cluster, foreign(kafka) as producer:
            name, places = await new_topic(cluster, 8)
            for number in range(8):
                await producer.send_and_wait(name, b"y" * 200_000, partition=number)
            sent: list[object] = []
            send = cluster.send

            async def counted(*arguments: object, **named: object) -> object:
                sent.append(arguments)
                return await send(*arguments, **named)  # type: ignore[arg-type]

            cluster.send = counted  # type: ignore[method-assign]
            fetching = Fetching(cluster)
            parts = await asyncio.gather(*(fetching.fetch(place, 0, 100, False) for place in (*places, places[0])))
            assert [len(list(read_batches(part.batches))) for part in parts] == [1] * 9, "a batch above the limit"
            assert len(sent) <= 10
            assert [part.high_watermark for part in parts] == [1] * 9

    asyncio.run(play())


def test_aborted_transactions_and_markers_are_gaps(kafka: Brokers) -> None:
    async def play() -> None:
        async with cluster_of(kafka) as cluster, foreign(kafka, transactional_id=f"foreign-{id(play)}") as producer:
            name, (place,) = await new_topic(cluster)
            async with producer.transaction():
                await producer.send_and_wait(name, b"kept")  # 0, its marker 1
            await producer.begin_transaction()
            await producer.send_and_wait(name, b"dropped")  # 2, its marker 3
            await producer.abort_transaction()
            await producer.begin_transaction()
            await producer.send_and_wait(name, b"open")  # 4
            part = await Fetching(cluster).fetch(place, 0, 1 << 20, True)
            assert (part.high_watermark, part.last_stable) == (5, 4)
            batches = list(read_batches(part.batches, part.aborted))
            assert [(each.first_offset, each.last_offset, len(each.records)) for each in batches] == [
                (0, 0, 1),
                (1, 1, 0),
                (2, 2, 0),
                (3, 3, 0),
            ]
            assert [each.value for each in await read(cluster, place)] == [b"kept", b"dropped", b"open"]
            await producer.commit_transaction()
            assert [each.value for each in await read(cluster, place, committed=True)] == [b"kept", b"open"]

    asyncio.run(play())


def test_compacted_offsets_are_gaps(kafka: Brokers) -> None:
    async def play() -> None:
        async with cluster_of(kafka) as cluster, foreign(kafka) as producer:
            name, (place,) = await new_topic(
                cluster, cleanup_policy="compact", segment_bytes="1048576", min_cleanable_dirty_ratio="0.0"
            )
            for number in range(6):
                await producer.send_and_wait(name, b"%d" % number * 200_000, b"same")
            async with asyncio.timeout(DEADLINE_S):
                async for _ in Every(0.2):  # the cleaner looks twice a second
                    if (found := [each.offset for each in await read(cluster, place)])[0] > 0:
                        break
            assert found[-1] == 5

    asyncio.run(play())


def test_below_the_log_start_and_past_the_end(kafka: Brokers) -> None:
    async def play() -> None:
        async with cluster_of(kafka) as cluster, foreign(kafka) as producer:
            name, (place,) = await new_topic(cluster)
            for _ in range(3):
                await producer.send_and_wait(name, b"z")
            await cluster.delete_records({place: 2})
            fetching = Fetching(cluster)
            for offset in (0, 9):
                with pytest.raises(KafkaError) as refused:
                    await fetching.fetch(place, offset, 100, False)
                assert refused.value.name == "OFFSET_OUT_OF_RANGE"
            part = await fetching.fetch(place, 3, 100, False)
            assert (part.log_start, part.high_watermark, part.batches) == (2, 3, b"")
            with pytest.raises(KafkaError) as refused:
                await fetching.fetch(Place("00000000-0000-4000-8000-000000000000", 0), 0, 100, False)
            assert refused.value.name == "UNKNOWN_TOPIC_ID"

    asyncio.run(play())


def test_news_of_followed_partitions(kafka: Brokers) -> None:
    async def play() -> None:
        async with cluster_of(kafka) as cluster, foreign(kafka) as producer:
            name, places = await new_topic(cluster, 3)
            heard: dict[Place, FetchedPart] = {}
            news = asyncio.Event()
            send, named = cluster.send, list[int]()

            async def counted(node: int, request: Any, purpose: str = "") -> object:
                if purpose == "long":
                    named.append(sum(len(partitions) for _, partitions, _ in request.topics))
                    news.set()
                return await send(node, request, purpose)

            cluster.send = counted  # type: ignore[method-assign]

            def moved(part: FetchedPart) -> None:
                heard[part.place] = part
                news.set()

            async def until(what: Callable[[], bool]) -> None:
                async with asyncio.timeout(DEADLINE_S):
                    while not what():
                        await news.wait()
                        news.clear()

            following = Following(cluster, moved)
            running = asyncio.create_task(following.run())
            first, second, third = places
            following.follow(first, 0)
            await until(lambda: first in heard)  # where it stands
            await producer.send_and_wait(name, b"one", partition=0)
            await until(lambda: heard[first].high_watermark == 1)
            assert [each.value for batch in read_batches(heard[first].batches) for each in batch.records] == [b"one"]
            following.follow(second, 0)  # joins while the long Fetch waits
            await producer.send_and_wait(name, b"two", partition=1)
            await until(lambda: second in heard and heard[second].high_watermark == 1)
            await cluster.delete_records({first: 1})
            await until(lambda: heard[first].log_start == 1)
            following.unfollow(second)
            following.follow(third, 99)  # past its end, as after a truncation
            await until(lambda: third in heard)
            assert heard[third].high_watermark == 0
            await producer.send_and_wait(name, b"three", partition=2)
            await until(lambda: heard[third].high_watermark == 1)
            await producer.send_and_wait(name, b"unheard", partition=1)
            await producer.send_and_wait(name, b"four", partition=0)
            await until(lambda: heard[first].high_watermark == 2)
            assert heard[second].high_watermark == 1
            await until(lambda: named[-2:] == [0, 0])  # an idle session names nothing
            following.unfollow(first)
            following.unfollow(third)
            turns = len(named)
            await until(lambda: len(named) > turns)  # the session ends
            following.follow(first, 2)
            await until(lambda: named[-1] == 1)
            await producer.send_and_wait(name, b"five", partition=0)
            await until(lambda: heard[first].high_watermark == 3)
            running.cancel()

    asyncio.run(play())


def test_the_long_fetch_goes_on_behind_an_append_of_this_process(kafka: Brokers) -> None:
    """The answer of the append comes first; otherwise the long Fetch would bring its records again and again."""

    async def play() -> None:
        async with cluster_of(kafka) as cluster, foreign(kafka) as producer:
            name, (place,) = await new_topic(cluster)
            heard, answered, known = asyncio.Event(), asyncio.Event(), asyncio.Event()
            behind: asyncio.Queue[int] = asyncio.Queue()
            send = cluster.send

            async def held(node: int, request: Any, purpose: str = "") -> object:
                if purpose not in ("long", "short"):
                    return await send(node, request, purpose)
                for _, partitions, _ in request.topics:
                    for _, _, offset, *_ in partitions:
                        behind.put_nowait(offset)
                answer = await send(node, request, purpose)
                if heard.is_set():
                    answered.set()
                    await known.wait()
                return answer

            cluster.send = held  # type: ignore[method-assign]
            following = Following(cluster, lambda _: heard.set())
            running = asyncio.create_task(following.run())
            following.follow(place, 0)
            async with asyncio.timeout(DEADLINE_S):
                await heard.wait()
                await producer.send_and_wait(name, b"own")
                await answered.wait()
                assert following.appended(place, 0, Appended(0, as_sent=True, log_start=0), 1) == 1
                known.set()
                while await behind.get() != 1:
                    pass
            running.cancel()

    asyncio.run(play())
