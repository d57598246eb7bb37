"""Server-Sent Events: the bytes of a stream. Source: the HTML standard, 9.2.

retry: 1000                         Opened: the time after which EventSource connects again; the id, without an event
id: 4f1c….0

id: 4f1c….1                         Records: an event without a name (`onmessage`)
data: {"member_id":"w-1",…}

event: problem                      Failing; Closed is `closed`, Replaced is `replaced`
data: {"code":"…","retriable":true,…}

:                                   a heartbeat
"""

import re
from typing import Final

from sharequeue.protocol.types import EVENT_ID
from sharequeue_gateway.http.answers.fetch_answer import fetch_answer
from sharequeue_gateway.routing.stream import Closed, EventId, Failing, Opened, Records, Replaced, StreamEvent
from sharequeue_http.forms.codec import encode
from sharequeue_http.forms.errors import ApiError, InvalidRequest
from sharequeue_http.forms.mistakes import quoted
from sharequeue_http.problems import problem_of

HEARTBEAT: Final = b":\n\n"
RETRY_MS: Final = 1000
EVENT_STREAM: Final = "text/event-stream"
HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
_REPLACED: Final = b'event: replaced\ndata: {"detail":"the member has opened its stream again; this one has ended"}\n\n'
_EVENT_ID: Final = re.compile(EVENT_ID)


def event_bytes(event: StreamEvent, member_id: str, lock_duration_ms: int, request_id: str) -> bytes:
    """One event as it is sent."""
    match event:
        case Opened(event_id):
            return b"retry: %d\nid: %b\n\n" % (RETRY_MS, _id_of(event_id))
        case Records(event_id, found):
            body = fetch_answer(
                member_id,
                found.lock_duration_ms or lock_duration_ms,
                found.acquired,
                found.faults,
                with_records=True,
                passed_on=[raw for _, raw in found.passed_on],
                leaders=found.leaders,
            )
            return b"id: %b\ndata: %b\n\n" % (_id_of(event_id), _data(bytes(body)))  # no copy without results
        case Failing(error):
            return b"event: problem\ndata: %b\n\n" % _problem(error, request_id)
        case Closed(error):
            return b"event: closed\ndata: %b\n\n" % _problem(error, request_id)
        case Replaced():
            return _REPLACED


def parse_event_id(text: str) -> EventId:
    """The event that a client names in `Last-Event-ID`. Raises: InvalidRequest."""
    found = _EVENT_ID.match(text)
    if found is None:
        raise InvalidRequest(
            f"the header Last-Event-ID is {quoted(text)!r}; send the id of an event of this stream as it came, or leave it out"
        )
    return EventId(found[1], int(found[2]))


def _id_of(event_id: EventId) -> bytes:
    return b"%b.%d" % (event_id.stream_id.encode(), event_id.position)


def _problem(error: ApiError, request_id: str) -> bytes:
    return encode(problem_of(error, request_id))


def _data(body: bytes) -> bytes:
    """A body as the value of the field `data`. A line break in it, which JSON allows between values, begins another
    such field: the client joins them."""
    if b"\r" in body:
        body = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return body.replace(b"\n", b"\ndata: ") if b"\n" in body else body
