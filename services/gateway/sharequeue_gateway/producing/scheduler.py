"""Makes scheduled records of a request, as produce makes records: their partitions, their JSON and their times."""

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec

from sharequeue.protocol.messages.scheduled import ScheduleOutcome, ScheduleRecord, ScheduleResponse
from sharequeue_gateway.producing.producer import Prepared, bytes_of_key
from sharequeue_gateway.producing.record_tails import unfit
from sharequeue_gateway.record_log.scheduled.scheduled_log import NewRow
from sharequeue_gateway.record_log.unique_log import UniquePlace
from sharequeue_http.forms.codec import encode

CREATED_HEADER: Final = "__scheduled.created_ms"


def digest_of(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def check_and_mark(records: Sequence[ScheduleRecord], now_ms: int) -> None:
    """Give each record the header with the time of its request. Raises: InvalidRequest (422)."""
    for index, record in enumerate(records):
        if (record.deliver_at_ms is None) == (record.delay_ms is None):
            raise unfit(f"/records/{index}/deliver_at_ms", "give exactly one of deliver_at_ms and delay_ms")
        if record.timestamp_ms is not None:
            raise unfit(
                f"/records/{index}/timestamp_ms", "a scheduled record gets its timestamp when it enters the log"
            )
        record.headers = with_header(record.headers, CREATED_HEADER, str(now_ms))


def with_header(headers: msgspec.Raw | msgspec.UnsetType, name: str, value: str) -> msgspec.Raw:
    """Headers as JSON with a further one before the others. Neither name nor value needs escapes. What is no object
    stays as it is, and is refused where records are checked."""
    given = bytes(headers) if headers else b"{}"
    if given[:1] != b"{":
        return msgspec.Raw(given)
    rest = given[1:].lstrip()
    return msgspec.Raw(b'{"%b":"%b"%b%b' % (name.encode(), value.encode(), b"" if rest[:1] == b"}" else b",", rest))


def without_timestamp(tail: bytes) -> bytes:
    """A record as JSON, as `PartitionAppend.tails` has it, without the timestamp that it gets when it is appended."""
    return tail[tail.index(b',"key', 1) :]


def placed(count: int, prepared: Prepared) -> list[tuple[int, bytes]]:
    """The partition and the tail of each of so many records, in the order of the request."""
    places = prepared.places or [[*range(count)]]
    found: dict[int, tuple[int, bytes]] = {}
    for append, indexes in zip(prepared.appends, places, strict=True):
        found.update((index, (append.partition, tail)) for index, tail in zip(indexes, append.tails, strict=True))
    return [found[index] for index in range(count)]


def new_rows(records: Sequence[ScheduleRecord], prepared: Prepared) -> list[NewRow]:
    """A row for each record, in the order of the request."""
    rows = []
    for record, (partition, tail) in zip(records, placed(len(records), prepared), strict=True):
        key = bytes_of_key(record)
        at_ms = record.delay_ms if record.deliver_at_ms is None else record.deliver_at_ms
        rows.append(
            NewRow(
                partition,
                at_ms or 0,
                record.deliver_at_ms is None,
                None if key is None else digest_of(key),
                without_timestamp(tail),
            )
        )
    return rows


def answer_of(places: Sequence[UniquePlace]) -> bytes:
    return encode(ScheduleResponse(scheduled=[ScheduleOutcome(**place._asdict()) for place in places]))
