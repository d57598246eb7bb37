"""The messages of topics: make, list, describe, change, and delete records."""

from typing import Annotated

from msgspec import Meta

from sharequeue.protocol.messages.fields import (
    ConfigName,
    ConfigValue,
    Offset,
    PageSize,
    PageToken,
    PartitionIndex,
    Partitions,
    Request,
    Response,
    TopicName,
)
from sharequeue.protocol.types import MAX_CONFIGS, MAX_INT64, MAX_PARTITIONS_NAMED, Int32


class CreateTopicRequest(Request):
    name: TopicName
    partitions: Partitions = 1
    config: Annotated[dict[str, ConfigValue], Meta(max_length=MAX_CONFIGS)] = {}


class Topic(Response):
    name: str
    topic_id: str
    partitions: Int32
    config: dict[str, str]


class TopicListing(Response):
    name: str
    topic_id: str
    partitions: Int32


class ListTopicsQuery(Request):
    page_size: PageSize = 1000
    page_token: PageToken | None = None


class TopicList(Response):
    topics: list[TopicListing]
    next_page_token: str | None = None


class PartitionOffsets(Response):
    partition: PartitionIndex
    log_start_offset: Offset
    last_stable_offset: Offset
    log_end_offset: Offset


class TopicDescription(Response):
    name: str
    topic_id: str
    config: dict[str, str]
    partitions: list[PartitionOffsets]


class UpdateTopicRequest(Request):
    """`null` for a setting, or its name in `reset`, goes back to the default."""

    partitions: Partitions | None = None
    config: Annotated[dict[str, ConfigValue | None], Meta(max_length=MAX_CONFIGS)] = {}
    reset: Annotated[list[ConfigName], Meta(max_length=MAX_CONFIGS)] = []


class DeleteRecordsPartition(Request):
    partition: PartitionIndex
    before_offset: Annotated[int, Meta(ge=-1, le=MAX_INT64, extra_json_schema={"format": "int64"})]


class DeleteRecordsRequest(Request):
    partitions: Annotated[list[DeleteRecordsPartition], Meta(min_length=1, max_length=MAX_PARTITIONS_NAMED)]


class DeletedRecordsPartition(Response):
    partition: PartitionIndex
    log_start_offset: Offset


class DeletedRecords(Response):
    partitions: list[DeletedRecordsPartition]
