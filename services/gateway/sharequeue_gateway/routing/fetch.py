"""A fetch whose share-partitions several gateways lead.

The leaders, this gateway among them, are asked one after another, each with what is left of the limits and without
waiting: the answer never exceeds `max_records`. The fetches of the same partitions begin at each leader in turn. With
nothing anywhere a fetch waits at all of them at once. If one other gateway leads all of it, that one does the waiting
too.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from sharequeue.clock import Clock
from sharequeue.http.caller import encode
from sharequeue.protocol import nesting
from sharequeue.protocol.errors import BY_CODE, ApiError, RequestTimedOut
from sharequeue.protocol.internal import AcquiredEntry, LeaderFetchRequest, LeaderFetchResponse
from sharequeue.protocol.messages import Acknowledgement, AcknowledgementResult, AcknowledgeRequest, PartitionLeader
from sharequeue.protocol.types import MAX_ACKNOWLEDGEMENTS, MAX_WAIT_MS
from sharequeue_gateway.cluster.generation import Node
from sharequeue_gateway.cluster.metadata import Partitions, Topic
from sharequeue_gateway.delivery.acknowledging import APPLIED, failed_of
from sharequeue_gateway.delivery.fetcher import Fetcher, PartitionFault
from sharequeue_gateway.delivery.local_fetch import LocalFetch
from sharequeue_gateway.delivery.partition_reader import Acquisition, FetchLimits
from sharequeue_gateway.delivery.waiting import WaitingFetch
from sharequeue_gateway.record_log.record_batch import holding
from sharequeue_gateway.routing.routing import MOVED, Routing, by_topic
from sharequeue_gateway.share_partition.turns import Turns, leaders_in_turn

AT_ONCE_MS: Final = 20
MOST_PAUSE_S: Final = 0.25
"""How long a fetch pauses at most that is told at once, time and again, of what it then does not get."""
REPEAT_PATIENCE_MS: Final = 5000
MOST_TURNS: Final = 10_000
TURNS_IDLE_MS: Final = 60_000
"""How many sets of partitions have their fetches counted, and for how long without a fetch."""
MOVED_PAUSE_S: Final = 0.1
MOVED_PATIENCE_MS: Final = 1000
"""How long leaders that moved are looked for, also by a fetch that does not wait."""

_entry: Final = msgspec.json.Decoder(AcquiredEntry)
_answer: Final = msgspec.json.Decoder(LeaderFetchResponse)


class Asked(NamedTuple):
    """What a client's fetch asks for, whoever leads it."""

    group_id: str
    member_id: str
    limits: FetchLimits
    turn: int | None
    fetch_id: str | None
    with_records: bool
    acknowledgements: Sequence[Acknowledgement]
    """Piggybacked ones that the only other leader is to apply."""
    atomic: bool


class Found:
    """What a fetch found. `passed_on`: encoded entries of other leaders, and who they are from.

    `whole`: the answer of the only leader, which a client can get as it is; until `open` takes it apart `results` say
    no more than that none failed.
    """

    __slots__ = ("acquired", "faults", "leaders", "lock_duration_ms", "passed_on", "results", "whole")

    def __init__(self) -> None:
        self.acquired: Sequence[Acquisition] = ()
        self.passed_on: list[tuple[Node, msgspec.Raw]] = []
        self.leaders: list[PartitionLeader] = []
        self.faults: list[PartitionFault] = []
        self.results: list[AcknowledgementResult] | None = None
        self.lock_duration_ms: int | None = None
        self.whole: tuple[Node, bytes] | None = None

    @property
    def anything(self) -> bool:
        return bool(self.acquired or self.passed_on or self.whole)

    def open(self) -> None:
        """Take the answer of the only leader apart."""
        if self.whole is not None:
            node, body = self.whole
            self.whole = None
            self.add(node, nesting.decode(_answer, body))

    def add(self, node: Node, answer: LeaderFetchResponse) -> None:
        """Add what another leader answered; results of acknowledgements where there are any."""
        self.passed_on += [(node, raw) for raw in answer.batches]
        self.leaders += answer.leaders
        self.faults += [
            PartitionFault(fault.topic, fault.partition, ApiError(fault.detail, error=BY_CODE[fault.code]))
            for fault in answer.errors
        ]
        self.lock_duration_ms = answer.acquisition_lock_timeout_ms
        if answer.acknowledgement_results:
            self.results = answer.acknowledgement_results

    def records(self) -> int:
        """How many offsets were acquired."""
        own = sum(last - first + 1 for _, ranges, _ in self.acquired for first, last, *_ in ranges)
        return own + sum(entry.last_offset - entry.first_offset + 1 for entry in self.entries())

    def size(self) -> int:
        """How many bytes of records were acquired."""
        own = sum(
            batch.size_of(max(first, batch.base_offset), min(last, batch.last_offset))
            for _, ranges, batches in self.acquired
            for first, last, *_ in ranges
            for batch in holding(batches, first, last)
        )
        return own + sum(len(raw) for _, raw in self.passed_on)

    def entries(self) -> list[AcquiredEntry]:
        return [nesting.decode(_entry, raw) for _, raw in self.passed_on]


