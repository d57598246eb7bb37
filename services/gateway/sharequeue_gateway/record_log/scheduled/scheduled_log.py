"""Schedules records, moves those that are due into the log, and cancels others: a transaction each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sharequeue.protocol.errors import UnknownTopicOrPartition
from sharequeue.protocol.types import MAX_CANCELLED, MAX_SCHEDULE_MS
from sharequeue_gateway.record_log import unique_log
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.locked_append import LockedAppend, Together
from sharequeue_gateway.record_log.log import IdempotencyKey
from sharequeue_gateway.record_log.scheduled import scheduled_store
from sharequeue_gateway.record_log.scheduled.scheduled_store import Row, Sizes
from sharequeue_gateway.record_log.unique_log import NO_OFFSET, Rule, UniquePlace, store_new
from sharequeue_http.forms.errors import InvalidRequest, Throttled

MOVED_AT_ONCE: Final = 1000
MOVED_BYTES: Final = 4 << 20
"""A move takes no further record above this size."""


class NewRow(NamedTuple):
    """A record to schedule. `at_ms`: its time, or with `relative` the time from now."""

    partition: int
    at_ms: int
    relative: bool
    key_digest: bytes | None
    tail: bytes


@dataclass(eq=False)
class ScheduledLog:
    """Scheduled records. Each method may raise StorageError.

    Args:
        locked_append: appends in the transaction that deletes the rows.
        most_records, most_bytes: of one topic.
    """

    _database: LogDatabase
    _locked_append: LockedAppend
    _most_records: int
    _most_bytes: int

    async def schedule(
        self,
        topic_id: str,
        records: Sequence[NewRow],
        key: IdempotencyKey | None,
        answer: Callable[[Sequence[UniquePlace]], bytes],
        rule: Rule | None = None,
    ) -> tuple[bytes, int | None]:
        """Store the records, all or none.

        Args:
            key: of the request. answer: makes the answer.
            rule: all records have keys, and those are stored whose keys are new.
        Returns: the answer, and in how many ms the first of the records is due; None: a repeat of an earlier request.
        Raises: UnknownTopicOrPartition: the topic is deleted; InvalidRequest (422): too far ahead; Throttled: the topic
            has too many.
        """
        due_in_ms = 0

        async def make(together: Together) -> bytes:
            nonlocal due_in_ms
            connection = together.connection
            now_ms, there, deleted = await scheduled_store.look(connection, topic_id)
            if deleted:
                raise UnknownTopicOrPartition("the topic was deleted")
            self._check_room(there, records)
            rows = _rows(records, now_ms)
            due_in_ms = min(row.deliver_at_ms for row in rows) - now_ms

            async def insert(new: Sequence[Row]) -> list[UniquePlace]:
                await scheduled_store.insert(connection, topic_id, new)
                added = Sizes(len(new), sum(len(row.tail) for row in new))
                await scheduled_store.count(connection, {topic_id: added})
                return [UniquePlace(row.partition, NO_OFFSET, row.schedule_id, row.deliver_at_ms) for row in new]

            return answer(await (insert(rows) if rule is None else store_new(connection, topic_id, rows, rule, insert)))

        body, repeated = await self._locked_append.once("records cannot be scheduled", key, make)
        return body, None if repeated else due_in_ms

    def _check_room(self, there: Sizes, records: Sequence[NewRow]) -> None:
        added = sum(len(record.tail) for record in records)
        for name, most, found in (
            ("max_scheduled_records", self._most_records, there.records + len(records)),
            ("max_scheduled_bytes", self._most_bytes, there.bytes + added),
        ):
            if found > most:
                raise Throttled(
                    f"the topic would have {found} scheduled {name.removeprefix('max_scheduled_')}, and the most is {most}"
                    f" ({name}): cancel some, or repeat the request when some have entered the log",
                    limit=most,
                    retry_after_s=10,
                )

    async def move(self) -> int:
        """Move some due records into the log. Returns: how many; 0: another gateway moves what is due, and those of
        deleted topics are left to the purge."""
        async with self._locked_append.together("scheduled records cannot enter the log") as together:
            connection = together.connection
            now_ms, due = await scheduled_store.take_due(connection, MOVED_AT_ONCE, MOVED_BYTES)
            if not due:
                return 0
            keyed = [(row.topic_id, row.key_digest, row.schedule_id) for row in due if row.key_digest]
            unique = await unique_log.lock(connection, keyed) if keyed else ()
            head = b',"timestamp_ms":%d' % now_ms
            tails = [(row.topic_id, row.partition, head + row.tail) for row in due]
            offsets = await together.insert_each(tails, now_ms)
            if unique:
                places = [
                    (row.topic_id, row.key_digest or b"", offset)
                    for row, offset in zip(due, offsets, strict=True)
                    if row.schedule_id in unique
                ]
                await unique_log.enter(connection, places)
            await scheduled_store.count(connection, scheduled_store.sizes_by_topic(due))
        return len(due)

    async def cancel(self, topic_id: str, which: Sequence[str] | bytes) -> list[str]:
        """Cancel records of a topic, at most MAX_CANCELLED. `which`: their ids, or the digest of their key.

        Returns: the ids of those that had not entered the log.
        """
        async with self._database.connection() as connection, connection.transaction():
            rows = await scheduled_store.cancel(connection, topic_id, which, MAX_CANCELLED)
            if rows:
                await scheduled_store.count(connection, {topic_id: Sizes(-len(rows), -sum(row[1] for row in rows))})
        return [row[0] for row in rows]


def _rows(records: Sequence[NewRow], now_ms: int) -> list[Row]:
    """The rows of records, with their times. Raises: InvalidRequest (422): one is too far ahead."""
    rows = []
    for index, (record, schedule_id) in enumerate(
        zip(records, scheduled_store.new_ids(now_ms, len(records)), strict=True)
    ):
        # `now_ms` is cut to whole ms: one more, and no delay ends early
        at_ms = now_ms + record.at_ms + 1 if record.relative else record.at_ms
        if at_ms - now_ms > MAX_SCHEDULE_MS + 1:
            detail = f"{at_ms} is more than {MAX_SCHEDULE_MS} ms (ten years) ahead of now"
            pointer = f"/records/{index}/deliver_at_ms"
            raise InvalidRequest(f"{pointer}: {detail}", limit=MAX_SCHEDULE_MS, pointers=[(pointer, detail)])
        rows.append(Row(schedule_id, record.partition, at_ms, record.key_digest, record.tail))
    return rows
