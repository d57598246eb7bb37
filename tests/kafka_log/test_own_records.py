"""Records of a gateway's own appends, which it has from the answers, and what else may happen in their logs."""

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.protocol.admin import AlterPartitionReassignmentsRequest
from sharequeue_gateway.kafka_log import reading
from sharequeue_gateway.kafka_log.log import KafkaRecordLog
from sharequeue_gateway.kafka_log.truncations import Last
from sharequeue_gateway.record_log.log import PartitionAppend, ReadResult
from sharequeue_gateway.record_log.record_batch import RecordBatch

from sharequeue.repeats import Every
from sharequeue_http.forms.errors import TooLarge
from sharequeue_kafka import following, requests
from sharequeue_kafka.batches import read_batches
from sharequeue_kafka.cluster import KafkaCluster, Place
from sharequeue_kafka.errors import KafkaError
from sharequeue_kafka.producing import Appended
from tests.kafka_log.brokers import Brokers
from tests.kafka_log.clusters import cluster_of, foreign, read
from tests.kafka_log.record_logs import open_log
from tests.kafka_log.test_record_log import (
    DEADLINE_S,
    LIMITS,
    heard_of,
    replicas_of,
    run,
    topic_of,
    values,
)
from tests.storage.record_logs import Heard


@pytest.fixture(scope="module")
def database(new_database: Callable[[], str]) -> str:
    return new_database()


