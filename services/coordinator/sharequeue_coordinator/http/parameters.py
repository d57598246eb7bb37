"""Checks of parameters that several calls have."""

from sharequeue.http.serving import Call
from sharequeue.protocol.errors import InvalidGroupId, InvalidRequest
from sharequeue.protocol.types import MAX_PAGE_SIZE, group_id_fault


def group_of(call: Call) -> str:
    """The group id in the path. Raises: InvalidGroupId."""
    group_id = call.path["group"]
    fault = group_id_fault(group_id)
    if fault:
        raise InvalidGroupId(fault)
    return group_id


def check_page_size(page_size: int) -> None:
    """Raises: InvalidRequest."""
    if not 1 <= page_size <= MAX_PAGE_SIZE:
        raise InvalidRequest(f"page_size must be in the range 1 to {MAX_PAGE_SIZE}", limit=MAX_PAGE_SIZE)
