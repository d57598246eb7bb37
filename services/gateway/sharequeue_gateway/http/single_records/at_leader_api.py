"""The calls that one leader answers: the window of a share-partition in buckets, and changes of a record by hand.

A change of a held record is an acknowledgement in the name of its holder. So what the holder sends later is refused.
"""

from dataclasses import dataclass
from typing import Any, Final

from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.errors import InvalidRecordState, checked_group_id, error_of
from sharequeue.protocol.messages import in_flight as messages
from sharequeue.protocol.messages.leaders import LeaderAcknowledgeRequest
from sharequeue.protocol.messages.records import Acknowledgement
from sharequeue.protocol.messages.share_state import PartitionState
from sharequeue.protocol.types import MAX_INT64, Reason, SharePartitionKey
from sharequeue.slices import in_slices
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.delivery.acknowledging import Acknowledger
from sharequeue_gateway.http.named_partitions import number_in, partition_of
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.record_log.log import RecordLog
from sharequeue_gateway.routing.routing import Routing
from sharequeue_gateway.share_partition.runs import ACQUIRED, AVAILABLE, Hold, Run
from sharequeue_http.application.endpoint import Call, Handler
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import ApiError, InvalidRequest

MAY_RUN: Final = "its worker may still be running it"
TYPES: Final = {"release": "release", "reject": "reject", "extend": "renew"}
"""The acknowledgement that an action is for a held record."""
OF_DELAYED: Final = ("deliver_now", "reject")


