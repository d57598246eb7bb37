"""Reads for read_committed: they end at the last stable offset,
and each of their batches knows its transaction's outcome.

Memory answers if it can (see `cache`). Otherwise one statement asks the log for the last stable offset and for those of
the transactions just read that were aborted. The answer holds until the log end moves, because opening a transaction
appends a batch and ending it appends a marker. A partition that meets no transaction is never asked about.
"""

import asyncio
from collections.abc import Sequence

from msgspec import structs

from sharequeue.protocol.types import TopicIdPartition
from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.log import Batch, ReadResult, below_log_start
from sharequeue_gateway.record_log.reading.cache import KnownLog, below, decided_below
from sharequeue_gateway.record_log.store import Query


class CommittedReads:
    """`query`: runs a function of a connection and arguments. `questions`: how many statements asked the log."""

    def __init__(self, query: Query, known: KnownLog) -> None:
        self._query = query
        self._known = known
        self._asked: dict[TopicIdPartition, asyncio.Event] = {}
        """Partitions with a question under way; the event is set when it is answered."""
        self.questions = 0

    async def cut(
        self, place: TopicIdPartition, offset: int, read: ReadResult[Batch], ahead: Sequence[Batch]
    ) -> ReadResult[Batch]:
        """Return what a read_committed reader may see of a read from `offset` on.

        If memory knows of only a part of the batches that they are stable, the log is asked: the next read would have
        to ask, and a page would be short for no reason that its reader sees.

        `ahead`: all batches that were read into memory. A question asks about all of them, so that memory answers then.
        Raises: OffsetOutOfRange; StorageError.
        """
        while True:
            known = self._known.cache.partition(place)
            if known is not None and (known.settled or offset < known.stable_offset):
                batches = decided_below(read.batches, known.stable_offset)
                if batches is not None and (known.settled or len(batches) == len(read.batches)):
                    return structs.replace(read, batches=batches, end_offset=known.stable_end)
            answered = self._asked.get(place)
            if answered is None:
                break
            await answered.wait()
        self._asked[place] = asyncio.Event()
        try:
            return await self._ask(place, offset, read, ahead)
        finally:
            self._asked.pop(place).set()

    async def _ask(
        self, place: TopicIdPartition, offset: int, read: ReadResult[Batch], ahead: Sequence[Batch]
    ) -> ReadResult[Batch]:
        undecided = [batch for batch in ahead if not batch.decided]
        self.questions += 1
        bounds, aborted = await self._query(store.judge, place, list({batch.transaction_id for batch in undecided}))
        start, end, stable = bounds.log_start_offset, bounds.log_end_offset, bounds.last_stable_offset
        if offset < start:
            raise below_log_start(offset, start)
        for batch in undecided:
            if start <= batch.last_offset < stable:
                batch.aborted = batch.transaction_id in aborted
        self._known.learn(place, start, end, stable)
        known = self._known.cache.partition(place)
        if known is not None:
            end = known.log_end_offset
        # memory may know more by now: its news are over, so this answer must not look like the end
        end_offset = stable if known is None or known.stable_end == stable else end
        return ReadResult(below(read.batches, stable), start, end, end_offset)
