"""Appends without a key: idempotent, acknowledged by all replicas in sync, gathered by partition and broker.

    calls of a partition ──gather──▶ a batch ──▶ one Produce a broker, with a batch of each partition ──▶ offsets

Each partition has one batch under way, so that a batch is repeated as it is until its outcome is known. A batch whose
time ends without an outcome ends the producer id: the calls behind it are numbered under another.

A caller that was answered often has its next call soon. So several calls are followed by a short pause, until as many
wait again: otherwise they would go in two batches that take turns.
"""

import asyncio
import contextlib
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from aiokafka.codec import lz4_encode
from aiokafka.protocol.transaction import InitProducerIdRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from sharequeue_kafka.cluster import KafkaCluster, Leader, Place, Row
from sharequeue_kafka.connections import Patience
from sharequeue_kafka.errors import NOT_LEADER, KafkaError, refuse
from sharequeue_kafka.requests import Produce

NONE, LZ4 = 0, 3
LZ4_FAST: Final = 1
"""The level; the one that aiokafka's builder takes needs ten times as long to save a few per cent more."""
MOST_OF_SIZE: Final = 0.9
SAMPLE: Final = 2048
"""Bytes at the end of a batch that say whether it is worth it to compress it."""
SAMPLED: Final = 64 * 1024
"""Of a larger batch all is compressed, whatever its end is: it may exceed `max.message.bytes` otherwise."""
LENGTH_AT, CRC_AT, ATTRIBUTES_AT, RECORDS_AT = 8, 17, 21, 61
"""In the bytes of a batch. Its length counts what follows the length."""
MOST_BYTES: Final = 512 * 1024
"""Gathered in a batch, before compression; one call may have more."""
OTHER_ID: Final = frozenset({45, 47, 59})
"""The broker does not know the sequence of this producer id, or has a later life of it."""
LAST_SEQUENCE: Final = 2**31 - 1
LINGER, MOST_LINGER_S = 0.5, 0.02
"""How long callers that were just answered are waited for: a part of the time that their append took, and at most."""
NewRecord = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]
"""Key, value, headers and time in ms. A batch of plain tuples is made in three quarters of the time."""


class Appended(NamedTuple):
    """The first offsets of a durable batch and of its log. `as_sent`: the broker gave its records no other times."""

    offset: int
    as_sent: bool
    log_start: int


Heard = Callable[[int, Appended], None]


class Numbering:
    """A producer id in one of its lives, and the next sequence of each partition."""

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self.next: dict[Place, int] = {}


def encode(records: Sequence[NewRecord], numbering: Numbering, place: Place, transactional: bool) -> bytes:
    """Make a batch, and number it. It is compressed if that saves a tenth."""
    sequence = numbering.next.get(place, 0)
    builder = DefaultRecordBatchBuilder(
        2, NONE, int(transactional), numbering.producer_id, numbering.epoch, sequence, LAST_SEQUENCE
    )
    try:
        for index, (key, value, headers, timestamp_ms) in enumerate(records):
            builder.append(index, timestamp_ms, key, value, headers)
    except (OverflowError, TypeError, ValueError) as fault:  # such as a time that no batch can hold
        raise KafkaError.of(87, str(fault)) from fault
    numbering.next[place] = (sequence + len(records)) & LAST_SEQUENCE
    return _compressed(bytes(builder.build()))


def _compressed(batch: bytes) -> bytes:
    plain = batch[RECORDS_AT:]
    sample = plain[-SAMPLE:]
    if len(plain) < SAMPLED and len(lz4_encode(sample, LZ4_FAST)) > MOST_OF_SIZE * len(sample):
        return batch
    records = lz4_encode(plain, LZ4_FAST)
    if len(records) > MOST_OF_SIZE * len(plain):
        return batch
    made = bytearray(batch[:RECORDS_AT] + records)
    struct.pack_into(">i", made, LENGTH_AT, len(made) - LENGTH_AT - 4)
    made[ATTRIBUTES_AT + 1] |= LZ4
    struct.pack_into(">I", made, CRC_AT, calc_crc32c(memoryview(made)[ATTRIBUTES_AT:]))
    return bytes(made)


async def produce(
    cluster: KafkaCluster,
    node: int,
    batches: Mapping[Place, tuple[str, bytes]],
    timeout_ms: int,
    transactional_id: str | None = None,
) -> list[Row[Appended]]:
    """Send batches, with their topics' names, to a leader; answers where each is. Raises: KafkaError."""
    topics: dict[str, list[tuple[int, bytes]]] = {}
    for place, (name, batch) in batches.items():
        topics.setdefault(name, []).append((place.partition, batch))
    request = Produce(transactional_id, timeout_ms, topics)
    return [
        (name, partition, code, Appended(offset, time_ms < 0, log_start))
        for name, partition, code, offset, time_ms, log_start in await cluster.send(node, request, "produce")
    ]