@dataclass(eq=False)
class AtLeaderApi:
    """The handlers of describeWindow and changeRecord, at any gateway and at the leader."""

    _metadata: Metadata
    _record_log: RecordLog
    _share_coordinators: ShareStateClient
    _leader: Leader
    _acknowledger: Acknowledger
    _routing: Routing

    async def describe_window(self, call: Call) -> Any:
        return await self._answered(apis.WINDOW_AT_LEADER, call, self.window_at_leader)

    async def change_record(self, call: Call) -> Any:
        return await self._answered(apis.CHANGE_AT_LEADER, call, self.change_at_leader)

    async def _answered(self, api: Api, call: Call, here: Handler) -> Any:
        place = await partition_of(call, self._metadata)
        return await self._routing.answered(
            self._routing.leader_of(checked_group_id(call.path["group"]), *place), api, call, here
        )

    async def window_at_leader(self, call: Call) -> messages.Window:
        """Count what is in memory here. Without that the share coordinator knows where the window begins."""
        query: messages.WindowQuery = call.request
        topic, partition = await partition_of(call, self._metadata)
        key = SharePartitionKey(call.path["group"], topic.topic_id, partition)
        bounds = (await self._record_log.offsets(topic.topic_id, [partition]))[partition]
        led = self._leader.loaded(key)
        start_offset = await self._stored_start(key) if led is None else led.machine.start_offset
        first = max(start_offset, bounds.log_start_offset) if query.from_offset is None else query.from_offset
        end = bounds.log_end_offset if query.to_offset is None else min(query.to_offset, bounds.log_end_offset)
        if query.to_offset is not None and first > query.to_offset:
            raise InvalidRequest(f"from_offset {first} is after to_offset {query.to_offset}")
        size = max(-(-(end - first) // query.buckets), 1)
        window = messages.Window(
            loaded=led is not None,
            start_offset=start_offset,
            end_offset=led.machine.end_offset if led and led.machine.runs else start_offset - 1,
            log_start_offset=bounds.log_start_offset,
            log_end_offset=bounds.log_end_offset,
            from_offset=first,
            to_offset=max(first, end),
            bucket_size=size,
            buckets=[messages.WindowBucket(unread=min(size, end - begin)) for begin in range(first, end, size)],
        )
        _count(window, "finished", 0, start_offset)
        _count(window, "new", max(window.end_offset + 1, 0), end)
        if led is not None:  # runs come and go in the pauses: a few are then missed, or counted twice
            async for run in in_slices(led.machine.overlapping(max(first, start_offset), end - 1)):
                _count(window, _state(run), max(run.first, start_offset), run.last + 1, run)
        return window

    async def _stored_start(self, key: SharePartitionKey) -> int:
        """Return the start offset of a share-partition that is not in memory; -1: the group has never fetched."""
        asked = {key.topic_id: [PartitionState(partition=key.partition)]}
        state = (await self._share_coordinators.state(apis.READ_STATE_SUMMARY, key.group_id, asked))[key]
        if state.error_code:
            raise error_of(state.error_code, state.error_message)
        return -1 if state.start_offset is None else state.start_offset

    async def change_at_leader(self, call: Call) -> messages.RecordChange:
        request: messages.ChangeRecordRequest = call.request
        offset = number_in(call, "offset", MAX_INT64)
        topic, partition = await partition_of(call, self._metadata)
        (led,) = await self._leader.get(call.path["group"], [(topic, partition)], initialize=False)
        if isinstance(led, ApiError):
            raise led
        run = next(led.machine.overlapping(offset, offset), None)
        member_id = None if run is None or run.state is not ACQUIRED else run.member_id
        if request.action not in (OF_DELAYED if member_id is None else TYPES):
            is_held, needs = ("not held", "held") if member_id is None else ("held", "delayed")
            raise InvalidRecordState(f"offset {offset} is {is_held}: {request.action} needs a {needs} record")
        if member_id is None:
            reason = Reason(request.reason or messages.BY_HAND) if request.action == "reject" else None
            await self._leader.settle_delayed(led, offset, request.delivery_count, reason)
            return messages.RecordChange()
        acknowledgement = Acknowledgement(
            topic=topic.name,
            topic_id=topic.topic_id,
            partition=partition,
            first_offset=offset,
            last_offset=offset,
            type=TYPES[request.action],
            delivery_count=request.delivery_count,
            reason=None if request.reason is None else Reason(request.reason),
            delay_ms=request.delay_ms,
            lock_duration_ms=request.lock_duration_ms,
        )
        by_hand = LeaderAcknowledgeRequest(member_id=member_id, acknowledgements=[acknowledgement])
        (result,) = await self._acknowledger.acknowledge(call.path["group"], by_hand)
        if result.kafka_code is not None:
            refused = error_of(result.kafka_code, result.detail)
            refused.definite = result.status == "failed"
            raise refused
        if result.status == "ignored":
            raise InvalidRecordState(
                f"offset {offset} was removed from the log: its holder keeps it until its lock ends"
            )
        return messages.RecordChange(member_id=member_id, note=MAY_RUN)


def _state(run: Run) -> str:
    """The count of a bucket that the records of a run belong to."""
    if isinstance(run.write, Hold):
        return "pending"
    if run.available_at_ms:
        return "delayed"
    return "new" if run.state is AVAILABLE and not run.delivery_count else run.state.name.lower()


def _count(window: messages.Window, state: str, begin: int, behind: int, run: Run | None = None) -> None:
    """Count the offsets up to `behind` (exclusive), with which the group does the same, in the buckets they lie in."""
    begin, behind = max(begin, window.from_offset), min(behind, window.to_offset)
    while begin < behind:
        number = (begin - window.from_offset) // window.bucket_size
        bucket, end = window.buckets[number], min(window.from_offset + (number + 1) * window.bucket_size, behind)
        if run is not None and state == "delayed":
            bucket.available_at_ms = min(bucket.available_at_ms or run.available_at_ms, run.available_at_ms)
        elif run is not None and state == "acquired":
            one = not bucket.acquired or bucket.member_id == run.member_id
            bucket.member_id = run.member_id if one else None
            bucket.lock_expires_at_ms = min(bucket.lock_expires_at_ms or run.lock_expires_at_ms, run.lock_expires_at_ms)
        setattr(bucket, state, getattr(bucket, state) + end - begin)
        bucket.unread = max(bucket.unread - (end - begin), 0)
        begin = end
