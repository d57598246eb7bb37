"""Lists the records of a group that are in flight, at all leaders, one page at a time.

Each leader lists its own share-partitions, in the order of topics and partitions, until it has filled a page. So a page
of all lists is full where one of them stops, or before.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.protocol import apis
from sharequeue.protocol.errors import InvalidRecordState, checked_group_id
from sharequeue.protocol.messages import in_flight as messages
from sharequeue.protocol.messages.cluster import GroupSummaryQuery, GroupSummaryResponse
from sharequeue.protocol.messages.problems import PartitionError
from sharequeue.protocol.types import DeliveryState, SharePartitionKey, TopicIdPartition
from sharequeue_gateway.cluster.metadata import KnownTopic, Metadata, Partitions
from sharequeue_gateway.delivery.fetch_request import PartitionFault
from sharequeue_gateway.http.answers.fetch_answer import partition_error
from sharequeue_gateway.http.answers.page_tokens import PLACE, PageTokens
from sharequeue_gateway.leader.dead_letter_queue import DeadLetterQueue
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.record_log.dead_letters.dead_letter_log import DeadLetterLog
from sharequeue_gateway.record_log.log import Parked
from sharequeue_gateway.routing.routing import Routing
from sharequeue_gateway.routing.settled_commits import SettledCommits
from sharequeue_gateway.share_partition.bounds import limited_by
from sharequeue_gateway.share_partition.machine import SharePartition
from sharequeue_gateway.share_partition.runs import Hold
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.errors import ApiError, InvalidRequest

LOADED_AT_ONCE: Final = 100

Place = tuple[str, int]
Listed = messages.InFlightPartition | PartitionError


@dataclass(eq=False)
class InFlightApi:
    """The handlers of listInFlightRecords and inFlightAtLeader."""

    _coordinator: CoordinatorClient
    _metadata: Metadata
    _dead_letter_log: DeadLetterLog
    _leader: Leader
    _dead_letters: DeadLetterQueue
    _routing: Routing
    _commits: SettledCommits
    _tokens: PageTokens

    async def list_in_flight_records(self, call: Call) -> messages.ListInFlightResponse:
        """The records in flight, at every leader."""
        return await self.list_of(checked_group_id(call.path["group"]), call.request)

    async def list_of(self, group_id: str, query: messages.InFlightQuery) -> messages.ListInFlightResponse:
        await self._commits.applied()
        wanted, more = await self._wanted(group_id, query)
        led = self._routing.split(group_id, wanted)
        mine = led.pop(self._routing.cluster.me, ())
        answers = await asyncio.gather(*(self._routing.gateways.in_flight(node, group_id, query) for node in led))
        return _page([await self._list(group_id, mine, query), *answers], wanted, more, query.page_size, self._tokens)

    async def in_flight_at_leader(self, call: Call) -> messages.ListInFlightResponse:
        """The records in flight in share-partitions that this gateway leads. Called by other gateways."""
        query: messages.InFlightQuery = call.request
        group_id = call.path["group"]
        wanted, _ = await self._wanted(group_id, query)
        mine = self._routing.split(group_id, wanted).get(self._routing.cluster.me, ())
        return await self._list(group_id, mine, query)

    async def _wanted(self, group_id: str, query: messages.InFlightQuery) -> tuple[list[tuple[KnownTopic, int]], bool]:
        """The initialised share-partitions of the group for this page, in order; and whether there are more."""
        if query.topic is not None:
            await self._metadata.topic_with(query.topic, query.partition or 0)
        elif query.partition is not None:
            raise InvalidRequest("partition needs topic")
        if query.offset is not None and query.partition is None:
            raise InvalidRequest("offset needs partition")
        first = ("", -1) if query.topic is None or query.partition is None else (query.topic, query.partition - 1)
        topic, partition = self._tokens.place(query.page_token, PLACE, "listInFlightRecords", first)
        limited = GroupSummaryQuery(
            topic=query.topic,
            after_topic=topic,
            after_partition=partition,
            limit=query.page_size if query.partition is None else 1,
        )
        summary: GroupSummaryResponse = await self._coordinator.of_group(apis.GROUP_SUMMARY, group_id, limited)
        wanted = [
            (known, state.partition)
            for entry in summary.topics
            for known in (await self._metadata.topic(entry.topic),)
            for state in sorted(entry.partitions, key=lambda state: state.partition)
            if query.partition in (None, state.partition)
        ]
        return wanted, summary.more and query.partition is None

    async def _list(
        self, group_id: str, partitions: Partitions, query: messages.InFlightQuery
    ) -> messages.ListInFlightResponse:
        """List share-partitions that this gateway leads, in order, until a page is full."""
        listed = messages.ListInFlightResponse(partitions=[])
        if not partitions:
            return listed
        parked = await self._dead_letter_log.parked_counts(group_id)
        if query.offset is not None:
            await self._leader.activity.write_outcomes()  # a look-up reads it
        room = query.page_size
        for start in range(0, len(partitions), LOADED_AT_ONCE):
            some = partitions[start : start + LOADED_AT_ONCE]
            if query.loaded:
                keys = [SharePartitionKey(group_id, topic.topic_id, partition) for topic, partition in some]
                leds: Sequence[LedSharePartition | ApiError | None] = [*map(self._leader.loaded, keys)]
            else:
                leds = await self._leader.get(group_id, some, initialize=False)
            for (topic, partition), led in zip(some, leds, strict=True):
                if led is None or isinstance(led, InvalidRecordState):
                    continue  # it is not in memory; or the group has never fetched from it
                if isinstance(led, ApiError):
                    listed.errors.append(partition_error(PartitionFault(topic.name, partition, led)))
                    room -= 1
                else:
                    listed.partitions.append(self._partition(topic, partition, led, parked, query.offset))
                    room -= _weight(listed.partitions[-1])
                if room <= 0:
                    return listed
        return listed

    def _partition(
        self,
        topic: KnownTopic,
        partition: int,
        led: LedSharePartition,
        parked: Mapping[TopicIdPartition, Parked],
        offset: int | None,
    ) -> messages.InFlightPartition:
        machine = led.machine
        parked_here = parked.get((topic.topic_id, partition))
        return messages.InFlightPartition(
            topic=topic.name,
            partition=partition,
            start_offset=machine.start_offset,
            end_offset=machine.end_offset,
            batches=[
                messages.InFlightBatch(
                    first_offset=run.first,
                    last_offset=run.last,
                    delivery_state=DeliveryState(run.state).name,
                    delivery_count=run.delivery_count,
                    attempt=run.attempt,
                    member_id=run.member_id,
                    lock_expires_at_ms=run.lock_expires_at_ms or None,
                    available_at_ms=run.available_at_ms or None,
                    reason=None if run.reason is None else str(run.reason.reason),
                    reason_at_ms=None if run.reason is None else run.reason.at_ms or None,
                    earlier_reasons=run.earlier,
                    transaction_id=run.write.transaction_id if isinstance(run.write, Hold) else None,
                )
                for run in (machine.runs if offset is None else machine.overlapping(offset, offset))
            ],
            unfinished_before=None if offset is None else _unfinished_before(machine, offset),
            dead_letters=[
                messages.DeadLetterStatus(
                    first_offset=pending.letter.first_offset,
                    last_offset=pending.letter.last_offset,
                    attempts=pending.attempts,
                    last_error=pending.last_error,
                    next_attempt_at_ms=pending.next_attempt_at_ms,
                )
                for pending in self._dead_letters.failed_of(led)
            ],
            parked_dead_letters=parked_here.records if parked_here else 0,
            parked_cause=parked_here.cause if parked_here else None,
            limited_by=limited_by(machine),
            removed_unread=machine.removed_unread,
        )


def _unfinished_before(machine: SharePartition, offset: int) -> int:
    """Return how many offsets before one are not finished, those that the group has not read yet included."""
    first, last = machine.start_offset, offset - 1
    finished = sum(
        min(run.last, last) - max(run.first, first) + 1 for run in machine.overlapping(first, last) if run.finished
    )
    return max(offset - first, 0) - finished


def _page(
    answers: Sequence[messages.ListInFlightResponse], wanted: Partitions, more: bool, page_size: int, tokens: PageTokens
) -> messages.ListInFlightResponse:
    """Merge the lists of the leaders into one page.

    While the gateways do not agree on who leads, two of them may list a share-partition, so both fill the page; or one
    may list what lies behind those wanted here, while others do not: that is left to the next page.
    """
    found: dict[Place, list[Listed]] = defaultdict(list)
    entries: list[Listed] = [entry for answer in answers for entry in answer.partitions]
    for entry in (*entries, *(entry for answer in answers for entry in answer.errors)):
        found[entry.topic, entry.partition].append(entry)
    asked = [(topic.name, partition) for topic, partition in wanted]
    places = sorted({*asked, *(place for place in found if asked and place < asked[-1])})
    page: list[Listed] = []
    room, end = page_size, len(places) - 1
    for index, place in enumerate(places):
        page += found[place][-1:]
        room -= sum(map(_weight, found[place]))
        if room <= 0:
            end = index
            break
    rest = bool(places) and (more or end < len(places) - 1)
    return messages.ListInFlightResponse(
        partitions=[entry for entry in page if isinstance(entry, messages.InFlightPartition)],
        errors=[entry for entry in page if isinstance(entry, PartitionError)],
        next_page_token=tokens.token(places[end]) if rest else None,
    )


def _weight(entry: Listed) -> int:
    return 1 + len(entry.batches) if isinstance(entry, messages.InFlightPartition) else 1
