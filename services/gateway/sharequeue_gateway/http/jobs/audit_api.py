"""The calls of audits: the stored state of share-partitions and of the log, beside the answers of the services."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.messages import audit as messages
from sharequeue.protocol.messages.share_state import PartitionState, PartitionStateResult
from sharequeue.protocol.types import MAX_INT32, SharePartitionKey
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.removing import compacting
from sharequeue_gateway.record_log.store import Bounds
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.errors import InvalidRequest
from sharequeue_http.forms.texts import whole_number


@dataclass(eq=False)
class AuditApi:
    """The handlers of auditShareState and auditLog."""

    _metadata: Metadata
    _share_coordinators: ShareStateClient
    _database: LogDatabase

    async def share_state(self, call: Call) -> messages.AuditStateResponse:
        query: messages.ExportStateQuery = call.request
        exported: messages.ExportStateResponse = await self._share_coordinators.call(apis.EXPORT_STATE, query)
        stored = exported.share_partitions
        answers = await self._answers(stored)
        await self._metadata.topics_by_id(sorted({state.topic_id for state in stored}))
        bounds = await self._database.query(
            store.bounds, sorted({(state.topic_id, state.partition) for state in stored})
        )
        return messages.AuditStateResponse(
            share_partitions=[
                self._audited(state, answer, bounds.get((state.topic_id, state.partition)))
                for state, answer in zip(stored, answers, strict=True)
            ],
            next_after=exported.next_after,
        )

    async def _answers(self, stored: Sequence[messages.StoredState]) -> list[PartitionStateResult]:
        """The answers of the share coordinators, asked for after the rows were read."""
        by_group: dict[str, dict[str, list[PartitionState]]] = {}
        for state in stored:
            topics = by_group.setdefault(state.group_id, {})
            topics.setdefault(state.topic_id, []).append(PartitionState(partition=state.partition))
        results: dict[SharePartitionKey, PartitionStateResult] = {}
        for answer in await asyncio.gather(
            *(
                self._share_coordinators.state(apis.READ_STATE_SUMMARY, group_id, topics)
                for group_id, topics in by_group.items()
            )
        ):
            results.update(answer)
        return [results[SharePartitionKey(state.group_id, state.topic_id, state.partition)] for state in stored]

    def _audited(
        self, state: messages.StoredState, answer: PartitionStateResult, bounds: Bounds | None
    ) -> messages.AuditedState:
        topic = self._metadata.known_topic_id(state.topic_id)
        audited = messages.AuditedState(
            group_id=state.group_id,
            topic_id=state.topic_id,
            partition=state.partition,
            rows=state.rows,
            answer=messages.StateAnswer(
                error_code=answer.error_code,
                state_epoch=answer.state_epoch or 0,
                leader_epoch=answer.leader_epoch or 0,
                start_offset=-1 if answer.start_offset is None else answer.start_offset,
                delivery_complete_count=(
                    -1 if answer.delivery_complete_count is None else answer.delivery_complete_count
                ),
            ),
        )
        if topic is not None and state.partition < topic.partitions:
            audited.topic = topic.name
            audited.log_start_offset, audited.log_end_offset = (0, 0) if bounds is None else bounds[:2]
        return audited

    async def log(self, call: Call) -> messages.LogAudit:
        query: messages.AuditLogQuery = call.request
        topic_id, partition = call.path["topic_id"], whole_number(call.path["partition"], MAX_INT32)
        if partition is None or not _is_uuid(topic_id):
            raise InvalidRequest("the path names a topic id, which is a UUID, and a partition's number")
        place = (topic_id, partition)
        found = await self._database.query(compacting.stored_batches, *place, query.offset, query.page_size)
        bounds = (await self._database.query(store.bounds, [place])).get(place, store.NO_BOUNDS)
        return messages.LogAudit(
            log_start_offset=bounds.log_start_offset,
            log_end_offset=bounds.log_end_offset,
            deleted=bounds.deleted,
            batches=[
                messages.LogBatch(
                    base_offset=each.base_offset,
                    last_offset=each.last_offset,
                    record_count=each.record_count,
                    generation=each.generation,
                )
                for each in found
            ],
        )


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False
