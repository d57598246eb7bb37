"""The messages of topics: make, list, describe, change, and delete records."""

from typing import Annotated

from msgspec import Meta

from sharequeue.protocol.messages import fields
from sharequeue.protocol.messages.fields import Request, Response, at_most
from sharequeue.protocol.types import MAX_INT64, MAX_PAGE_SIZE, MAX_PARTITIONS_NAMED, Int32


class CreateTopicRequest(Request):
    """A new topic. Only its name is required."""

    name: fields.TopicName
    """1 to 249 characters of `a-z`, `A-Z`, `0-9`, `.`, `_` and `-`; not `.` or `..`, and not `__…`."""
    partitions: fields.Partitions = 1
    """How many partitions the topic has, at most 10,000 unless the service says otherwise. Later it only grows."""
    config: fields.ConfigValues = {}
    """Settings by name; all values are text (`"retention.ms":"86400000"`). Others have their defaults. At most 100."""


class TopicListing(Response):
    """A topic without its settings."""

    name: str
    """The name that was given when the topic was created. It never changes."""
    topic_id: fields.TopicId
    partitions: Int32
    """How many partitions the topic has. They are numbered from 0."""


class Topic(TopicListing):
    """A topic and its settings."""

    config: dict[str, str]
    """Every setting in force by name, as text."""


class ListTopicsQuery(Request):
    """A page of the topics."""

    page_size: fields.PageSize = 1000
    page_token: fields.PageToken | None = None


class TopicList(Response):
    """A page of all topics, in the order of their names."""

    topics: Annotated[list[TopicListing], at_most(MAX_PAGE_SIZE)]
    """At most `page_size` topics, by name."""
    next_page_token: fields.NextPageToken | None = None


class PartitionOffsets(Response):
    """The bounds of a partition's log."""

    partition: fields.PartitionNumber
    log_start_offset: fields.Offset
    """The first offset that can be read. Retention and deleteRecords raise it."""
    last_stable_offset: fields.Offset
    """The offset behind the last record that a `read_committed` reader is given."""
    log_end_offset: fields.Offset
    """The offset that the next record gets: one above the last record's."""


class TopicDescription(Response):
    """A topic, its settings, and the bounds of its partitions."""

    name: str
    """The name that was given when the topic was created. It never changes."""
    topic_id: fields.TopicId
    config: dict[str, str]
    """Every setting in force by name, as text."""
    partitions: list[PartitionOffsets]
    """The offsets of each partition, by number."""


class UpdateTopicRequest(Request):
    """The changes of a topic. `null` for a setting, or its name in `reset`, goes back to the default."""

    partitions: fields.Partitions | None = None
    """How many partitions the topic has from now on. Fewer than it has are refused (INVALID_PARTITIONS)."""
    config: fields.ConfigValues = {}
    """Settings by name that change; all values are text. Others stay. At most 100."""
    reset: fields.ConfigNames = []
    """Names of settings that go back to their defaults, at most 100."""


class DeleteRecordsPartition(Request):
    """A partition, and the offset that its log begins at from now on."""

    partition: fields.PartitionNumber
    before_offset: Annotated[int, Meta(ge=-1, le=MAX_INT64, extra_json_schema={"format": "int64"})]
    """Records below this offset are deleted; −1 deletes all that there are now."""


class DeleteRecordsRequest(Request):
    """The partitions whose oldest records are deleted."""

    partitions: Annotated[list[DeleteRecordsPartition], Meta(min_length=1, max_length=MAX_PARTITIONS_NAMED)]
    """1 to 20,000 partitions of the topic. A request that names one twice is refused."""
    topic_id: fields.Uuid | None = None
    """The id of the topic that is meant. If the topic of this name has another id, nothing happens."""


class DeletedRecordsPartition(Response):
    """A partition, and the start of its log."""

    partition: fields.PartitionNumber
    log_start_offset: fields.Offset
    """The first offset that can be read from now on."""


class DeletedRecords(Response):
    """The partitions whose records were deleted."""

    partitions: Annotated[list[DeletedRecordsPartition], at_most(MAX_PARTITIONS_NAMED)]
    """The new start of each partition, in request order."""
