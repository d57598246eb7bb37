"""Appends in Kafka transactions: a few transactional ids, each gathers the calls that wait into one transaction.

    InitProducerId ─▶ [AddPartitionsToTxn ─▶ Produce ─▶ EndTxn(commit)]…     a fault: InitProducerId, which aborts

A slot is a transactional id in one of its lives. Whoever calls InitProducerId for the id begins the next life: an open
transaction of the life before is aborted, and its producer is fenced.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.transaction import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from sharequeue_kafka.cluster import KafkaCluster, Leader, Place, Row, sure
from sharequeue_kafka.connections import Patience
from sharequeue_kafka.errors import KafkaError, refuse
from sharequeue_kafka.producing import Appended, NewRecord, Numbering, encode, produce

TRANSACTION: Final = 1
"""The type of the coordinator."""
FENCED: Final = frozenset({47, 48, 49, 53, 90})
MOST_CALLS: Final = 100
"""Gathered in one transaction."""


class Slot(NamedTuple):
    """A transactional id in one of its lives."""

    transactional_id: str
    producer_id: int
    epoch: int


class Coordinator:
    """The broker that keeps the transactions of one transactional id."""

    def __init__(self, cluster: KafkaCluster, transactional_id: str) -> None:
        self._cluster, self._id = cluster, transactional_id
        self._node: int | None = None

    async def ask(self, request: Any) -> Any:
        """Send a request whose answer has one error code. Raises: KafkaError."""
        if self._node is None:
            found = await self._cluster.send_any(FindCoordinatorRequest(self._id, TRANSACTION))
            if found.error_code:
                raise KafkaError.of(found.error_code, f"no broker has the transactions of {self._id!r} now")
            self._node = found.coordinator_id
        try:
            answer = await self._cluster.send(self._node, request, "transactions")
        except KafkaError:
            self._node = None
            raise
        code = getattr(answer, "error_code", 0)
        if code in {14, 15, 16}:
            self._node = None
        if code:
            raise KafkaError.of(code, at=f"transactional id {self._id!r}")
        return answer

    async def begin(self, timeout_ms: int) -> Slot:
        """Begin the next life of the id, when the transaction of the one before has ended."""
        answer = await self._cluster.again(lambda: self.ask(InitProducerIdRequest(self._id, timeout_ms)))
        return Slot(self._id, answer.producer_id, answer.producer_epoch)


async def fence(cluster: KafkaCluster, transactional_id: str, timeout_ms: int = 30_000) -> Slot:
    """End the transaction of a transactional id and its producers, and answer the new life.

    When it returns, an open transaction is aborted; one that was about to commit is committed, its markers written.
    """
    return await Coordinator(cluster, transactional_id).begin(timeout_ms)


class Call:
    """Records of one caller, for the life that it named."""

    def __init__(self, slot: Slot, parts: Mapping[Place, Sequence[NewRecord]], alone: bool = False) -> None:
        self.slot, self.parts, self.alone = slot, parts, alone
        self.offsets: asyncio.Future[dict[Place, int]] = asyncio.get_running_loop().create_future()


class Lane:
    """One transactional id of this process: its life, and the calls that wait for its next transaction."""

    def __init__(self, cluster: KafkaCluster, transactional_id: str, timeout_ms: int) -> None:
        self._cluster, self._timeout_ms = cluster, timeout_ms
        self._coordinator = Coordinator(cluster, transactional_id)
        self._beginning: asyncio.Task[Slot] | None = None
        self._numbering = Numbering(-1, -1)
        self._doubt = False
        """Whether a commit was asked for whose outcome is not known."""
        self.waiting: list[Call] = []
        self.taken = 0
        self.task: asyncio.Task[None] | None = None

    async def life(self) -> Slot:
        """Answer the present life; the first, or one after a fault, is begun."""
        if self._beginning is None or (self._beginning.done() and self._beginning.exception()):
            self._beginning = asyncio.create_task(self._begin())
        return await asyncio.shield(self._beginning)

    async def _begin(self) -> Slot:
        slot = await self._coordinator.begin(self._timeout_ms)
        self._numbering = Numbering(slot.producer_id, slot.epoch)
        return slot

    async def run(self) -> None:
        """Append until nothing waits."""
        while self.waiting:
            alone = next((index for index, call in enumerate(self.waiting) if call.alone), MOST_CALLS)
            count = min(max(alone, 1), MOST_CALLS)
            calls, self.waiting = self.waiting[:count], self.waiting[count:]
            try:
                await self._run(calls)
            finally:
                refuse(KafkaError.silent("", "the producer is closed"), [call.offsets for call in calls])

    async def _run(self, calls: Sequence[Call]) -> None:
        try:
            slot = await self.life()
        except KafkaError as error:  # nothing was begun
            refuse(replace(error, definite=True), [call.offsets for call in calls])
            return
        over = KafkaError(90, "PRODUCER_FENCED", "the slot has begun another life", retriable=True, definite=True)
        refuse(over, [call.offsets for call in calls if call.slot != slot])
        calls = [call for call in calls if not call.offsets.done()]
        try:
            if calls:
                await self._transaction(slot, calls)
        except Exception as fault:
            await self._abort(calls, fault if isinstance(fault, KafkaError) else KafkaError.of(87, str(fault)))

    async def _transaction(self, slot: Slot, calls: Sequence[Call]) -> None:
        """Append the records of calls and commit. Raises: KafkaError."""
        self._doubt = False
        patience = Patience(self._timeout_ms)
        records: dict[Place, list[NewRecord]] = {}
        starts: list[dict[Place, int]] = []
        for call in calls:
            starts.append({place: len(records.get(place, ())) for place in call.parts})
            for place, new in call.parts.items():
                records.setdefault(place, []).extend(new)
        leaders = {place: await self._cluster.leader(place) for place in records}
        await patience.again(lambda: self._add(slot, leaders))
        batches = {place: encode(new, self._numbering, place, True) for place, new in records.items()}
        offsets = await self._produce(slot, batches, patience)
        await patience.again(lambda: self._commit(slot))
        for call, start in zip(calls, starts, strict=True):
            if not call.offsets.done():
                call.offsets.set_result({place: offsets[place] + skipped for place, skipped in start.items()})

    async def _add(self, slot: Slot, leaders: Mapping[Place, Leader]) -> None:
        topics: dict[str, list[int]] = {}
        for place, leader in leaders.items():
            topics.setdefault(leader.name, []).append(place.partition)
        answer = await self._coordinator.ask(AddPartitionsToTxnRequest(*slot, list(topics.items())))
        codes = {code for _, partitions in answer.errors for _, code in partitions} - {0, 55}
        if codes:
            raise KafkaError.of(min(codes, key=lambda code: KafkaError.of(code).retriable))

    async def _produce(self, slot: Slot, batches: Mapping[Place, bytes], patience: Patience) -> dict[Place, int]:
        """Append the batches, each again as it is until its outcome is known."""
        timeout_ms = self._cluster.settings.request_timeout_ms * 3 // 4

        async def ask(node: int, led: Mapping[Place, Leader]) -> list[Row[Appended]]:
            named = {place: (leader.name, batches[place]) for place, leader in led.items()}
            return await produce(self._cluster, node, named, timeout_ms, slot.transactional_id)

        found = sure(await self._cluster.at_leaders(list(batches), ask, patience, together=True))
        return {place: appended.offset for place, appended in found.items()}

    async def _commit(self, slot: Slot) -> None:
        """Commit. The coordinator takes a repeat for the same commit."""
        try:
            await self._coordinator.ask(EndTxnRequest(*slot, True))
        except KafkaError as error:
            self._doubt = self._doubt or not error.definite
            raise

    async def _abort(self, calls: Sequence[Call], fault: KafkaError) -> None:
        """Begin another life, which ends the open transaction, and refuse the calls."""
        self._beginning = None
        definite = not self._doubt
        try:
            await self.life()
        except KafkaError as error:
            definite, fault = False, error if definite else fault
        code, name = (fault.code, fault.name) if definite else (-1, "NOT_ANSWERED")
        several = len(calls) > 1  # one of them is at fault: each may be tried alone
        retriable = several or fault.retriable or fault.code in FENCED or not definite
        refuse(KafkaError(code, name, str(fault), retriable, definite), [call.offsets for call in calls])


class TransactionalSlots:
    """Append with transactional ids of this process's own."""

    def __init__(self, cluster: KafkaCluster, ids: Sequence[str], timeout_ms: int = 30_000) -> None:
        self._lanes = {each: Lane(cluster, each, timeout_ms) for each in ids}

    async def take(self) -> Slot:
        """Answer the slot with the fewest calls that wait, for an intent. It is fenced when it is first used."""
        lane = min(self._lanes.values(), key=lambda each: (len(each.waiting), each.taken))
        lane.taken += 1
        return await lane.life()

    async def append(
        self, slot: Slot, parts: Mapping[Place, Sequence[NewRecord]], *, alone: bool = False
    ) -> dict[Place, int]:
        """Append to all places in one transaction and commit; answers the first offset of each.

        `alone`: no other call shares the transaction, whose records the broker might refuse.

        Raises: KafkaError; definite when the slot's life was over before it began, or the transaction was aborted.
        """
        lane = self._lanes[slot.transactional_id]
        call = Call(slot, parts, alone)
        lane.waiting.append(call)
        if lane.task is None or lane.task.done():
            lane.task = asyncio.create_task(lane.run())
        return await call.offsets

    async def close(self) -> None:
        """End; the coordinator aborts what is open."""
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for lane in self._lanes.values():
            refuse(KafkaError.unreached("", "the producer is closed"), [call.offsets for call in lane.waiting])
