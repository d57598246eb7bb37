"""Routes a fetch to the leaders of its share-partitions. While this gateway is alone, that is this one.

With several gateways the fetch asks the leaders one after another, this gateway among them, each with the limits that
are left and without waiting. So the answer never exceeds `max_records`. Fetches of the same partitions begin at each
leader in turn. If no leader has records, the fetch waits at all of them at once. If one gateway leads everything, this
one or another, it gets the whole fetch and waits there.
"""

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from sharequeue.clock import Clock
from sharequeue.protocol.messages.leaders import ENDED, TOO_FEW, Asked, LeaderFetchRequest
from sharequeue.protocol.types import MAX_WAIT_MS
from sharequeue.repeats import FETCH_MOVED, REPEATED_FETCH, WOKEN_IN_VAIN, Tries
from sharequeue_gateway.cluster.generation import Node
from sharequeue_gateway.cluster.metadata import KnownTopic, Partitions
from sharequeue_gateway.delivery.fetch_request import PartitionFault
from sharequeue_gateway.delivery.fetcher import Fetcher
from sharequeue_gateway.delivery.repeated_fetches import RepeatedFetches
from sharequeue_gateway.delivery.waiting import Event, Life, WaitingFetch
from sharequeue_gateway.routing.acknowledge import RoutedAcknowledger
from sharequeue_gateway.routing.fetched import Fetched, decoded
from sharequeue_gateway.routing.gateway_client import by_topic
from sharequeue_gateway.routing.held import RoutedHeld
from sharequeue_gateway.routing.routing import Routing
from sharequeue_gateway.share_partition.turns import Turns, by_level, by_priority, leaders_in_turn, levels_of
from sharequeue_http.forms.errors import ApiError, RequestTimedOut

AT_ONCE_MS: Final = 20
MOST_TURNS: Final = 10_000
"""The most sets of partitions whose fetches are counted; those that were fetched last."""


