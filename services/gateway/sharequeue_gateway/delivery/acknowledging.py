"""Acknowledgements: checks them, applies them to the leader's machines, and answers when their outcome is durable.

An acknowledgement is applied to all of its offsets or to none, independently of the others. With `atomic`, Kafka's rule
holds: the acknowledgements of one share-partition must ascend, and succeed or fail together. Source: KIP-932.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from sharequeue.clock import Clock
from sharequeue.protocol.configs import check_lock_duration
from sharequeue.protocol.errors import (
    KAFKA_CODES,
    InvalidRecordState,
    NotLeaderOrFollower,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from sharequeue.protocol.messages.leaders import LeaderAcknowledgeRequest
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue.protocol.messages.records import Acknowledgement
from sharequeue.protocol.types import ACKNOWLEDGE_TYPES, MAX_ACKNOWLEDGEMENTS, MAX_INT64, AcknowledgeType
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.metadata import ANEW, KnownTopic, Metadata
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.share_partition.outcomes import AcknowledgementBatch
from sharequeue_http.forms import mistakes
from sharequeue_http.forms.errors import ApiError, InvalidRequest

APPLIED: Final = AcknowledgementResult(status="applied")
IGNORED: Final = AcknowledgementResult(status="ignored")
MOST_DETAIL: Final = 140
"""The most characters of a cause: an answer may have one for each acknowledgement."""
SMALL: Final = 3 * MAX_ACKNOWLEDGEMENTS
"""Bytes: a smaller body does not carry more than MAX_ACKNOWLEDGEMENTS, because each of its texts takes three."""
APPLIED_AT_ONCE: Final = 200
"""Units that are applied in one step of the event loop: a few milliseconds."""
CHECKED_AT_ONCE: Final = MAX_ACKNOWLEDGEMENTS
"""Acknowledgements that are checked in one step of the event loop."""
_TYPE_NAMES: Final = {acknowledge_type: name for name, acknowledge_type in ACKNOWLEDGE_TYPES.items()}

_TypeNames = list[Literal[*ACKNOWLEDGE_TYPES]] | None  # type: ignore[valid-type]
"""One text for each name, which all entries share: a list of str has as many texts as entries."""
_types: Final[msgspec.json.Decoder[list[str] | None]] = msgspec.json.Decoder(_TypeNames)

Writes = Sequence[asyncio.Future[ApiError | None]]


class AtPartition(msgspec.Struct, eq=False):
    """The acknowledgements of one call for one share-partition, with a valid form, and their indexes in the request."""

    topic: KnownTopic
    partition: int
    indexes: list[int] = []
    batches: list[AcknowledgementBatch] = []


def type_names(acknowledgement: Acknowledgement) -> Sequence[str] | None:
    """The names in `types`; None if it has none. Raises: InvalidRequest (42): they are not a list of known names."""
    if acknowledgement.types is msgspec.UNSET:
        return None
    try:
        return _types.decode(acknowledgement.types)
    except msgspec.ValidationError as fault:
        raise mistakes.unfit_body(fault, _TypeNames, "/types") from None


def count_of(acknowledgements: Iterable[Acknowledgement]) -> int:
    """Return how many acknowledgements a call carries: each of `types` counts."""
    return sum(1 if each.types is msgspec.UNSET else bytes(each.types).count(b",") + 1 for each in acknowledgements)


def check_count(acknowledgements: Sequence[Acknowledgement]) -> None:
    """Raises: InvalidRequest (422): there are more than MAX_ACKNOWLEDGEMENTS."""
    if count_of(acknowledgements) > MAX_ACKNOWLEDGEMENTS:
        raise mistakes.too_many("/acknowledgements", "entries, each of `types` counted", MAX_ACKNOWLEDGEMENTS)


def check(
    acknowledgement: Acknowledgement, renew: bool = True, kafka_defaults: bool = False, seen: bool = True
) -> AcknowledgementBatch:
    """Check the form of one acknowledgement.

    Args:
        renew: whether it may be a renewal. kafka_defaults: whether each delivery is an attempt. seen: see
            AcknowledgementBatch.
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
                f"there is no acknowledge type {mistakes.quoted(name)!r}; known are {', '.join(ACKNOWLEDGE_TYPES)}"
            )
        types.append(acknowledge_type)
    if AcknowledgeType.RENEW in types and not renew:
        raise InvalidRequest("renew in a fetch needs is_renew_ack; or send it to acknowledge")
    _check_options(acknowledgement, types, kafka_defaults)
    return AcknowledgementBatch(
        first_offset,
        last_offset,
        tuple(types),
        acknowledgement.delivery_count,
        acknowledgement.reason,
        acknowledgement.delay_ms,
        acknowledgement.begun,
        seen,
        acknowledgement.lock_duration_ms if AcknowledgeType.RENEW in types else None,
    )


