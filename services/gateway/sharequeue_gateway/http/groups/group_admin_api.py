"""Administration of groups: passes calls on to the group coordinator, with offsets that only the record log knows."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final

from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.protocol import apis
from sharequeue.protocol.errors import (
    GroupIdNotFound,
    TopicAuthorizationFailed,
    checked_group_id,
    error_of,
)
from sharequeue.protocol.messages import groups as messages
from sharequeue.protocol.messages.cluster import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    GroupSummaryQuery,
    GroupSummaryResponse,
    StartOffsets,
)
from sharequeue.protocol.messages.operations import Empty
from sharequeue.protocol.messages.records import TopicPartitions
from sharequeue.protocol.types import MAX_ERRORS
from sharequeue_gateway.cluster.metadata import KnownTopic, Metadata
from sharequeue_gateway.delivery.fetch_request import PartitionFault
from sharequeue_gateway.http.answers.fetch_answer import partition_error
from sharequeue_gateway.http.named_partitions import named_partitions
from sharequeue_gateway.record_log.log import Offsets, RecordLog
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.errors import ApiError, InvalidRequest
from sharequeue_http.forms.mistakes import quoted

ADMIN_DEADLINE_S: Final = 25.0
"""It covers three slow steps of the group coordinator: ask every gateway, write the state, have every gateway
unload."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Place = tuple[str, int]