@dataclass(eq=False)
class RoutedFetch:
    """Runs fetches over all leaders."""

    _routing: Routing
    _fetcher: Fetcher
    _repeated: RepeatedFetches
    _held: RoutedHeld
    _acknowledger: RoutedAcknowledger
    _clock: Clock

    def __post_init__(self) -> None:
        self._turns = Turns(MOST_TURNS, lambda: random.randrange(1 << 30))
        self._shares = Turns(MOST_TURNS, lambda: 1)

    async def fetch(self, waiting: WaitingFetch, asked: Asked, partitions: Partitions) -> Fetched:
        """Acquire from the partitions at their leaders, or wait for records until the deadline."""
        if self._routing.cluster.alone:
            found = Fetched(*await self._fetcher.fetch(waiting, asked, partitions))
            return await self.after_join(waiting, asked, partitions, found)
        return await self._fetch_from_leaders(waiting, asked, partitions)

    def by_priority(self, asked: Asked, partitions: Partitions, names: Iterable[str]) -> tuple[Asked, Partitions]:
        """Put partitions into the order in which a fetch with `priority` looks at them.

        Args:
            names: topics in the order of priority. Those of other partitions follow them.
        """
        of_topic: dict[str, list[tuple[KnownTopic, int]]] = {name: [] for name in names}
        for topic, partition in partitions:
            of_topic.setdefault(topic.name, []).append((topic, partition))
        topics = [some for some in of_topic.values() if some]
        key = asked.group_id, hash(tuple(some[0][0].topic_id for some in topics))
        turn = self._shares.next(key)
        partitions = [place for some in by_priority(topics, turn) for place in some]
        levels = levels_of(topic.topic_id for topic, _ in partitions)
        return structs.replace(asked, levels=levels, turn=None), partitions

    async def after_join(self, waiting: WaitingFetch, asked: Asked, partitions: Partitions, found: Fetched) -> Fetched:
        """Finish a fetch that began while this gateway was alone: if a gateway has joined since, and leads some of the
        partitions, the fetch continues at all leaders."""
        joined = not self._routing.cluster.alone and any(fault.led_elsewhere for fault in found.faults)
        if found.has_records or waiting.over or not joined:
            return found
        return await self._fetch_from_leaders(waiting, asked, partitions)

    async def wait_for_topics(self, waiting: WaitingFetch, asked: Asked) -> None:
        """Wait until a topic comes that the fetch wants, or its time is over: now it has no partition."""
        fetches = self._fetcher.fetches
        waiting.member_id = asked.member_id
        fetches.routed[waiting] = asked.group_id
        fetches.waiting[waiting] = ()
        try:
            await waiting.wait(max(0, asked.limits.deadline_ms - self._clock.now_ms()) / 1000)
        finally:
            del fetches.routed[waiting], fetches.waiting[waiting]

    async def _fetch_from_leaders(self, waiting: WaitingFetch, asked: Asked, partitions: Partitions) -> Fetched:
        waiting.member_id = asked.member_id
        self._fetcher.fetches.routed[waiting] = asked.group_id
        try:
            if asked.fetch_id is not None and not asked.new_id:
                found = await self._repeat(waiting, asked, partitions)
                if found.has_records or found.faults or waiting.over:
                    return found
            return await self._fetch(waiting, asked, partitions)
        finally:
            del self._fetcher.fetches.routed[waiting]

    async def _fetch(self, waiting: WaitingFetch, asked: Asked, partitions: Partitions) -> Fetched:
        patience_ms = max(asked.limits.deadline_ms, self._clock.now_ms() + int(FETCH_MOVED.patience_s * 1000))
        turn: int | None = None
        called: Sequence[Node] = ()
        last_look, waits = False, self._remaining_ms(asked) > 0
        pause_s = 0.0
        while True:
            leaders = self._routing.split(asked.group_id, partitions)
            sole = len(leaders) == 1
            if sole:
                found = await self._look(waiting, asked, leaders, wait=True, last=last_look)
            else:
                if turn is None:
                    turn = self._turns.next((asked.group_id, hash(tuple(partitions))))
                first = () if last_look else called
                found = await self._look_in_turn(waiting, asked, partitions, leaders, turn, first, last=last_look)
            if waiting.unanswered:
                await self.give_back(asked, found)
                return Fetched()
            if found.has_records or waiting.over:
                return found.without_moved()  # the next fetch asks the new leaders
            if last_look or self._ends(waiting, asked, found, len(partitions), patience_ms):
                return found
            if found.moved:
                self._routing.cluster.look_again()
                await waiting.wait(FETCH_MOVED.pause_s)
                continue
            asked_at_ms = self._clock.now_ms()
            if asked_at_ms >= asked.limits.deadline_ms:
                if sole or not waits:
                    return found
                last_look = True
                continue
            called = await self._wait(waiting, asked, leaders) or (self._routing.cluster.me,)
            last_look = self._remaining_ms(asked) == 0
            if last_look or self._clock.now_ms() - asked_at_ms > AT_ONCE_MS:
                pause_s = 0.0
            else:  # a leader called, but gave no records: there are less than min_bytes, or they cannot be read
                await WOKEN_IN_VAIN.pause(pause_s, at_most_s=self._remaining_ms(asked) / 1000)
                pause_s = WOKEN_IN_VAIN.after(pause_s)

    def _ends(self, waiting: WaitingFetch, asked: Asked, found: Fetched, partitions: int, patience_ms: int) -> bool:
        """Return whether to answer the fetch without records: it must not wait, it asks for none, leaders moved and
        were not found in time, or each of its partitions failed."""
        if waiting.life is Life.ANSWERING or not asked.limits.max_records or not asked.limits.max_bytes:
            return True
        if found.moved:
            return self._clock.now_ms() >= patience_ms
        return len(found.faults) == partitions

    def _remaining_ms(self, asked: Asked) -> int:
        return max(0, min(asked.limits.deadline_ms - self._clock.now_ms(), MAX_WAIT_MS))

    def _in_turn(
        self,
        group_id: str,
        partitions: Partitions,
        leaders: Mapping[Node, Partitions],
        turn: int,
        called: Sequence[Node],
    ) -> dict[Node, Partitions]:
        """The leaders in the order of asking: first those that have called, then the others in turn."""
        order = leaders_in_turn(partitions, lambda place: self._routing.leader_of(group_id, *place), turn, len(leaders))
        return {node: leaders[node] for node in sorted(order, key=lambda node: node not in called)}

    async def _look_in_turn(
        self,
        waiting: WaitingFetch,
        asked: Asked,
        partitions: Partitions,
        leaders: Mapping[Node, Partitions],
        turn: int,
        called: Sequence[Node],
        *,
        last: bool,
    ) -> Fetched:
        """Ask several leaders. With levels: for one level after another, until one has given records."""
        levels = asked.levels
        if levels is None:
            leaders = self._in_turn(asked.group_id, partitions, leaders, turn, called)
            return await self._look(waiting, asked, leaders, wait=False, last=last)
        found, asked = Fetched(), structs.replace(asked, levels=None)
        for some in by_level(partitions, lambda place: levels[place[0].topic_id]):
            in_turn = self._in_turn(asked.group_id, some, self._routing.split(asked.group_id, some), turn, called)
            here = await self._look(waiting, asked, in_turn, wait=False, last=last)
            found = structs.replace(here, faults=[*found.faults, *here.faults])
            if here.has_records or waiting.over:
                break
        return found

    async def _look(
        self,
        waiting: WaitingFetch,
        asked: Asked,
        leaders: Mapping[Node, Partitions],
        *,
        wait: bool,
        last: bool,
    ) -> Fetched:
        """Ask every leader once, in order, until the limits are used up. If each alone has less than `min_bytes`, and
        together they have enough, ask all again.

        Args:
            wait: there is one leader, which may wait until the deadline. last: after the deadline any number of bytes
                suffices.
        """
        min_bytes = min(asked.limits.min_bytes, 1) if last else asked.limits.min_bytes
        look_at_ends = wait or last or not self._remaining_ms(asked)  # leaders call a fetch that waits
        found = Fetched()
        there = [0, 0]
        for node, partitions in leaders.items():
            records_left = asked.limits.max_records - found.records()
            bytes_left = asked.limits.max_bytes - found.size()
            if waiting.over or (found.has_records and (records_left <= 0 or bytes_left <= 0)):
                break
            if found.has_records:
                min_bytes = 1
            waiting.too_few = ()
            limits = structs.replace(
                asked.limits,
                deadline_ms=asked.limits.deadline_ms if wait else 0,
                min_bytes=min_bytes,
                max_records=records_left,
                max_bytes=bytes_left,
                look_at_ends=look_at_ends,
            )
            here = node == self._routing.cluster.me
            new_id = asked.new_id and here  # a lost answer is asked for again
            part = structs.replace(asked, limits=limits, now_ms=self._clock.now_ms(), new_id=new_id)
            if here:
                acquired, faults = await self._fetcher.fetch(waiting, part, partitions)
                found = structs.replace(found, acquired=acquired, faults=[*found.faults, *faults])
            else:
                found = await self._ask(waiting, part, node, partitions, found)
            there = [before + more for before, more in zip(there, waiting.too_few or (0, 0), strict=True)]
        enough = there[0] >= asked.limits.bytes_wanted or there[1] >= asked.limits.max_records
        if there[0] and enough and not found.has_records and not waiting.over:  # together, so no leader waits for more
            return await self._look(waiting, asked, leaders, wait=False, last=True)
        return found

    async def _ask(
        self,
        waiting: WaitingFetch,
        asked: Asked,
        node: Node,
        partitions: Partitions,
        found: Fetched,
    ) -> Fetched:
        """Ask one leader. Returns: `found` with its answer."""
        if asked.wait_ms:
            self._fetcher.fetches.waiting[waiting] = ()
        request = LeaderFetchRequest(asked=asked, topic_partitions=by_topic(partitions))
        try:
            answer = await waiting.while_open(self._routing.gateways.fetch(node, asked.group_id, request))
        except ApiError as error:
            faults = [PartitionFault(topic.name, partition, error) for topic, partition in partitions]
            return structs.replace(found, faults=[*found.faults, *faults])
        finally:
            self._fetcher.fetches.waiting.pop(waiting, None)
        if answer is None:
            if waiting.life is Life.STOPPING and asked.fetch_id is not None:  # the leader may hold records for it
                raise RequestTimedOut("this gateway stops; repeat the fetch with its fetch_id at another one")
            return found  # the client is gone: the leader loses its caller, and gives the records back
        body, headers = answer
        waiting.too_few = tuple(map(int, headers.get(TOO_FEW, "").split()))
        if ENDED in headers:
            waiting.on(Event.GROUP_RESET)
        return found.with_answer(node, decoded(body))

    async def _repeat(self, waiting: WaitingFetch, asked: Asked, partitions: Partitions) -> Fetched:
        """The records that an earlier fetch of the same id still holds, at any leader.

        If leaders moved, this searches for them: before they have answered, the fetch must not acquire new records.
        """
        tries = Tries(REPEATED_FETCH)
        while True:
            found = await self._held.look(asked.group_id, await self._repeated.first_answer(asked, partitions))
            if not found.moved:
                return structs.replace(found, faults=())  # the fetch that follows reports the other errors
            self._routing.cluster.look_again()
            if found.has_records or waiting.over or not await tries.pause():
                return found

    async def _wait(self, waiting: WaitingFetch, asked: Asked, leaders: Mapping[Node, Partitions]) -> list[Node]:
        """Wait at all leaders until one may have records. Returns: the other gateways that called."""
        called: list[Node] = []
        me = self._routing.cluster.me
        seconds = self._remaining_ms(asked) / 1000

        async def wait_at(node: Node, partitions: Partitions) -> None:
            try:
                if await self._routing.gateways.await_records(node, asked.group_id, partitions, seconds):
                    waiting.on(Event.GROUP_RESET)
                called.append(node)
            except ApiError:
                self._routing.cluster.look_again()
                await FETCH_MOVED.pause()
            waiting.wake()

        tasks = [asyncio.create_task(wait_at(node, some)) for node, some in leaders.items() if node != me]
        try:
            leds = await self._fetcher.delayed.wait(waiting, asked.group_id, leaders.get(me, ()), seconds)
        finally:
            for task in tasks:
                task.cancel()
        self._fetcher.delayed.pass_on_later(leds)
        return called

    async def give_back(self, asked: Asked, found: Fetched) -> None:
        """Release the records of a client that is gone, but with a `fetch_id`: a repeat may have got them."""
        if asked.fetch_id is not None:
            return
        self._fetcher.give_back(asked.member_id, found.acquired)
        await self._acknowledger.release(asked.group_id, asked.member_id, found.passed_on_ranges(), seen=False)
