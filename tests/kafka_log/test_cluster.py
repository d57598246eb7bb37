"""What an administrator asks of a real cluster."""

import asyncio
import gc
import uuid
from typing import Any

import pytest

from sharequeue.repeats import Every
from sharequeue_kafka import requests
from sharequeue_kafka.cluster import KafkaCluster, LogOffset, Place
from sharequeue_kafka.errors import KafkaError
from sharequeue_kafka.settings import KafkaSettings
from tests.kafka_log.brokers import Brokers
from tests.kafka_log.clusters import cluster_of, foreign, new_topic


def test_a_topic_has_an_id_settings_and_partitions(kafka: Brokers) -> None:
    async def play() -> None:
        async with cluster_of(kafka) as cluster:
            name, places = await new_topic(cluster, 2, retention_ms="5000", cleanup_policy="delete")
            (topic,) = await cluster.topics([name, "absent"])
            assert topic.id == places[0].topic_id == str(uuid.UUID(topic.id))
            assert not topic.internal
            configs = (await cluster.describe_configs([name]))[name]
            assert configs["retention.ms"] == ("5000", False)
            assert configs["max.message.bytes"].is_default
            await cluster.incremental_alter_configs(name, {"max.message.bytes": "2000000", "retention.ms": None})
            async for _ in Every(0.01):  # the controller has it, a broker learns it
                if not (configs := (await cluster.describe_configs([name]))[name])["max.message.bytes"].is_default:
                    break
            assert configs["max.message.bytes"] == ("2000000", False)
            assert configs["retention.ms"].is_default
            assert configs["cleanup.policy"] == ("delete", False), "a setting that is not named stays"
            assert len((await cluster.add_partitions(name, 4)).partitions) == 4
            assert name in {each.name for each in await cluster.topics()}
            with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS"):
                await cluster.create_topic(name, 1)
            with pytest.raises(KafkaError, match="INVALID_CONFIG"):
                await cluster.incremental_alter_configs(name, {"retention.ms": "soon"})

    asyncio.run(play())


@pytest.mark.parametrize("refusals", [2, 1_000_000])
def test_a_topic_is_made_when_its_brokers_lead_it_or_soon_after(
    kafka: Brokers, refusals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller names a leader before the broker has taken the partition up: it refuses appends until then."""

    async def play() -> None:
        async with cluster_of(kafka, call_timeout_ms=2_000) as cluster:
            send, refused = cluster.send, list[object]()

            async def refuse(node: int, request: Any, purpose: str = "") -> Any:
                if request.API_KEY == requests.LIST_OFFSETS.API_KEY and len(refused) < refusals:
                    refused.append(request)
                    raise KafkaError.of(6)
                return await send(node, request, purpose)

            monkeypatch.setattr(cluster, "send", refuse)
            name, _ = await new_topic(cluster)
            assert len(refused) >= 2
            refused.clear()
            assert len((await cluster.add_partitions(name, 3)).partitions) == 3
            assert len(refused) >= 2

    asyncio.run(play())


def test_a_topic_that_was_made_again_is_another(kafka: Brokers) -> None:
    async def play() -> None:
        async with cluster_of(kafka) as cluster:
            name, (place,) = await new_topic(cluster)
            await cluster.delete_topic(place.topic_id)
            await cluster.delete_topic(place.topic_id)  # gone already
            again = await cluster.again(lambda: cluster.create_topic(name, 1))
            assert again.id != place.topic_id
            assert await cluster.topics([name]) == [again]
            with pytest.raises(KafkaError) as refused:
                await cluster.leader(place)
            assert refused.value.name == "UNKNOWN_TOPIC_ID"

    asyncio.run(play())


def test_ends_times_and_epochs_of_logs(kafka: Brokers) -> None:
    async def play() -> None:
        async with cluster_of(kafka) as cluster, foreign(kafka) as producer:
            name, (place, empty) = await new_topic(cluster, 2)
            for number in range(5):
                await producer.send_and_wait(name, b"%d" % number, partition=0, timestamp_ms=1000 + number)
            absent = Place(place.topic_id, 7)
            latest = await cluster.list_offsets([place, empty, absent], "latest")
            assert latest[place] == LogOffset(5, -1, 0)
            assert isinstance(latest[empty], LogOffset)
            assert latest[empty].offset == 0
            fault = latest[absent]
            assert isinstance(fault, KafkaError)
            assert fault.name == "UNKNOWN_TOPIC_OR_PARTITION"
            assert (await cluster.list_offsets([place], 1003))[place] == LogOffset(3, 1003, 0)
            assert (await cluster.list_offsets([place], 2000))[place] == LogOffset(-1, -1, -1)
            assert await cluster.delete_records({place: 2}) == {place: 2}
            assert (await cluster.list_offsets([place], "earliest"))[place] == LogOffset(2, -1, 0)
            assert await cluster.end_of_epoch(place, 0) == (0, 5)

    asyncio.run(play())


def test_many_who_look_for_leaders_share_a_request(kafka: Brokers) -> None:
    async def play() -> None:
        async with cluster_of(kafka) as cluster, cluster_of(kafka) as cold:
            _, places = await new_topic(cluster, 50)
            sent: list[object] = []
            send = cold.send_any

            async def counted(request: object) -> object:
                sent.append(request)
                return await send(request)

            cold.send_any = counted  # type: ignore[method-assign]
            leaders = await asyncio.gather(*map(cold.leader, places))
            assert {leader.node for leader in leaders} == {1}
            assert len(sent) <= 2
            await asyncio.gather(*(cold.refresh([place.topic_id]) for place in places))
            assert len(sent) <= 4
            others = [(await new_topic(cluster))[1][0] for _ in range(5)]
            sent.clear()
            ends = await cold.list_offsets([*places, *others], "latest")
            assert {isinstance(end, LogOffset) and end.offset for end in ends.values()} == {0}
            assert len(sent) == 1

    asyncio.run(play())


def test_a_refresh_that_fails_behind_callers_who_left_says_so_to_nobody() -> None:
    async def play() -> None:
        unheard: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
        cluster = KafkaCluster(KafkaSettings("127.0.0.1:1"))
        callers = [asyncio.create_task(cluster.refresh([str(uuid.uuid4())])) for _ in range(2)]
        await asyncio.sleep(0)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        assert len(tasks) == 3, "both share one"
        for caller in callers:
            caller.cancel()
        await asyncio.wait(tasks)
        await cluster.close()
        del caller, callers, cluster, tasks
        gc.collect()
        assert unheard == []

    asyncio.run(play())


def test_without_a_broker_the_error_says_which_was_tried() -> None:
    async def play() -> None:
        cluster = KafkaCluster(KafkaSettings("127.0.0.1:1", call_timeout_ms=500))
        with pytest.raises(KafkaError) as refused:
            await cluster.start()
        assert (refused.value.name, refused.value.definite) == ("NOT_REACHED", True)
        assert "127.0.0.1:1" in refused.value.message
        await cluster.close()

    asyncio.run(play())
