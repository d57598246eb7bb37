"""One share-partition: who holds which record, until when, and how often it was delivered.

No IO, no clock, no logging. Callers pass `now_ms`; methods return what to do. Source: KIP-932, KIP-1191, KIP-1206,
KIP-1222.
"""

from collections.abc import Sequence
from itertools import groupby, islice
from typing import Final

from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.errors import InvalidRecordState
from sharequeue.protocol.types import (
    AcknowledgeType,
    DeliveryState,
    LeftLocks,
    Reason,
    RestoredLock,
)
from sharequeue_gateway.share_partition.acquisition import AcquiredRange
from sharequeue_gateway.share_partition.outcomes import (
    AcknowledgeCall,
    Acknowledged,
    AcknowledgementBatch,
    Completed,
    Expired,
    not_held,
)
from sharequeue_gateway.share_partition.pending import PendingRecords
from sharequeue_gateway.share_partition.runs import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    FORGIVEN,
    LIMIT_EXCEEDED,
    NOT_FORGIVEN,
    REJECTED,
    TERMINAL,
    UNSEEN,
    DeadLetter,
    Hold,
    Run,
    StateWrite,
)
from sharequeue_http.forms.errors import InvalidRequest

EXPIRED_AT_ONCE: Final = 1000
"""The most runs that one call of `expire` looks at: about 5 ms."""


