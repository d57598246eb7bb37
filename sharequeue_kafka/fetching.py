"""Reads by offset: the reads that wait for one broker are one Fetch."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from sharequeue_kafka import requests
from sharequeue_kafka.cluster import KafkaCluster, Place
from sharequeue_kafka.connections import Patience
from sharequeue_kafka.errors import NOT_LEADER, KafkaError, refuse

NO_SESSION: Final = (0, -1)
MOST_BYTES: Final = 16 * 1024 * 1024
"""Of one answer. A part that has no more room is asked for again."""


class FetchedPart(NamedTuple):
    """The answer of a broker for one partition.

    Attributes:
        batches: raw, for `batches.read_batches`; the first may begin below the offset, the last may be cut off.
        aborted: (producer id, first offset) of aborted transactions, when the read was `committed`.
    """

    place: Place
    batches: bytes
    log_start: int
    high_watermark: int
    last_stable: int
    aborted: tuple[tuple[int, int], ...] = ()


class Wanted(NamedTuple):
    """A partition in a Fetch. `epoch` is that of its leader."""

    place: Place
    epoch: int
    offset: int
    max_bytes: int


def fetch_request(
    wanted: Iterable[Wanted],
    *,
    max_wait_ms: int,
    committed: bool,
    session: tuple[int, int] = NO_SESSION,
    forgotten: Iterable[Place] = (),
) -> Any:
    """Make a Fetch that is answered after `max_wait_ms`, or when there is a record."""
    topics: dict[str, list[Any]] = {}
    for place, epoch, offset, max_bytes in wanted:
        topics.setdefault(place.topic_id, []).append((place.partition, epoch, offset, -1, -1, max_bytes, {}))
    left: dict[str, list[int]] = {}
    for topic_id, partition in forgotten:
        left.setdefault(topic_id, []).append(partition)
    named: Any = [(topic_id, rows, {}) for topic_id, rows in topics.items()]
    dropped: Any = [(topic_id, rows, {}) for topic_id, rows in left.items()]
    return requests.FETCH(-1, max_wait_ms, 1, MOST_BYTES, int(committed), *session, named, dropped, "", {})


def fetched_parts(topics: Any) -> Iterator[tuple[int, FetchedPart]]:
    """Read the partitions of an answer: each one's error code, and what it has."""
    for topic_id, partitions, _ in topics:
        for partition, error, high_watermark, last_stable, log_start, aborted, _, batches, _ in partitions:
            left_out = tuple((producer, first) for producer, first, _ in aborted or ())
            place = Place(topic_id, partition)
            yield error, FetchedPart(place, batches or b"", log_start, high_watermark, last_stable, left_out)


class Read(NamedTuple):
    """A read that waits for its answer."""

    wanted: Wanted
    answer: asyncio.Future[FetchedPart]


class Lane:
    """The reads at one broker and isolation level: one Fetch after the other, with all that wait by then."""

    def __init__(self, cluster: KafkaCluster, node: int, committed: bool) -> None:
        self._cluster, self._node, self._committed = cluster, node, committed
        self.waiting: list[Read] = []
        self.sending: asyncio.Task[None] | None = None

    async def send(self) -> None:
        """Send until nothing waits."""
        while self.waiting:
            waiting = [read for read in self.waiting if not read.answer.done()]  # of others the caller is gone
            reads: dict[Place, Read] = {}
            for read in waiting:
                reads.setdefault(read.wanted.place, read)
            self.waiting = [read for read in waiting if reads[read.wanted.place] is not read]
            if reads:
                await self._send(reads)

    async def _send(self, reads: dict[Place, Read]) -> None:
        wanted = [read.wanted for read in reads.values()]
        purpose = "committed" if self._committed else "fetch"
        fault = KafkaError.of(-1, "the broker left a partition out of its answer")
        try:
            request = fetch_request(wanted, max_wait_ms=0, committed=self._committed)
            _, code, _, topics, _ = await self._cluster.send(self._node, request, purpose)
            if code:
                raise KafkaError.of(code)
            for error_code, part in fetched_parts(topics):
                read = reads.pop(part.place)
                offset = read.wanted.offset
                end = part.last_stable if self._committed else part.high_watermark
                if error_code:
                    refuse(KafkaError.of(error_code, at=f"{part.place}, offset {offset}"), [read.answer])
                elif not part.batches and offset < end:
                    self.waiting.insert(0, read)  # the answer had no room for it
                elif not read.answer.done():
                    read.answer.set_result(part)
        except KafkaError as error:
            fault = error
        finally:
            refuse(fault, [read.answer for read in reads.values()])


class Fetching:
    """Read from the leaders of a cluster."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._lanes: dict[tuple[int, bool], Lane] = {}

    async def fetch(self, place: Place, offset: int, max_bytes: int, committed: bool) -> FetchedPart:
        """Read from an offset, without waiting for records. At least one whole batch is read if there is one.

        Raises: KafkaError; OFFSET_OUT_OF_RANGE and UNKNOWN_TOPIC_ID at once.
        """
        patience = Patience(self._cluster.settings.call_timeout_ms)
        while True:
            try:
                leader = await self._cluster.leader(place)
                key = (leader.node, committed)
                lane = self._lanes.get(key) or self._lanes.setdefault(key, Lane(self._cluster, *key))
                answer: asyncio.Future[FetchedPart] = asyncio.get_running_loop().create_future()
                lane.waiting.append(Read(Wanted(place, leader.epoch, offset, max_bytes), answer))
                if lane.sending is None or lane.sending.done():
                    lane.sending = asyncio.create_task(lane.send())
                return await answer
            except KafkaError as error:
                if not error.retriable or not await patience.pause():
                    raise
                if error.code in NOT_LEADER or error.code < 0:
                    await self._cluster.refresh([place.topic_id])
