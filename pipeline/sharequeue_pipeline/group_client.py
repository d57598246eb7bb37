"""The calls of a share group's member for the pipeline: acquire records, and settle each of them.

Every call can be repeated after its answer was lost: a fetch has a fetch id, an acknowledgement a delivery count.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from sharequeue.client.consuming.acknowledging import Acknowledging, Results
from sharequeue.client.consuming.deliveries import Sent
from sharequeue.client.consuming.fetching import REPEATABLE
from sharequeue.client.consuming.outcomes import Outcome
from sharequeue.protocol import apis
from sharequeue.protocol.configs import GROUP_CONFIGS
from sharequeue.protocol.errors import BY_CODE
from sharequeue.protocol.messages.groups import GroupTopicOffsets, ListOffsetsQuery, UpdateShareGroupConfigRequest
from sharequeue.protocol.messages.in_flight import InFlightBatch, InFlightPartition, InFlightQuery
from sharequeue.protocol.messages.records import FetchRequest, FetchResponse
from sharequeue_http.forms.errors import ApiError
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.ranges import Range, divided

LOCKS: Final = "share.partition.max.record.locks"
DEFAULT_LOCKS: Final = int(GROUP_CONFIGS[LOCKS].default)


class NotHeld(NamedTuple):
    """Parts of ranges that a member does not hold. `finished`: somebody accepted or rejected them;
    `lost`: the others."""

    lost: list[Range]
    finished: list[Range]


class _SentRange(Sent):
    """An acknowledgement of a range."""

    def __init__(self, entry: Range, outcome: Outcome) -> None:
        super().__init__(entry, entry.first_offset, entry.last_offset, outcome)
        self.entry = entry

    @property
    def released_before(self) -> bool:
        """Never: the member may hold a part of a refused range, and the list of records in flight shows which."""
        return False


class _NotHeld(Results[_SentRange]):
    """Gathers the ranges that a member no longer holds.

    A refused range is tried a second time: another write or a hand-over of the share-partition may be over then.
    """

    attempts = 2

    def __init__(self) -> None:
        self.ranges: list[Range] = []

    def applied(self, run: _SentRange) -> None:
        """Note that it is settled, so the member has no more to do with it."""

    def refused(self, run: _SentRange, code: str, detail: str, *, retriable: bool) -> None:
        if retriable:
            raise PipelineError(
                f"an acknowledgement has no outcome, the gateway did not give one in time: {detail}", code
            )
        self.ranges.append(run.entry)

    def refuse(self, acknowledgements: Sequence[_SentRange], error: ApiError) -> None:
        raise error


class GroupClient(GatewayClient):
    """A client with the calls of a group's member. Every method may raise PipelineError."""

    def group_config(self, group: str) -> dict[str, str]:
        """All settings of a group, with defaults, as text."""
        config: dict[str, str] = self.ask(apis.GET_SHARE_GROUP_CONFIG, group=group)
        return config

    def redelivery_percent(self, group: str) -> int:
        """Return how many of 100 fetches begin at records to deliver again, if there are new ones too."""
        return int(self.group_config(group)["share.redelivery.percent"])

    def set_locks(self, group: str, locks: int) -> None:
        """Set a group's limit of locks in a partition; the default is no setting. The group need not exist yet."""
        request = UpdateShareGroupConfigRequest(config={LOCKS: str(locks)})
        if locks == DEFAULT_LOCKS:
            request = UpdateShareGroupConfigRequest(reset=[LOCKS])
        self.ask(apis.UPDATE_SHARE_GROUP_CONFIG, request, group=group)

    def lags(self, group: str, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """Return how many records of each partition a group has not finished; none for a partition it has not fetched
        from."""
        wanted = set(topics)
        return {
            (entry.topic, place.partition): place.lag
            for entry in self.group_offsets(group)
            if entry.topic in wanted
            for place in entry.partitions
            if place.lag >= 0
        }

    def group_offsets(self, group: str) -> list[GroupTopicOffsets]:
        """Return what a group has finished of each topic; empty if there is no such group."""
        try:
            pages = self.list_pages(apis.LIST_SHARE_GROUP_OFFSETS, ListOffsetsQuery(), group=group)
            return [entry for page in pages for entry in page.topics]
        except PipelineError as fault:
            if fault.code == "GROUP_ID_NOT_FOUND":
                return []
            raise

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

    def removed_unread(self, group: str, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """Return how many offsets of each partition left the log before the group got them, as far as its leaders know.

        Partitions that lost none are left out.
        """
        found = self.in_flight(group, topics)
        return {(entry.topic, entry.partition): entry.removed_unread for entry in found if entry.removed_unread}

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
        response: FetchResponse = self.ask(REPEATABLE, request, wait_s=wait_s, group=group)
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

    def acknowledge_held(self, group: str, member_id: str, ranges: Sequence[Range], outcome: Outcome) -> NotHeld:
        """Acknowledge what the member still holds of ranges. Returns: the parts that it does not hold.

        A job may have settled some records of a range. An acknowledgement of the whole range is refused then.
        """
        refused_ranges = self.settle(group, member_id, [(entry, outcome) for entry in ranges])
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
        lost = self.settle(group, member_id, [(entry, outcome) for entry in ours])
        done, rest = divided(divided(refused_ranges, ours)[1], finished)
        return NotHeld([*lost, *rest], done)

    def settle(self, group: str, member_id: str, outcomes: Iterable[tuple[Range, Outcome]]) -> list[Range]:
        """Acknowledge ranges, and repeat until each has its result. Returns: those that the member no longer holds."""
        found = _NotHeld()
        calls = Acknowledging(self._client, group, member_id, self._options.timeout_ms / 1000)
        self._wait_for(calls.send([_SentRange(*each) for each in outcomes], found))
        return found.ranges


def _range(entry: InFlightPartition, batch: InFlightBatch) -> Range:
    return Range(entry.topic, entry.partition, batch.first_offset, batch.last_offset, batch.delivery_count)