class SharePartition(PendingRecords):
    """The state machine of one share-partition. Each method is one event; the window has the data.

    One object in layers: `Window` counts, `Transitions` changes states under a write, `PendingRecords` leaves records
    to a transaction, and this class decides. A layer uses those below it and overrides nothing that they
    implement (a test checks that), so each can be read without the others. What needs the window alone takes a
    `Window`: acquiring, restoring, the bounds. The layers are one object because a fetch and an acknowledgement read
    some fifty of its fields: a window of its own would be one more look-up for each, and callers would name two objects
    for one share-partition.

    | event | when |
    | --- | --- |
    | `loaded` | this gateway begins to lead it |
    | `Acquisition(machine, …).acquire` (acquisition.py) | a fetch |
    | `acknowledge`, `release_member` | a member settles records, or leaves |
    | `hold`, `resolve` | a transaction settles records; it has ended |
    | `complete_write` | the outcome of a state write is known |
    | `expire`, `settle_delayed` | locks or delays are due; a delay ends by hand |
    | `move_log_start`, `complete_dead_letter` | the log lost records; dead letters are written |
    """

    __slots__ = ("leader_epoch", "state_epoch")

    def __init__(
        self,
        config: ShareGroupConfig,
        start_offset: int,
        state_epoch: int,
        leader_epoch: int,
        jitter_seed: int = 0,
    ) -> None:
        super().__init__(config, start_offset, jitter_seed)
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch

    def loaded(self) -> list[DeadLetter]:
        """The window is restored: begin to lead it. Returns: the dead letters whose writing must be resumed."""
        self.advance()
        dead_letters = []
        for run in self.runs:
            if run.state is ARCHIVING:
                run.cause = LIMIT_EXCEEDED if self.is_last_attempt(run) else REJECTED
                dead_letters.append(self.dead_letter(run))
        return dead_letters

    # Acknowledging

    def acknowledge(self, member_id: str, batches: Sequence[AcknowledgementBatch], now_ms: int) -> Acknowledged:
        """Apply acknowledgement batches, all or none.

        Raises: InvalidRecordState (121): a record is not held by this member. InvalidRequest (42): offsets that were
            never fetched.
        """
        call = AcknowledgeCall(member_id, now_ms, StateWrite(self.start_offset, now_ms), {}, [])
        ignored = True
        try:
            for batch in batches:
                if batch.last_offset >= self.start_offset:
                    ignored = False
                    self._acknowledge(call, batch)
        except (InvalidRecordState, InvalidRequest):
            self.roll_back(call.write, now_ms)
            raise
        write = call.write
        if write.runs:
            write.fill(write.runs, self.delivery_complete_count)
            call.joined[id(write)] = write
        renewed = [self._renew(run, lock_duration_ms, now_ms) for run, lock_duration_ms in call.renewals]
        return Acknowledged(tuple(call.joined.values()), ignored, renewed)

    def end_of_equals(self, batches: Sequence[AcknowledgementBatch], begin: int) -> int:
        """The end of the batches from `begin` on that say the same about one run, so that all have one outcome."""
        batch, end = batches[begin], begin + 1
        index = self.index_of(batch.first_offset)
        last = self.runs[index].last if index >= 0 and batch.first_offset >= self.start_offset else -1
        while end < len(batches) and batches[end].last_offset <= last and batch.continued_by(batches[end]):
            batch = batches[end]
            end += 1
        return end

    def _acknowledge(self, call: AcknowledgeCall, batch: AcknowledgementBatch) -> None:
        """Apply one batch, above the start offset. Source: KIP-932."""
        first, last = max(batch.first_offset, self.start_offset), batch.last_offset
        runs = list(self.overlapping(first, last))
        self.check_fetched(batch, runs)
        if len(batch.types) == 1:
            self.settle(call, batch, batch.types[0], runs, first, last)
            return
        offset = batch.first_offset
        for acknowledge_type, same in groupby(batch.types):
            begin, offset = offset, offset + sum(1 for _ in same)
            if offset > first:
                begin, end = max(begin, first), offset - 1
                self.settle(call, batch, acknowledge_type, list(self.overlapping(begin, end)), begin, end)

    def check_fetched(self, batch: AcknowledgementBatch, runs: Sequence[Run]) -> None:
        """Refuse offsets outside the window: 121 below it or if it is empty, 42 behind it or in a hole."""
        window_first = self.runs[0].first if self.runs else batch.last_offset + 1
        begins_inside = window_first <= batch.first_offset or batch.first_offset < self.start_offset
        if window_first > batch.last_offset or not begins_inside:
            raise InvalidRecordState(f"offset {batch.first_offset} is not in flight: fetch it first")
        if not runs or runs[-1].last < batch.last_offset:
            raise InvalidRequest(f"offset {batch.last_offset} was never fetched by this group")

    def settle(
        self,
        call: AcknowledgeCall,
        batch: AcknowledgementBatch,
        acknowledge_type: AcknowledgeType,
        runs: Sequence[Run],
        first: int,
        last: int,
    ) -> None:
        """Apply one type to first..last, which `runs` cover."""
        for run in runs:
            forgiving = NOT_FORGIVEN if batch.begun else self._forgiving(acknowledge_type, run, batch.seen)
            target = self._target(acknowledge_type, run, forgiving)
            held = run.state is ACQUIRED and run.write is None and run.member_id == call.member_id
            if not held or batch.delivery_count not in (None, run.delivery_count):
                self._repeat(call, batch, run, target, max(run.first, first))
                continue
            part = run if first <= run.first and run.last <= last else self.cut_out(run, first, last)
            if target is None:
                call.renewals.append((part, batch.lock_duration_ms))
                continue
            part.reason = None if batch.reason is None else self.reasons.given(batch.reason, call.now_ms)
            if forgiving:
                self.forgive(part, forgiving)
            else:
                part.released = acknowledge_type is AcknowledgeType.RELEASE
            if target is AVAILABLE:
                part.available_at_ms = self._released_until_ms(part, batch, call.now_ms)
            part.cause = REJECTED if acknowledge_type is AcknowledgeType.REJECT else LIMIT_EXCEEDED
            self.begin(part, target, call.write)

    def _released_until_ms(self, run: Run, batch: AcknowledgementBatch, now_ms: int) -> int:
        """The end of the wait after a release; 0: none. Without a delay of its own it waits as the group's settings
        say, unless the delivery was never begun."""
        if batch.delay_ms is None and batch.begun:
            return self.retry_at_ms(run, now_ms, now_ms)
        return now_ms + batch.delay_ms if batch.delay_ms else 0

    def _forgiving(self, acknowledge_type: AcknowledgeType, run: Run, seen: bool) -> int:
        """Return whether an acknowledgement of records that were never begun forgives their delivery.

        A client may have as many deliveries of a record forgiven as the group's limit allows attempts, so that a record
        that nobody ever begins ends too. What no client saw is always forgiven.
        """
        if acknowledge_type is not AcknowledgeType.RELEASE or not self.config.forgives:
            return NOT_FORGIVEN
        if not seen:
            return UNSEEN
        return FORGIVEN if run.forgiven - run.unseen < self.config.delivery_count_limit else NOT_FORGIVEN

    def _target(self, acknowledge_type: AcknowledgeType, run: Run, forgiving: int) -> DeliveryState | None:
        """The state a type leads to; None for renew. Source: KIP-932, KIP-1191, KIP-1222."""
        match acknowledge_type:
            case AcknowledgeType.GAP:
                return ARCHIVED
            case AcknowledgeType.ACCEPT:
                return ACKNOWLEDGED
            case AcknowledgeType.RELEASE:
                return AVAILABLE if forgiving and run.last >= self.start_offset else self.released_state(run)
            case AcknowledgeType.REJECT:
                return self.dead_state
            case AcknowledgeType.RENEW:
                if not self.config.renew_acknowledge_enable:
                    raise InvalidRecordState("renewing acquisition locks is not enabled for the group")
                return None

    def _renew(self, run: Run, lock_duration_ms: int | None, now_ms: int) -> AcquiredRange:
        """Start a lock again: with its own length, or with another one, which it keeps."""
        run.lock_duration_ms = lock_duration_ms or run.lock_duration_ms
        run.lock_expires_at_ms = now_ms + run.lock_duration_ms
        self.time_lock(run.lock_expires_at_ms, run.first, run.last)
        return _acquired(run)

    def _repeat(
        self, call: AcknowledgeCall, batch: AcknowledgementBatch, run: Run, target: DeliveryState | None, offset: int
    ) -> None:
        """Join the write of an earlier acknowledgement that this one repeats.

        (offset, delivery count) names one delivery: a repeat finds it in the state that its type leads to.
        Raises: InvalidRecordState: it is not a repeat, and the member does not hold the records.
        """
        same_delivery = batch.delivery_count is not None and run.delivery_count == batch.delivery_count
        settled = run.state is target or (target is ARCHIVING and run.state is ARCHIVED)
        if not same_delivery or target is None or not settled:
            raise not_held(run, call.member_id, batch.delivery_count)
        if run.write is call.write:
            raise InvalidRecordState(f"offset {offset} is acknowledged twice")
        if run.write is not None:
            call.joined[id(run.write)] = run.write

    def complete_write(self, write: StateWrite, *, refused_at_ms: int | None) -> Completed:
        """Commit the changes of a durable write, or roll them back to ACQUIRED. Locks that ended are due then.

        Args:
            refused_at_ms: the present time, if the write was refused; None: it is durable.
        """
        ok = refused_at_ms is None
        if isinstance(write, Hold):
            return self.end_hold(write, ok=ok)
        made_available = False
        if refused_at_ms is None:
            made_available = self.commit(write)
        else:
            self.roll_back(write, refused_at_ms)
        if ok and not write.runs:
            self._note_durable(write)
        start_moved = self.advance()
        dead_letters = [self.dead_letter(run) for run in write.runs if ok and run.state is ARCHIVING]
        if not start_moved:
            for run in write.runs:
                self.merge_finished(run)
        write.runs = []
        return Completed(made_available, start_moved, dead_letters)

    def stand_in_memory(self, write: StateWrite) -> None:
        """The changes of a write that nobody sends stand. The next leader learns of them from the locks."""
        self.commit(write, durable=False)
        write.runs = []

    def _note_durable(self, write: StateWrite) -> None:
        """A write of what memory had decided is durable: those records need no lock, unless they were taken again."""
        for batch in write.state.batches:
            for run in self.overlapping(batch.first_offset, batch.last_offset):
                inside = not run.durable and batch.first_offset <= run.first and run.last <= batch.last_offset
                if inside and run.delivery_count == batch.delivery_count and run.state is not ACQUIRED:
                    run.durable = True

    # Locks that end

    def expire(self, now_ms: int) -> Expired:
        """End locks and delays that are due, of up to EXPIRED_AT_ONCE runs: call it again while some are due.

        The decision stands even if its write fails.
        """
        dead_letters: list[DeadLetter] = []
        changed: list[Run] = []
        members: set[str | None] = set()
        records = 0
        made_available = False
        left = EXPIRED_AT_ONCE
        while left > 0 and (due := self.pop_due(now_ms)) is not None:
            runs = list(islice(self.overlapping(*due), left))
            if runs and runs[-1].last < due[1]:
                self.time_lock(now_ms, runs[-1].last + 1, due[1])
            left -= max(len(runs), 1)
            for run in runs:
                if run.write is not None:
                    continue
                if run.state is ACQUIRED and run.lock_expires_at_ms <= now_ms:
                    members.add(run.member_id)
                    made_available |= self._expire_lock(run, now_ms, dead_letters)
                    records += run.size
                    changed.append(run)
                elif run.available_at_ms and run.available_at_ms <= now_ms:
                    self.end_delay(run)
                    made_available = True
        if not changed:
            return Expired(None, records, made_available, dead_letters, members)
        write = StateWrite(self.start_offset, now_ms)
        write.fill(changed, self.delivery_complete_count)
        return Expired(write, records, made_available, dead_letters, members)

    def settle_delayed(self, offset: int, delivery_count: int, reason: Reason | None, now_ms: int) -> Expired:
        """End the delay of a record by hand: it can be delivered again, or with a reason it is rejected.

        The decision stands even if its write fails. Raises: InvalidRecordState (121): it is not delayed.
        """
        run = next(self.overlapping(offset, offset), None)
        if run is None or run.write is not None or not run.available_at_ms or run.delivery_count != delivery_count:
            raise InvalidRecordState(
                f"offset {offset} is not delayed after {delivery_count} deliveries: look it up again"
            )
        part, write = self.cut_out(run, offset, offset), StateWrite(self.start_offset, now_ms)
        dead_letters: list[DeadLetter] = []
        if reason is None:
            part.available_at_ms = now_ms  # it is written as the end of the delay, or the stored one would stay
        else:
            self.count(part, -1)
            part.available_at_ms = 0
            part.become(ACQUIRED)
            self.count(part, 1)
            part.reason = self.reasons.given(reason, now_ms)
            self._die(part, self.dead_state, REJECTED, dead_letters)
        write.fill([part], self.delivery_complete_count)
        if reason is None:
            self.end_delay(part)
        return Expired(write, 0, reason is None, dead_letters, ())

    def _expire_lock(self, run: Run, now_ms: int, dead_letters: list[DeadLetter]) -> bool:
        """Returns: whether the records can be acquired again."""
        if run.first < self.start_offset <= run.last:
            self.time_lock(run.lock_expires_at_ms, self.start_offset, run.last)
            self.cut_out(run, run.first, self.start_offset - 1)
        ended_at_ms = run.lock_expires_at_ms
        run.unlock()
        run.released = False
        state = self.released_state(run)
        if state is not AVAILABLE:
            self._die(run, state, LIMIT_EXCEEDED, dead_letters)
            return False
        run.become(AVAILABLE)
        run.available_at_ms = self.retry_at_ms(run, ended_at_ms, now_ms)
        return self.offer(run)

    def _die(self, run: Run, state: DeliveryState, cause: str, dead_letters: list[DeadLetter]) -> None:
        """A held run is ARCHIVING or ARCHIVED without a write that could be refused."""
        run.cause = cause
        run.become(state)
        if state is ARCHIVING:
            dead_letters.append(self.dead_letter(run))
        else:
            self.held_count -= run.size
            self.count_terminal(run, 1)

    def release_member(self, member_id: str, now_ms: int) -> StateWrite | None:
        """Make the records that a member holds AVAILABLE again. Delivery counts stay, and the delivery limit
        applies."""
        write = StateWrite(self.start_offset, now_ms)
        for run in list(self.runs):
            if run.state is ACQUIRED and run.write is None and run.member_id == member_id:
                parts = [run]
                if run.first < self.start_offset <= run.last:
                    self.cut_out(run, run.first, self.start_offset - 1)
                    parts.append(self.runs[self.index_of(self.start_offset)])
                for part in parts:
                    part.cause = LIMIT_EXCEEDED
                    part.released = False
                    self.begin(part, self.released_state(part), write)
        if not write.runs:
            return None
        write.fill(write.runs, self.delivery_complete_count)
        return write

    # The log

    def move_log_start(self, log_start_offset: int, now_ms: int) -> bool:
        """Follow the log start: records below it cannot be delivered. Held records stay held until their locks end."""
        if log_start_offset <= self.start_offset:
            return False
        new_at = max(self.start_offset, self.runs[-1].last + 1 if self.runs else 0)
        self.removed_unread += max(0, log_start_offset - new_at)
        self.discard(self.start_offset, log_start_offset - 1)
        for run in self.overlapping(self.start_offset, log_start_offset - 1):
            if run.state in TERMINAL:
                gone = min(run.last, log_start_offset - 1) - max(run.first, self.start_offset) + 1
                self.delivery_complete_count -= gone
        self.start_offset = log_start_offset
        self.end_offset = max(self.end_offset, log_start_offset)
        self.move_gap(log_start_offset)
        self.advance()
        return True

    # Dead letters

    def complete_dead_letter(self, first_offset: int, last_offset: int, now_ms: int) -> StateWrite | None:
        """The dead letters of a range are written: its records become ARCHIVED. The write is best effort."""
        changed = []
        for run in list(self.overlapping(first_offset, last_offset)):
            if run.state is ARCHIVING and run.write is None:
                part = self.cut_out(run, first_offset, last_offset)
                part.become(ARCHIVED)
                self.held_count -= part.size
                self.count_terminal(part, 1)
                changed.append(part)
        if not changed:
            return None
        write = StateWrite(self.start_offset, now_ms)
        write.fill(changed, self.delivery_complete_count)
        return write

    # Looking

    def locks(self) -> list[RestoredLock]:
        """The locks that the next leader must restore, including those whose end is not durable yet.

        The end of a lock may never become durable. Such a lock is returned as ended, with member "", to keep its
        delivery count; its deadline is the end of the wait for the next delivery, 0 without one.
        """
        return [
            RestoredLock(
                run.first,
                run.last,
                run.member_id or "",
                run.delivery_count,
                run.lock_expires_at_ms or run.available_at_ms,
                run.lock_duration_ms,
                run.forgiven - (run.forgiving != NOT_FORGIVEN),  # the write may be refused, and has it otherwise
            )
            for run in self.runs
            if run.delivery_count and not run.durable
        ]

    def left_locks(self) -> LeftLocks:
        return LeftLocks(self.state_epoch, self.locks())

    def held_by(
        self, member_id: str, first_offset: int, last_offset: int, *, settling: bool = False
    ) -> list[AcquiredRange]:
        """The parts of a range that a member still holds.

        `settling`: also those whose settling is not durable yet: if their write is refused, they stay held.
        """
        return [
            _acquired(run)._replace(first_offset=max(run.first, first_offset), last_offset=min(run.last, last_offset))
            for run in self.overlapping(first_offset, last_offset)
            if run.member_id == member_id and (settling or (run.state is ACQUIRED and run.write is None))
        ]


def _acquired(run: Run) -> AcquiredRange:
    return AcquiredRange(
        run.first, run.last, run.delivery_count, run.lock_expires_at_ms, run.lock_duration_ms, run.forgiven
    )
