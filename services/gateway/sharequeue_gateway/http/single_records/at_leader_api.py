"""The calls that one leader answers: the window of a share-partition in buckets, and changes of a record by hand.

A change of a held record is an acknowledgement in the name of its holder. So what the holder sends later is refused.
"""

from dataclasses import dataclass
from typing import Any, Final

from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.errors import InvalidRecordState, checked_group_id, error_of
from sharequeue.protocol.messages.in_flight import (
    BY_HAND,
    ChangeRecordRequest,
    RecordChange,
    Window,
    WindowBucket,
    WindowQuery,
)
from sharequeue.protocol.messages.leaders import LeaderAcknowledgeRequest
from sharequeue.protocol.messages.records import Acknowledgement
from sharequeue.protocol.messages.share_state import PartitionState
from sharequeue.protocol.types import DeliveryState, Reason, SharePartitionKey
from sharequeue.slices import in_slices
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.delivery.acknowledging import Acknowledger
from sharequeue_gateway.http.named_partitions import partition_of
from sharequeue_gateway.http.single_records.look_up_api import offset_of
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.record_log.log import RecordLog
from sharequeue_gateway.routing.routing import Routing
from sharequeue_gateway.share_partition.machine import SharePartition
from sharequeue_gateway.share_partition.runs import ACQUIRED, AVAILABLE, Run
from sharequeue_http.application.endpoint import Call, Handler
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import ApiError, InvalidRequest

STATES: Final = {state: state.name.lower() for state in DeliveryState}
MAY_RUN: Final = "its worker may still be running it"


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

    async def window_at_leader(self, call: Call) -> Window:
        """Count what is in memory here. Without that the share coordinator knows where the window begins."""
        query: WindowQuery = call.request
        topic, partition = await partition_of(call, self._metadata)
        key = SharePartitionKey(call.path["group"], topic.topic_id, partition)
        bounds = (await self._record_log.offsets(topic.topic_id, [partition]))[partition]
        led = self._leader.loaded(key)
        if led is None:
            asked = {topic.topic_id: [PartitionState(partition=partition)]}
            state = (await self._share_coordinators.state(apis.READ_STATE_SUMMARY, key.group_id, asked))[key]
            if state.error_code:
                raise error_of(state.error_code, state.error_message)
            start_offset = -1 if state.start_offset is None else state.start_offset
            end_offset = start_offset - 1
        else:
            start_offset = led.machine.start_offset
            end_offset = led.machine.end_offset if led.machine.runs else start_offset - 1
        first = max(start_offset, bounds.log_start_offset) if query.from_offset is None else query.from_offset
        end = bounds.log_end_offset if query.to_offset is None else min(query.to_offset, bounds.log_end_offset)
        if query.to_offset is not None and first > query.to_offset:
            raise InvalidRequest(f"from_offset {first} is after to_offset {query.to_offset}")
        size = max(-(-(end - first) // query.buckets), 1)
        buckets = [WindowBucket() for _ in range(first, end, size)]
        for number, bucket in enumerate(buckets):
            begin, behind = first + number * size, min(first + (number + 1) * size, end)
            bucket.finished = max(min(start_offset, behind) - begin, 0)
            bucket.new = max(behind - max(end_offset + 1, begin), 0)
            bucket.unread = behind - begin - bucket.finished - bucket.new
        if led is not None:
            await _count(led.machine, buckets, first, end, size)
        return Window(
            loaded=led is not None,
            start_offset=start_offset,
            end_offset=end_offset,
            log_start_offset=bounds.log_start_offset,
            log_end_offset=bounds.log_end_offset,
            from_offset=first,
            to_offset=max(first, end),
            bucket_size=size,
            buckets=buckets,
        )

    async def change_at_leader(self, call: Call) -> RecordChange:
        request: ChangeRecordRequest = call.request
        group_id, offset = call.path["group"], offset_of(call)
        topic, partition = await partition_of(call, self._metadata)
        (led,) = await self._leader.get(group_id, [(topic, partition)], initialize=False)
        if isinstance(led, ApiError):
            raise led
        run = next(led.machine.overlapping(offset, offset), None)
        if run is None or run.state is not ACQUIRED or run.member_id is None:
            if request.action not in ("deliver_now", "reject"):
                raise InvalidRecordState(f"offset {offset} is not held: {request.action} needs a held record")
            reason = Reason(request.reason or BY_HAND) if request.action == "reject" else None
            error = await self._leader.settle_delayed(led, offset, request.delivery_count, reason)
            if error is not None:
                error.definite = False  # this leader has decided; only its next one may not know
                raise error
            return RecordChange()
        if request.action == "deliver_now":
            raise InvalidRecordState(f"offset {offset} is held: deliver_now needs a delayed record; release it")
        member_id = run.member_id
        acknowledgement = Acknowledgement(
            topic=topic.name,
            topic_id=topic.topic_id,
            partition=partition,
            first_offset=offset,
            last_offset=offset,
            type="renew" if request.action == "extend" else request.action,
            delivery_count=request.delivery_count,
            reason=None if request.reason is None else Reason(request.reason),
            delay_ms=request.delay_ms,
            lock_duration_ms=request.lock_duration_ms,
        )
        by_hand = LeaderAcknowledgeRequest(member_id=member_id, acknowledgements=[acknowledgement])
        (result,) = await self._acknowledger.acknowledge(group_id, by_hand)
        if result.kafka_code is not None:
            refused = error_of(result.kafka_code, result.detail)
            refused.definite = result.status == "failed"
            raise refused
        if result.status == "ignored":
            raise InvalidRecordState(
                f"offset {offset} was removed from the log: its holder keeps it until its lock ends"
            )
        return RecordChange(member_id=member_id, note=MAY_RUN)


async def _count(machine: SharePartition, buckets: list[WindowBucket], first: int, end: int, size: int) -> None:
    """Count the records of the window. Runs come and go in the pauses: a few are then missed, or counted twice."""
    async for run in in_slices(machine.overlapping(max(first, machine.start_offset), end - 1)):
        begin, last = max(run.first, first, machine.start_offset), min(run.last, end - 1)
        while begin <= last:
            number = (begin - first) // size
            behind = min(first + (number + 1) * size, last + 1)
            _add(buckets[number], run, behind - begin)
            begin = behind


def _add(bucket: WindowBucket, run: Run, records: int) -> None:
    state = STATES[run.state]
    if run.write is not None and run.write.pends:
        state = "pending"
    elif run.available_at_ms:
        state = "delayed"
        bucket.available_at_ms = min(bucket.available_at_ms or run.available_at_ms, run.available_at_ms)
    elif run.state is AVAILABLE and not run.delivery_count:
        state = "new"
    elif run.state is ACQUIRED:
        one = not bucket.acquired or bucket.member_id == run.member_id
        bucket.member_id = run.member_id if one else None
        bucket.lock_expires_at_ms = min(bucket.lock_expires_at_ms or run.lock_expires_at_ms, run.lock_expires_at_ms)
    setattr(bucket, state, getattr(bucket, state) + records)
    bucket.unread = max(bucket.unread - records, 0)
