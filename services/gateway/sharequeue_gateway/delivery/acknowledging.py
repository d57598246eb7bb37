"""Acknowledgements: checked, applied to the leader's machines, and answered when their outcome is durable.

Each acknowledgement stands alone, all of its offsets or none; `atomic` is Kafka's way, where those of one
share-partition must ascend and succeed or fail together. Source: KIP-932.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from sharequeue.clock import Clock
from sharequeue.protocol.errors import (
    ApiError,
    InvalidRecordState,
    InvalidRequest,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
)
from sharequeue.protocol.messages import Acknowledgement, AcknowledgementResult
from sharequeue.protocol.types import ACKNOWLEDGE_TYPES, MAX_INT64, AcknowledgeType
from sharequeue.slices import Slices
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.metadata import Metadata, Topic
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.lock_entries import Recorded
from sharequeue_gateway.share_partition.machine import AcknowledgementBatch

APPLIED: Final = AcknowledgementResult(status="applied")
IGNORED: Final = AcknowledgementResult(status="ignored")
MOST_DETAIL: Final = 140
"""Characters of a failure's cause: there is one for each acknowledgement, and those are short."""
COUNTED: Final = frozenset({"accept", "release", "reject", "renew"})

Writes = Sequence[asyncio.Future[ApiError | None]]


class Checked(NamedTuple):
    """An acknowledgement whose form is right, and where it belongs."""

    topic: Topic
    partition: int
    batch: AcknowledgementBatch


def check(acknowledgement: Acknowledgement) -> AcknowledgementBatch:
    """The form of one acknowledgement. Raises: InvalidRequest (42): what is wrong with it."""
    first_offset, last_offset = acknowledgement.first_offset, acknowledgement.last_offset
    if first_offset < 0 or last_offset > MAX_INT64:
        raise InvalidRequest("offsets are from 0 to 2^63 - 1")
    if first_offset > last_offset:
        raise InvalidRequest(f"first_offset {first_offset} is after last_offset {last_offset}")
    names = acknowledgement.types
    if (names is None) == (acknowledgement.type is None):
        raise InvalidRequest("give exactly one of type and types")
    if names is None:
        names = [acknowledgement.type or ""]
    if not names:
        raise InvalidRequest("types must not be empty")
    if len(names) not in (1, last_offset - first_offset + 1):
        raise InvalidRequest(f"{len(names)} types for {last_offset - first_offset + 1} offsets: give one, or one each")
    types = []
    for name in names:
        acknowledge_type = ACKNOWLEDGE_TYPES.get(name)
        if acknowledge_type is None:
            raise InvalidRequest(
                f"there is no acknowledge type {name[:40]!r}; known are {', '.join(ACKNOWLEDGE_TYPES)}"
            )
        types.append(acknowledge_type)
    if acknowledgement.delay_ms and AcknowledgeType.RELEASE not in types:
        raise InvalidRequest("delay_ms goes with release alone")
    if acknowledgement.reason and not {AcknowledgeType.RELEASE, AcknowledgeType.REJECT} & set(types):
        raise InvalidRequest("reason goes with release and reject alone")
    return AcknowledgementBatch(
        first_offset,
        last_offset,
        tuple(types),
        acknowledgement.delivery_count,
        acknowledgement.reason,
        acknowledgement.delay_ms,
    )


def check_atomic(batches: Sequence[AcknowledgementBatch]) -> None:
    """Kafka's rule for the batches of one share-partition. Raises: InvalidRequest (42): they do not ascend."""
    last_offset = -1
    for batch in batches:
        if batch.first_offset <= last_offset:
            raise InvalidRequest("with atomic, acknowledgements of a partition must ascend and must not overlap")
        last_offset = batch.last_offset


def failed(error: ApiError) -> AcknowledgementResult:
    """The result for an error: `unknown` where the outcome may be durable all the same."""
    detail = error.detail if len(error.detail) <= MOST_DETAIL else f"{error.detail[:MOST_DETAIL]}…"
    return AcknowledgementResult(
        status="failed" if error.definite else "unknown",
        code=error.error.code,
        kafka_code=error.error.kafka_code,
        detail=detail if error.definite else f"{detail}; repeat it to learn the outcome",
        retriable=error.error.retriable,
    )


def failed_of(results: Iterable[AcknowledgementResult]) -> int:
    """How many did not succeed, as far as is known."""
    return sum(result.status in ("failed", "unknown") for result in results)


async def ask_for_topics(metadata: Metadata, acknowledgements: Iterable[Acknowledgement]) -> ApiError | None:
    """Have the topics and partitions known that are acknowledged. Returns: why that cannot be asked, if so."""
    partitions: dict[str, int] = {}
    for acknowledgement in acknowledgements:
        topic, partition = acknowledgement.topic, acknowledgement.partition
        if not metadata.knows(topic, partition):
            partitions[topic] = max(partitions.get(topic, 0), partition)
    if not partitions:
        return None
    try:
        await metadata.ask_for(partitions)
    except ApiError as away:
        return away
    return None


