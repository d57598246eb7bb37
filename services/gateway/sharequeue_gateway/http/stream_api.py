"""The stream of a group's records: checks the request, and sends what `routing/streams.py` decides as events.

A page of another site can make a browser send a GET. So a stream acquires only for a request that asks for an event
stream, and origins are checked as for a POST (`sharequeue_http/origins.py`).
"""

from dataclasses import dataclass
from functools import partial

from sharequeue.protocol import apis
from sharequeue.protocol.errors import checked_group_id
from sharequeue.protocol.messages.records import StreamQuery
from sharequeue.protocol.types import MAX_TOPICS_NAMED
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.delivery.fetching_members import FetchingMembers
from sharequeue_gateway.delivery.waiting import WaitingFetch
from sharequeue_gateway.http.access.watch import KeyWatch
from sharequeue_gateway.http.answers.event_stream import EVENT_STREAM, HEADERS, HEARTBEAT, event_bytes, parse_event_id
from sharequeue_gateway.http.answers.media_types import qualities
from sharequeue_gateway.http.named_partitions import named_partitions
from sharequeue_gateway.routing.stream import StreamEvent
from sharequeue_gateway.routing.streams import Opening, Streams
from sharequeue_http.answer import Answer, Stream
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.errors import InvalidRequest


@dataclass(eq=False)
class StreamApi:
    """The handler of streamRecords."""

    _metadata: Metadata
    _streams: Streams
    _members: FetchingMembers
    _watch: KeyWatch | None

    async def stream_records(self, call: Call) -> Stream | Answer:
        request: StreamQuery = call.request
        group_id = checked_group_id(call.path["group"])
        if not qualities(call.header("accept") or "").get(EVENT_STREAM):
            raise InvalidRequest(
                "a stream acquires records, so the request must ask for it: send the header Accept: text/event-stream",
                status=406,
            )
        last_event_id = call.header("last-event-id")
        last = parse_event_id(last_event_id) if last_event_id else None
        topics = list(dict.fromkeys(request.topic.split(",")))
        if len(topics) > MAX_TOPICS_NAMED:
            raise InvalidRequest(
                f"the stream names {len(topics)} topics; name at most {MAX_TOPICS_NAMED}", limit=MAX_TOPICS_NAMED
            )
        named = await named_partitions(self._metadata, topics, (), (), self._metadata.how_to_make_topics)
        if named.faults:
            raise named.faults[0].error
        if call.exchange.method == b"HEAD":
            return Answer(b"", headers=HEADERS)
        encode = partial(self._bytes_of, group_id, request.member_id, call.request_id)
        opening = Opening(
            group_id,
            request.member_id,
            topics,
            request.window,
            request.resume_ms,
            last,
            encode,
            partial(self._begun, call),
            call.caller.principal,
        )
        self._members.hosts[group_id, request.member_id] = call.exchange.connection.peer
        pulse = partial(call.exchange.write_at_once, HEARTBEAT)
        return Stream(self._streams.open(call.exchange, pulse, opening), HEADERS)

    def _begun(self, call: Call, waiting: WaitingFetch) -> None:
        if self._watch is not None:
            self._watch.add(waiting, apis.STREAM_RECORDS, call)

    def _bytes_of(self, group_id: str, member_id: str, request_id: str, event: StreamEvent) -> bytes:
        return event_bytes(event, member_id, self._metadata.lock_duration_ms(group_id), request_id)