def _check_options(acknowledgement: Acknowledgement, types: Sequence[AcknowledgeType], kafka_defaults: bool) -> None:
    """Raises: InvalidRequest (42): an option does not fit the types, or is out of bounds."""
    if acknowledgement.delay_ms and AcknowledgeType.RELEASE not in types:
        raise InvalidRequest("delay_ms needs the type release")
    if acknowledgement.reason and not {AcknowledgeType.RELEASE, AcknowledgeType.REJECT} & set(types):
        raise InvalidRequest("reason needs the type release or reject")
    if not acknowledgement.begun:
        if AcknowledgeType.RELEASE not in types:
            raise InvalidRequest('"begun":false needs the type release')
        if kafka_defaults:
            raise InvalidRequest('"begun":false is not Kafka\'s: this gateway runs with kafka_defaults; leave it out')


def check_atomic(batches: Iterable[AcknowledgementBatch]) -> None:
    """Kafka's rule for the batches of one share-partition. Raises: InvalidRequest (42): they do not ascend."""
    last_offset = -1
    for batch in batches:
        if batch.first_offset <= last_offset:
            raise InvalidRequest("with atomic, acknowledgements of a partition must ascend and must not overlap")
        last_offset = batch.last_offset


def failed(error: ApiError) -> AcknowledgementResult:
    """The result for an error: `unknown` if the change may be durable all the same, else `failed`."""
    detail = error.detail if len(error.detail) <= MOST_DETAIL else f"{error.detail[:MOST_DETAIL]}…"
    return AcknowledgementResult(
        status="failed" if error.definite else "unknown",
        code=error.error.code,
        kafka_code=KAFKA_CODES[error.error],
        detail=detail if error.definite else f"{detail}; repeat it to learn the outcome",
        retriable=error.error.retriable,
    )


def failed_of(results: Iterable[AcknowledgementResult]) -> int:
    """Return how many of the results are `failed` or `unknown`."""
    return sum(result.status in ("failed", "unknown") for result in results)


async def ask_for_topics(metadata: Metadata, acknowledgements: Iterable[Acknowledgement]) -> ApiError | None:
    """Learn the acknowledged topics, partitions and ids that are unknown. Returns: the error if there is no answer."""
    partitions: dict[str, int] = {}
    for acknowledgement in acknowledgements:
        topic, partition = acknowledgement.topic, acknowledgement.partition
        if not metadata.knows(topic, partition, acknowledgement.topic_id):
            if metadata.knows(topic, partition):
                partition = ANEW
            partitions[topic] = max(partitions.get(topic, 0), partition)
    if not partitions:
        return None
    try:
        await metadata.ask_for(partitions)
    except ApiError as away:
        return away
    return None


class Outcomes(msgspec.Struct, eq=False):
    """The results of one call as they become known, and what the metrics count of them.

    `results`: in request order; those that are not known yet have no meaning. `hopeless`: whether an acknowledgement
    has failed that must not be tried again. `topics`: whether one failed, by topic. `records`: those that were
    acknowledged, by type.
    """

    results: list[AcknowledgementResult]
    hopeless: bool = False
    topics: dict[str, bool] = {}
    records: dict[AcknowledgeType, int] = {}

    def refuse(self, index: int, error: ApiError, topic: str | None) -> None:
        """An acknowledgement fails its check. `topic`: its topic, if that is known."""
        self.results[index] = result = failed(error)
        self.hopeless = self.hopeless or not result.retriable
        if topic is not None:
            self.topics[topic] = True

    def end(
        self, at: AtPartition, positions: Sequence[int], error: ApiError | None, well: AcknowledgementResult
    ) -> None:
        """Some acknowledgements of a share-partition have their outcome: `well`, or an error."""
        name, result = at.topic.name, well
        if error is not None:
            result = failed(error)
            self.hopeless = self.hopeless or not result.retriable
        self.topics[name] = self.topics.get(name, False) or error is not None
        for position in positions:
            batch = at.batches[position]
            self.results[at.indexes[position]] = result
            if result is APPLIED:
                each = batch.last_offset - batch.first_offset + 1 if len(batch.types) == 1 else 1
                for acknowledge_type in batch.types:
                    self.records[acknowledge_type] = self.records.get(acknowledge_type, 0) + each


