"""What the paths of several calls name: a group, or a partition of a topic."""

from sharequeue.http.endpoint import Call
from sharequeue.protocol.errors import InvalidGroupId, InvalidRequest
from sharequeue.protocol.types import MAX_INT32, group_id_fault, whole_number
from sharequeue_gateway.cluster.metadata import KnownTopic, Metadata


def group_of(call: Call) -> str:
    """The group id in the path. Raises: InvalidGroupId."""
    group_id = call.path["group"]
    fault = group_id_fault(group_id)
    if fault:
        raise InvalidGroupId(fault)
    return group_id


async def partition_of(call: Call, metadata: Metadata) -> tuple[KnownTopic, int]:
    """The topic and partition in the path. Raises: InvalidRequest: not a number; UnknownTopicOrPartition."""
    text = call.path["partition"]
    partition = whole_number(text, MAX_INT32)
    if partition is None:
        raise InvalidRequest(f"a partition is a number from 0 to {MAX_INT32}, not {text!r}")
    return await metadata.topic_with(call.path["topic"], partition), partition
