"""Checks of parameters that several calls have."""

from sharequeue.http.endpoint import Call
from sharequeue.protocol.errors import InvalidGroupId
from sharequeue.protocol.types import group_id_fault


def group_of(call: Call) -> str:
    """The group id in the path. Raises: InvalidGroupId."""
    group_id = call.path["group"]
    fault = group_id_fault(group_id)
    if fault:
        raise InvalidGroupId(fault)
    return group_id
