"""The part of a path that several calls share: a partition of a topic."""

from sharequeue.http.application.endpoint import Call
from sharequeue.protocol.errors import InvalidRequest
from sharequeue.protocol.types import MAX_INT32, whole_number
from sharequeue_gateway.cluster.metadata import KnownTopic, Metadata


async def partition_of(call: Call, metadata: Metadata) -> tuple[KnownTopic, int]:
    """The topic and partition in the path. Raises: InvalidRequest: not a number; UnknownTopicOrPartition."""
    text = call.path["partition"]
    partition = whole_number(text, MAX_INT32)
    if partition is None:
        raise InvalidRequest(f"a partition is a number from 0 to {MAX_INT32}, not {text!r}")
    return await metadata.topic_with(call.path["topic"], partition), partition
