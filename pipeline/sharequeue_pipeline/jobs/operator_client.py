"""The calls of jobs besides reading and writing: groups and their offsets, deleting records."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sharequeue.protocol import apis
from sharequeue.protocol.errors import ApiError
from sharequeue.protocol.messages.compaction import (
    BatchReplacement,
    ReplacedBatch,
    ReplaceRecordBatchesRequest,
)
from sharequeue.protocol.messages.groups import ListShareGroupsQuery, ShareGroupOffsets
from sharequeue.protocol.messages.in_flight import InFlightPartition, InFlightQuery
from sharequeue.protocol.messages.topics import (
    CreateTopicRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    TopicDescription,
)
from sharequeue_pipeline.errors import refused
from sharequeue_pipeline.gateway_client import GatewayClient


class OperatorClient(GatewayClient):
    """A client with the calls of operators. Every method may raise PipelineError."""

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic, unless it exists."""
        try:
            self._call(apis.CREATE_TOPIC, CreateTopicRequest(name=topic, partitions=partitions))
        except ApiError as error:
            if error.error.code != "TOPIC_ALREADY_EXISTS":
                raise refused(error, self._options.url) from None

    def start_offsets(self, topic: str, topic_id: str) -> dict[int, dict[str, int]]:
        """By partition: the offset below which each group that reads the topic has finished all records; 0 if unknown.

        The persisted start offset can be one write behind. So a group without lag has finished everything up to the log
        end, and for a group with lag its leader is asked (listInFlightRecords).
        """
        starts: dict[int, dict[str, int]] = {}
        for group in self._groups():
            listed: ShareGroupOffsets | None = self._of_group(apis.LIST_SHARE_GROUP_OFFSETS, group)
            entries = [
                entry
                for each in (listed.topics if listed is not None else ())
                if each.topic_id == topic_id
                for entry in each.partitions
            ]
            for entry in entries:
                done = entry.log_end_offset if entry.lag == 0 else max(entry.start_offset, 0)
                starts.setdefault(entry.partition, {})[group] = done
            if any(entry.lag != 0 for entry in entries):
                for place in self._in_flight(group, topic):
                    known = starts.get(place.partition, {})
                    if group in known:
                        known[group] = max(known[group], place.start_offset)
        return starts

    def _groups(self) -> Iterator[str]:
        """The ids of all groups."""
        token = None
        while True:
            page = self.ask(apis.LIST_SHARE_GROUPS, ListShareGroupsQuery(page_token=token))
            yield from (group.group_id for group in page.groups)
            token = page.next_page_token
            if token is None:
                return

    def _in_flight(self, group: str, topic: str) -> Iterator[InFlightPartition]:
        """The partitions of a topic with a group's records in flight; none if the group was deleted."""
        token = None
        while True:
            query = InFlightQuery(topic=topic, page_token=token)
            page = self._of_group(apis.LIST_IN_FLIGHT_RECORDS, group, query)
            if page is None:
                return
            yield from page.partitions
            token = page.next_page_token
            if token is None:
                return

    def _of_group(self, api: apis.Api, group: str, request: Any = None) -> Any:
        """Make a call about a group. Returns: None if the group was deleted."""
        try:
            return self._call(api, request, group=group)
        except ApiError as error:
            if error.error.code == "GROUP_ID_NOT_FOUND":
                return None
            raise refused(error, self._options.url) from None

    def delete_records(self, topic: TopicDescription, before: Mapping[int, int]) -> None:
        """Delete records of this topic, not of a later one of its name. `before`: the new log start, by partition."""
        partitions = [DeleteRecordsPartition(partition=place, before_offset=at) for place, at in sorted(before.items())]
        request = DeleteRecordsRequest(partitions=partitions, topic_id=topic.topic_id)
        self.ask(apis.DELETE_RECORDS, request, topic=topic.name)

    def replace(
        self, topic: TopicDescription, partition: int, batches: Sequence[BatchReplacement]
    ) -> list[ReplacedBatch]:
        """Remove records from stored batches. Returns: the batches after it, with their new generations."""
        request = ReplaceRecordBatchesRequest(batches=list(batches), topic_id=topic.topic_id)
        answer: list[ReplacedBatch] = self.ask(
            apis.REPLACE_RECORD_BATCHES, request, topic=topic.name, partition=partition
        ).batches
        return answer
