"""The calls of compaction: list a partition's batches, and remove records from them."""

from dataclasses import dataclass
from itertools import pairwise

from sharequeue.protocol.messages.compaction import (
    ListRecordBatchesQuery,
    RecordBatchList,
    ReplacedBatches,
    ReplaceRecordBatchesRequest,
)
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.http.named_partitions import partition_of
from sharequeue_gateway.record_log.removing.compacting import Compaction, Replacement
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.errors import InvalidRequest


@dataclass(eq=False)
class CompactionApi:
    """The handlers of the compaction calls."""

    _metadata: Metadata
    _compaction: Compaction

    async def list_record_batches(self, call: Call) -> RecordBatchList:
        query: ListRecordBatchesQuery = call.request
        topic, partition = await partition_of(call, self._metadata)
        found, bounds = await self._compaction.batches(topic.topic_id, partition, query.offset, query.max_batches)
        return RecordBatchList(
            batches=found,
            next_offset=found[-1].last_offset + 1 if found else query.offset,
            log_start_offset=bounds.log_start_offset,
            last_stable_offset=bounds.last_stable_offset,
            log_end_offset=bounds.log_end_offset,
        )

    async def replace_record_batches(self, call: Call) -> ReplacedBatches:
        request: ReplaceRecordBatchesRequest = call.request
        topic, partition = await partition_of(call, self._metadata, request.topic_id)
        if topic.config["cleanup.policy"] != "compact":
            raise InvalidRequest(f"topic {topic.name!r} is not compacted: its cleanup.policy is not compact")
        if any(left.base_offset >= right.base_offset for left, right in pairwise(request.batches)):
            raise InvalidRequest("batches must ascend by base_offset, each named once")
        wanted = [
            Replacement(
                batch.base_offset, batch.generation, [(each.first_offset, each.last_offset) for each in batch.remove]
            )
            for batch in request.batches
        ]
        return ReplacedBatches(batches=await self._compaction.replace(topic.topic_id, partition, wanted))
