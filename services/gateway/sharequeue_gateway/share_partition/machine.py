"""One share-partition: who holds which record, until when, and how often it was delivered.

No IO, no clock, no logging. Callers pass `now_ms`; methods return what to do. Source: KIP-932, KIP-1191, KIP-1206,
KIP-1222.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.errors import InvalidRecordState, InvalidRequest
from sharequeue.protocol.types import (
    AcknowledgeType,
    DeliveryState,
    OffsetRange,
    StateAnnotation,
    StateBatch,
)
from sharequeue_gateway.share_partition.acquisition import AcquiredRange, LogBatch
from sharequeue_gateway.share_partition.restoring import InvalidState, restore
from sharequeue_gateway.share_partition.runs import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    LIMIT_EXCEEDED,
    REJECTED,
    TERMINAL,
    DeadLetter,
    RestoredLock,
    Run,
    StateWrite,
)
from sharequeue_gateway.share_partition.window import Window


class AcknowledgementBatch(NamedTuple):
    """What a member says of first..last: one type for all, or one per offset."""

    first_offset: int
    last_offset: int
    types: tuple[AcknowledgeType, ...]
    delivery_count: int | None = None
    """Fences: records with another count are refused. With it a repeat of the acknowledgement is recognised."""
    reason: str | None = None
    delay_ms: int = 0


class Acknowledged(NamedTuple):
    """What came of an acknowledgement. `writes`: await them all; one may be an earlier one that this repeats.

    No writes: everything was so already, or `ignored`: all of it lies below the start offset.
    """

    writes: tuple[StateWrite, ...]
    ignored: bool
    renewed: Sequence[AcquiredRange]


class Completed(NamedTuple):
    """What the outcome of a write changed. `dead_letters`: ranges whose ARCHIVING is durable now."""

    made_available: bool
    start_moved: bool
    dead_letters: Sequence[DeadLetter]


class Expired(NamedTuple):
    """What locks and delays that were due changed. `records`: how many lost their lock."""

    write: StateWrite | None
    records: int
    made_available: bool
    dead_letters: Sequence[DeadLetter]


class Loaded(NamedTuple):
    """A loaded share-partition, and dead letters whose writing must be resumed."""

    share_partition: "SharePartition"
    dead_letters: Sequence[DeadLetter]


class SharePartition(Window):
    """The state machine of one share-partition. Each method is one event."""

    __slots__ = ("leader_epoch", "state_epoch")

    def __init__(self, config: ShareGroupConfig, start_offset: int, state_epoch: int, leader_epoch: int) -> None:
        super().__init__(config, start_offset)
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch

    @classmethod
    def load(
        cls,
        config: ShareGroupConfig,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        state_batches: Sequence[StateBatch],
        annotations: Sequence[StateAnnotation] = (),
        locks: Sequence[RestoredLock] = (),
        now_ms: int,
    ) -> Loaded:
        """Rebuild a share-partition from what is persisted and from the locks that an earlier leader left.

        Raises: InvalidState: the persisted state contradicts itself.
        """
        machine = cls(config, start_offset, state_epoch, leader_epoch)
        restore(machine, state_batches, annotations, locks, now_ms)
        machine.advance()
        dead_letters = []
        for run in machine.runs:
            if run.state is ARCHIVING:
                run.cause = LIMIT_EXCEEDED if run.delivery_count >= config.delivery_count_limit else REJECTED
                dead_letters.append(machine.dead_letter(run))
        return Loaded(machine, dead_letters)

    # Acknowledging

    def acknowledge(self, member_id: str, batches: Sequence[AcknowledgementBatch], now_ms: int) -> Acknowledged:
        """Apply acknowledgement batches, all or none; renewals stay whatever else fails.

        Raises: InvalidRecordState (121): a record is not held by this member. InvalidRequest (42): offsets that were
            never fetched.
        """
        write = StateWrite(self.start_offset)
        joined: dict[int, StateWrite] = {}
        renewed: list[AcquiredRange] = []
        ignored = True
        try:
            for batch in batches:
                if batch.last_offset >= self.start_offset:
                    ignored = False
                    self._acknowledge(member_id, batch, now_ms, write, joined, renewed)
        except (InvalidRecordState, InvalidRequest):
            self._roll_back(write, now_ms)
            raise
        if write.runs:
            self._fill(write)
            joined[id(write)] = write
        return Acknowledged(tuple(joined.values()), ignored, renewed)

    def _acknowledge(
        self,
        member_id: str,
        batch: AcknowledgementBatch,
        now_ms: int,
        write: StateWrite,
        joined: dict[int, StateWrite],
        renewed: list[AcquiredRange],
    ) -> None:
        self._locate(batch)
        first, last = max(batch.first_offset, self.start_offset), batch.last_offset
        if len(batch.types) == 1:
            self._acknowledge_range(member_id, batch, batch.types[0], first, last, now_ms, write, joined, renewed)
            return
        offset = batch.first_offset
        for acknowledge_type, same in groupby(batch.types):
            begin, offset = offset, offset + sum(1 for _ in same)
            if offset > first:
                begin = max(begin, first)
                self._acknowledge_range(
                    member_id, batch, acknowledge_type, begin, offset - 1, now_ms, write, joined, renewed
                )

    def _locate(self, batch: AcknowledgementBatch) -> None:
        """Refuse offsets that are not in the window: below it or of an empty one 121, behind it or in a hole 42."""
        index = self.index_of(batch.last_offset)
        known = index >= 0 and (
            self.runs[0].first <= batch.first_offset or batch.first_offset < self.start_offset <= batch.last_offset
        )
        if not known:
            raise InvalidRecordState(f"offset {batch.first_offset} is not in flight: fetch it first")
        if self.runs[index].last < batch.last_offset:
            raise InvalidRequest(f"offset {batch.last_offset} was never fetched by this group")

    def _acknowledge_range(
        self,
        member_id: str,
        batch: AcknowledgementBatch,
        acknowledge_type: AcknowledgeType,
        first: int,
        last: int,
        now_ms: int,
        write: StateWrite,
        joined: dict[int, StateWrite],
        renewed: list[AcquiredRange],
    ) -> None:
        for run in list(self.overlapping(first, last)):
            count = batch.delivery_count
            target = self._target(acknowledge_type, run)
            if self._is_repeat(run, target, count):
                if run.write is not None:
                    if run.write is write:
                        raise InvalidRecordState(f"offset {max(run.first, first)} is acknowledged twice")
                    joined[id(run.write)] = run.write
                continue
            self._check_held(run, member_id, count)
            part = self.cut_out(run, first, last)
            if target is None:
                part.lock_expires_at_ms = now_ms + self.config.record_lock_duration_ms
                self.time_lock(part.lock_expires_at_ms, part.first, part.last)
                renewed.append(AcquiredRange(part.first, part.last, part.delivery_count, part.lock_expires_at_ms))
            else:
                part.reason = batch.reason
                if target is AVAILABLE and batch.delay_ms:
                    part.available_at_ms = now_ms + batch.delay_ms
                part.cause = REJECTED if acknowledge_type is AcknowledgeType.REJECT else LIMIT_EXCEEDED
                self._begin(part, target, write)

    def _target(self, acknowledge_type: AcknowledgeType, run: Run) -> DeliveryState | None:
        """The state a type leads to; None for renew. Source: KIP-932, KIP-1191, KIP-1222."""
        match acknowledge_type:
            case AcknowledgeType.GAP:
                return ARCHIVED
            case AcknowledgeType.ACCEPT:
                return ACKNOWLEDGED
            case AcknowledgeType.RELEASE:
                return self._made_available(run)
            case AcknowledgeType.REJECT:
                return ARCHIVING if self.config.dead_letter_enabled else ARCHIVED
            case AcknowledgeType.RENEW:
                if not self.config.renew_acknowledge_enable:
                    raise InvalidRecordState("renewing acquisition locks is not enabled for the group")
                return None

    def _made_available(self, run: Run) -> DeliveryState:
        """What becomes of a record that is to be AVAILABLE again: the delivery limit is read at this moment."""
        if run.last < self.start_offset:
            return ARCHIVED
        if run.delivery_count < self.config.delivery_count_limit:
            return AVAILABLE
        return ARCHIVING if self.config.dead_letter_enabled else ARCHIVED

    @staticmethod
    def _is_repeat(run: Run, target: DeliveryState | None, delivery_count: int | None) -> bool:
        """(offset, delivery count) names one delivery: whether it already is in the state the type leads to."""
        if delivery_count is None or target is None or run.delivery_count != delivery_count:
            return False
        return run.state is target or (target is ARCHIVING and run.state is ARCHIVED)

    @staticmethod
    def _check_held(run: Run, member_id: str, delivery_count: int | None) -> None:
        where = f"offsets {run.first}-{run.last}" if run.last > run.first else f"offset {run.first}"
        if run.write is not None:
            raise InvalidRecordState(f"{where}: another acknowledgement is being made durable")
        if run.state is not ACQUIRED:
            detail = "its lock may have ended; fetch again" if run.state is AVAILABLE else "it was settled before"
            raise InvalidRecordState(f"{where}: not acquired but {run.state.name}: {detail}")
        if run.member_id != member_id:
            raise InvalidRecordState(f"{where}: held by another member")
        if delivery_count is not None and run.delivery_count != delivery_count:
            raise InvalidRecordState(f"{where}: delivered {run.delivery_count} times by now, not {delivery_count}")

    # Persist, then commit

    def _begin(self, run: Run, state: DeliveryState, write: StateWrite) -> None:
        """Start a transition: visible, but flagged until its write is durable."""
        run.become(state)
        run.write = write
        write.runs.append(run)
        if state in TERMINAL:
            self.count_terminal(run, 1)

    def _fill(self, write: StateWrite) -> None:
        write.delivery_complete_count = self.delivery_complete_count
        for run in write.runs:
            self._persist(run, write)

    def _persist(self, run: Run, write: StateWrite) -> None:
        batch = run.persisted(write.start_offset)
        if batch is None:
            return
        write.state_batches.append(batch)
        if run.reason is not None or run.available_at_ms:
            write.annotations.append(
                StateAnnotation(
                    batch.first_offset,
                    batch.last_offset,
                    batch.delivery_count,
                    run.available_at_ms or None,
                    run.reason,
                )
            )

    def complete_write(self, write: StateWrite, *, ok: bool, now_ms: int) -> Completed:
        """Commit what a durable write moved, or roll it back: to ACQUIRED, or past a lock that ended meanwhile."""
        made_available = self._commit(write) if ok else self._roll_back(write, now_ms)
        start_moved = self.advance()
        dead_letters = [self.dead_letter(run) for run in write.runs if ok and run.state is ARCHIVING]
        if not start_moved:
            for run in write.runs:
                self.merge_finished(run)
        write.runs = []
        return Completed(made_available, start_moved, dead_letters)

    def _commit(self, write: StateWrite) -> bool:
        made_available = False
        for run in write.runs:
            if run.write is not write:
                continue
            run.write = None
            run.unlock()
            if not run.held:
                self.held_count -= run.size
            if run.state is AVAILABLE:
                if run.available_at_ms:
                    self.time_lock(run.available_at_ms, run.first, run.last)
                else:
                    self.mark_available(run.first)
                    made_available = True
        return made_available

    def _roll_back(self, write: StateWrite, now_ms: int) -> bool:
        made_available = False
        for run in write.runs:
            if run.write is not write:
                continue
            if run.first < self.start_offset <= run.last:
                self.cut_out(run, self.start_offset, run.last)
            if run.state in TERMINAL:
                self.count_terminal(run, -1)
            run.write = None
            run.available_at_ms = 0
            run.reason = run.cause = None
            run.state = ACQUIRED
            if run.lock_expires_at_ms > now_ms:
                continue
            run.unlock()
            self.held_count -= run.size
            if run.last < self.start_offset or run.delivery_count >= self.config.delivery_count_limit:
                run.become(ARCHIVED)
                self.count_terminal(run, 1)
            else:
                run.become(AVAILABLE)
                self.mark_available(run.first)
                made_available = True
        return made_available

    # Locks that end

    def expire(self, now_ms: int) -> Expired:
        """End locks and delays that are due. What memory decides stands, whatever becomes of the write."""
        write = StateWrite(self.start_offset)
        dead_letters: list[DeadLetter] = []
        changed: list[Run] = []
        records = 0
        made_available = False
        while (due := self.pop_due(now_ms)) is not None:
            for run in list(self.overlapping(*due)):
                if run.write is not None:
                    continue
                if run.state is ACQUIRED and run.lock_expires_at_ms <= now_ms:
                    made_available |= self._expire_lock(run, dead_letters)
                    records += run.size
                    changed.append(run)
                elif run.available_at_ms and run.available_at_ms <= now_ms:
                    self.end_delay(run)
                    made_available = True
        if not changed:
            return Expired(None, records, made_available, dead_letters)
        write.delivery_complete_count = self.delivery_complete_count
        for run in changed:
            self._persist(run, write)
        return Expired(write, records, made_available, dead_letters)

    def _expire_lock(self, run: Run, dead_letters: list[DeadLetter]) -> bool:
        if run.first < self.start_offset <= run.last:
            right = run.split(self.start_offset)
            self.runs.insert(self.index_of(run.first) + 1, right)
            self.time_lock(right.lock_expires_at_ms, right.first, right.last)
        run.unlock()
        state = self._made_available(run)
        run.become(state)
        if state is ARCHIVING:
            run.cause = LIMIT_EXCEEDED
            dead_letters.append(self.dead_letter(run))
            return False
        self.held_count -= run.size
        if state is ARCHIVED:
            self.count_terminal(run, 1)
            return False
        self.mark_available(run.first)
        return True

    def release_member(self, member_id: str, now_ms: int) -> StateWrite | None:
        """Make what a member holds AVAILABLE again; delivery counts stay and the limit applies."""
        write = StateWrite(self.start_offset)
        for run in list(self.runs):
            if run.state is ACQUIRED and run.write is None and run.member_id == member_id:
                part = run
                if run.first < self.start_offset <= run.last:
                    below = self.cut_out(run, run.first, self.start_offset - 1)
                    below.cause = LIMIT_EXCEEDED
                    self._begin(below, self._made_available(below), write)
                    part = self.runs[self.index_of(self.start_offset)]
                part.cause = LIMIT_EXCEEDED
                self._begin(part, self._made_available(part), write)
        if not write.runs:
            return None
        self._fill(write)
        return write

    # The log

    def move_log_start(self, log_start_offset: int, now_ms: int) -> bool:
        """Follow the log start: what is gone cannot be delivered. Held records stay held until their locks end."""
        if log_start_offset <= self.start_offset:
            return False
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
        write = StateWrite(self.start_offset)
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
        write.delivery_complete_count = self.delivery_complete_count
        for part in changed:
            self._persist(part, write)
        return write

    # Looking

    def in_flight(self) -> Iterator[Run]:
        """The runs of the window, ascending; read them, change nothing."""
        return iter(self.runs)

    def locks(self) -> list[RestoredLock]:
        """What a later leader must not forget: all locks, also those whose end is not durable yet.

        A lock that memory ended may never become durable: its delivery count is kept as one that is over, member "".
        """
        return [
            RestoredLock(run.first, run.last, run.member_id or "", run.delivery_count, run.lock_expires_at_ms)
            for run in self.runs
            if run.member_id is not None or (run.delivery_count and run.state is not ACKNOWLEDGED)
        ]

    def held_by(self, member_id: str, first_offset: int, last_offset: int) -> list[AcquiredRange]:
        """What a member still holds of a range."""
        return [
            AcquiredRange(
                max(run.first, first_offset), min(run.last, last_offset), run.delivery_count, run.lock_expires_at_ms
            )
            for run in self.overlapping(first_offset, last_offset)
            if run.state is ACQUIRED and run.write is None and run.member_id == member_id
        ]


__all__ = [
    "Acknowledged",
    "AcknowledgementBatch",
    "AcquiredRange",
    "Completed",
    "DeadLetter",
    "Expired",
    "InvalidState",
    "Loaded",
    "LogBatch",
    "OffsetRange",
    "RestoredLock",
    "SharePartition",
    "StateWrite",
]
