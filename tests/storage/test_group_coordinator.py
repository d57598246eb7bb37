"""The group coordinator on a real database: concurrent changes, and changes with an unknown outcome."""

import asyncio
import itertools
import time
from contextlib import AsyncExitStack

import pytest
from sharequeue_coordinator.coordinator import GroupCoordinator
from sharequeue_coordinator.groups import share_states
from sharequeue_coordinator.metadata.gateways import Gateways
from sharequeue_coordinator.share_group.heartbeat import Heartbeat
from sharequeue_coordinator.share_group.initialization import GroupTopic

from sharequeue.clock import Clock
from sharequeue.protocol.errors import (
    KAFKA_CODES,
    CoordinatorLoadInProgress,
    NotCoordinator,
    StorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from sharequeue.protocol.messages.cluster import AlterShareGroupOffsetsRequest, Gateway
from sharequeue_http.forms.errors import CoordinatorNotAvailable, InvalidRequest
from tests.storage.database import session
from tests.storage.group_coordinators import SHARDS, group_of, instance, running, two, until
from tests.storage.lossy_proxy import LossyProxy


async def test_concurrent_changes_of_a_groups_settings_are_all_kept(module_database: str, name: str) -> None:
    changes = {
        "share.delivery.count.limit": "7",
        "share.record.lock.duration.ms": "20000",
        "share.auto.offset.reset": "latest",
        "share.isolation.level": "read_committed",
    }
    async with running(module_database) as coordinator:
        await asyncio.gather(
            *(coordinator.group_configs.update(name, {setting: value}, []) for setting, value in changes.items())
        )
        assert changes.items() <= (await coordinator.group_configs.in_force(name)).items()


# Outcomes that are lost


async def stored(database_url: str, query: str, name: str) -> None:
    """Wait until the query, about the topic `name`, finds something."""
    async with session(database_url) as admin:
        while True:
            if await admin.fetchval(f"SELECT 1 FROM groups.topics WHERE name = $1 AND {query}", name):
                return
            await asyncio.sleep(0.01)


async def practise(coordinator: GroupCoordinator, name: str) -> None:
    """Have the statements prepared, so that each is one message to the database, and its outcome another."""
    await coordinator.topics.create(name, 1, {})
    await coordinator.topics.update(name, 2, {}, [])
    await coordinator.topics.delete(name)


async def test_a_topic_is_created_though_the_answer_of_the_commit_was_lost(module_database: str, name: str) -> None:
    async with LossyProxy(module_database).running() as proxy, running(proxy.url) as coordinator:
        await practise(coordinator, name)
        before = coordinator.metadata.feed.version
        proxy.lose_answers = True
        task = asyncio.create_task(coordinator.topics.create(name, 3, {}))
        await stored(module_database, "NOT deleting", name)
        proxy.cut()
        topic = await task
        assert coordinator.metadata.known([name], []) == [topic]
        assert coordinator.metadata.feed.after(before) == ([topic.topic_id], [])
        with pytest.raises(TopicAlreadyExists):
            await coordinator.topics.create(name, 3, {})


async def test_a_topic_grows_and_is_deleted_though_answers_of_commits_were_lost(
    module_database: str, name: str
) -> None:
    async with LossyProxy(module_database).running() as proxy, running(proxy.url) as coordinator:
        await practise(coordinator, name)
        await coordinator.topics.create(name, 3, {})
        proxy.lose_answers = True
        growth = asyncio.create_task(coordinator.topics.update(name, 4, {"retention.ms": "5"}, []))
        await stored(module_database, "partitions = 4", name)
        proxy.cut()
        grown = await growth
        assert coordinator.metadata.known([name], []) == [grown]
        assert (grown.partitions, grown.config["retention.ms"]) == (4, "5")
        await practise(coordinator, f"{name}-other")
        proxy.lose_answers = True
        deletion = asyncio.create_task(coordinator.topics.delete(name))
        await stored(module_database, "deleting AND partitions = 4", name)
        proxy.cut()
        await deletion
        assert coordinator.metadata.known([name], [grown.topic_id]) == []
        with pytest.raises(UnknownTopicOrPartition):
            coordinator.metadata.topic(name)


async def test_an_unknown_outcome_is_resolved_when_the_database_is_back(database_url: str, name: str) -> None:
    database = database_url.rsplit("/", 1)[1]
    async with (
        session(database_url.rsplit("/", 1)[0] + "/sharequeue") as admin,
        LossyProxy(database_url).running() as proxy,
        running(proxy.url) as coordinator,
    ):
        await practise(coordinator, name)
        proxy.lose_answers = True
        task = asyncio.create_task(coordinator.topics.create(name, 3, {}))
        await stored(database_url, "NOT deleting", name)
        await admin.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
        await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", database)
        proxy.cut()
        with pytest.raises(StorageError):
            await task
        assert coordinator.metadata.known([name], []) == []
        finishing = asyncio.create_task(coordinator.follow())
        try:
            before = coordinator.metadata.feed.version
            await admin.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")
            await coordinator.metadata.feed.wait(before, 20)
            assert [topic.partitions for topic in coordinator.metadata.known([name], [])] == [3]
        finally:
            finishing.cancel()


# Several


async def test_an_instance_knows_topics_created_at_another(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_states, "DEADLINE_S", 0.1)
    async with AsyncExitStack() as stack:
        (first, _), (second, ownership) = await two(stack, database_url)
        group = group_of(ownership)

        async def codes(*partitions: int) -> list[int]:
            """3: no such partition; 15: it is there, but there is no share coordinator to initialise it."""
            faults = await second.initializer.initialize(group, {topic.topic_id: partitions})
            return [KAFKA_CODES[faults[topic.topic_id, partition].error] for partition in partitions]

        topic = await first.topics.create("t", 1, {})
        assert [known.topic_id for known in await second.metadata.describe_topics(["t"], [])] == [topic.topic_id]
        topic = await first.topics.create("u", 2, {})
        assert await asyncio.wait_for(codes(0, 5), 60) == [15, 3]
        await first.topics.update("u", 6, {}, [])
        request = AlterShareGroupOffsetsRequest(offsets={topic.topic_id: {4: 0}})
        with pytest.raises(CoordinatorNotAvailable):
            await second.group_admin.alter_offsets(group, request)
        await first.topics.update("u", 7, {}, [])
        assert await codes(6) == [15]
        await first.topics.delete("u")
        assert second.metadata.known([], [topic.topic_id]), "the change is not known here yet"
        assert await codes(1) == [3]


@pytest.mark.parametrize("begin", ["fetch", "heartbeat", "reset"])
async def test_a_group_begins_in_all_partitions_that_there_are(
    database_url: str, monkeypatch: pytest.MonkeyPatch, begin: str
) -> None:
    """The group's instance does not know yet that the topic grew. What it decided stays with the group."""
    monkeypatch.setattr(share_states, "DEADLINE_S", 0.1)
    async with AsyncExitStack() as stack:
        (first, _), (second, ownership) = await two(stack, database_url)
        group = group_of(ownership)
        topic = await first.topics.create("t", 1, {})
        await second.metadata.catch_up()
        await first.topics.update("t", 3, {}, [])
        assert second.metadata.by_name["t"].partitions == 1
        if begin == "fetch":
            await second.initializer.initialize(group, {topic.topic_id: [0]})
        elif begin == "heartbeat":
            await second.members.heartbeat(group, Heartbeat("m", 0, None, frozenset({"t"}), "", ""))
        else:
            request = AlterShareGroupOffsetsRequest(offsets={topic.topic_id: {0: 0}})
            with pytest.raises(CoordinatorNotAvailable):
                await second.group_admin.alter_offsets(group, request)
        await first.topics.update("t", 4, {}, [])
        decided = (await second.groups.find(group)).machine.topics
        begun = {"fetch": {0: 2}, "heartbeat": {0: 2, 1: 2, 2: 2}, "reset": {0: 0}}[begin]
        assert decided == {topic.topic_id: GroupTopic(begun, first_partitions=3)}
        second.groups.drop(await second.groups.find(group))
        assert (await second.groups.find(group)).machine.topics == decided


async def test_settings_that_change_during_a_groups_load_apply(database_url: str) -> None:
    async with running(database_url) as coordinator, session(database_url) as other, session(database_url) as admin:
        groups = coordinator.groups
        await coordinator.members.heartbeat("g", Heartbeat("m", 0, None, frozenset({"t"}), "", ""))
        groups.drop(await groups.find("g"))
        async with other.transaction():
            await other.execute("LOCK TABLE groups.share_group_topics")
            reading = asyncio.create_task(groups.find("g"))
            waits = """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                       AND wait_event_type = 'Lock' AND application_name NOT LIKE 'sharequeue%'"""
            while not await admin.fetchval(waits):
                assert not reading.done()
            changing = asyncio.create_task(
                coordinator.group_configs.update("g", {"share.heartbeat.interval.ms": "6000"}, [])
            )
            while not await admin.fetchval("SELECT count(*) FROM groups.share_group_configs"):
                assert not reading.done()
        await changing
        assert (await reading).settings.heartbeat_interval_ms == 6000


async def test_a_call_from_before_a_groups_deletion_does_not_recreate_it(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instance must learn of the topic first; by then the group is deleted."""
    monkeypatch.setattr(share_states, "DEADLINE_S", 0.1)
    async with AsyncExitStack() as stack:
        (first, _), (second, ownership) = await two(stack, database_url)
        group = group_of(ownership)
        await second.members.heartbeat(group, Heartbeat("m", 0, None, frozenset({"no topic yet"}), "", ""))
        topic = await first.topics.create("t", 1, {})
        async with second.metadata._catching_up:
            asking = asyncio.create_task(second.initializer.initialize(group, {topic.topic_id: [0]}))
            await second.group_admin.delete(group, force=True)
            assert not second.metadata.known([], [topic.topic_id]), "the lookup of the topic is in progress"
        (fault,) = (await asking).values()
        assert KAFKA_CODES[fault.error] == 15
        assert not (await second.groups.find(group)).machine.exists


async def test_a_paused_owner_changes_nothing(database_url: str) -> None:
    """Another process of its name took every shard; the paused one does not know yet."""
    async with instance(database_url, "a") as (old, ownership):
        await old.topics.create("t", 1, {})
        epochs = dict(ownership.owned)
        async with instance(database_url, "a") as (new, _):
            ownership._epochs.update(epochs)
            changes = [
                old.topics.create("u", 1, {}),
                old.topics.update("t", 2, {}, []),
                old.topics.delete("t"),
                old.group_configs.update("g", {"share.delivery.count.limit": "3"}, []),
                old.metadata.gateways.register(Gateway(node_id="g", url="http://g")),
            ]
            for change in changes:
                with pytest.raises(NotCoordinator):
                    await change
            topic_id = old.metadata.known(["t"], [])[0].topic_id
            with pytest.raises(NotCoordinator):
                await old.initializer.initialize("g", {topic_id: [0]})
            await new.metadata.catch_up()
            assert [(topic.name, topic.partitions) for topic in new.metadata.page(10, None)[0]] == [("t", 1)]
            assert (await new.group_configs.in_force("g"))["share.delivery.count.limit"] == "5"
            assert new.metadata.gateways.generation.gateways == []


async def test_the_next_owner_continues_from_the_stored_state(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        (first, leaving), (second, ownership) = await two(stack, database_url)
        await first.topics.create("t", 1, {})
        await first.metadata.gateways.register(Gateway(node_id="g", url="http://g"))
        with pytest.raises(NotCoordinator):
            await second.topics.update("t", 2, {}, [])
        await leaving.stop()
        await until(lambda: len(ownership.owned) == SHARDS + 1)
        assert (await second.topics.update("t", 2, {}, [])).partitions == 2
        assert [gateway.node_id for gateway in second.metadata.gateways.generation.gateways] == ["g"]
        with pytest.raises(CoordinatorLoadInProgress):
            await first.topics.update("t", 3, {}, [])


class PausedClock(Clock):
    """A clock that runs while the coordinator is paused."""

    paused_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.paused_ms


async def test_no_gateway_is_removed_for_a_pause_of_the_coordinator(database_url: str) -> None:
    """After a pause, or with the database away, every gateway has a whole lease to be heard."""
    lease_ms = 1000
    clock = PausedClock()
    async with running(database_url) as coordinator:
        gateways = Gateways(coordinator.query, coordinator.metadata.lead, lambda: True, clock, lease_ms=lease_ms)
        await gateways.register(Gateway(node_id="g", url="http://g"))
        watching = asyncio.create_task(gateways.watch_leases())
        try:
            await asyncio.sleep(0)  # it has looked at the clock
            clock.paused_ms = 10 * lease_ms
            resumed_s = time.monotonic()
            await until(lambda: not gateways.generation.gateways)
            assert time.monotonic() - resumed_s > lease_ms / 1000
        finally:
            watching.cancel()


async def test_of_two_gateways_with_one_node_id_the_later_one_waits_and_is_refused(database_url: str) -> None:
    here, there = Gateway(node_id="g", url="http://here"), Gateway(node_id="g", url="http://there")
    async with running(database_url) as coordinator:
        gateways = Gateways(coordinator.query, coordinator.metadata.lead, lambda: True, Clock(), lease_ms=60_000)
        number = (await gateways.register(here)).generation.number
        later = asyncio.create_task(gateways.register(there))
        await asyncio.sleep(0)
        await gateways.renew(here, leaving=False, known=0)
        with pytest.raises(InvalidRequest, match="the gateway 'g' runs at http://here, and renews its lease"):
            await later
        for leaving in (False, True):
            with pytest.raises(InvalidRequest, match="runs at http://here"):
                await gateways.renew(there, leaving=leaving, known=0)
        assert (gateways.generation.number, gateways.generation.gateways) == (number, [here])
        assert (await gateways.register(here)).generation.gateways == [here], "a restart at its own address"
        await gateways.renew(here, leaving=True, known=0)
        assert (await gateways.register(there)).generation.gateways == [there]


async def test_a_gateway_takes_over_the_node_id_of_a_dead_one(database_url: str) -> None:
    here, there = Gateway(node_id="g", url="http://here"), Gateway(node_id="g", url="http://there")
    clock = PausedClock()
    async with running(database_url) as coordinator:
        gateways = Gateways(coordinator.query, coordinator.metadata.lead, lambda: True, clock, lease_ms=60_000)
        await gateways.register(here)
        later = asyncio.create_task(gateways.register(there))
        await asyncio.sleep(0)
        assert gateways.generation.gateways == [here]
        clock.paused_ms = 60_000
        assert (await later).generation.gateways == [there]


async def test_an_epoch_is_never_given_under_an_outdated_generation(database_url: str) -> None:
    """Leaders of the next generation must fence those that know only this one."""
    async with running(database_url) as coordinator:
        names = [f"g{index}" for index in range(8)]
        answers = await asyncio.gather(
            *(coordinator.metadata.gateways.register(Gateway(node_id=name, url=f"http://{name}")) for name in names)
        )
        for earlier, later in itertools.pairwise(sorted(answers, key=lambda answer: answer.generation.number)):
            assert earlier.leader_epoch < later.generation.number


@pytest.mark.parametrize("distance", [0, 1, 7, 1000, 1001, 2_000_000_000])
async def test_an_epoch_lies_above_one_that_another_store_knows(database_url: str, distance: int) -> None:
    async with running(database_url) as coordinator:
        gateways = coordinator.metadata.gateways
        registered = await gateways.register(Gateway(node_id="here", url="http://here"))
        known = registered.leader_epoch + distance
        given = await gateways.next_leader_epoch("here", registered.generation.number, known)
        assert (given.leader_epoch, given.lost_to) == (known + 1, known if distance else 0)
        after = await gateways.next_leader_epoch("here", registered.generation.number, 0)
        assert after.leader_epoch == known + 2


async def test_groups_that_could_not_be_read_leave_nothing_in_memory(database_url: str) -> None:
    """Any client may name any number of groups."""
    names = ["a", "a", *"bcd"]
    async with session(database_url) as admin, running(database_url) as coordinator:
        await admin.execute("ALTER TABLE groups.share_groups RENAME TO elsewhere")
        unread = await asyncio.gather(*(coordinator.groups.find(name) for name in names), return_exceptions=True)
        assert [type(fault) for fault in unread] == [StorageError] * len(names)
        assert not coordinator.groups._loading
        await admin.execute("ALTER TABLE groups.elsewhere RENAME TO share_groups")
        found = await asyncio.gather(*(coordinator.groups.find(name) for name in names))
        assert [group.machine.exists for group in found] == [False] * len(names)
        assert not coordinator.groups._loading
