"""Acknowledgements: checks them, applies them to the leader's machines, and answers when their outcome is durable.

An acknowledgement is applied to all of its offsets or to none, independently of the others. With `atomic`, Kafka's rule
holds: the acknowledgements of one share-partition must ascend, and succeed or fail together. Source: KIP-932.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec
from msgspec import structs

from sharequeue.clock import Clock
from sharequeue.protocol import mistakes
from sharequeue.protocol.configs import lock_duration_fault
from sharequeue.protocol.errors import (
    ApiError,
    InvalidRecordState,
    InvalidRequest,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
)
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue.protocol.messages.records import Acknowledgement
from sharequeue.protocol.types import ACKNOWLEDGE_TYPES, MAX_INT64, AcknowledgeType, TopicIdPartition
from sharequeue.slices import Slices
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.metadata import KnownTopic, Metadata
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.lock_entries import Recorded
from sharequeue_gateway.share_partition.machine import AcknowledgementBatch

APPLIED: Final = AcknowledgementResult(status="applied")
IGNORED: Final = AcknowledgementResult(status="ignored")
MOST_DETAIL: Final = 140
"""The most characters of a cause: an answer may have one for each acknowledgement."""
ALONE: Final = {acknowledge_type: (acknowledge_type,) for acknowledge_type in AcknowledgeType}
"""The types of an acknowledgement with one type: most have one, and a call may have very many of them."""
COUNTED: Final = frozenset({"accept", "release", "reject", "renew"})

_TypeNames = list[Literal[*ACKNOWLEDGE_TYPES]] | None  # type: ignore[valid-type]
"""One text for each name, which all entries share: a list of str has as many texts as entries."""
_types: Final[msgspec.json.Decoder[list[str] | None]] = msgspec.json.Decoder(_TypeNames)

Writes = Sequence[asyncio.Future[ApiError | None]]


class Checked(msgspec.Struct, frozen=True, gc=False):
    """An acknowledgement with a valid form. `place`: the partition that it names."""

    topic: KnownTopic
    place: TopicIdPartition
    batch: AcknowledgementBatch


def type_names(acknowledgement: Acknowledgement) -> Sequence[str] | None:
    """The names in `types`; None if it has none. Raises: InvalidRequest (42): they are not a list of known names."""
    if acknowledgement.types is msgspec.UNSET:
        return None
    try:
        return _types.decode(acknowledgement.types)
    except msgspec.ValidationError as fault:
        raise mistakes.unfit_body(fault, acknowledgement.types, _TypeNames, "/types") from None


def check(acknowledgement: Acknowledgement, renew: bool = True, kafka_defaults: bool = False) -> AcknowledgementBatch:
    """Check the form of one acknowledgement.

    Args:
        renew: whether it may be a renewal. kafka_defaults: whether Kafka's bounds are in force.
    Raises: InvalidRequest (42): the form is invalid; the detail says why.
    """
    first_offset, last_offset = acknowledgement.first_offset, acknowledgement.last_offset
    if first_offset < 0 or last_offset > MAX_INT64:
        raise InvalidRequest("offsets are from 0 to 2^63 - 1")
    if first_offset > last_offset:
        raise InvalidRequest(f"first_offset {first_offset} is after last_offset {last_offset}")
    names = None if acknowledgement.types is msgspec.UNSET else type_names(acknowledgement)
    if names == [] and acknowledgement.type is not None:
        names = None  # generated clients send an empty list for what they leave out
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
    if AcknowledgeType.RENEW in types and not renew:
        raise InvalidRequest("renew in a fetch needs is_renew_ack; or send it to acknowledge")
    _check_options(acknowledgement, types, kafka_defaults)
    return AcknowledgementBatch(
        first_offset,
        last_offset,
        ALONE[types[0]] if len(types) == 1 else tuple(types),
        acknowledgement.delivery_count,
        acknowledgement.reason,
        acknowledgement.delay_ms,
        acknowledgement.begun,
        lock_duration_ms=acknowledgement.lock_duration_ms if AcknowledgeType.RENEW in types else None,
    )


def _check_options(acknowledgement: Acknowledgement, types: Sequence[AcknowledgeType], kafka_defaults: bool) -> None:
    """Raises: InvalidRequest (42): an option does not go with the types, or is out of bounds."""
    if acknowledgement.delay_ms and AcknowledgeType.RELEASE not in types:
        raise InvalidRequest("delay_ms goes with release alone")
    if acknowledgement.reason and not {AcknowledgeType.RELEASE, AcknowledgeType.REJECT} & set(types):
        raise InvalidRequest("reason goes with release and reject alone")
    if not acknowledgement.begun:
        if AcknowledgeType.RELEASE not in types:
            raise InvalidRequest('"begun":false goes with release alone')
        if kafka_defaults:
            raise InvalidRequest('"begun":false is not Kafka\'s: this gateway runs with kafka_defaults; leave it out')
    if acknowledgement.lock_duration_ms is not None and AcknowledgeType.RENEW in types:
        fault = lock_duration_fault(acknowledgement.lock_duration_ms, kafka_defaults)
        if fault is not None:
            raise InvalidRequest(fault)


def check_atomic(batches: Sequence[AcknowledgementBatch]) -> None:
    """Kafka's rule for the batches of one share-partition. Raises: InvalidRequest (42): they do not ascend."""
    last_offset = -1
    for batch in batches:
        if batch.first_offset <= last_offset:
            raise InvalidRequest("with atomic, acknowledgements of a partition must ascend and must not overlap")
        last_offset = batch.last_offset


