"""Records whose delivery is pending on a transaction: neither their holder nor time settles them, its outcome does.
Pure.

            hold                      the transaction committed with them
    ACQUIRED ────▶ pending ──────────────────────────────────────────────▶ as an acknowledgement of the member
       ▲              │ the write of the hold was refused; it ended without them
       └──────────────┘ ACQUIRED as before; if the lock has ended by then, `expire` ends it

A pending record is ACQUIRED and flagged by its hold, so it refuses every other event, and its lock does not end. What
bounds its time is the timeout of the transaction. The hold is a state write: the delivery before the pending one,
AVAILABLE, with the name of the transaction. So the state of a settled delivery, which has a higher count, replaces it
by itself, and a lock of the pending delivery is still above what is stored: it lives on if the transaction is aborted.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from sharequeue.protocol.errors import ConcurrentTransactions, InvalidRecordState
from sharequeue.protocol.state import Note, StateBatch, StateBatches
from sharequeue.protocol.types import AcknowledgeType, OffsetRange, Reason, SettledBatch
from sharequeue_gateway.share_partition.outcomes import AcknowledgeCall, AcknowledgementBatch, Completed, not_held
from sharequeue_gateway.share_partition.runs import ACQUIRED, AVAILABLE, DecidedWrite, Hold, Run
from sharequeue_gateway.share_partition.transitions import Transitions
from sharequeue_http.forms.errors import InvalidRequest


class Held(NamedTuple):
    """Await the write of each hold. `batches`: what they hold, to be settled by a commit."""

    holds: tuple[Hold, ...]
    batches: list[SettledBatch]


class Resolved(NamedTuple):
    """The outcome of a transaction for one share-partition. `let_go`: how many records it did not settle."""

    write: DecidedWrite
    settled: dict[AcknowledgeType, int]
    let_go: int


class PendingRecords(Transitions):
    """A window whose records may be pending.

    `check_fetched`, `settle`: those of `SharePartition`, because a record is settled in the same way with and without a
    transaction.
    """

    __slots__ = ()
    check_fetched: Callable[[AcknowledgementBatch, Sequence[Run]], None]
    settle: Callable[[AcknowledgeCall, AcknowledgementBatch, AcknowledgeType, Sequence[Run], int, int], None]

    def hold(self, member_id: str, transaction_id: str, batches: Sequence[AcknowledgementBatch], now_ms: int) -> Held:
        """Have records wait for a transaction: all of these batches, or none.

        A repeat for the same transaction, by the same member and with the same delivery count, joins the earlier hold.
        Raises: InvalidRecordState (121): not held by this member, or finished. InvalidRequest (42): never fetched, a
            renewal, or named twice. ConcurrentTransactions (51): pending on another transaction.
        """
        ordered = sorted(batches, key=attrgetter("first_offset", "last_offset"))
        _check_disjoint(ordered)
        joined: dict[int, Hold] = {}
        found: list[SettledBatch] = []
        for batch in batches:
            self._find(joined, found, member_id, transaction_id, batch)
        hold = Hold(self.start_offset, transaction_id, now_ms)
        for first, last in _joined(ordered):
            for run in list(self.overlapping(first, last)):
                if run.write is None:
                    hold.add(self.cut_out(run, first, last))
        if hold.ranges:
            hold.delivery_complete_count = self.delivery_complete_count
            self.holds.setdefault(transaction_id, {})[hold] = None
            joined[id(hold)] = hold
        return Held(tuple(joined.values()), found)

    def check_hold(self, member_id: str, transaction_id: str, batch: AcknowledgementBatch) -> None:
        """Check whether a batch can be held. Raises: as `hold`."""
        self._find({}, None, member_id, transaction_id, batch)

    def _find(
        self,
        joined: dict[int, Hold],
        found: list[SettledBatch] | None,
        member_id: str,
        transaction_id: str,
        batch: AcknowledgementBatch,
    ) -> None:
        """Check one batch, and add what it settles and the earlier holds that it repeats. It changes no run."""
        if batch.first_offset < self.start_offset:
            raise InvalidRecordState(
                f"offset {batch.first_offset} was finished before: the group begins at {self.start_offset}"
            )
        if AcknowledgeType.RENEW in batch.types:
            raise InvalidRequest("a transaction does not renew locks: use acknowledge")
        runs = list(self.overlapping(batch.first_offset, batch.last_offset))
        self.check_fetched(batch, runs)
        for run in runs:
            first, last = max(run.first, batch.first_offset), min(run.last, batch.last_offset)
            count = run.delivery_count if batch.delivery_count is None else batch.delivery_count
            earlier = run.write
            if isinstance(earlier, Hold):
                if earlier.transaction_id != transaction_id:
                    raise ConcurrentTransactions(
                        f"offset {first}: pending on another transaction; try again when it has ended"
                    )
                ours = run.member_id == member_id or (run.member_id is None and batch.delivery_count is not None)
                if not ours or run.delivery_count != count:
                    raise not_held(run, member_id, batch.delivery_count)
                joined[id(earlier)] = earlier
            elif (
                run.state is not ACQUIRED
                or earlier is not None
                or run.member_id != member_id
                or run.delivery_count != count
            ):
                raise not_held(run, member_id, batch.delivery_count)
            if found is not None:
                _settle(found, batch, member_id, first, last, count)

    def end_hold(self, hold: Hold, *, ok: bool) -> Completed:
        """The outcome of the write of a hold is known. Refused, its records are held as before."""
        hold.durable = ok
        hold.state = StateBatches()  # a hold lives for as long as its transaction
        if not ok:
            self._free(hold)
            self._forget(hold)
        return Completed(made_available=False, start_moved=False, dead_letters=())

    def resolve(self, transaction_id: str, settled: Iterable[SettledBatch], now_ms: int) -> Resolved | None:
        """The transaction has ended: settle the pending records that it committed, and let go the others.

        Args:
            settled: what was committed here; nothing, if it was aborted or committed without these records.
        Returns: the write to persist, which must not be rolled back; None: nothing is pending durably on it.
        """
        holds = [hold for hold in self.holds.get(transaction_id, ()) if hold.durable]
        if not holds:
            return None
        write = DecidedWrite(self.start_offset, now_ms)
        counts: dict[AcknowledgeType, int] = {}
        ready = frozenset(holds)
        for batch in settled:
            call = AcknowledgeCall(batch.member_id, now_ms, write, {}, [])
            acknowledgement = _acknowledgement(batch)
            first = max(batch.first_offset, self.start_offset)
            for run in list(self.overlapping(first, batch.last_offset)):
                if run.write not in ready or run.delivery_count != batch.delivery_count:
                    continue
                part = self.cut_out(run, first, batch.last_offset)
                part.write = None
                if part.member_id != batch.member_id:  # equal ones are two texts in memory
                    part.member_id = batch.member_id
                counts[batch.type] = counts.get(batch.type, 0) + part.size
                self.settle(call, acknowledgement, batch.type, [part], part.first, part.last)
        write.fill(write.runs, self.delivery_complete_count)
        let_go, freed = 0, list[StateBatch]()
        for hold in holds:
            for run in self._free(hold):
                let_go += run.size
                first = max(run.first, self.start_offset)
                if first <= run.last:
                    note = Note(forgiven=run.forgiven)
                    freed.append(StateBatch(first, run.last, int(AVAILABLE), run.delivery_count - 1, note))
            self._forget(hold)
        write.state = StateBatches([*write.state.batches, *freed], write.state.texts)
        return Resolved(write, counts, let_go)

    def _free(self, hold: Hold) -> list[Run]:
        """Take the flag of a hold from its runs. Returns: those that had it. Their locks end in time, or at once."""
        freed = [run for first, last in hold.ranges for run in list(self.overlapping(first, last)) if run.write is hold]
        for run in freed:
            run.write = None
            self.time_lock(run.lock_expires_at_ms, run.first, run.last)
        return freed

    def _forget(self, hold: Hold) -> None:
        same = self.holds.get(hold.transaction_id, {})
        same.pop(hold, None)
        if not same:
            self.holds.pop(hold.transaction_id, None)

    @property
    def pending_count(self) -> int:
        """Return how many records are pending."""
        holds = (hold for holds in self.holds.values() for hold in holds)
        return sum(last - first + 1 for hold in holds for first, last in hold.ranges)

    @property
    def pending_since_ms(self) -> int | None:
        """Return when this leader has first seen the oldest pending records; None: nothing is pending."""
        return min((hold.at_ms for holds in self.holds.values() for hold in holds), default=None)


def _check_disjoint(batches: Sequence[AcknowledgementBatch]) -> None:
    """`batches` ascend by their first offsets."""
    last_offset = -1
    for batch in batches:
        if batch.first_offset <= last_offset:
            raise InvalidRequest(f"offset {batch.first_offset} is acknowledged twice")
        last_offset = batch.last_offset


def _joined(batches: Iterable[AcknowledgementBatch]) -> Iterator[OffsetRange]:
    """The offsets of batches, which ascend: neighbours are one range, so that they need no runs of their own."""
    first, last = -1, -2
    for batch in batches:
        if batch.first_offset != last + 1:
            if first >= 0:
                yield OffsetRange(first, last)
            first = batch.first_offset
        last = batch.last_offset
    if first >= 0:
        yield OffsetRange(first, last)


def _settle(
    settled: list[SettledBatch], batch: AcknowledgementBatch, member_id: str, first: int, last: int, count: int
) -> None:
    """Add the part first..last of an acknowledgement, with one type in each. Equal neighbours are one."""
    types = (
        batch.types
        if len(batch.types) == 1
        else batch.types[first - batch.first_offset : last - batch.first_offset + 1]
    )
    begin = first
    for acknowledge_type, same in groupby(types):
        end = last if len(types) == 1 else begin + sum(1 for _ in same) - 1
        reason = None if batch.reason is None else str(batch.reason)
        part = SettledBatch(begin, end, acknowledge_type, member_id, count, reason, batch.delay_ms, batch.begun)
        if settled and settled[-1].last_offset == begin - 1 and settled[-1][2:] == part[2:]:
            settled[-1] = settled[-1]._replace(last_offset=end)
        else:
            settled.append(part)
        begin = end + 1


def _acknowledgement(batch: SettledBatch) -> AcknowledgementBatch:
    reason = None if batch.reason is None else Reason(batch.reason)
    return AcknowledgementBatch(
        batch.first_offset,
        batch.last_offset,
        (batch.type,),
        batch.delivery_count,
        reason,
        batch.delay_ms,
        batch.begun,
    )