async def check_all(
    metadata: Metadata,
    acknowledgements: Sequence[Acknowledgement],
    outcomes: Outcomes,
    *,
    renew: bool = True,
    seen: bool = True,
) -> dict[tuple[str, int], AtPartition]:
    """Check all. Returns: the acknowledgements to apply, by name of the topic and partition."""
    partitions: dict[tuple[str, int], AtPartition] = {}
    away = None
    asked = False
    for index, acknowledgement in enumerate(acknowledgements):
        if index and not index % CHECKED_AT_ONCE:
            await asyncio.sleep(0)
        name, partition, topic_id = acknowledgement.topic, acknowledgement.partition, acknowledgement.topic_id
        try:
            batch = check(acknowledgement, renew, metadata.kafka_defaults and seen, seen)
            if batch.lock_duration_ms is not None:
                check_lock_duration(batch.lock_duration_ms, metadata.lock_bounds)
            at = partitions.get((name, partition))
            if at is None or (topic_id is not None and topic_id != at.topic.topic_id):
                topic = metadata.by_name.get(name)
                other = topic is not None and topic_id is not None and topic_id != topic.topic_id
                if topic is None or not 0 <= partition < topic.partitions or other:
                    if not asked:
                        asked = True
                        away = await ask_for_topics(metadata, acknowledgements[index:])
                    topic = metadata.known_topic_with(name, partition, topic_id)
                if at is not None:  # what came before it in this call is of the deleted topic
                    raise NotLeaderOrFollower("the topic was made again just now; repeat the acknowledgement")
                at = partitions[name, partition] = AtPartition(topic, partition)
        except ApiError as error:
            unknown = isinstance(error, UnknownTopicOrPartition | UnknownTopicId)
            known = metadata.by_name.get(name) is not None
            outcomes.refuse(index, away or error if unknown else error, name if known else None)
            continue
        at.indexes.append(index)
        at.batches.append(batch)
    return partitions


@dataclass(eq=False)
class Acknowledger:
    """Applies the acknowledgements of one call to the share-partitions that this gateway leads."""

    _leader: Leader
    _metadata: Metadata
    _clock: Clock

    async def acknowledge(self, group_id: str, request: LeaderAcknowledgeRequest) -> list[AcknowledgementResult]:
        """Apply acknowledgements and wait until each outcome is durable. Returns: the results, in request order."""
        acknowledgements, atomic, member_id = request.acknowledgements, request.atomic, request.member_id
        outcomes = Outcomes([APPLIED] * len(acknowledgements))
        partitions = await check_all(self._metadata, acknowledgements, outcomes, renew=request.renew, seen=request.seen)
        loaded = await self._leader.get(
            group_id, [(at.topic, at.partition) for at in partitions.values()], initialize=False
        )
        under_way: list[tuple[AtPartition, Sequence[int], Writes]] = []
        units = 0
        for at, led in zip(partitions.values(), loaded, strict=True):
            end, count = 0, len(at.batches)
            while end < count:
                begin, end = end, count  # with `atomic`, they succeed or fail together
                if not atomic and count > begin + 1 and not isinstance(led, ApiError):
                    end = led.machine.end_of_equals(at.batches, begin)
                unit: Sequence[int] = range(begin, end)
                units += 1
                if not units % APPLIED_AT_ONCE:
                    await asyncio.sleep(0)
                now_ms = self._clock.now_ms()  # read for each: the one before may have waited for Redis
                try:
                    outcome = await self._apply(member_id, led, at.batches[begin:end], atomic, now_ms)
                except ApiError as error:
                    outcomes.end(at, unit, error, APPLIED)
                    continue
                if isinstance(outcome, AcknowledgementResult):
                    outcomes.end(at, unit, None, outcome)
                else:
                    under_way.append((at, unit, outcome))
        if len(under_way) == 1:
            await self._leader.send_now(under_way[0][2][0])
        for at, unit, writes in under_way:
            faults = [fault for write in writes if (fault := await write) is not None]
            outcomes.end(at, unit, faults[0] if faults else None, APPLIED)
        self._count(outcomes)
        return outcomes.results

    async def _apply(
        self,
        member_id: str,
        led: LedSharePartition | ApiError,
        batches: list[AcknowledgementBatch],
        atomic: bool,
        now_ms: int,
    ) -> AcknowledgementResult | Writes:
        """Apply one unit to a share-partition. Returns: the result, or the writes to await."""
        if isinstance(led, ApiError):
            raise led
        if led.fenced:
            raise NotLeaderOrFollower("the share-partition was unloaded just now; repeat the acknowledgement")
        if atomic:
            check_atomic(batches)
        elif len(batches) > 1:
            batches = [msgspec.structs.replace(batches[0], last_offset=batches[-1].last_offset)]
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
            if not recorded and not writes:
                raise NotLeaderOrFollower("another gateway leads this share-partition")
        if acknowledged.ignored:
            return IGNORED
        return writes or APPLIED

    def _count(self, outcomes: Outcomes) -> None:
        for acknowledge_type, records in outcomes.records.items():
            if acknowledge_type is not AcknowledgeType.GAP:
                metrics.RECORD_ACKNOWLEDGEMENTS[_TYPE_NAMES[acknowledge_type]].value += records
        for topic, has_failed in outcomes.topics.items():
            if self._metadata.by_name.get(topic) is None:
                continue  # it was deleted since: a series for it would stay
            metrics.SHARE_ACKNOWLEDGES[topic].value += 1
            if has_failed:
                metrics.FAILED_SHARE_ACKNOWLEDGES[topic].value += 1
