"""The seven rules of the log's readers, with a pause between any two steps of any two operations.

Begin, raise, reset, delete, trim and the removal of idle rows are the product's own, on PostgreSQL; the state goes
through the share coordinator's own rules. Each operation is paused before each statement, commit and call, and another
one runs there: every pair, at every point, in both orders; and three at a time in seeded orders. After every step:

    no record at or behind the durable start of a group that reads is trimmed
    the group has its row, with a floor at or below that start
"""

import random
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import pytest
from sharequeue_gateway.leader.loading.start_offsets import StartOffsets
from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.log import Offsets
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.record_log.removing import readers_store
from sharequeue_gateway.record_log.removing.readers import STALE_MS, Readers
from sharequeue_gateway.record_log.removing.readers_store import Floor
from sharequeue_gateway.record_log.removing.retaining import Retaining
from sharequeue_gateway.record_log.retention_rule import RetentionRule
from sharequeue_gateway.retention.idle_groups import IdleGroups
from sharequeue_share_coordinator.share_state import shard
from sharequeue_share_coordinator.share_state.rows import KeyState, replay

from sharequeue.protocol import apis
from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.errors import GroupIdNotFound
from sharequeue.protocol.messages.groups import ShareGroupDescription
from sharequeue.protocol.messages.share_state import PartitionState, PartitionStateResult
from sharequeue.protocol.types import SharePartitionKey
from tests.storage.interleaving import Actor, Explorer, Operation, actors
from tests.storage.record_logs import new_topic, tail

HOLD_MS: Final = 604_800_000
NOW_MS: Final = 1_763_640_000_000
END: Final = 20
START: Final = 5
KEEP: Final = RetentionRule(retention_ms=0, keep=True)
CLEAN: Final = RetentionRule(cleanup=True)
GROUP: Final = "g"
APPEND_ID: Final = uuid.UUID(int=7)


class Early(AssertionError):
    """Something was trimmed that a group had not finished, or could have been."""


class World:
    """One topic, one group, and what is durable beside the log."""

    def __init__(self, monitor: Any, holds: bool) -> None:
        self.monitor = monitor
        self.topic = new_topic()
        self.holds = holds
        """Whether the group has its row before it begins."""
        self.exists = True
        self.changing = False
        """Whether the group coordinator resets or deletes: it does one thing at a time."""
        self.group_epoch = 1
        self.states: dict[int, KeyState | None] = {0: None}
        self.now_ms = NOW_MS

    def key(self, partition: int = 0) -> SharePartitionKey:
        return SharePartitionKey(GROUP, self.topic, partition)

    # The share coordinator

    def initialize(self, start_offset: int, state_epoch: int) -> None:
        request = PartitionState(partition=0, state_epoch=state_epoch, start_offset=start_offset)
        self._replay(shard.initialize(self.states[0], request, None, NOW_MS))

    def _replay(self, decision: shard.Decision) -> PartitionStateResult:
        if decision.row is not None:
            self.states[0] = replay(self.states[0], decision.row, 500)
        return decision.result

    def read(self, leader_epoch: int) -> PartitionStateResult:
        request = PartitionState(partition=0, leader_epoch=leader_epoch)
        return self._replay(shard.read(self.states[0], request, None, 500, NOW_MS))

    def write(self, request: PartitionState) -> PartitionStateResult:
        return self._replay(shard.write(self.states[0], request, None, 500, NOW_MS))

    def delete(self) -> None:
        self._replay(shard.delete(self.states[0], PartitionState(partition=0), None))

    # What must hold

    async def check(self, trace: str) -> None:
        state = self.states[0]
        if state is None or state.start_offset < 0:
            return
        log_start, floor = await self.monitor.fetchrow(
            """SELECT log_start_offset, (SELECT floor FROM log.readers r
                 WHERE r.topic_id = p.topic_id AND r.partition = p.partition AND r.group_id = $2)
               FROM log.partitions p WHERE topic_id = $1 AND partition = 0""",
            self.topic,
            GROUP,
        )
        where = f"log start {log_start}, floor {floor}, durable start {state.start_offset}, after {trace}"
        if log_start > state.start_offset:
            raise Early(f"trimmed: {where}")
        if self.holds and (floor is None or floor > state.start_offset):
            raise Early(f"the floor does not hold: {where}")


class Coordinator:
    """The calls to the group and share coordinators that the operations make, each a step of its actor."""

    def __init__(self, world: World, actor: Actor) -> None:
        self._world = world
        self._actor = actor

    async def state(
        self, api: object, group_id: str, states: Mapping[str, Sequence[PartitionState]]
    ) -> dict[SharePartitionKey, PartitionStateResult]:
        assert api is apis.WRITE_STATE
        assert group_id == GROUP
        await self._actor.step()
        result = {self._world.key(): self._world.write(one) for of_topic in states.values() for one in of_topic}
        await self._actor.step()
        return result

    async def of_group(self, api: object, group_id: str, query: object) -> ShareGroupDescription:
        assert api is apis.DESCRIBE_SHARE_GROUP
        await self._actor.step()
        if not self._world.exists:
            raise GroupIdNotFound("no such group")
        return ShareGroupDescription(
            group_id=group_id,
            state="Empty",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            member_count=0,
            members=[],
        )


