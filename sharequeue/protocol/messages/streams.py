"""The stream of a group's records."""

from typing import Annotated

from msgspec import Meta

from sharequeue.protocol.messages.fields import MemberId, Request
from sharequeue.protocol.types import MAX_LOCK_DURATION_MS, MAX_STREAM_WINDOW


class StreamQuery(Request):
    """What a stream sends, and to whom."""

    topic: Annotated[str, Meta(min_length=1, max_length=8000)]
    """The name of the topic; several names are separated by commas. Each must exist."""
    member_id: MemberId
    """The member that holds the records: 1 to 36 characters. It has one stream of a group at a time."""
    window: Annotated[int, Meta(ge=1, le=MAX_STREAM_WINDOW, extra_json_schema={"format": "int32"})] = 100
    """The most records that the member holds of the stream at a time, from 1 to 2,000.
    Each acknowledgement makes room."""
    resume_ms: Annotated[int, Meta(ge=0, le=MAX_LOCK_DURATION_MS, extra_json_schema={"format": "int32"})] = 5000
    """How long the records stay held after a connection was lost, in milliseconds; then they are released. At most as
    long as the group's locks."""