@pytest.fixture
def came_back(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The first offsets of the batches that Kafka sent, or some of them."""
    firsts: list[int] = []

    def counted(*arguments: Any) -> Any:
        for batch in read_batches(*arguments):
            firsts.append(batch.first_offset)
            yield batch

    monkeypatch.setattr(reading, "read_batches", counted)
    return firsts


@pytest.fixture
def long_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rest ends only where another client has appended."""
    monkeypatch.setattr(following, "REST_S", 10 * DEADLINE_S)
    monkeypatch.setattr(following, "UNDER_WAY_S", 10 * DEADLINE_S)


async def append(log: KafkaRecordLog, place: Place, *numbers: int) -> list[int]:
    """Append each number as a batch. Returns: their offsets."""
    offsets: list[int] = []
    for number in numbers:
        tails = [b',"timestamp_ms":5,"key":null,"value":%d}' % number]
        offsets += (await log.appender.append([PartitionAppend(*place, tails, 5)])).base_offsets
    return offsets


async def rest(log: KafkaRecordLog, place: Place, end: int = 0) -> int:
    """Have a partition rest: append its log end as a number, again and again. Returns: its log end."""
    await log.learn_ends([place])
    followed = log.reads.following._followed[place]
    async for _ in Every(0.01, at_once=True):
        if followed.ends is not None:
            break
    while followed.rest is None:
        await append(log, place, end)
        end += 1
    return end


async def in_sync(cluster: KafkaCluster, place: Place) -> list[int]:
    """The replicas of a partition that are in sync."""
    answer = await cluster.send_any(requests.METADATA([(place.topic_id, None, {})], False, False, {}))
    replicas: list[int] = answer[4][0][4][place.partition][5]
    return replicas


def in_memory(log: KafkaRecordLog, place: Place, offset: int, committed: bool = False) -> ReadResult[RecordBatch]:
    found = log.read_cached(*place, offset, *LIMITS, committed)
    assert found is not None
    return found


@pytest.mark.usefixtures("long_rests")
def test_a_partition_to_which_this_gateway_alone_appends_is_not_fetched(
    kafka: Brokers, database: str, came_back: list[int]
) -> None:
    async def play() -> None:
        _, place = await topic_of(kafka)
        heard = Heard()
        async with open_log(kafka, database, heard) as log:
            end = await rest(log, place)
            await append(log, place, *range(end, end + 20))
            assert values(in_memory(log, place, end), end) == [(number, number) for number in range(end, end + 20)]
            assert log.read_cached(*place, end + 20, *LIMITS, True) == ReadResult((), 0, end + 20, end + 20)
            assert all(first < end for first in came_back)
            assert [reported[3] for reported in heard.appends] == [1] * (end + 20), "each append once"

    run(play())


def test_a_partition_rests_while_an_append_is_under_way(
    kafka: Brokers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "REST_S", 10 * DEADLINE_S)
    monkeypatch.setattr(following, "UNDER_WAY_S", 100 * DEADLINE_S)

    async def play() -> None:
        _, place = await topic_of(kafka)
        async with open_log(kafka, database) as log:
            end = await rest(log, place)
            send, found = log.cluster.send, log.reads.following
            rests_s = list[float]()

            def note() -> None:
                followed = found._followed[place]
                assert followed.rest is not None
                rests_s.append(followed.rests_until - asyncio.get_running_loop().time())

            async def noted(node: int, request: Any, purpose: str = "") -> Any:
                if purpose == "produce":
                    note()
                return await send(node, request, purpose)

            monkeypatch.setattr(log.cluster, "send", noted)
            await append(log, place, end)
            note()
            under_way_s, after_s = rests_s
            assert under_way_s > 50 * DEADLINE_S > after_s > DEADLINE_S
            followed = found._followed[place]
            timer = followed.rest
            found._end_rest(followed)  # as the timer does, which an append does not set again
            assert followed.rest not in (timer, None)
            followed.rests_until = asyncio.get_running_loop().time() + following.LEAST_TIMER_S / 2
            found._end_rest(followed)
            assert followed.rest is None, "a timer for what is left would turn the loop in vain"

    run(play())


def test_appends_that_fail_do_not_prolong_a_rest(
    kafka: Brokers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their answers have no offset, which would show what others have appended."""
    monkeypatch.setattr(following, "REST_S", 10 * DEADLINE_S)
    monkeypatch.setattr(following, "UNDER_WAY_S", 100 * DEADLINE_S)

    async def play() -> None:
        _, place = await topic_of(kafka)
        async with open_log(kafka, database) as log:
            end = await rest(log, place)
            send, ends_s = log.cluster.send, list[float]()

            async def refuse(node: int, request: Any, purpose: str = "") -> Any:
                if purpose != "produce":
                    return await send(node, request, purpose)
                ends_s.append(log.reads.following._followed[place].rests_until)
                raise KafkaError.of(10)

            with monkeypatch.context() as patched:
                patched.setattr(log.cluster, "send", refuse)
                for _ in range(3):
                    with pytest.raises(TooLarge):
                        await append(log, place, end)
            assert len(ends_s) == 3
            assert len({*ends_s}) == 1
            await append(log, place, end)
            assert log.reads.following._followed[place].rest is not None

    run(play())


@pytest.mark.usefixtures("long_rests")
def test_the_next_own_append_shows_that_another_client_has_appended(kafka: Brokers, database: str) -> None:
    async def play() -> None:
        name, place = await topic_of(kafka)
        heard = Heard()
        async with open_log(kafka, database, heard) as log, foreign(kafka) as producer:
            end = await rest(log, place)
            await producer.send_and_wait(name, b'"foreign"')
            assert await append(log, place, 7) == [end + 1]
            assert values(await log.read(*place, end, *LIMITS), end) == [(end, "foreign"), (end + 1, 7)]
            await producer.send_and_wait(name, b'"heard of"')
            await heard_of(log, heard, place, end + 3)
            assert values(await log.read(*place, end + 2, *LIMITS)) == [(end + 2, "heard of")]

    run(play())


def test_a_rest_ends_by_itself(kafka: Brokers, database: str) -> None:
    async def play() -> None:
        name, place = await topic_of(kafka)
        heard = Heard()
        async with open_log(kafka, database, heard) as log, foreign(kafka) as producer:
            end = await rest(log, place)
            await producer.send_and_wait(name, b'"foreign"')
            await heard_of(log, heard, place, end + 1)
            assert values(in_memory(log, place, end), end) == [(end, "foreign")]

    run(play())


@pytest.mark.usefixtures("long_rests")
def test_a_rest_of_several_appends_begins_again_with_the_next_one(kafka: Brokers, database: str) -> None:
    async def play() -> None:
        name, place = await topic_of(kafka)
        async with open_log(kafka, database) as log, foreign(kafka) as producer:
            end = await rest(log, place)
            found = log.reads.following
            followed = found._followed[place]
            await append(log, place, *range(end, end + following.IN_A_ROW))
            found._begin(followed)  # as the end of its time does
            await append(log, place, 0)
            assert followed.rest is not None
            found._begin(followed)
            await append(log, place, 0)
            assert followed.rest is None, "a rest of few appends costs more Fetches than it spares"
            await rest(log, place)
            await append(log, place, 0)
            await producer.send_and_wait(name, b'"foreign"')
            await append(log, place, 0)
            assert followed.own == 0, "another client appends, too"
            await rest(log, place)
            await append(log, place, *range(following.IN_A_ROW))
            found._begin(followed)
            async for _ in Every(0.01, at_once=True):
                if followed.own == 0:  # nobody appends
                    break

    run(play())


@pytest.mark.usefixtures("long_rests")
def test_the_next_own_append_shows_where_the_log_starts(kafka: Brokers, database: str) -> None:
    async def play() -> None:
        _, place = await topic_of(kafka)
        heard = Heard()
        async with open_log(kafka, database, heard) as log:
            end = await rest(log, place)
            await log.cluster.delete_records({place: 2})
            assert log.known_log_start(place) == 0
            await append(log, place, end)
            assert log.known_log_start(place) == log.reads.cache.partition((place.topic_id, ~0)).log_start_offset == 2
            assert log.reads.following._followed[place].rest is not None

    run(play())


def test_records_of_many_clients_are_read_in_order(kafka: Brokers, database: str) -> None:
    async def play() -> None:
        name, place = await topic_of(kafka)
        async with (
            open_log(kafka, database) as log,
            open_log(kafka, database) as other,
            foreign(kafka) as producer,
            cluster_of(kafka) as cluster,
        ):

            async def send_foreign() -> None:
                for number in range(1000, 1040):
                    await producer.send_and_wait(name, b"%d" % number)

            async def follow(mine: KafkaRecordLog) -> list[tuple[int, int]]:
                found: list[tuple[int, int]] = []
                while len(found) < 140:
                    found += values(await mine.read(*place, len(found), *LIMITS), len(found))
                    await asyncio.sleep(0)
                return found

            one, two, *_ = await asyncio.gather(
                follow(log),
                follow(other),
                append(log, place, *range(60)),
                append(other, place, *range(100, 140)),
                send_foreign(),
            )
            truth = [(each.offset, int(each.value or b"")) for each in await read(cluster, place)]
            assert one == two == truth

    run(play())


@pytest.mark.usefixtures("long_rests")
def test_an_open_transaction_between_own_records_bounds_readers_of_committed_ones(
    kafka: Brokers, database: str
) -> None:
    async def play() -> None:
        name, place = await topic_of(kafka)
        heard = Heard()
        async with open_log(kafka, database, heard) as log, foreign(kafka, transactional_id=name) as producer:
            end = await rest(log, place)
            await producer.begin_transaction()
            await producer.send_and_wait(name, b'"open"')
            await append(log, place, 7)
            found = await log.read(*place, 0, *LIMITS, True)
            assert (values(found)[-1], found.end_offset) == ((end - 1, end - 1), end)
            last = await rest(log, place, end + 2)
            await append(log, place, last)
            assert log.read_cached(*place, end, *LIMITS, True) == ReadResult((), 0, last + 1, end)
            await producer.commit_transaction()
            await read(log.cluster, place, committed=True)  # its marker is written behind the answer
            await append(log, place, last + 2)
            await heard_of(log, heard, Place(place.topic_id, ~place.partition), last + 3)
            committed = values(await log.read(*place, end, *LIMITS, True), end)
            numbers = [(offset, offset) for offset in (*range(end + 2, last + 1), last + 2)]
            assert committed == [(end, "open"), (end + 1, 7), *numbers]

    run(play())


@pytest.mark.usefixtures("long_rests")
@pytest.mark.parametrize("moved", [0, 1])
def test_records_by_a_leader_that_has_moved_are_read_from_it(
    kafka: Brokers, database: str, came_back: list[int], moved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        _, place = await topic_of(kafka)
        heard = Heard()
        async with open_log(kafka, database, heard) as log:
            end = await rest(log, place)
            producer = log.appender._producer
            leader_of = producer._leader

            async def by_next(*arguments: Any) -> Any:
                leader = await leader_of(*arguments)
                return leader._replace(epoch=leader.epoch + moved)

            monkeypatch.setattr(producer, "_leader", by_next)
            await append(log, place, 7)
            assert values(await log.read(*place, end, *LIMITS), end) == [(end, 7)]
            assert (end in came_back) == bool(moved)
            assert log.reads.truncations._last[place][:2] == (0, end + 1)

    run(play())


@pytest.mark.usefixtures("long_rests")
def test_records_have_the_times_that_their_topic_gives_them(kafka: Brokers, database: str) -> None:
    async def play() -> None:
        name, place = await topic_of(kafka)
        async with open_log(kafka, database) as log:
            end = await rest(log, place)
            await log.cluster.incremental_alter_configs(name, {"message.timestamp.type": "LogAppendTime"})
            time_ms = 5
            while time_ms == 5:  # until the broker follows the setting
                await append(log, place, 7)
                time_ms = (await log.read(*place, end, *LIMITS)).batches[-1].max_timestamp_ms
                end += 1

    run(play())


def test_an_append_whose_answer_is_lost_is_read_once_and_where_it_is(
    kafka: Brokers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        name, place = await topic_of(kafka)
        heard = Heard()
        async with open_log(kafka, database, heard) as log, foreign(kafka) as producer:
            end = await rest(log, place)
            send, lost = log.cluster.send, list[str]()

            async def lose_one(node: int, request: Any, purpose: str = "") -> Any:
                answer = await send(node, request, purpose)
                if purpose == "produce" and not lost:
                    lost.append(purpose)
                    await producer.send_and_wait(name, b'"between"')
                    raise KafkaError.silent("the broker", "its answer is lost")
                return answer

            monkeypatch.setattr(log.cluster, "send", lose_one)
            assert await append(log, place, 7, 8) == [end, end + 2]
            await heard_of(log, heard, place, end + 3)
            found: list[tuple[int, Any]] = []
            while len(found) < 3:
                found += values(await log.read(*place, end + len(found), *LIMITS), end + len(found))
            assert found == [(end, 7), (end + 1, "between"), (end + 2, 8)]
            assert lost

    run(play())


def test_an_append_continues_only_a_log_that_is_followed_now(kafka: Brokers, database: str) -> None:
    async def play() -> None:
        _, place = await topic_of(kafka)
        async with open_log(kafka, database) as log:
            end = await rest(log, place)
            found = log.reads.following
            leader = await log.cluster.leader(place)
            own = Appended(end, as_sent=True, log_start=0)
            found._place(found._followed[place], leader._replace(epoch=leader.epoch + 1))
            assert found.appended(place, leader.epoch + 1, own, end + 1) is None, "where it ends now is not known"
            found._place(found._followed[place], leader)
            found._followed[place].ends = (0, end, end)
            assert found.appended(place, leader.epoch, own, end + 1) == end + 1
            found._lose(place, -1)
            own = own._replace(offset=end + 1)
            assert found.appended(place, leader.epoch, own, end + 2) is None, "its broker may have begun again"

    run(play())


@pytest.mark.parametrize("there", [True, False])
def test_own_records_above_the_end_of_their_epoch_are_lost_only_if_the_log_has_others(
    kafka: Brokers, database: str, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        _, place = await topic_of(kafka)
        restarted: asyncio.Queue[Any] = asyncio.Queue()
        async with open_log(kafka, database, restarted=restarted) as log:
            end = await rest(log, place)
            truncations = log.reads.truncations
            await append(log, place, 7)
            last = truncations._last[place]
            assert last == Last(0, end + 1, last.appended) != Last(0, end + 1)

            async def end_of_epoch(*_: Any) -> tuple[int, int]:
                return 0, end

            monkeypatch.setattr(log.cluster, "end_of_epoch", end_of_epoch)
            truncations._suspect(place, last if there else last._replace(appended=b"another"))
            async for _ in Every(0.01, at_once=True):
                if not truncations._suspects:
                    break
            assert restarted.empty() == there

    run(play())


@pytest.mark.soak
@pytest.mark.usefixtures("long_rests")
def test_own_records_are_not_lost_when_their_leader_has_a_later_epoch(three_brokers: Brokers, database: str) -> None:
    """The broker stays the leader, but the partition loses a replica: nobody tells the gateway while it appends."""

    async def play() -> None:
        restarted: asyncio.Queue[Any] = asyncio.Queue()
        async with (
            open_log(three_brokers, database, restarted=restarted) as log,
            cluster_of(three_brokers) as cluster,
            foreign(three_brokers) as producer,
        ):
            configs = {"min.insync.replicas": "1"}
            topic = await cluster.create_topic(f"bump-{uuid.uuid4().hex[:8]}", 1, 2, configs)
            place = Place(topic.id, 0)
            leader, _ = await replicas_of(three_brokers, topic.name)
            end = await rest(log, place)
            alone: Any = [(topic.name, [(0, [leader], {})], {})]
            await cluster._ask_controller(AlterPartitionReassignmentsRequest(60_000, alone, {}))
            async for _ in Every(0.2, at_once=True):
                await cluster.refresh([topic.id])
                if (await cluster.leader(place)).epoch > 0:
                    break
            assert (await cluster.leader(place)).node == leader
            await append(log, place, 7, 8)
            assert values(in_memory(log, place, end), end) == [(end, 7), (end + 1, 8)]
            log.reads.following._begin(log.reads.following._followed[place])
            await producer.send_and_wait(topic.name, b"9")
            truncations = log.reads.truncations
            async for _ in Every(0.05, at_once=True):
                if not restarted.empty() or (truncations._last[place].epoch > 0 and not truncations._suspects):
                    break
            assert restarted.empty(), "no record is lost"
            assert values(await log.read(*place, end, *LIMITS), end)[:2] == [(end, 7), (end + 1, 8)]

    run(play(), 4 * DEADLINE_S)


@pytest.mark.soak
@pytest.mark.usefixtures("long_rests")
def test_groups_go_back_before_own_records_that_are_lost(three_brokers: Brokers, database: str) -> None:
    """A broker that lacks them becomes the leader while the partition rests, and its log passes the old end."""

    async def play() -> None:
        restarted: asyncio.Queue[Any] = asyncio.Queue()
        async with (
            open_log(three_brokers, database, restarted=restarted) as log,
            cluster_of(three_brokers) as cluster,
        ):
            log.appender._producer._timeout_ms = 1000 * DEADLINE_S
            configs = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
            topic = await cluster.create_topic(f"cut-{uuid.uuid4().hex[:8]}", 1, 2, configs)
            place = Place(topic.id, 0)
            ahead, behind = await replicas_of(three_brokers, topic.name)
            end = await rest(log, place)
            three_brokers.kill(behind)
            async for _ in Every(0.2):  # an append that waits is sent again, and its records are then read
                if await in_sync(cluster, place) == [ahead]:
                    break
            await append(log, place, 7, 8)
            assert values(in_memory(log, place, end), end) == [(end, 7), (end + 1, 8)]
            three_brokers.kill(ahead)
            three_brokers.start(behind)
            async with foreign(three_brokers) as producer:
                for _ in range(4):
                    await producer.send_and_wait(topic.name, b'"new"')
            await append(log, place, 9)
            assert await restarted.get() == (place, end)
            three_brokers.start(ahead)
            new = [(end + number, "new") for number in range(4)]
            assert values(await log.read(*place, end, *LIMITS), end) == [*new, (end + 4, 9)]

    run(play(), 4 * DEADLINE_S)
