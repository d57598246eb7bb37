"""The calls of jobs besides reading and writing: groups and their offsets, deleting records."""

from collections.abc import Mapping, Sequence

from sharequeue.protocol import apis
from sharequeue.protocol.messages.compaction import BatchReplacement, ReplaceRecordBatchesRequest
from sharequeue.protocol.messages.groups import ListShareGroupsQuery
from sharequeue.protocol.messages.topics import (
    CreateTopicRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    TopicDescription,
)
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.group_client import GroupClient


class OperatorClient(GroupClient):
    """A client with the calls of operators. Every method may raise PipelineError."""

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic, unless it exists."""
        try:
            self.ask(apis.CREATE_TOPIC, CreateTopicRequest(name=topic, partitions=partitions))
        except PipelineError as fault:
            if fault.code != "TOPIC_ALREADY_EXISTS":
                raise

    def start_offsets(self, topic: str, topic_id: str) -> dict[int, dict[str, int]]:
        """By partition: the offset below which each group that reads the topic has finished all records; 0 if unknown.

        The persisted start offset can be one write behind. So a group without lag has finished everything up to the log
        end, and for a group with lag its leader is asked (listInFlightRecords).
        """
        starts: dict[int, dict[str, int]] = {}
        pages = self.list_pages(apis.LIST_SHARE_GROUPS, ListShareGroupsQuery())
        for group in (each.group_id for page in pages for each in page.groups):
            entries = [
                entry for each in self.group_offsets(group) if each.topic_id == topic_id for entry in each.partitions
            ]
            for entry in entries:
                done = entry.log_end_offset if entry.lag == 0 else max(entry.start_offset, 0)
                starts.setdefault(entry.partition, {})[group] = done
            if any(entry.lag != 0 for entry in entries):
                for place in self.in_flight(group, [topic]):
                    known = starts.get(place.partition, {})
                    if group in known:
                        known[group] = max(known[group], place.start_offset)
        return starts

    def delete_records(self, topic: TopicDescription, before: Mapping[int, int]) -> None:
        """Delete records of this topic, not of a later one of its name. `before`: the new log start, by partition."""
        partitions = [DeleteRecordsPartition(partition=place, before_offset=at) for place, at in sorted(before.items())]
        request = DeleteRecordsRequest(partitions=partitions, topic_id=topic.topic_id)
        self.ask(apis.DELETE_RECORDS, request, topic=topic.name)

    def replace(self, topic: TopicDescription, partition: int, batches: Sequence[BatchReplacement]) -> None:
        """Remove records from stored batches, which get new generations."""
        request = ReplaceRecordBatchesRequest(batches=list(batches), topic_id=topic.topic_id)
        self.ask(apis.REPLACE_RECORD_BATCHES, request, topic=topic.name, partition=partition)
