"""Makes scheduled records of a request, as produce makes records: their partitions, their JSON and their times."""

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec

from sharequeue.clock import Clock
from sharequeue.protocol.messages.records import Unique
from sharequeue.protocol.messages.scheduled import ScheduleOutcome, ScheduleRecord, ScheduleResponse
from sharequeue.protocol.types import MAX_UNIQUE_MS
from sharequeue_gateway.producing.mover import Mover
from sharequeue_gateway.producing.producer import LARGE_BYTES, Prepared, Producer, aside, bytes_of_key, key_of
from sharequeue_gateway.producing.record_tails import unfit
from sharequeue_gateway.record_log.scheduled.scheduled_log import NewRow, ScheduledLog
from sharequeue_gateway.record_log.unique_log import Rule, UniquePlace
from sharequeue_http.forms.codec import encode

CREATED_HEADER: Final = "__scheduled.created_ms"


class Scheduler:
    """Schedules the records of requests, and tells the mover of this gateway when the first of them is due."""

    def __init__(self, producer: Producer, scheduled: ScheduledLog, mover: Mover, clock: Clock) -> None:
        self._producer = producer
        self._scheduled = scheduled
        self._mover = mover
        self._clock = clock

    async def schedule(
        self,
        topic_name: str,
        records: Sequence[ScheduleRecord],
        unique: Unique | None,
        body: bytes,
        path: str,
        idempotency_key: str | None,
        retention: str | None,
        principal: str,
    ) -> bytes:
        """Schedule the records, all or none. The answer is made when they are durable.

        Args: as `Producer.produce`. Raises: as `Producer.prepare` and `ScheduledLog.schedule`.
        """
        size = len(body)
        await aside(size > LARGE_BYTES, _check_and_mark, records, self._clock.now_ms())
        prepared = await self._producer.prepare(topic_name, records, size)
        rows = await aside(size > LARGE_BYTES, new_rows, records, prepared)
        key = key_of(principal, prepared, path, idempotency_key, retention, hashlib.sha256(body).digest())
        rule = None if unique is None else _rule(rows, unique)
        answer, due_in_ms = await self._scheduled.schedule(prepared.topic.topic_id, rows, key, _answer, rule)
        if due_in_ms is not None:
            self._mover.expect(due_in_ms)
        return answer


def digest_of(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _check_and_mark(records: Sequence[ScheduleRecord], now_ms: int) -> None:
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


def _rule(rows: Sequence[NewRow], unique: Unique) -> Rule:
    """Raises: InvalidRequest (422): a record has no key, or `until_group` is given."""
    if unique.until_group is not None:
        raise unfit("/unique/until_group", "a scheduled record has no place yet that a group could finish")
    for index, row in enumerate(rows):
        if row.key_digest is None:
            raise unfit(f"/records/{index}/key", "with unique, each record needs a key")
    return Rule(unique.within_ms or MAX_UNIQUE_MS)


def _answer(places: Sequence[UniquePlace]) -> bytes:
    return encode(ScheduleResponse(scheduled=[ScheduleOutcome(**place._asdict()) for place in places]))
