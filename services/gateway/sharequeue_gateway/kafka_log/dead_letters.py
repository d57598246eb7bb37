"""Dead letters on Kafka: a letter is a record of its topic. PostgreSQL has its key, its place and whether it is open.

Letters of one share-partition are written one append after another, each with an intent, whose subject is the
share-partition. So a successor of a leader that was paused settles what that leader has begun, and fences it.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from sharequeue_gateway.kafka_log.intents import Intent, Kind, subject_of
from sharequeue_gateway.kafka_log.once import AppendOnce, Wanted
from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.dead_letters.dead_letter_log import (
    DeadLetterLog,
    lead,
    note_written,
    places_of,
    wanted_of,
)
from sharequeue_gateway.record_log.log import DeadLetterRow, PartitionAppend
from sharequeue_gateway.record_log.store import Connection
from sharequeue_http.forms.errors import TooLarge

_decoder: Final = msgspec.json.Decoder(list[DeadLetterRow])


async def note_letters(connection: Connection, intent: Intent, base_offsets: Sequence[int]) -> None:
    """Write the outcome of an append of dead letters, or of redriven ones. It is rows without their records."""
    rows = _decoder.decode(intent.outcome)
    partition = intent.parts[0].partition
    redriven = intent.kind is Kind.REDRIVEN
    if redriven:
        await store.lock(connection, [*places_of(row.key for row in rows) | {(intent.topic_id, partition)}])
    await note_written(connection, intent.topic_id, partition, rows, base_offsets[0], redriven=redriven)


class KafkaDeadLetters(DeadLetterLog):
    """As DeadLetterLog; the letters are in Kafka."""

    def __init__(self, database: LogDatabase, once: AppendOnce) -> None:
        self._database = database
        self._once = once

    async def append(
        self,
        topic_id: str,
        partition: int,
        rows: Sequence[DeadLetterRow],
        *,
        leader_epoch: int | None = None,
        for_group: str | None = None,
    ) -> int:
        """As `DeadLetterLog.append`. Letters that are too large for one batch are appended in halves."""
        source = rows[0].source
        if leader_epoch is None:
            kind, subject = Kind.REDRIVEN, subject_of("redriven", source.group_id, topic_id, partition)
        else:
            kind, subject = Kind.LETTERS, subject_of("letters", *source)
        while True:
            wanted = await self._database.query(wanted_of, rows, redriven=leader_epoch is None)
            if not wanted:
                return 0

            async def check(connection: Connection) -> bool | None:
                if leader_epoch is not None:
                    await lead(connection, source, leader_epoch)
                still = await wanted_of(connection, wanted, redriven=leader_epoch is None)  # noqa: B023 - awaited in this turn
                return True if len(still) < len(wanted) else None  # noqa: B023

            timestamp_ms = max(row.timestamp_ms for row in wanted)
            append = PartitionAppend(topic_id, partition, [row.tail for row in wanted], timestamp_ms, for_group)
            outcome = msgspec.json.encode([row._replace(tail=b"") for row in wanted])
            try:
                done = await self._once.append(Wanted(subject, [append], kind, outcome, check))
            except TooLarge:
                if len(wanted) == 1:
                    raise
                halves = wanted[: len(wanted) // 2], wanted[len(wanted) // 2 :]
                append_half = partial(self.append, topic_id, partition, leader_epoch=leader_epoch, for_group=for_group)
                return sum([await append_half(half) for half in halves])
            if done.found is None:
                return len(wanted)