def failed(error: ApiError, before: AcknowledgementResult | None = None) -> AcknowledgementResult:
    """The result for an error: `unknown` if the change may be durable all the same, else `failed`.

    `before`: the result of an earlier failure of the call, which equal ones share: there may be very many.
    """
    detail = error.detail if len(error.detail) <= MOST_DETAIL else f"{error.detail[:MOST_DETAIL]}…"
    result = AcknowledgementResult(
        status="failed" if error.definite else "unknown",
        code=error.error.code,
        kafka_code=error.error.kafka_code,
        detail=detail if error.definite else f"{detail}; repeat it to learn the outcome",
        retriable=error.error.retriable,
    )
    return before if before == result else result


def failed_of(results: Iterable[AcknowledgementResult]) -> int:
    """How many of the results are `failed` or `unknown`."""
    return sum(result.status in ("failed", "unknown") for result in results)


def _by_partition(checked: Mapping[int, Checked]) -> list[list[int]]:
    """Indexes of acknowledgements by their partition: with `atomic`, those of one succeed or fail together."""
    units: dict[TopicIdPartition, list[int]] = {}
    for index, item in checked.items():
        units.setdefault(item.place, []).append(index)
    return list(units.values())


async def ask_for_topics(metadata: Metadata, acknowledgements: Iterable[Acknowledgement]) -> ApiError | None:
    """Learn the acknowledged topics and partitions that are unknown. Returns: the error if there is no answer."""
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
    """Applies the acknowledgements of one call to the share-partitions that this gateway leads."""

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
        seen: bool = True,
    ) -> list[AcknowledgementResult]:
        """Apply acknowledgements and wait until each outcome is durable.

        Args:
            renew: whether the type `renew` is allowed. seen: see LeaderAcknowledgeRequest.
        Returns: the results, in request order.
        """
        slices = Slices() if len(acknowledgements) > 1 else None
        checked, results = await self._check(acknowledgements, renew, seen, slices)
        partitions = {item.place: (item.topic, item.place[1]) for item in checked.values()}
        loaded = await self._leader.get(group_id, list(partitions.values()), initialize=False)
        leds = dict(zip(partitions, loaded, strict=True))
        units = _by_partition(checked) if atomic else ([index] for index in list(checked))
        writes: dict[int, Writes] = {}
        last = None
        for indexes in units:
            if slices is not None and slices.over():
                await slices.pause()
            unit = [checked.pop(index) for index in indexes]
            now_ms = self._clock.now_ms()  # read for each: the one before may have waited for Redis
            try:
                outcome = await self._apply(member_id, leds[unit[0].place], unit, atomic, now_ms)
            except ApiError as error:
                outcome = last = failed(error, last)
            if isinstance(outcome, AcknowledgementResult):
                results.update(dict.fromkeys(indexes, outcome))
            else:
                writes.update(dict.fromkeys(indexes, outcome))
        for index, futures in writes.items():
            refused: ApiError | None = None
            for future in futures:
                fault = await future
                refused = refused or fault
            results[index] = APPLIED if refused is None else failed(refused)
        answers = [results[index] for index in range(len(acknowledgements))]
        asyncio.get_running_loop().call_soon(self._count, acknowledgements, answers)  # after the answer is sent
        return answers

    async def _check(
        self, acknowledgements: Sequence[Acknowledgement], renew: bool, seen: bool, slices: Slices | None
    ) -> tuple[dict[int, Checked], dict[int, AcknowledgementResult]]:
        """Check all. Returns: the acknowledgements to apply, and the results of the others, by index."""
        checked: dict[int, Checked] = {}
        results: dict[int, AcknowledgementResult] = {}
        places: dict[TopicIdPartition, TopicIdPartition] = {}
        last = away = None
        asked = False
        for index, acknowledgement in enumerate(acknowledgements):
            if slices is not None and slices.over():
                await slices.pause()
            name, partition = acknowledgement.topic, acknowledgement.partition
            try:
                batch = check(acknowledgement, renew, self._metadata.kafka_defaults and seen)
                batch = batch if seen else structs.replace(batch, seen=False)
                topic = self._metadata.known_topic(name)
                if topic is None or not 0 <= partition < topic.partitions:
                    if not asked:
                        asked = True
                        away = await ask_for_topics(self._metadata, acknowledgements)
                    topic = self._metadata.known_topic_with(name, partition)
                place = (topic.topic_id, partition)
                checked[index] = Checked(topic, places.setdefault(place, place), batch)
            except UnknownTopicOrPartition as error:
                results[index] = last = failed(away or error, last)
            except ApiError as error:
                results[index] = last = failed(error, last)
        return checked, results

    async def _apply(
        self,
        member_id: str,
        led: LedSharePartition | ApiError,
        unit: Sequence[Checked],
        atomic: bool,
        now_ms: int,
    ) -> AcknowledgementResult | Writes:
        """Apply the acknowledgements of one unit to a share-partition. Returns: their result, or the writes to
        await."""
        if isinstance(led, ApiError):
            raise led
        if led.fenced:
            raise NotLeaderOrFollower("the share-partition was unloaded just now; repeat the acknowledgement")
        batches = [item.batch for item in unit]
        if atomic:
            check_atomic(batches)
        self._leader.expire_if_due(led, now_ms)
        led.used_at_ms = now_ms
        try:
            acknowledged = led.machine.acknowledge(member_id, batches, now_ms)
        except InvalidRecordState:
            if not await self._leader.locks.still_leads(led):  # the new leader knows the holder of the records
                raise NotLeaderOrFollower("another gateway leads this share-partition") from None
            raise
        writes = [self._leader.persist(led, write) for write in acknowledged.writes]
        if acknowledged.renewed:
            recorded = await self._leader.locks.record(led, member_id, acknowledged.renewed)
            if recorded is not Recorded.RECORDED and not writes:
                raise NotLeaderOrFollower("another gateway leads this share-partition")
        if acknowledged.ignored:
            return IGNORED
        return writes or APPLIED

    def _count(self, acknowledgements: Sequence[Acknowledgement], results: Sequence[AcknowledgementResult]) -> None:
        topics: dict[str, bool] = {}
        for acknowledgement, result in zip(acknowledgements, results, strict=True):
            succeeded = result.status in ("applied", "ignored")
            topics[acknowledgement.topic] = topics.get(acknowledgement.topic, False) or not succeeded
            if result.status != "applied":
                continue
            records = acknowledgement.last_offset - acknowledgement.first_offset + 1
            names = None if acknowledgement.types is msgspec.UNSET else type_names(acknowledgement)
            if names and len(names) > 1:
                for name in COUNTED.intersection(names):
                    metrics.RECORD_ACKNOWLEDGEMENTS[name].value += names.count(name)
            else:
                name = acknowledgement.type or (names or ["gap"])[0]
                if name in COUNTED:
                    metrics.RECORD_ACKNOWLEDGEMENTS[name].value += records
        for topic, has_failed in topics.items():
            if self._metadata.known_topic(topic) is None:
                continue  # a series for unknown names would let callers create any number of them
            metrics.SHARE_ACKNOWLEDGES[topic].value += 1
            if has_failed:
                metrics.FAILED_SHARE_ACKNOWLEDGES[topic].value += 1