class Call:
    """Records of one caller, which are appended together. `source`: what the caller made them of."""

    def __init__(self, records: Sequence[NewRecord], source: Any = None) -> None:
        self.records, self.source = records, source
        self.alone = False
        loop = asyncio.get_running_loop()
        self.came = loop.time()
        self.offset: asyncio.Future[int] = loop.create_future()

    @cached_property
    def size(self) -> int:
        return sum([len(key or b"") + len(value or b"") for key, value, _, _ in self.records])


class Line:
    """The calls of one partition: one batch under way, the others wait."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.task: asyncio.Task[None] | None = None
        self.waiting: deque[Call] = deque()
        self.under_way: list[Call] = []
        self.company = 0
        """The calls that are waited for; 0: the last batch had no room for all, and nothing is waited for."""
        self.complete = asyncio.Event()

    def add(self, call: Call) -> None:
        self.waiting.append(call)
        if len(self.waiting) >= self.company:
            self.complete.set()

    async def linger(self, most_s: float) -> None:
        """Pause until as many calls wait as there were: in the batch, and behind it by now."""
        if self.company:
            self.company += len(self.waiting)
        if self.company > 1:
            self.complete.clear()
            timer = asyncio.get_running_loop().call_later(most_s, self.complete.set)
            await self.complete.wait()
            timer.cancel()

    def gather(self) -> list[Call]:
        """Take the calls of the next batch."""
        taken: list[Call] = []
        size = 0
        while self.waiting and not (taken and (size + self.waiting[0].size > MOST_BYTES or self.waiting[0].alone)):
            call = self.waiting.popleft()
            if not call.offset.done():
                taken.append(call)
                size += call.size if self.waiting else 0
            if call.alone:
                break
        self.company = 0 if self.waiting else len(taken)
        return taken


class IdempotentProducer:
    """Append to leaders. An append without an outcome ends its producer id, and no call behind it.

    Args:
        timeout_ms: how long a call is tried. One that has waited behind another append has at least a third of that.
        sent: receives each batch before it is sent, with the sources of its calls. What it returns hears where the
            batch is, with the epoch of its leader as it was known, before the callers go on.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        timeout_ms: int = 30_000,
        sent: Callable[[Place, bytes, list[Any]], Heard] = lambda *_: lambda *_: None,
    ) -> None:
        self._cluster, self._timeout_ms, self._sent = cluster, timeout_ms, sent
        self._lines: dict[Place, Line] = {}
        self._numbering: asyncio.Task[Numbering] | None = None
        self._nodes: dict[int, Sender] = {}

    async def append(self, place: Place, records: Sequence[NewRecord], source: Any = None) -> int:
        """Append records together, in order; answers the offset of the first.

        Raises: KafkaError; with `definite` nothing was written.
        """
        call = Call(records, source)
        line = self._lines.get(place)
        if line is None:
            line = self._lines[place] = Line(place)
            line.task = asyncio.create_task(self._run(line))
        line.add(call)
        return await call.offset

    async def close(self) -> None:
        """End; calls that wait get an error."""
        owners: list[Line | Sender] = [*self._lines.values(), *self._nodes.values()]
        tasks = [each.task for each in owners if each.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for line in [*self._lines.values()]:  # their tasks had not begun
            self._leave(line)

    async def _run(self, line: Line) -> None:
        """Append until no call of a partition waits."""
        try:
            while line.waiting:
                line.under_way = line.gather()
                if line.under_way:
                    await self._append(line)
        finally:
            self._leave(line)

    def _leave(self, line: Line) -> None:
        closed = "the producer is closed"
        refuse(KafkaError.silent("", closed), [call.offset for call in line.under_way])  # perhaps it was sent
        refuse(KafkaError.unreached("", closed), [call.offset for call in line.waiting])
        del self._lines[line.place]

    async def _append(self, line: Line) -> None:
        calls, place, loop = line.under_way, line.place, asyncio.get_running_loop()
        answers = [call.offset for call in calls]
        began = loop.time()
        waited_ms = 1000 * (began - calls[0].came)
        patience, doubt = Patience(max(self._timeout_ms - waited_ms, self._timeout_ms / 3)), None
        numbering: Numbering | None = None
        heard: Heard
        batch, sent, moved = b"", False, False
        fault = KafkaError.unreached(self._cluster.settings.bootstrap_servers, "within the time of an append")
        while True:
            try:
                async with asyncio.timeout_at(patience.ends):
                    leader = await self._leader(place, moved)
                    if numbering is None:
                        numbering = await self._numbers()
                        records = [record for call in calls for record in call.records]
                        batch = encode(records, numbering, place, False)
                        heard = self._sent(place, batch, [call.source for call in calls])
                    sent = True
                    appended = await self._sender(leader).send(place, leader.name, batch)
            except TimeoutError:
                self._end(numbering)
                doubt = doubt or (self._cluster.silent() if sent else None)
                refuse(doubt or fault, answers)
                return
            except KafkaError as error:
                fault, sent = error, False
                if not error.definite:
                    doubt = error
                if error.code in OTHER_ID and doubt is None:
                    self._end(numbering)
                    numbering = None  # nothing is there: the calls are numbered again
                elif not error.retriable:
                    self._fail(line, doubt or error, numbering, len(batch))
                    return
                if not await patience.pause():
                    self._end(numbering)
                    refuse(doubt or error, answers)
                    return
                moved = error.code in NOT_LEADER or error.code < 0
            else:
                offset = appended.offset
                for call in calls:
                    if not call.offset.done():
                        call.offset.set_result(offset)
                    offset += len(call.records)
                heard(leader.epoch, appended)
                await line.linger(min(LINGER * (loop.time() - began), MOST_LINGER_S))
                return

    async def _leader(self, place: Place, moved: bool) -> Leader:
        if moved:
            with contextlib.suppress(KafkaError):
                await self._cluster.refresh([place.topic_id])
        return await self._cluster.leader(place)

    def _fail(self, line: Line, error: KafkaError, numbering: Numbering | None, size: int) -> None:
        """A broker refused a batch. One of several calls may be at fault: each of them is tried alone."""
        calls = line.under_way
        if not error.definite or error.code in OTHER_ID | {46}:
            self._end(numbering)
        elif numbering is not None and size:
            count = sum(len(call.records) for call in calls)
            numbering.next[line.place] = (numbering.next[line.place] - count) & LAST_SEQUENCE
        if error.definite and numbering is not None and len(calls) > 1:
            for call in reversed(calls):
                call.alone = True
                line.waiting.appendleft(call)
        else:
            refuse(error, [call.offset for call in calls])

    async def _numbers(self) -> Numbering:
        found = self._numbering
        if found is None or (found.done() and found.exception()):
            found = self._numbering = asyncio.create_task(self._identify())
        return found.result() if found.done() else await asyncio.shield(found)

    async def _identify(self) -> Numbering:
        answer = await self._cluster.send_any(InitProducerIdRequest(None, 0))
        if answer.error_code:
            raise KafkaError.of(answer.error_code)
        return Numbering(answer.producer_id, answer.producer_epoch)

    def _end(self, numbering: Numbering | None) -> None:
        present = self._numbering
        if present is not None and present.done() and not present.exception() and present.result() is numbering:
            self._numbering = None

    def _sender(self, leader: Leader) -> "Sender":
        if leader.node not in self._nodes:
            timeout_ms = self._cluster.settings.request_timeout_ms * 3 // 4
            self._nodes[leader.node] = Sender(self._cluster, leader.node, timeout_ms)
        return self._nodes[leader.node]


class Sender:
    """One Produce after the other to a broker, each with the batches that wait by then."""

    def __init__(self, cluster: KafkaCluster, node: int, timeout_ms: int) -> None:
        self._cluster, self._node, self._timeout_ms = cluster, node, timeout_ms
        self._waiting: dict[Place, tuple[str, bytes, asyncio.Future[Appended]]] = {}
        self.task: asyncio.Task[None] | None = None

    async def send(self, place: Place, name: str, batch: bytes) -> Appended:
        outcome: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self._waiting[place] = (name, batch, outcome)
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self._run())
        return await outcome

    async def _run(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, {}
            named = {place: (name, batch) for place, (name, batch, _) in waiting.items()}
            outcomes = {(name, place.partition): outcome for place, (name, _, outcome) in waiting.items()}
            fault = KafkaError.of(-1, "the broker left a partition out of its answer")
            try:
                answer = await produce(self._cluster, self._node, named, self._timeout_ms)
                for name, partition, code, appended in answer:
                    outcome = outcomes[name, partition]
                    if code:
                        refuse(KafkaError.of(code, at=f"{name}-{partition}"), [outcome])
                    elif not outcome.done():
                        outcome.set_result(appended)
            except KafkaError as error:
                fault = error
            refuse(fault, [outcome for *_, outcome in waiting.values()])  # two topics may have had one name