class Acknowledger:
    """Applies the acknowledgements of one call."""

    def __init__(self, leader: Leader, metadata: Metadata, clock: Clock) -> None:
        self._leader = leader
        self._metadata = metadata
        self._clock = clock

    async def acknowledge(
        self,
        group_id: str,
        member_id: str,
        acknowledgements: Sequence[Acknowledgement],
        *,
        atomic: bool,
        renew: bool = True,
    ) -> list[AcknowledgementResult]:
        """Apply acknowledgements and wait until each outcome is durable.

        Args:
            renew: whether `renew` may be among them.
        Returns: the results, in request order.
        """
        results: list[AcknowledgementResult | None] = [None] * len(acknowledgements)
        checked: dict[int, Checked] = {}
        away = await ask_for_topics(self._metadata, acknowledgements)
        slices = Slices()
        for index, acknowledgement in enumerate(acknowledgements):
            if slices.over():
                await slices.pause()
            try:
                checked[index] = self._check(acknowledgement, renew)
            except UnknownTopicOrPartition as error:
                results[index] = failed(away or error)
            except ApiError as error:
                results[index] = failed(error)
        leds = await self._load(group_id, checked.values())
        writes: dict[int, Writes] = {}
        for indexes in self._units(checked, atomic):
            if slices.over():
                await slices.pause()
            try:
                outcome = await self._apply(member_id, leds, [checked[index] for index in indexes], atomic)
            except ApiError as error:
                for index in indexes:
                    results[index] = failed(error)
                continue
            for index in indexes:
                if isinstance(outcome, AcknowledgementResult):
                    results[index] = outcome
                else:
                    writes[index] = outcome
        for index, futures in writes.items():
            refused: ApiError | None = None
            for future in futures:
                fault = await future
                refused = refused or fault
            results[index] = APPLIED if refused is None else failed(refused)
        answers = [result or APPLIED for result in results]
        asyncio.get_running_loop().call_soon(self._count, acknowledgements, answers)  # once they are told
        return answers

    def _check(self, acknowledgement: Acknowledgement, renew: bool) -> Checked:
        batch = check(acknowledgement)
        if AcknowledgeType.RENEW in batch.types and not renew:
            raise InvalidRequest("renew in a fetch needs is_renew_ack; or send it to acknowledge")
        topic = self._metadata.known_topic_with(acknowledgement.topic, acknowledgement.partition)
        return Checked(topic, acknowledgement.partition, batch)

    async def _load(
        self, group_id: str, checked: Iterable[Checked]
    ) -> dict[tuple[str, int], LedSharePartition | ApiError]:
        wanted = {(item.topic.topic_id, item.partition): item.topic for item in checked}
        if not wanted:
            return {}
        partitions = [(topic, partition) for (_, partition), topic in wanted.items()]
        return dict(zip(wanted, await self._leader.get(group_id, partitions, initialize=False), strict=True))

    @staticmethod
    def _units(checked: dict[int, Checked], atomic: bool) -> list[list[int]]:
        """What succeeds or fails together: each by itself, or with `atomic` those of one share-partition."""
        if not atomic:
            return [[index] for index in checked]
        units: dict[tuple[str, int], list[int]] = {}
        for index, item in checked.items():
            units.setdefault((item.topic.topic_id, item.partition), []).append(index)
        return list(units.values())

    async def _apply(
        self,
        member_id: str,
        leds: dict[tuple[str, int], LedSharePartition | ApiError],
        unit: Sequence[Checked],
        atomic: bool,
    ) -> AcknowledgementResult | Writes:
        led = leds[unit[0].topic.topic_id, unit[0].partition]
        if isinstance(led, ApiError):
            raise led
        if led.fenced:
            raise NotLeaderOrFollower("the share-partition was unloaded meanwhile; repeat the acknowledgement")
        batches = [item.batch for item in unit]
        if atomic:
            check_atomic(batches)
        now_ms = self._clock.now_ms()
        self._leader.expire_if_due(led, now_ms)
        led.used_at_ms = now_ms
        try:
            acknowledged = led.machine.acknowledge(member_id, batches, now_ms)
        except InvalidRecordState:
            if not await self._leader.still_leads(led):  # the new leader knows who holds what
                raise NotLeaderOrFollower("another gateway leads this share-partition") from None
            raise
        writes = [self._leader.persist(led, write) for write in acknowledged.writes]
        if acknowledged.renewed:
            recorded = await self._leader.locks.record(led, member_id, acknowledged.renewed)
            if recorded is not Recorded.RECORDED and not writes:
                raise NotLeaderOrFollower("another gateway leads this share-partition")
        if acknowledged.ignored:
            return IGNORED
        return writes if writes else APPLIED

    def _count(self, acknowledgements: Sequence[Acknowledgement], results: Sequence[AcknowledgementResult]) -> None:
        topics: dict[str, bool] = {}
        for acknowledgement, result in zip(acknowledgements, results, strict=True):
            succeeded = result.status in ("applied", "ignored")
            topics[acknowledgement.topic] = topics.get(acknowledgement.topic, False) or not succeeded
            if result.status != "applied":
                continue
            records = acknowledgement.last_offset - acknowledgement.first_offset + 1
            if acknowledgement.types and len(acknowledgement.types) > 1:
                for name in COUNTED.intersection(acknowledgement.types):
                    metrics.RECORD_ACKNOWLEDGEMENTS[name].inc(acknowledgement.types.count(name))
            else:
                name = acknowledgement.type or (acknowledgement.types or ["gap"])[0]
                if name in COUNTED:
                    metrics.RECORD_ACKNOWLEDGEMENTS[name].inc(records)
        for topic, has_failed in topics.items():
            if self._metadata.known_topic(topic) is None:
                continue  # else anybody could make series without end
            metrics.SHARE_ACKNOWLEDGES[topic].inc()
            if has_failed:
                metrics.FAILED_SHARE_ACKNOWLEDGES[topic].inc()
