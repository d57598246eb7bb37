"""How often the group coordinator looks at the topics of Kafka."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sharequeue_coordinator.metadata.kafka_topics import LOOK_S, SHARE, KafkaTopics

from tests.shell.turned_loop import TurnedLoop, run


async def nothing(*_: Any) -> None:
    """Answer nothing."""


class SlowKafka:
    """A cluster without topics, whose answers take `takes_s` of the loop's time, one after the other."""

    def __init__(self, loop: TurnedLoop, takes_s: list[float]) -> None:
        self.ended_s: list[float] = []
        self._loop = loop
        self._takes_s = takes_s

    async def topics(self) -> list[Any]:
        self._loop.turned_s += self._takes_s[len(self.ended_s)]
        self.ended_s.append(self._loop.time())
        return []


@pytest.mark.parametrize(
    ("takes_s", "pause_s"),
    [
        ([0.01, 0.01, 0.0], LOOK_S),
        ([0.01, 8.0, 0.0], LOOK_S),  # it waited for a broker
        ([1.0, 1.0, 0.0], SHARE * 1.0),  # there are many topics
    ],
)
def test_a_look_that_waited_for_a_broker_does_not_delay_the_next_one(takes_s: list[float], pause_s: float) -> None:
    async def play(loop: TurnedLoop) -> None:
        kafka = SlowKafka(loop, takes_s)
        settings = SimpleNamespace(cluster_token="", max_topics=1, max_partitions_per_topic=1)
        database = SimpleNamespace(query=nothing, leads=lambda: True)
        metadata = SimpleNamespace(by_id={}, lead=nothing, catch_up=nothing)
        topics = KafkaTopics(database, metadata, None, None, settings, kafka=cast(Any, kafka), shown="*")
        following = asyncio.create_task(topics.follow())
        await loop.turn(0)
        await loop.turn(LOOK_S)
        assert len(kafka.ended_s) == 2
        await loop.turn(pause_s - 0.1)
        assert len(kafka.ended_s) == 2
        await loop.turn(0.1)
        assert len(kafka.ended_s) == 3
        following.cancel()

    run(play)
