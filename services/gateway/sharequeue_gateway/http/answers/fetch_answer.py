"""Builds the body of a fetch's answer from slices of record batches. It parses no record."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from sharequeue.protocol.errors import KAFKA_CODES
from sharequeue.protocol.messages.problems import AcknowledgementResult, PartitionError
from sharequeue.protocol.messages.records import PartitionLeader
from sharequeue_gateway.cluster.generation import Node
from sharequeue_gateway.delivery.fetch_request import AcquiredRecords, PartitionFault
from sharequeue_gateway.record_log.record_batch import RecordBatch, holding
from sharequeue_gateway.share_partition.acquisition import AcquiredRange

_encoder: Final = msgspec.json.Encoder()
_encode: Final = _encoder.encode
MANY_RESULTS: Final = 100
"""Results of more acknowledgements are encoded into the answer itself: they may be larger than the request."""


def fetch_answer(
    member_id: str,
    lock_duration_ms: int,
    acquired: Sequence[AcquiredRecords],
    faults: Sequence[PartitionFault],
    *,
    with_records: bool,
    results: Sequence[AcknowledgementResult] = (),
    failed_count: int = 0,
    passed_on: Iterable[msgspec.Raw] = (),
    leaders: Sequence[PartitionLeader] = (),
    more_errors: int = 0,
    paused: bool = False,
) -> bytes | bytearray:
    """Build the FetchResponse.

    Args:
        lock_duration_ms: the duration of new locks of the group.
        with_records: False leaves the records out and answers the ranges alone.
        failed_count: how many of the acknowledgements failed.
        passed_on: encoded entries of `batches`, made by the other gateways in `leaders`.
        more_errors: how many partitions failed besides `faults`.
        paused: whether the group acquires nothing because it is paused.
    """
    entries = [
        _entry(records, acquired_range, with_records) for records in acquired for acquired_range in records.ranges
    ]
    before = (
        b'{"member_id":',
        _encode(member_id),
        b',"acquisition_lock_timeout_ms":%d,"batches":[' % lock_duration_ms,
        b",".join((*entries, *passed_on)),
        b'],"acknowledgement_results":',
    )
    after = (
        b',"failed_count":%d,"errors":' % failed_count,
        _encode([partition_error(fault) for fault in faults]),
        b',"more_errors":%d' % more_errors if more_errors else b"",
        b',"paused":true' if paused else b"",
        b',"leaders":%b}' % _encode(leaders) if leaders else b"}",
    )
    if len(results) <= MANY_RESULTS:
        return b"".join((*before, _encode(results), *after))
    body = bytearray(b"".join(before))
    _encoder.encode_into(results, body, -1)
    body += b"".join(after)
    return body


def _entry(acquired: AcquiredRecords, acquired_range: AcquiredRange, with_records: bool) -> bytes:
    """An entry of `batches`: one acquired range."""
    first_offset, last_offset, delivery_count, deadline_ms, lock_duration_ms, forgiven = acquired_range
    head = b'%b%d,"last_offset":%d,"delivery_count":%d,"lock_expires_at_ms":%d,"lock_duration_ms":%d,"attempt":%d' % (
        acquired.led.json_prefix,
        first_offset,
        last_offset,
        delivery_count,
        deadline_ms,
        lock_duration_ms,
        delivery_count - forgiven,
    )
    if not with_records:
        return head + b"}"
    batches = acquired.batches
    if len(batches) == 1 and first_offset <= batches[0].base_offset and batches[0].last_offset <= last_offset:
        stored = memoryview(batches[0].stored)  # the records are the end of the stored form
        return b"".join((head, b',"records":[', stored[len(stored) - batches[0].size :], b"]}"))
    return b"".join((head, b',"records":[', _records(batches, first_offset, last_offset), b"]}"))


def _records(batches: Sequence[RecordBatch], first_offset: int, last_offset: int) -> bytes | memoryview:
    slices = [
        part
        for batch in (batches if len(batches) == 1 else holding(batches, first_offset, last_offset))
        if (part := batch.slice(max(first_offset, batch.base_offset), min(last_offset, batch.last_offset)))
    ]
    return slices[0] if len(slices) == 1 else b",".join(slices)


def leaders_here(acquired: Iterable[AcquiredRecords], me: Node) -> list[PartitionLeader]:
    """Name this gateway as the leader of the share-partitions of some records."""
    return [
        PartitionLeader(topic=item.led.topic_name, partition=item.led.key.partition, node_id=me.node_id, url=me.url)
        for item in acquired
    ]


def partition_error(fault: PartitionFault) -> PartitionError:
    error = fault.error
    return PartitionError(
        topic=fault.topic,
        partition=fault.partition,
        code=error.error.code,
        kafka_code=KAFKA_CODES[error.error],
        detail=error.detail,
    )
