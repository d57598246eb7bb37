"""A share-partition record by record: slow, plain, and written from the protocol alone.
The reference of the real machine.

One dict entry per offset; every count is counted when asked for. Source: KIP-932, KIP-1191, KIP-1206, KIP-1222.
"""

import math
import zlib
from collections.abc import Iterable, Sequence

from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.types import AcknowledgeType, DeliveryState
from tests.core.acquisition_model import Call
from tests.core.record_model import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    FINAL,
    INVALID_RECORD_STATE,
    INVALID_REQUEST,
    LIMIT_EXCEEDED,
    REJECTED,
    DeadLetters,
    Range,
    Record,
    Refused,
    Said,
    Settlement,
    Write,
)


class Model:
    """One share-partition. Methods are the events of the real machine."""

    def __init__(self, config: ShareGroupConfig, start: int) -> None:
        self.config = config
        self.start = start
        self.end = start
        self.records: dict[int, Record] = {}
        self.crowded = False
        self.new_turn = 0
        self.runs = 0
        """The runs of the real machine: how records are joined into runs is its own affair."""
        self.unread: set[int] = set()
        """Holes that an earlier leader may have read: after a load nothing is known of them."""

    @classmethod
    def load(
        cls,
        config: ShareGroupConfig,
        start: int,
        persisted: Sequence[tuple[int, int, int, int]],
        notes: dict[int, tuple[int, int | None]],
        said: dict[int, dict[int, Said]],
        forgiven: dict[int, int],
        locks: Sequence[tuple[int, int, str, int, int, int, int]],
        now_ms: int,
    ) -> tuple["Model", DeadLetters]:
        """From (first, last, state, count), notes (count, delay), reasons by count, and forgiven deliveries by offset,
        locks (first, last, member, count, end, length, forgiven)."""
        model = cls(config, start)
        state = {o: batch for batch in persisted for o in range(batch[0], batch[1] + 1)}
        cuts = {edge for first, last, *_ in [*persisted, *locks] for edge in (first, last + 1)} | {start}
        live: dict[int, tuple[int, int, int, tuple[int, int, str, int, int, int, int]]] = {}
        none = (0, 0, 0, (0, 0, "", 0, 0, 0, 0))
        for lock in locks:
            first, last, _, count, end_ms, *_ = lock
            for offset in range(max(first, start), last + 1):
                live[offset] = max(live.get(offset, none), (count, end_ms, -last, lock))
        for offset in sorted({*state, *live}):
            if offset in state:
                first, last, number, count = state[offset]
                record = Record(DeliveryState(number), count, (first, last))
            else:
                piece = max(cut for cut in cuts if cut <= offset), min(cut for cut in cuts if cut > offset) - 1
                record = Record(AVAILABLE, 0, piece)
            _, _, member, count, end_ms, lock_ms, forgiven_by_lock = live.get(offset, none)[-1]
            if record.state not in FINAL:
                record.forgiven = forgiven.get(offset, 0)
            if record.state is AVAILABLE and count > record.count:
                record.count, record.forgiven = count, max(record.forgiven, forgiven_by_lock)
                lock_ms = lock_ms or config.record_lock_duration_ms
                lives = bool(member) and end_ms > now_ms
                if lives or record.attempt >= config.delivery_count_limit:
                    record.state, record.member, record.lock_ms = ACQUIRED, member, lock_ms
                    record.lock_ends_ms = min(end_ms, now_ms + lock_ms) if lives else now_ms
                elif member:
                    record.delayed_to_ms = model.retry_ms(record, end_ms, now_ms)
                else:
                    record.delayed_to_ms = end_ms if end_ms > now_ms else 0
            count, delayed_to_ms = notes.get(offset, (-1, None))
            record.said = dict(said.get(offset, {}))
            if count == record.count and record.state is not ACQUIRED:
                record.released = record.reason is not None
                if record.state is AVAILABLE and (delayed_to_ms or 0) > now_ms:
                    record.delayed_to_ms = delayed_to_ms or 0
            record.cause = LIMIT_EXCEEDED if record.attempt >= config.delivery_count_limit else REJECTED
            model.records[offset] = record
        model.end = max(model.records, default=start)
        model.unread = set(range(start, model.end)) - set(model.records)
        model.advance()
        return model, model.dead_letters(model.records)

    # Where things stand

    def between(self, first: int, last: int) -> list[int]:
        return [offset for offset in sorted(self.records) if first <= offset <= last]

    @property
    def finished_count(self) -> int:
        return sum(record.state in FINAL for offset, record in self.records.items() if offset >= self.start)

    @property
    def held_count(self) -> int:
        return sum(record.held for record in self.records.values())

    @property
    def span(self) -> int:
        return self.end - self.start + 1 if any(offset >= self.start for offset in self.records) else 0

    def next_fetch_offset(self) -> int:
        if not self.span:
            return self.end
        wanted = [o for o in self.unread if o >= self.start]
        wanted += [o for o, record in self.records.items() if record.takeable and o >= self.start]
        return min(wanted, default=self.end + 1)

    def begin_at_new(self) -> int | None:
        """Count a fetch. Returns: the offset at which it begins, if it begins at new records."""
        takeable = {o: r for o, r in self.records.items() if r.takeable and o >= self.start}
        new = min((o for o, record in takeable.items() if not record.count), default=self.end + 1)
        unread = any(hole >= self.start for hole in self.unread)
        room, new_room = self.room(new)
        may = (new_room if new > self.end else room) > 0
        if not may or unread or min(takeable, default=new) >= new:
            return None
        self.new_turn += 100 - self.config.redelivery_percent
        if self.new_turn < 100:
            return None
        self.new_turn -= 100
        return new

    def retry_ms(self, record: Record, ended_ms: int, now_ms: int) -> int:
        """When a record whose delivery ended may be delivered again; 0: now. Whole tenths of a second, rounded up."""
        waits = self.config.retry_backoff_ms
        wait_ms = ([0] + [*waits] + [waits[-1]] * 100)[record.attempt] if waits else 0
        if not wait_ms:
            return 0
        chance = zlib.crc32(b"%d/%d" % (record.batch[0], record.attempt)) / 2**32
        longer_ms = math.floor(wait_ms * self.config.retry_jitter_percent / 100 * chance)
        until_ms = math.ceil((ended_ms + min(wait_ms + longer_ms, 43_200_000)) / 100) * 100
        return until_ms if until_ms > now_ms else 0

    def advance(self) -> bool:
        """Move the start over finished records; a hole nobody read stops it, any other hole is passed."""
        if not self.records:
            return False
        before, reached = self.start, min(self.records)
        if any(hole < reached for hole in self.unread) or not self.records[reached].finished:
            return False
        for offset in sorted(self.records):
            unread = [hole for hole in self.unread if reached <= hole < offset]
            if unread or not self.records[offset].finished:
                self.start = max(self.start, min(unread, default=offset))
                break
            reached = offset + 1
        else:
            self.start = self.end = max(reached, self.start)
            self.unread.clear()
        for offset in self.between(0, reached - 1):
            del self.records[offset]
        return self.start != before

    def _gone(self, offsets: Iterable[int]) -> None:
        """AVAILABLE records that left the log are archived; a write of theirs has nothing to commit any more."""
        for offset in offsets:
            record = self.records[offset]
            if record.state is AVAILABLE:
                record.state, record.write, record.delayed_to_ms = ARCHIVED, None, 0
                record.member, record.lock_ends_ms = None, 0

    # Fetching

    def room(self, fetch_offset: int) -> tuple[int, int]:
        """How many records may be acquired, and how many of them behind the end."""
        config, locks = self.config, self.config.partition_max_record_locks
        if config.count_span:
            return (locks - self.span,) * 2 if locks > self.span else (self.end - fetch_offset + 1, 0)
        unfinished = sum(not record.finished for record in self.records.values())
        left = locks - self.held_count
        if not self.span:
            return left, max(0, left)
        new = min(left, locks + config.partition_max_delayed_records - unfinished)
        full = self.end - self.start >= config.max_span or self.crowded or self.runs >= config.max_runs
        return left, 0 if full else max(0, new)

    def acquire(
        self, call: Call, *, max_records: int, fetch_offset: int, log: Sequence[Range], absent: Sequence[Range]
    ) -> None:
        """Acquire out of one read for a fetch."""
        call.look_at((), 0, 0)
        if max_records <= 0 or not log or log[-1][1] < self.start:
            return
        room, new = self.room(fetch_offset)
        if room <= 0:
            return
        base, last = log[0][0], log[-1][1]
        if self.records and base > fetch_offset:
            self._gone(self.between(fetch_offset, base - 1))
            self.unread = {hole for hole in self.unread if hole >= base}
        base = max(base, self.start) if self.records else max(base, self.end)
        if not any(hole >= self.start for hole in self.unread):
            base = max(base, fetch_offset)
        if not new:
            last = min(last, self.end)
        call.look_at(log, min(max_records, room), new)
        call.walk(base, last)
        if absent:
            for offset in [o for first, final in absent for o in self.between(first, final)]:
                record = self.records[offset]
                if offset in call.taken or record.takeable:
                    record.state, record.member, record.lock_ends_ms = ARCHIVED, None, 0
                    call.taken.pop(offset, None)
            self.advance()

    # Acknowledging

    def acknowledge(
        self,
        member: str,
        batches: Sequence[Settlement],
        now_ms: int,
    ) -> tuple[Write, list[Write], bool, set[int]]:
        """Returns: its write, those it joins, ignored, renewed."""
        write, joined, ignored = Write(), [], True
        renewed: dict[int, int | None] = {}
        try:
            for batch in batches:
                first, last, types = batch.first, batch.last, batch.types
                if last < self.start:
                    continue
                ignored = False
                known = self.between(0, last)
                if not known or (first < known[0] and not first < self.start <= last):
                    raise Refused(INVALID_RECORD_STATE)
                if known[-1] < last:
                    raise Refused(INVALID_REQUEST)
                for offset in self.between(max(first, self.start), last):
                    kind = types[0] if len(types) == 1 else types[offset - first]
                    other = self._acknowledge_one(member, offset, kind, batch, write, now_ms)
                    if other is not None and other not in joined:
                        joined.append(other)
                    if kind is AcknowledgeType.RENEW:
                        renewed[offset] = batch.lock_ms
        except Refused:
            self._roll_back(write)
            raise
        for offset, lock_ms in renewed.items():
            record = self.records[offset]
            record.lock_ms = lock_ms or record.lock_ms
            record.lock_ends_ms = now_ms + record.lock_ms
        self._persist(write, write.moved)
        return write, joined, ignored, set(renewed)

    def _acknowledge_one(
        self,
        member: str,
        offset: int,
        kind: AcknowledgeType,
        batch: Settlement,
        write: Write,
        now_ms: int,
    ) -> Write | None:
        record, count = self.records[offset], batch.count
        target = self._target(kind, offset)
        forgives = kind is AcknowledgeType.RELEASE and not batch.begun and self.config.forgives
        if batch.seen:
            forgives &= record.forgiven - record.unseen < self.config.delivery_count_limit
        if forgives and offset >= self.start:
            target = AVAILABLE
        settled = (target, ARCHIVED) if target is ARCHIVING else (target,)
        if count is not None and count == record.count and target is not None and record.state in settled:
            if record.write is write:
                raise Refused(INVALID_RECORD_STATE)
            return record.write
        holds = record.state is ACQUIRED and record.write is None and record.member == member
        if not holds or count not in (None, record.count):
            raise Refused(INVALID_RECORD_STATE)
        if target is None:
            return None
        if batch.reason is not None:
            record.said[record.count] = batch.reason, now_ms // 100 * 100
        if forgives:
            record.forgiving = 1, int(not batch.seen)
            record.forgiven += 1
            record.unseen += not batch.seen
        else:
            record.released = kind is AcknowledgeType.RELEASE
        record.cause = REJECTED if kind is AcknowledgeType.REJECT else LIMIT_EXCEEDED
        record.delayed_to_ms = 0
        if target is AVAILABLE and batch.delay_ms:
            record.delayed_to_ms = now_ms + batch.delay_ms
        elif target is AVAILABLE and batch.delay_ms is None and batch.begun:
            record.delayed_to_ms = self.retry_ms(record, now_ms, now_ms)
        self._begin(offset, target, write)
        return None

    def _target(self, kind: AcknowledgeType, offset: int) -> DeliveryState | None:
        if kind is AcknowledgeType.RENEW:
            if not self.config.renew_acknowledge_enable:
                raise Refused(INVALID_RECORD_STATE)
            return None
        if kind is AcknowledgeType.RELEASE:
            return self._released(offset)
        if kind is AcknowledgeType.REJECT and self.config.dead_letter_enabled:
            return ARCHIVING
        return ACKNOWLEDGED if kind is AcknowledgeType.ACCEPT else ARCHIVED

    def _released(self, offset: int) -> DeliveryState:
        if offset >= self.start and self.records[offset].attempt < self.config.delivery_count_limit:
            return AVAILABLE
        return ARCHIVING if offset >= self.start and self.config.dead_letter_enabled else ARCHIVED

    # Writing

    def _begin(self, offset: int, state: DeliveryState, write: Write) -> None:
        record = self.records[offset]
        record.state, record.write = state, write
        write.moved.append(offset)

    def _persist(self, write: Write, offsets: Iterable[int]) -> Write:
        write.start, write.finished = self.start, self.finished_count
        for offset in offsets:
            record = self.records[offset]
            if offset >= self.start:
                write.batches[offset] = (record.count, record.state)
                forgiven = 0 if record.state in FINAL else record.forgiven
                if record.reason is not None or record.delayed_to_ms or forgiven:
                    write.notes[offset] = (record.delayed_to_ms or None, record.reason, forgiven)
        return write

    def complete_write(self, write: Write, ok: bool, now_ms: int) -> tuple[bool, bool, DeadLetters]:
        """Returns: whether something can be acquired again, whether the start moved, dead letters that are due."""
        mine = [o for o in write.moved if o in self.records and self.records[o].write is write]
        if ok:
            for offset in mine:
                record = self.records[offset]
                record.write, record.member, record.lock_ends_ms = None, None, 0
                record.forgiving = 0, 0
        else:
            self._roll_back(write)
        available = any(self.records[offset].takeable for offset in mine)
        due = self.dead_letters(mine) if ok else {}
        return available, self.advance(), due

    def _roll_back(self, write: Write) -> None:
        for offset in write.moved:
            record = self.records.get(offset)
            if record is None or record.write is not write:
                continue
            record.write, record.delayed_to_ms, record.cause = None, 0, None
            record.said.pop(record.count, None)
            record.state = ACQUIRED
            record.forgiven -= record.forgiving[0]
            record.unseen -= record.forgiving[1]
            record.forgiving = 0, 0

    def dead_letters(self, offsets: Iterable[int]) -> DeadLetters:
        found = ((offset, self.records[offset]) for offset in offsets)
        return {offset: (r.count, r.cause, r.reason, r.earlier) for offset, r in found if r.state is ARCHIVING}

    def complete_dead_letter(self, first: int, last: int) -> Write | None:
        done = [
            o for o in self.between(first, last) if self.records[o].state is ARCHIVING and not self.records[o].write
        ]
        for offset in done:
            self.records[offset].state = ARCHIVED
        return self._persist(Write(), done) if done else None

    # Time, members, the log

    def expire(self, now_ms: int) -> tuple[Write | None, int, bool, DeadLetters]:
        idle = [(offset, record) for offset, record in self.records.items() if record.write is None]
        ended = [o for o, record in idle if record.state is ACQUIRED and record.lock_ends_ms <= now_ms]
        over = [record for _, record in idle if 0 < record.delayed_to_ms <= now_ms]
        for record in over:
            record.delayed_to_ms = 0
        for offset in ended:
            record = self.records[offset]
            ended_ms, record.released = record.lock_ends_ms, False
            record.state, record.member, record.lock_ends_ms = self._released(offset), None, 0
            record.cause = LIMIT_EXCEEDED
            record.delayed_to_ms = self.retry_ms(record, ended_ms, now_ms) if record.state is AVAILABLE else 0
        available = bool(over) or any(self.records[offset].takeable for offset in ended)
        return self._persist(Write(), ended) if ended else None, len(ended), available, self.dead_letters(ended)

    def release_member(self, member: str) -> Write | None:
        write = Write()
        for offset, record in self.records.items():
            if record.state is ACQUIRED and record.write is None and record.member == member:
                record.cause, record.released = LIMIT_EXCEEDED, False
                self._begin(offset, self._released(offset), write)
        return self._persist(write, write.moved) if write.moved else None

    def move_log_start(self, log_start: int) -> bool:
        if log_start <= self.start:
            return False
        self._gone(self.between(self.start, log_start - 1))
        self.start, self.end = log_start, max(self.end, log_start)
        self.unread = {hole for hole in self.unread if hole >= log_start}
        self.advance()
        return True