class Log:
    """The one call to the log that a choice of a start needs."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    async def offsets(self, topic_id: str, partitions: Sequence[int]) -> dict[int, Offsets]:
        found = await self._actor.query(store.bounds, [(topic_id, partition) for partition in partitions])
        return {place[1]: Offsets(bounds[0], bounds[1], bounds[1]) for place, bounds in found.items()}


# Operations: each is what one process does


def begin(world: World, leader_epoch: int = 2) -> Operation:
    """A gateway loads the share-partition; the group coordinator has initialised it if it was not."""

    async def run(actor: Actor) -> None:
        await actor.step()
        if world.states[0] is None:
            world.exists = True
            world.group_epoch += 1
            world.initialize(-1, world.group_epoch)
        await actor.step()
        state = world.read(leader_epoch)
        await actor.step()
        if state.error_code:
            return
        starts = StartOffsets(Log(actor), Readers(actor.query), Coordinator(world, actor), None)  # type: ignore[arg-type]
        await starts.begin(GROUP, {world.key(): state}, leader_epoch, ShareGroupConfig(auto_offset_reset="earliest"))

    return run


def finish(world: World, to: int = 12, leader_epoch: int = 1) -> Operation:
    """A leader of the first life has finished more, or finds void offsets: it writes the start,
    then raises the floor."""

    async def run(actor: Actor) -> None:
        write = PartitionState(partition=0, state_epoch=1, leader_epoch=leader_epoch, start_offset=to)
        results = await Coordinator(world, actor).state(apis.WRITE_STATE, GROUP, {world.topic: [write]})
        if not results[world.key()].error_code:
            await Readers(actor.query).raise_floors([Floor(world.key(), 1, to)])

    return run


def reset(world: World, target: int) -> Operation:
    """The group coordinator resets the group: the rows first, then the state, then the rows again."""

    async def run(actor: Actor) -> None:
        await actor.step()
        if world.changing:
            return
        world.changing = True
        world.group_epoch += 1
        epoch = world.group_epoch
        (reserved,) = await Readers(actor.query).reserve([Floor(world.key(), epoch, target)], HOLD_MS)
        await actor.step()
        world.initialize(reserved.floor, epoch)
        await actor.step()
        await Readers(actor.query).raise_floors([reserved])
        world.changing = False

    return run


def delete(world: World, *, group_too: bool) -> Operation:
    """The state goes, then the rows of its life. A group whose offsets alone are deleted may begin again at any
    time."""

    async def run(actor: Actor) -> None:
        await actor.step()
        if world.changing:
            return
        world.changing = True
        epoch = world.group_epoch
        world.exists = not group_too
        world.delete()
        await actor.step()
        await Readers(actor.query).remove([Floor(world.key(), epoch, 0)])
        world.changing = False

    return run


def trim(world: World, rule: RetentionRule = KEEP) -> Operation:
    """A sweep."""

    async def run(actor: Actor) -> None:
        await Retaining(actor.query).sweep(world.topic, [0], rule, NOW_MS)

    return run


def clean_up(world: World) -> Operation:
    """The rows of a group that does not exist are removed after two looks, an hour apart."""

    class Clock:
        def now_ms(self) -> int:
            return world.now_ms

    async def run(actor: Actor) -> None:
        idle = IdleGroups(Coordinator(world, actor), Readers(actor.query), Clock())  # type: ignore[arg-type]
        for _ in range(2):
            await idle.remove()
            world.now_ms += STALE_MS

    return run


# Scenes: what was before


async def unread(world: World) -> None:
    """The group is known and has not read."""
    world.initialize(-1, 1)


async def reading(world: World) -> None:
    """The group reads from START on."""
    world.initialize(START, 1)
    world.read(1)
    await _row(world, 0, 1, START)


async def gone(world: World) -> None:
    """The group was deleted, and a late load left its row. A fetch makes the group again."""
    world.exists = False
    await _row(world, 0, 1, START)
    await world.monitor.execute(
        "UPDATE log.readers SET active_at = now() - interval '2 hours' WHERE topic_id = $1", world.topic
    )


async def grown(world: World) -> None:
    """The group reads another partition of the topic, and has not come to this one. Its state begins at the start."""
    world.initialize(START, 1)
    await _row(world, 1, 1, 0)


async def _row(world: World, partition: int, epoch: int, floor: int) -> None:
    await readers_store.enter(world.monitor, [Floor(world.key(partition), epoch, floor)], HOLD_MS)


Makers = dict[str, Callable[[World], Operation]]


class Scene(NamedTuple):
    prepare: Callable[[World], Any]
    operations: Makers
    holds: bool = True
    """Whether the group has its row before it begins."""


BEGIN: Final[Makers] = {"begin": begin, "begin later": lambda world: begin(world, 3)}
TRIM: Final[Makers] = {"trim": trim, "clean": lambda world: trim(world, CLEAN)}
SCENES: Final = {
    "unread": Scene(
        unread,
        {**BEGIN, **TRIM, "reset back": lambda world: reset(world, 0), "reset": lambda world: reset(world, 15)},
    ),
    "reading": Scene(
        reading,
        {
            **BEGIN,
            **TRIM,
            "finish": finish,
            "reset back": lambda world: reset(world, 0),
            "reset": lambda world: reset(world, 15),
            "delete offsets": lambda world: delete(world, group_too=False),
            "delete": lambda world: delete(world, group_too=True),
        },
    ),
    "gone": Scene(gone, {**BEGIN, **TRIM, "clean up": clean_up}),
    "grown": Scene(grown, {**BEGIN, **TRIM}, holds=False),
}


class Field:
    """A database, actors in it, and a fresh topic for each run."""

    def __init__(self, people: list[Actor], monitor: Any) -> None:
        self.people = people
        self.monitor = monitor

    async def world(self, scene: Scene) -> World:
        world = World(self.monitor, scene.holds)
        await self.monitor.execute("TRUNCATE log.readers")
        await store.make_partitions(self.monitor, [(world.topic, 0)])
        batches = [RecordBatch.encode(base, [tail(n) for n in range(5)], 7) for base in range(0, END, 5)]
        await store.insert(self.monitor, [(world.topic, 0, batch, APPEND_ID) for batch in batches], 0)
        await store.raise_log_starts(self.monitor, world.topic, [(0, START, END)])
        await scene.prepare(world)
        return world

    async def pair(self, scene: Scene, first: str, second: str, at: int, *, crash: bool) -> bool:
        """A trim comes last. Returns: whether the first operation has more steps."""
        world = await self.world(scene)
        explorer = Explorer(self.people, self.monitor, world.check)
        operations = [scene.operations[first](world), scene.operations[second](world), trim(world)]
        try:
            return await explorer.preempt(operations, at, crash=crash)
        except Early as early:
            what = "died" if crash else "was paused"
            raise Early(f"{first} {what} after {at} steps, beside it {second}: {early}") from None

    async def every_point(self, scene: Scene, first: str, second: str) -> int:
        """Returns: how many runs."""
        at, more = 0, True
        while more:
            more = await self.pair(scene, first, second, at, crash=False)
            await self.pair(scene, first, second, at, crash=True)
            at += 1
        return 2 * at

    async def random(self, scene: Scene, chance: random.Random) -> None:
        world = await self.world(scene)
        names = chance.choices(list(scene.operations), k=3)
        explorer = Explorer(self.people, self.monitor, world.check)
        try:
            await explorer.shuffle([scene.operations[name](world) for name in names], chance)
        except Early as early:
            raise Early(f"a, b and c are {names}: {early}") from None


@asynccontextmanager
async def field(database_url: str) -> AsyncIterator[Field]:
    async with actors(database_url, "abc") as (people, monitor):
        yield Field(people, monitor)


PAIRS: Final = [
    (name, first, second) for name, scene in SCENES.items() for first in scene.operations for second in scene.operations
]


@pytest.mark.soak
@pytest.mark.parametrize(("name", "first", "second"), PAIRS)
async def test_nothing_above_a_floor_is_trimmed_whatever_is_paused_where(
    module_database: str, name: str, first: str, second: str
) -> None:
    async with field(module_database) as it:
        assert await it.every_point(SCENES[name], first, second) > 2


@pytest.mark.parametrize("name", SCENES)
async def test_nothing_above_a_floor_is_trimmed_at_some_points(module_database: str, name: str, seed: int) -> None:
    chance = random.Random(f"{seed} {name}")
    names = list(SCENES[name].operations)
    async with field(module_database) as it:
        for _ in range(25):
            first, second = chance.choices(names, k=2)
            await it.pair(SCENES[name], first, second, chance.randrange(12), crash=chance.random() < 0.3)


@pytest.mark.parametrize("name", SCENES)
async def test_nothing_above_a_floor_is_trimmed_in_some_orders_of_three(
    module_database: str, name: str, seed: int
) -> None:
    chance = random.Random(f"{seed} {name}")
    async with field(module_database) as it:
        for _ in range(25):
            await it.random(SCENES[name], chance)
