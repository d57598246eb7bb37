"""The body of a fetch's answer, put together from slices of record batches: no record is parsed or built."""

from collections.abc import Sequence
from typing import Final

import msgspec

from sharequeue.protocol.messages import AcknowledgementResult, PartitionError, PartitionLeader
from sharequeue_gateway.delivery.fetcher import PartitionFault
from sharequeue_gateway.delivery.partition_reader import Acquisition
from sharequeue_gateway.record_log.record_batch import RecordBatch, holding

_encode: Final = msgspec.json.Encoder().encode


def fetch_answer(
    member_id: str,
    lock_duration_ms: int,
    acquired: Sequence[Acquisition],
    results: Sequence[AcknowledgementResult],
    failed_count: int,
    faults: Sequence[PartitionFault],
    *,
    with_records: bool,
    passed_on: Sequence[msgspec.Raw] = (),
    leaders: Sequence[PartitionLeader] = (),
    more_errors: int = 0,
) -> bytes:
    """Build the FetchResponse.

    Args:
        passed_on: entries of `batches` that other gateways made.
        leaders: those gateways.
        lock_duration_ms: the group's lock duration, how long fresh locks last.
        more_errors: how many partitions failed besides `faults`.
        with_records: False leaves the records out: the ranges alone.
    """
    entries = [*fetched_entries(acquired, with_records=with_records), *passed_on]
    return b"".join(
        (
            b'{"member_id":',
            _encode(member_id),
            b',"acquisition_lock_timeout_ms":%d,"batches":[' % lock_duration_ms,
            b",".join(entries),
            b'],"acknowledgement_results":',
            _encode(results),
            b',"failed_count":%d,"errors":' % failed_count,
            _encode([partition_error(fault) for fault in faults]),
            b',"more_errors":%d' % more_errors if more_errors else b"",
            b',"leaders":%b}' % _encode(leaders) if leaders else b"}",
        )
    )


def fetched_entries(acquired: Sequence[Acquisition], *, with_records: bool) -> list[bytes]:
    """The entries of `batches`: one for each acquired range."""
    return [
        _entry(acquisition, range_index, with_records)
        for acquisition in acquired
        for range_index in range(len(acquisition.ranges))
    ]


def _entry(acquisition: Acquisition, range_index: int, with_records: bool) -> bytes:
    first_offset, last_offset, delivery_count, deadline_ms = acquisition.ranges[range_index]
    head = b'%b%d,"last_offset":%d,"delivery_count":%d,"lock_expires_at_ms":%d' % (
        acquisition.led.json_prefix,
        first_offset,
        last_offset,
        delivery_count,
        deadline_ms,
    )
    if not with_records:
        return head + b"}"
    return b"".join((head, b',"records":[', _records(acquisition.batches, first_offset, last_offset), b"]}"))


def _records(batches: Sequence[RecordBatch], first_offset: int, last_offset: int) -> bytes | memoryview:
    slices = [
        part
        for batch in (batches if len(batches) == 1 else holding(batches, first_offset, last_offset))
        if (part := batch.slice(max(first_offset, batch.base_offset), min(last_offset, batch.last_offset)))
    ]
    return slices[0] if len(slices) == 1 else b",".join(slices)


def partition_error(fault: PartitionFault) -> PartitionError:
    error = fault.error
    return PartitionError(
        topic=fault.topic,
        partition=fault.partition,
        code=error.error.code,
        kafka_code=error.error.kafka_code,
        detail=error.detail,
    )
