"""The partitions that a request names: each once, at most MAX_PARTITIONS_NAMED. Unknown partitions become faults.

Each name is looked up once, even if a request repeats it a million times.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sharequeue.protocol.errors import InvalidTopic, NotLeaderOrFollower, UnknownTopicOrPartition
from sharequeue.protocol.messages.records import TopicPartitions
from sharequeue.protocol.types import MAX_ERRORS, MAX_INT32, MAX_PARTITIONS_NAMED, SharePartitionKey, topic_name_fault
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.metadata import KnownTopic, Metadata
from sharequeue_gateway.delivery.fetch_request import PartitionFault
from sharequeue_gateway.leader.led_index import all_of
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.errors import ApiError, InvalidRequest
from sharequeue_http.forms.mistakes import quoted
from sharequeue_http.forms.texts import whole_number

WHOLE: Final = -1
"""Stands for all partitions of a topic."""
NONE_REFUSED: Final[Mapping[str, ApiError]] = {}


class Named(NamedTuple):
    """`faults`: the first partitions that do not exist; `more_faults`: how many more there are."""

    partitions: Sequence[tuple[KnownTopic, int]]
    faults: Sequence[PartitionFault]
    more_faults: int


async def named_partitions(
    metadata: Metadata,
    topics: Sequence[str],
    topic_partitions: Sequence[TopicPartitions],
    forgotten: Sequence[TopicPartitions],
    hint: str = "",
    refused: Mapping[str, ApiError] = NONE_REFUSED,
) -> Named:
    """Look up what a request names.

    Args:
        topics: all of their partitions are named. forgotten: counted for the bound, and not looked up.
            hint: how to get a missing topic. refused: topics that the caller may not read; they become faults, and are
            not looked up.
    Raises: InvalidRequest (422): more than MAX_PARTITIONS_NAMED, each mention counted. InvalidTopic: a forgotten
        topic has a name that no topic can have.
    """
    for entry in forgotten:
        fault = topic_name_fault(entry.topic)
        if fault:
            raise InvalidTopic(fault)
    listed = sum(len(entry.partitions) for entries in (topic_partitions, forgotten) for entry in entries)
    _check(listed)
    wanted = {name: {WHOLE: None} for name in topics}
    for entry in topic_partitions:
        wanted.setdefault(entry.topic, {}).update(dict.fromkeys(entry.partitions))
    away = None
    try:
        await metadata.ask_for(
            {name: max(indexes, default=0) for name, indexes in wanted.items() if name not in refused}
        )
    except ApiError as error:
        away = error
    known = {
        name: topic for name in wanted if name not in refused and (topic := metadata.by_name.get(name)) is not None
    }
    _check(listed + sum(known[name].partitions for name in known if WHOLE in wanted[name]))
    if len(known) == len(wanted) and not topic_partitions:
        return Named(all_of(known.values()), (), 0)
    partitions: dict[tuple[str, int], tuple[KnownTopic, int]] = {}
    failed: list[tuple[str, int]] = []
    for name, indexes in wanted.items():
        topic = known.get(name)
        if topic is None:
            failed += ((name, index) for index in indexes or (WHOLE,))
            continue
        if WHOLE in indexes:
            partitions.update(((topic.topic_id, index), (topic, index)) for index in range(topic.partitions))
        there = [index for index in indexes if WHOLE < index < topic.partitions]
        partitions.update(((topic.topic_id, index), (topic, index)) for index in there)
        failed += ((name, index) for index in indexes if index >= topic.partitions)
    faults = []
    for name, index in failed[:MAX_ERRORS]:
        missing = refused.get(name) or metadata.missing(name, index, hint)
        if away is not None and isinstance(missing, UnknownTopicOrPartition):
            missing = away  # without an answer, the topic may exist
        faults.append(PartitionFault(name, index, missing))
    return Named(list(partitions.values()), faults, max(len(failed) - MAX_ERRORS, 0))


def _check(count: int) -> None:
    if count > MAX_PARTITIONS_NAMED:
        raise InvalidRequest(
            f"the request names {count} partitions, those of whole topics counted; name at most "
            f"{MAX_PARTITIONS_NAMED}, and the others in further requests",
            limit=MAX_PARTITIONS_NAMED,
        )


def number_in(call: Call, name: str, most: int) -> int:
    """A number in the path. Raises: InvalidRequest."""
    number = whole_number(call.path[name], most)
    if number is None:
        raise InvalidRequest(f"{name} is a number from 0 to {most}, not {quoted(call.path[name])!r}")
    return number


async def partition_of(call: Call, metadata: Metadata, topic_id: str | None = None) -> tuple[KnownTopic, int]:
    """The topic and partition in the path. Raises: InvalidRequest: not a number; UnknownTopicOrPartition;
    UnknownTopicId: the topic has another id."""
    partition = number_in(call, "partition", MAX_INT32)
    return await metadata.topic_with(call.path["topic"], partition, topic_id), partition


async def led_here(
    metadata: Metadata, cluster: Cluster, group_id: str, named: Sequence[TopicPartitions]
) -> tuple[list[tuple[KnownTopic, int]], list[PartitionFault]]:
    """The partitions of another gateway's request that this gateway leads; the others become faults."""
    partitions: list[tuple[KnownTopic, int]] = []
    faults: list[PartitionFault] = []
    for entry in named:
        try:
            topic = await metadata.topic(entry.topic)
        except ApiError as error:
            faults += [PartitionFault(entry.topic, partition, error) for partition in entry.partitions]
            continue
        for partition in entry.partitions:
            if cluster.leads(SharePartitionKey(group_id, topic.topic_id, partition)):
                partitions.append((topic, partition))
            else:
                moved = NotLeaderOrFollower(f"{cluster.me.node_id} does not lead this share-partition")
                faults.append(PartitionFault(entry.topic, partition, moved))
    return partitions, faults