@dataclass(eq=False)
class GroupAdminApi:
    """The handlers of the calls that delete a group, delete its offsets or reset them."""

    _coordinator: CoordinatorClient
    _metadata: Metadata
    _record_log: RecordLog

    async def delete_share_group(self, call: Call) -> Empty:
        query: messages.InUseQuery = call.request
        group_id = checked_group_id(call.path["group"])
        await self._coordinator.of_group(apis.DELETE_SHARE_GROUP, group_id, query, deadline_s=ADMIN_DEADLINE_S)
        return Empty()

    async def delete_share_group_offsets(self, call: Call) -> Empty:
        query: messages.InUseQuery = call.request
        group_id = checked_group_id(call.path["group"])
        topic = await self._metadata.topic(call.path["topic"])
        path = {"group": group_id, "topic": topic.name}
        await self._coordinator.call(
            apis.DELETE_SHARE_GROUP_OFFSETS, query, key=group_id, path=path, deadline_s=ADMIN_DEADLINE_S
        )
        return Empty()

    # Reset

    async def reset_share_group_offsets(self, call: Call) -> messages.ResetOffsetsResult:
        request: messages.ResetShareGroupOffsetsRequest = call.request
        group_id = checked_group_id(call.path["group"])
        since_ms = _check(request)
        standing = await self._standing(group_id, may_be_new=request.topics is not None)
        faults: dict[Place, ApiError] = {}
        wanted = await self._wanted(request, standing, faults, call.refused)
        planned: StartOffsets = {}
        for topic, partitions in wanted:
            offsets = await self._record_log.offsets(topic.topic_id, list(partitions))
            planned[topic.topic_id] = {
                partition: await self._target(request, topic, partition, offsets[partition], given, since_ms, standing)
                for partition, given in partitions.items()
            }
        if planned and not request.dry_run:
            altering = AlterShareGroupOffsetsRequest(offsets=planned, force=request.force)
            altered: AlterShareGroupOffsetsResponse = await self._coordinator.of_group(
                apis.ALTER_SHARE_GROUP_OFFSETS, group_id, altering, deadline_s=ADMIN_DEADLINE_S
            )
            names = {topic.topic_id: topic.name for topic, _ in wanted}
            for failed in altered.failed:
                error = error_of(failed.error_code, failed.error_message)
                faults[names[failed.topic_id], failed.partition] = error
        done = [
            messages.ResetTopicOffsets(
                topic=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    messages.ResetPartition(partition=partition, start_offset=start_offset)
                    for partition, start_offset in sorted(planned[topic.topic_id].items())
                    if (topic.name, partition) not in faults
                ],
            )
            for topic, _ in sorted(wanted, key=lambda entry: entry[0].name)
        ]
        if faults and not any(topic.partitions for topic in done):
            raise next(iter(faults.values()))
        return messages.ResetOffsetsResult(
            topics=done,
            failed_count=len(faults),
            errors=[
                partition_error(PartitionFault(topic, partition, fault))
                for (topic, partition), fault in islice(faults.items(), MAX_ERRORS)
            ],
        )

    async def _standing(self, group_id: str, *, may_be_new: bool) -> dict[Place, int]:
        """The start offsets of the group, by (topic id, partition); −1 if it has none yet. Raises: GroupIdNotFound."""
        try:
            summary: GroupSummaryResponse = await self._coordinator.of_group(
                apis.GROUP_SUMMARY, group_id, GroupSummaryQuery()
            )
        except GroupIdNotFound:
            if not may_be_new:
                raise
            return {}
        return {
            (topic.topic_id, partition.partition): partition.start_offset
            for topic in summary.topics
            for partition in topic.partitions
        }

    async def _wanted(
        self,
        request: messages.ResetShareGroupOffsetsRequest,
        standing: Mapping[Place, int],
        faults: dict[Place, ApiError],
        refused: Mapping[str, ApiError],
    ) -> list[tuple[KnownTopic, dict[int, int | None]]]:
        """The partitions to reset, each with the offset of its entry. Those that do not exist or are `refused` become
        faults.

        Raises: TopicAuthorizationFailed: all topics of the group are meant, and one of them is refused."""
        if request.topics is None:
            await self._metadata.topics_by_id(sorted({topic_id for topic_id, _ in standing}))
            of_group: dict[str, dict[int, int | None]] = {}
            for topic_id, partition in standing:
                of_group.setdefault(topic_id, {})[partition] = request.offset
            found = [
                (topic, partitions)
                for topic_id, partitions in of_group.items()
                if (topic := self._metadata.known_topic_id(topic_id)) is not None
            ]
            if any(topic.name in refused for topic, _ in found):
                raise TopicAuthorizationFailed(
                    "the group has offsets in topics that this caller may not read; name topics"
                )
            return found
        named = await named_partitions(
            self._metadata,
            [entry.topic for entry in request.topics if entry.partitions is None],
            [
                TopicPartitions(topic=entry.topic, partitions=entry.partitions)
                for entry in request.topics
                if entry.partitions is not None
            ],
            (),
            refused=refused,
        )
        away = {fault.topic: fault.error for fault in named.faults}
        wanted: dict[str, tuple[KnownTopic, dict[int, int | None]]] = {}
        for entry in request.topics:
            topic = self._metadata.by_name.get(entry.topic)
            if topic is None or entry.topic in refused:
                error = refused.get(entry.topic) or away.get(entry.topic) or self._metadata.missing(entry.topic, 0)
                faults.update(((entry.topic, partition), error) for partition in entry.partitions or [-1])
                continue
            for partition in range(topic.partitions) if entry.partitions is None else entry.partitions:
                if partition >= topic.partitions:
                    faults[topic.name, partition] = self._metadata.missing(topic.name, partition)
                    continue
                _, partitions = wanted.setdefault(topic.topic_id, (topic, {}))
                if partition in partitions:
                    raise InvalidRequest(f"partition {partition} of topic {topic.name!r} is named twice")
                partitions[partition] = request.offset if entry.offset is None else entry.offset
        return list(wanted.values())

    async def _target(
        self,
        request: messages.ResetShareGroupOffsetsRequest,
        topic: KnownTopic,
        partition: int,
        offsets: Offsets,
        given: int | None,
        since_ms: int,
        standing: Mapping[Place, int],
    ) -> int:
        """The new start offset of a partition, within the bounds of its log."""
        start, end = offsets.log_start_offset, offsets.log_end_offset
        if request.to == "earliest":
            return start
        if request.to == "latest":
            return end
        if request.to == "datetime":
            found = await self._record_log.offset_for_timestamp(topic.topic_id, partition, since_ms)
            return end if found is None else found
        wanted = given if request.to == "offset" else standing.get((topic.topic_id, partition), -1)
        return end if wanted is None or wanted < 0 else min(max(wanted, start), end)


def _check(request: messages.ResetShareGroupOffsetsRequest) -> int:
    """Check the combination of fields. Returns: `datetime` in epoch milliseconds, or 0. Raises: InvalidRequest."""
    offsets = [entry.offset for entry in request.topics or ()]
    if request.to != "offset" and (request.offset is not None or any(offset is not None for offset in offsets)):
        raise InvalidRequest("offset needs to: offset")
    if request.to == "offset" and request.offset is None and (not offsets or None in offsets):
        raise InvalidRequest("to: offset needs an offset")
    if (request.datetime is not None) != (request.to == "datetime"):
        raise InvalidRequest("datetime needs to: datetime, and to: datetime needs datetime")
    return 0 if request.datetime is None else _epoch_ms(request.datetime)


def _epoch_ms(text: str) -> int:
    """The first whole millisecond at or after the time in the text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(f"datetime must be as 2026-11-21T08:30:00.000, not {quoted(text)!r}") from None
    since_epoch = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH
    return -(-since_epoch // timedelta(milliseconds=1))