class RoutedFetch:
    """Runs fetches over all leaders."""

    def __init__(self, routing: Routing, local: LocalFetch, fetcher: Fetcher, clock: Clock) -> None:
        self._routing = routing
        self._local = local
        self._fetcher = fetcher
        self._clock = clock
        self._turns = Turns(MOST_TURNS, TURNS_IDLE_MS, lambda: random.randrange(1 << 30))

    async def fetch(self, waiting: WaitingFetch, asked: Asked, partitions: Partitions) -> Found:
        """Acquire from the partitions wherever they are led; wait until the deadline while there is nothing.

        Returns: what was found; `results` stays None where piggybacked acknowledgements were not passed on after all.
        """
        if self._routing.cluster.alone:
            found = Found()
            found.acquired, found.faults = await self._local.acquire(
                waiting, asked.group_id, asked.member_id, partitions, asked.limits, asked.turn, asked.fetch_id
            )
            joined = not self._routing.cluster.alone and any(fault.led_elsewhere for fault in found.faults)
            if found.anything or waiting.over or not joined:
                return found
        if asked.fetch_id is not None:
            found = await self._repeat(waiting, asked, partitions)
            if found.anything or found.faults or waiting.over:
                return found
        self._fetcher.routed[waiting] = asked.group_id
        try:
            return await self._fetch(waiting, asked, partitions)
        finally:
            del self._fetcher.routed[waiting]

    async def _fetch(self, waiting: WaitingFetch, asked: Asked, partitions: Partitions) -> Found:
        patience_ms = max(asked.limits.deadline_ms, self._clock.now_ms() + MOVED_PATIENCE_MS)
        results: list[AcknowledgementResult] | None = None
        turn: int | None = None
        first: Sequence[Node] = ()
        last_look, waits = False, self._remaining_ms(asked) > 0
        pause_s = 0.0
        while True:
            mine, others = self._routing.split(asked.group_id, partitions)
            sole = len(others) == 1 and not mine
            if asked.acknowledgements and not sole:
                return Found()  # what was to go with the fetch must go to several leaders now
            leaders: dict[Node, Partitions] = {self._routing.cluster.me: mine, **others} if mine else {**others}
            if len(leaders) > 1:
                if turn is None:
                    turn = self._turns.next((asked.group_id, hash(tuple(partitions))), self._clock.now_ms())
                leaders = self._in_turn(asked.group_id, partitions, leaders, turn, () if last_look else first)
            found = await self._look(waiting, asked, leaders, wait=sole, last=last_look)
            if results is not None or waiting.over:
                found.open()
            if found.results is not None:
                results = found.results
                asked = asked._replace(acknowledgements=())
            found.results = results
            if waiting.untold:
                await self.give_back(asked, found)
                found = Found()
                found.results = results
            enough = found.anything or waiting.over
            if enough:  # the next fetch asks whoever leads what moved meanwhile
                found.faults = [fault for fault in found.faults if not fault.led_elsewhere]
            if enough or last_look or waiting.failed_acknowledgement or failed_of(results or ()):
                return found
            if not asked.limits.max_records or not asked.limits.max_bytes:
                return found
            now_ms = self._clock.now_ms()
            if any(fault.error.error.kafka_code in MOVED for fault in found.faults):
                if now_ms >= patience_ms:
                    return found
                self._routing.cluster.look_again()
                await waiting.wait(MOVED_PAUSE_S)
                continue
            if len(found.faults) == len(partitions):
                return found
            if now_ms >= asked.limits.deadline_ms:
                if not waits:
                    return found
                last_look = True
                continue
            first = await self._wait(waiting, asked, mine, others) or (self._routing.cluster.me,)
            last_look = self._remaining_ms(asked) == 0
            if last_look or self._clock.now_ms() - now_ms > AT_ONCE_MS:
                pause_s = 0.0
            else:  # what there is was not taken: it is less than min_bytes, or cannot be read
                await asyncio.sleep(min(pause_s, self._remaining_ms(asked) / 1000))
                pause_s = min(max(2 * pause_s, 0.01), MOST_PAUSE_S)

    def passes_on(self, asked: Asked, partitions: Partitions, acknowledged: Partitions) -> bool:
        """Whether one other gateway leads everything: it can acknowledge and fetch in one go."""
        mine, others = self._routing.split(asked.group_id, [*partitions, *acknowledged])
        return len(others) == 1 and not mine

    def _remaining_ms(self, asked: Asked) -> int:
        return max(0, min(asked.limits.deadline_ms - self._clock.now_ms(), MAX_WAIT_MS))

    def _in_turn(
        self,
        group_id: str,
        partitions: Partitions,
        leaders: dict[Node, Partitions],
        turn: int,
        first: Sequence[Node],
    ) -> dict[Node, Partitions]:
        """The leaders in the order to ask them: those that have called, then in turn."""
        order = leaders_in_turn(partitions, lambda place: self._routing.leader_of(group_id, *place), turn, len(leaders))
        return {node: leaders[node] for node in sorted(order, key=lambda node: node not in first)}

    async def _look(
        self,
        waiting: WaitingFetch,
        asked: Asked,
        leaders: dict[Node, Partitions],
        *,
        wait: bool,
        last: bool = False,
    ) -> Found:
        """Ask every leader once, in order, until the limits are used up. `wait`: the only one may wait until the deadline.
        `last`: the time is over, and what is there is enough."""
        min_bytes = min(asked.limits.min_bytes, 1) if last else asked.limits.min_bytes
        look_at_ends = wait or last or not self._remaining_ms(asked)  # a fetch that waits is called
        found = Found()
        for node, partitions in leaders.items():
            records_left = asked.limits.max_records - found.records()
            bytes_left = asked.limits.max_bytes - found.size()
            if waiting.over or (found.anything and (records_left <= 0 or bytes_left <= 0)):
                break
            if node == self._routing.cluster.me:
                limits = asked.limits._replace(
                    deadline_ms=0,
                    min_bytes=min_bytes,
                    max_records=records_left,
                    max_bytes=bytes_left,
                    look_at_ends=look_at_ends,
                )
                found.acquired, faults = await self._local.acquire(
                    waiting, asked.group_id, asked.member_id, partitions, limits, asked.turn, asked.fetch_id
                )
                found.faults += faults
                continue
            request = LeaderFetchRequest(
                member_id=asked.member_id,
                topic_partitions=by_topic(partitions),
                max_records=records_left,
                max_bytes=bytes_left,
                min_bytes=min_bytes,
                max_wait_ms=self._remaining_ms(asked) if wait else 0,
                batch_size=asked.limits.batch_size,
                acquire_mode=asked.limits.acquire_mode,
                fetch_id=asked.fetch_id,
                with_records=asked.with_records,
                acknowledgements=list(asked.acknowledgements),
                atomic=asked.atomic,
                look_at_ends=look_at_ends,
            )
            await self._ask(waiting, asked, node, partitions, request, found, whole=wait)
        return found

    async def _ask(
        self,
        waiting: WaitingFetch,
        asked: Asked,
        node: Node,
        partitions: Partitions,
        request: LeaderFetchRequest,
        found: Found,
        *,
        whole: bool = False,
    ) -> None:
        if request.max_wait_ms:
            self._fetcher.elsewhere.add(waiting)
        try:
            answer = await waiting.unless_over(self._routing.fetch(node, asked.group_id, request))
        except ApiError as error:
            found.faults += [PartitionFault(topic.name, partition, error) for topic, partition in partitions]
            if request.acknowledgements and not error.definite:
                found.results = [_unknown(error)] * len(request.acknowledgements)
            return
        finally:
            self._fetcher.elsewhere.discard(waiting)
        if answer is None:
            if waiting.finished and asked.fetch_id is not None:  # the leader may hold something for it by now
                raise RequestTimedOut("this gateway stops; repeat the fetch with its fetch_id at another one")
            if request.acknowledgements:
                late = RequestTimedOut("the fetch ended before its acknowledgements were answered")
                found.results = [_unknown(late)] * len(request.acknowledgements)
            return  # the client is gone: the leader gives back what it acquired, as it finds nobody to answer
        if answer.ended:
            waiting.end()
        if whole and answer.all_well:
            found.whole = (node, answer.body)
            found.results = [APPLIED] * len(request.acknowledgements) or None
        else:
            found.add(node, nesting.decode(_answer, answer.body))

    async def _repeat(self, waiting: WaitingFetch, asked: Asked, partitions: Partitions) -> Found:
        """What an earlier fetch of the same id acquired and still holds, wherever it is led.

        Leaders that moved are looked for: without their word the fetch must not acquire anew.
        """
        patience_ms = self._clock.now_ms() + REPEAT_PATIENCE_MS
        while True:
            found = await self._repeat_once(waiting, asked, partitions)
            if not any(fault.error.error.kafka_code in MOVED for fault in found.faults):
                found.faults.clear()  # what is no error of leadership is told by the new fetch
                return found
            if found.anything or waiting.over or self._clock.now_ms() >= patience_ms:
                return found
            self._routing.cluster.look_again()
            await waiting.wait(MOVED_PAUSE_S)

    async def _repeat_once(self, waiting: WaitingFetch, asked: Asked, partitions: Partitions) -> Found:
        found = Found()
        held = await self._local.places_of(asked.group_id, asked.member_id, asked.fetch_id or "")
        mine, others = self._routing.split(
            asked.group_id, [(topic, index) for topic, index in partitions if (topic.topic_id, index) in held]
        )
        if mine:
            found.acquired = await self._local.repeat(asked.group_id, asked.member_id, asked.fetch_id or "", mine)
        for node, led_there in others.items():
            request = LeaderFetchRequest(
                member_id=asked.member_id,
                topic_partitions=by_topic(led_there),
                max_records=asked.limits.max_records,
                max_bytes=asked.limits.max_bytes,
                min_bytes=0,
                max_wait_ms=0,
                batch_size=asked.limits.batch_size,
                acquire_mode=asked.limits.acquire_mode,
                fetch_id=asked.fetch_id,
                repeat=True,
                with_records=asked.with_records,
            )
            await self._ask(waiting, asked, node, led_there, request, found)
        return found

    async def _wait(
        self, waiting: WaitingFetch, asked: Asked, mine: Partitions, others: dict[Node, list[tuple[Topic, int]]]
    ) -> list[Node]:
        """Wait at all leaders until one may have something. Returns: the other gateways that called."""
        called: list[Node] = []
        seconds = self._remaining_ms(asked) / 1000

        async def wait_at(node: Node, partitions: Partitions) -> None:
            try:
                if await self._routing.await_records(node, asked.group_id, partitions, seconds):
                    waiting.end()
                called.append(node)
            except ApiError:
                self._routing.cluster.look_again()
                await asyncio.sleep(MOVED_PAUSE_S)
            waiting.wake()

        tasks = [asyncio.create_task(wait_at(node, partitions)) for node, partitions in others.items()]
        try:
            leds = await self._fetcher.wait(waiting, asked.group_id, mine, seconds)
        finally:
            for task in tasks:
                task.cancel()
        self._fetcher.pass_on_later(leds)
        return called

    async def give_back(self, asked: Asked, found: Found) -> None:
        """Release what was acquired for a client that is gone; with a `fetch_id` it stays held: a repeat gets it."""
        if asked.fetch_id is not None:
            return  # and may have been told of it by now
        found.open()
        self._fetcher.give_back(asked.member_id, found.acquired)
        by_node: dict[Node, list[Acknowledgement]] = {}
        for (node, _), entry in zip(found.passed_on, found.entries(), strict=True):
            by_node.setdefault(node, []).append(
                Acknowledgement(
                    topic=entry.topic,
                    partition=entry.partition,
                    first_offset=entry.first_offset,
                    last_offset=entry.last_offset,
                    delivery_count=entry.delivery_count,
                    type="release",
                )
            )
        parts = [
            (node, acknowledgements[start : start + MAX_ACKNOWLEDGEMENTS])
            for node, acknowledgements in by_node.items()
            for start in range(0, len(acknowledgements), MAX_ACKNOWLEDGEMENTS)
        ]
        for node, acknowledgements in parts:
            request = AcknowledgeRequest(member_id=asked.member_id, acknowledgements=acknowledgements)
            try:
                await self._routing.acknowledge(node, asked.group_id, encode(request))
            except ApiError:
                continue  # its locks end by their deadline


def _unknown(error: ApiError) -> AcknowledgementResult:
    return AcknowledgementResult(
        status="unknown",
        code=error.error.code,
        kafka_code=error.error.kafka_code,
        detail=f"{error.detail}; repeat it to learn the outcome",
        retriable=True,
    )
