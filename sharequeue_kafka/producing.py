"""Appends without a key: idempotent, acknowledged by all replicas in sync, gathered by partition and broker.

    calls of a partition ──gather──▶ a batch ──▶ one Produce a broker, with a batch of each partition ──▶ offsets

Each partition has one batch under way, so that a batch is repeated as it is until its outcome is known. A batch whose
time ends without an outcome ends the producer id: the calls behind it are numbered under another.

A call that finds nothing under way is appended in its own task, and a batch is sent in the task that made it: each task
between would cost a turn of the event loop. Those behind it have a task, which gathers them.

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
    """The calls of one partition: one batch under way, the others wait. `limit`: the time of the last append."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.task: asyncio.Task[None] | None = None
        self.limit: asyncio.Timeout
        self.pause_s = 0.0
        self.waiting: deque[Call] = deque()
        self.under_way: list[Call] = []
        self.company = 0
        """The calls that are waited for; 0: the last batch had no room for all, and nothing is waited for."""
        self.complete = asyncio.Event()

    def add(self, call: Call) -> None:
        self.waiting.append(call)
        if len(self.waiting) >= self.company:
            self.complete.set()

    async def linger(self) -> bool:
        """Pause until as many calls wait as there were: in the batch, and behind it when it was answered. Returns:
        whether any does."""
        if len(self.waiting) < self.company > 1 and self.pause_s:
            self.complete.clear()
            timer = asyncio.get_running_loop().call_later(self.pause_s, self.complete.set)
            await self.complete.wait()
            timer.cancel()
        return bool(self.waiting)

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
        self.pause_s = 0.0
        return taken

    def answer(self, offset: int) -> None:
        """Give the calls of the batch their offsets. `offset`: that of its first record."""
        for call in self.under_way:
            if not call.offset.done():
                call.offset.set_result(offset)
            offset += len(call.records)
        if self.company:
            self.company += len(self.waiting)


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
        known = self._lines.get(place)
        line = known or self._lines.setdefault(place, Line(place))
        line.add(call)
        if known is None:
            try:
                await self._append(line)
            finally:
                if line.waiting:
                    line.task = asyncio.create_task(self._run(line))
                else:
                    del self._lines[place]
        return await call.offset

    async def close(self) -> None:
        """End; calls that wait get an error."""
        for line in self._lines.values():
            refuse(KafkaError.unreached("", "the producer is closed"), [call.offset for call in line.waiting])
            line.waiting.clear()
            with contextlib.suppress(RuntimeError):  # it lingers
                line.limit.reschedule(0)
        sending = [sender.task for sender in self._nodes.values() if sender.task]
        for task in sending:
            task.cancel()
        appending = [line.task for line in self._lines.values() if line.task]
        await asyncio.gather(*sending, *appending, return_exceptions=True)

    async def _run(self, line: Line) -> None:
        """Append until no call of a partition waits."""
        try:
            while await line.linger():
                await self._append(line)
        finally:
            left = [call.offset for call in (*line.under_way, *line.waiting)]
            refuse(KafkaError.silent("", "the task of its partition has ended"), left)
            del self._lines[line.place]

    async def _append(self, line: Line) -> None:
        """Append the next batch of a line. Its calls have their outcomes then, or wait for another one."""
        calls = line.under_way = line.gather()
        if not calls:
            return
        place, loop, patience = line.place, asyncio.get_running_loop(), Patience()
        began = loop.time()
        ends = max(calls[0].came + self._timeout_ms / 1000, began + self._timeout_ms / 3000)
        fault = KafkaError.unreached(self._cluster.settings.bootstrap_servers, "within the time of an append")
        doubt, numbering = None, None
        heard: Heard
        batch, sent, moved = b"", False, False
        try:
            async with asyncio.timeout_at(ends) as line.limit:
                while True:
                    try:
                        leader = await self._leader(place, moved)
                        if numbering is None:
                            numbering = await self._numbers()
                            records = [record for call in calls for record in call.records]
                            batch = encode(records, numbering, place, False)
                            heard = self._sent(place, batch, [call.source for call in calls])
                        sent = True
                        appended = await self._sender(leader.node).send(place, leader.name, batch)
                        break
                    except KafkaError as error:
                        fault, sent = error, False
                        doubt = doubt if error.definite else error
                        if error.code in OTHER_ID and doubt is None:
                            self._end(numbering)
                            numbering = None  # nothing is there: the calls are numbered again
                        elif not error.retriable:
                            self._fail(line, doubt or error, numbering, len(batch))
                            return
                        moved = error.code in NOT_LEADER or error.code < 0
                    await patience.pause()
        except TimeoutError:
            self._end(numbering)
            doubt = doubt or (self._cluster.silent() if sent else None)
            refuse(doubt or fault, [call.offset for call in calls])
        except asyncio.CancelledError:
            self._end(numbering)  # nobody repeats the batch
            raise
        else:
            line.answer(appended.offset)
            heard(leader.epoch, appended)
            line.pause_s = min(LINGER * (loop.time() - began), MOST_LINGER_S)

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
            found.add_done_callback(lambda done: done.cancelled() or done.exception())  # its callers may have left
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

    def _sender(self, node: int) -> "Sender":
        return self._nodes.get(node) or self._nodes.setdefault(node, Sender(self._cluster, node))


class Sender:
    """One Produce after the other to a broker, each with the batches that wait by then."""

    def __init__(self, cluster: KafkaCluster, node: int) -> None:
        self._cluster, self._node = cluster, node
        self._timeout_ms = cluster.settings.request_timeout_ms * 3 // 4
        self._waiting: dict[Place, tuple[str, bytes, asyncio.Future[Appended]]] = {}
        self._busy = self._others = self._in_company = False
        """Whether a Produce is under way, or begins; whether a batch came since then; whether one came in that time of
        the Produce before. In company the next one begins in a task, so that the batches of a moment share it."""
        self.task: asyncio.Task[None] | None = None

    async def send(self, place: Place, name: str, batch: bytes) -> Appended:
        outcome: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self._waiting[place] = (name, batch, outcome)
        if self._busy:
            self._others = True
        else:
            try:
                if not self._in_company:
                    await self._produce()
            finally:
                self._busy = bool(self._waiting)
                if self._busy:
                    self.task = asyncio.create_task(self._run())
        return await outcome

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._produce()
        finally:
            self._busy = False

    async def _produce(self) -> None:
        waiting, self._waiting = self._waiting, {}
        self._busy, self._in_company, self._others = True, self._others, False
        named = {place: (name, batch) for place, (name, batch, _) in waiting.items()}
        outcomes = {(name, place.partition): outcome for place, (name, _, outcome) in waiting.items()}
        fault: KafkaError | None = None
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
        left = [outcome for *_, outcome in waiting.values() if not outcome.done()]  # two topics may have had one name
        if left:
            refuse(fault or KafkaError.of(-1, "the broker left a partition out of its answer"), left)
