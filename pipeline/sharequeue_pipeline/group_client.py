"""The calls of a share group's member for the pipeline: acquire records, and settle each of them.

Every call can be repeated after its answer was lost: a fetch has a fetch id, an acknowledgement a delivery count.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import msgspec

from sharequeue.protocol import apis
from sharequeue.protocol.bounds import acknowledgements_in_a_call
from sharequeue.protocol.errors import BY_CODE, ApiError
from sharequeue.protocol.messages.groups import GroupTopicOffsets, ShareGroupOffsets, UpdateShareGroupConfigRequest
from sharequeue.protocol.messages.in_flight import (
    InFlightBatch,
    InFlightPartition,
    InFlightQuery,
)
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue.protocol.messages.records import (
    Acknowledgement,
    AcknowledgeRequest,
    FetchRequest,
    FetchResponse,
)
from sharequeue.protocol.types import Reason
from sharequeue_pipeline.errors import PipelineError, refused
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.ranges import Range, divided

FETCH: Final = replace(apis.FETCH_RECORDS, idempotent=True)
ACKNOWLEDGE: Final = replace(apis.ACKNOWLEDGE_RECORDS, idempotent=True)
REPEAT_PAUSE_S: Final = 0.2


class Outcome(NamedTuple):
    """What becomes of an acquired range: `type` is accept, release, reject or renew; `delay_ms` goes with release.

    `begun`: false for a release before a program saw any of its records. Then the delivery does not count.
    """

    entry: Range
    type: str
    reason: str | None = None
    delay_ms: int | None = None
    begun: bool = True


class NotHeld(NamedTuple):
    """Parts of ranges that a member does not hold. `finished`: somebody accepted or rejected them;
    `lost`: the others."""

    lost: list[Range]
    finished: list[Range]


class GroupClient(GatewayClient):
    """A client with the calls of a group's member. Every method may raise PipelineError."""

    def group_config(self, group: str) -> dict[str, str]:
        """All settings of a group, with defaults, as text."""
        config: dict[str, str] = self.ask(apis.GET_SHARE_GROUP_CONFIG, group=group)
        return config

    def redelivery_percent(self, group: str) -> int:
        """How many of 100 fetches begin at records to deliver again, if there are new ones too."""
        return int(self.group_config(group)["share.redelivery.percent"])

    def set_group_config(self, group: str, config: dict[str, str]) -> None:
        """Set some settings of a group, which need not exist yet."""
        self.ask(apis.UPDATE_SHARE_GROUP_CONFIG, UpdateShareGroupConfigRequest(config=config), group=group)

    def lags(self, group: str, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """How many records of each partition a group has not finished; none for a partition it has not fetched from."""
        wanted = set(topics)
        return {
            (entry.topic, place.partition): place.lag
            for entry in self.group_offsets(group)
            if entry.topic in wanted
            for place in entry.partitions
            if place.lag >= 0
        }

    def group_offsets(self, group: str) -> list[GroupTopicOffsets]:
        """What a group has finished of each topic; empty if there is no such group."""
        try:
            listed: ShareGroupOffsets = self.ask(apis.LIST_SHARE_GROUP_OFFSETS, group=group)
        except PipelineError as fault:
            if fault.code == "GROUP_ID_NOT_FOUND":
                return []
            raise
        return listed.topics

    def delivered(self, group: str, topics: Iterable[str], within_s: float) -> list[Range]:
        """The records of topics that were delivered to a group before, and that nobody holds.

        `within_s`: those that wait are among them if their time comes so soon.
        Returns: their ranges, with the number of deliveries that count.
        """
        until_ms = (time.time() + within_s) * 1000
        return [
            _range(entry, batch)._replace(delivery_count=batch.attempt)
            for entry in self.in_flight(group, topics)
            for batch in entry.batches
            if batch.delivery_state == "AVAILABLE" and batch.delivery_count and (batch.available_at_ms or 0) < until_ms
        ]

    def in_flight(self, group: str, topics: Iterable[str]) -> Iterator[InFlightPartition]:
        """The partitions of topics with a group's records in flight; none if there is no such group or topic."""
        for topic in topics:
            try:
                for page in self.list_pages(apis.LIST_IN_FLIGHT_RECORDS, InFlightQuery(topic=topic), group=group):
                    yield from page.partitions
            except PipelineError as fault:
                if fault.code not in ("GROUP_ID_NOT_FOUND", "UNKNOWN_TOPIC_OR_PARTITION"):
                    raise

    def fetch(self, group: str, request: FetchRequest, *, topics_may_go: bool = False) -> tuple[list[Range], int]:
        """Acquire records. Returns: their ranges, and the duration of their locks in ms.

        `topics_may_go`: a topic that is gone gives no records; otherwise it is a fault.
        """
        wait_s = (request.max_wait_ms or 0) / 1000
        response: FetchResponse = self.ask(FETCH, request, wait_s=wait_s, group=group)
        for fault in response.errors:
            gone = topics_may_go and fault.code == "UNKNOWN_TOPIC_OR_PARTITION"
            if not gone and not BY_CODE[fault.code].retriable:
                raise PipelineError(f"{fault.topic}-{fault.partition}: {fault.code}: {fault.detail}")
        ranges = [
            Range(
                batch.topic,
                batch.partition,
                batch.first_offset,
                batch.last_offset,
                batch.delivery_count,
                batch.topic_id,
            )
            for batch in response.batches
        ]
        return ranges, response.acquisition_lock_timeout_ms

    def acknowledge(
        self,
        group: str,
        member_id: str,
        ranges: Sequence[Range],
        type: str,
        reason: str | None = None,
        *,
        begun: bool = True,
    ) -> list[Range]:
        """Acknowledge ranges with one type, and repeat until each has an outcome. Returns: those no longer held."""
        outcomes = [Outcome(entry, type, reason, begun=begun) for entry in ranges]
        return [lost.entry for lost in self.settle(group, member_id, outcomes)]

    def acknowledge_held(
        self,
        group: str,
        member_id: str,
        ranges: Sequence[Range],
        type: str,
        reason: str | None = None,
        *,
        begun: bool = True,
    ) -> NotHeld:
        """Acknowledge what the member still holds of ranges. Returns: the parts that it does not hold.

        A job may have settled some records of a range. An acknowledgement of the whole range is refused then.
        """
        refused_ranges = self.acknowledge(group, member_id, ranges, type, reason, begun=begun)
        if not refused_ranges:
            return NotHeld([], [])
        held: list[Range] = []
        finished: list[Range] = []
        for entry in self.in_flight(group, sorted({each.topic for each in refused_ranges})):
            for batch in entry.batches:
                if batch.delivery_state == "ACQUIRED" and batch.member_id == member_id:
                    held.append(_range(entry, batch))
                elif batch.delivery_state in ("ACKNOWLEDGED", "ARCHIVING", "ARCHIVED"):
                    finished.append(_range(entry, batch))
            if entry.start_offset > 0:
                finished.append(Range(entry.topic, entry.partition, 0, entry.start_offset - 1))
        ours: list[Range] = []
        for count in {each.delivery_count for each in refused_ranges}:
            of_count = [each for each in refused_ranges if each.delivery_count == count]
            ours += divided(of_count, [each for each in held if each.delivery_count == count])[0]
        lost = self.acknowledge(group, member_id, ours, type, reason, begun=begun) if ours else []
        done, rest = divided(divided(refused_ranges, ours)[1], finished)
        return NotHeld([*lost, *rest], done)

    def settle(self, group: str, member_id: str, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Acknowledge ranges, and repeat until each has an outcome. Returns: those that the member no longer holds.

        A refused range is tried a second time: another write or a hand-over of the share-partition may be over now.
        """
        lost: list[Outcome] = []
        refused_once: set[Outcome] = set()
        deadline = time.monotonic() + self._options.timeout_ms / 1000
        waiting = list(outcomes)
        while waiting:
            sent = waiting[: acknowledgements_in_a_call(outcome.reason for outcome in waiting)]
            results = self._acknowledge(group, member_id, sent)
            again = []
            for entry, result in zip(sent, results, strict=True):
                if result.status == "unknown" or result.retriable:
                    again.append(entry)
                elif result.status == "failed" and entry not in refused_once:
                    refused_once.add(entry)
                    again.append(entry)
                elif result.status == "failed" or (result.status == "ignored" and entry.type == "renew"):
                    lost.append(entry)  # ignored: another member settled it, and it lies below the start offset
            waiting[: len(sent)] = again
            if again:
                if time.monotonic() > deadline:
                    raise PipelineError(
                        f"{len(again)} acknowledgements have no outcome: the gateway did not give one in time"
                    )
                time.sleep(REPEAT_PAUSE_S)
        return lost

    def _acknowledge(self, group: str, member_id: str, outcomes: Iterable[Outcome]) -> list[AcknowledgementResult]:
        acknowledgements = [
            Acknowledgement(
                topic=entry.topic,
                topic_id=entry.topic_id or None,
                partition=entry.partition,
                first_offset=entry.first_offset,
                last_offset=entry.last_offset,
                delivery_count=entry.delivery_count,
                type=type,
                reason=None if reason is None else Reason(reason),
                begun=begun,
                **_delay(delay_ms),
            )
            for entry, type, reason, delay_ms, begun in outcomes
        ]
        request = AcknowledgeRequest(member_id=member_id, acknowledgements=acknowledgements)
        try:
            calling = self._client.call(ACKNOWLEDGE, request, path={"group": group})
            results: list[AcknowledgementResult] = self._loop.run_until_complete(calling).results
        except ApiError as error:
            if "results" not in error.extra:
                raise refused(error, self._options.url) from None
            results = msgspec.convert(error.extra["results"], list[AcknowledgementResult])
        return results


def _delay(delay_ms: int | None) -> dict[str, Any]:
    return {} if delay_ms is None else {"delay_ms": delay_ms}


def _range(entry: InFlightPartition, batch: InFlightBatch) -> Range:
    return Range(entry.topic, entry.partition, batch.first_offset, batch.last_offset, batch.delivery_count)
