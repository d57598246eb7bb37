"""The real machine and the model side by side: their results are compared after every event.

Durable state goes through the share coordinator's own decide-and-replay, in the order in which writes succeed.
"""

import itertools
from collections.abc import Sequence
from typing import Any

from hypothesis import note
from hypothesis.stateful import RuleBasedStateMachine, invariant
from sharequeue_gateway.share_partition.machine import SharePartition
from sharequeue_gateway.share_partition.runs import DeadLetter, StateWrite
from sharequeue_share_coordinator.share_state import shard
from sharequeue_share_coordinator.share_state.rows import replay

from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.messages.share_state import PartitionState
from sharequeue.protocol.types import GivenReason, RestoredLock
from tests.core.record_model import FINAL, Said, Write
from tests.core.share_partition_model import Model
from tests.core.states import Stored, annotations, plain


def spread(ranges: Sequence[tuple[Any, ...]]) -> dict[int, tuple[Any, ...]]:
    """(first, last, …) ranges as one entry per offset; an offset twice is an error."""
    entries: dict[int, tuple[Any, ...]] = {}
    for first, last, *rest in ranges:
        for offset in range(first, last + 1):
            assert offset not in entries, f"offset {offset} is in two ranges"
            entries[offset] = tuple(rest)
    return entries


def said(reason: GivenReason | None) -> Said | None:
    return None if reason is None else (reason.reason, reason.at_ms)


class SideBySide(RuleBasedStateMachine):
    """The machine, the model, one clock, the writes that are pending, and what is durable."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        self.pending: list[tuple[StateWrite, Write]] = []
        self.locks: list[RestoredLock] = []
        self.read: tuple[int, list[tuple[int, int]]] | None = None

    def begin(self, config: ShareGroupConfig, start: int) -> None:
        self.config = config
        self.machine = SharePartition(self.config, start, 1, 1)
        self.model = Model(self.config, start)
        request = PartitionState(partition=0, state_epoch=1, start_offset=start)
        row = shard.initialize(None, request, None, self.now_ms).row
        assert row is not None
        self.durable = replay(None, row, 3)
        self.committed: dict[int, tuple[int, int]] = {}
        self.notes: dict[int, tuple[int, int | None]] = {}
        self.said: dict[int, dict[int, Said]] = {}
        self.forgiven: dict[int, int] = {}
        self.handed_out: set[tuple[int, int]] = set()
        """Each (offset, delivery count) that a client got."""
        self.log_start = 0
        self.removed: set[int] = set()
        """Offsets that compaction has removed from the log. None comes back."""

    # Writing

    def sent(self, write: StateWrite, mine: Write) -> None:
        assert (write.start_offset, write.delivery_complete_count) == (mine.start, mine.finished)
        batches = spread(
            [(b.first_offset, b.last_offset, b.delivery_count, b.delivery_state) for b in plain(write.state)]
        )
        assert batches == mine.batches
        notes = spread(
            [
                (n.first_offset, n.last_offset, n.available_at_ms, n.reason and (n.reason, n.reason_at_ms), n.forgiven)
                for n in annotations(write.state)
            ]
        )
        assert not any(n.earlier_reasons for n in annotations(write.state)), "the state has kept them"
        assert notes == mine.notes
        self.pending.append((write, mine))

    def complete(self, index: int, ok: bool) -> None:
        write, mine = self.pending.pop(index)
        note(f"{ok=} for the write of {mine.batches}")
        if ok:
            self.persist(write, mine)
        completed = self.machine.complete_write(write, refused_at_ms=None if ok else self.now_ms)
        available, moved, dead_letters = self.model.complete_write(mine, ok, self.now_ms)
        assert (completed.made_available, completed.start_moved) == (available, moved), (
            completed,
            available,
            moved,
            self.machine.start_offset,
            self.model.start,
        )
        self.check_dead_letters(completed.dead_letters, dead_letters)

    def persist(self, write: StateWrite, mine: Write) -> None:
        """Through the share coordinator; beside it per offset, the higher (count, state) wins."""
        assert self.durable is not None
        request = PartitionState(
            partition=0,
            state_epoch=1,
            leader_epoch=1,
            start_offset=write.start_offset,
            delivery_complete_count=write.delivery_complete_count,
            state=write.state,
        )
        decision = shard.write(self.durable, request, None, 3, self.now_ms)
        assert decision.row is not None
        self.durable = replay(self.durable, decision.row, 3)
        assert self.durable is not None
        start = self.durable.start_offset
        for offset, (count, state) in mine.batches.items():
            if (count, state) >= self.committed.get(offset, (-1, 0)):
                self.committed[offset] = count, state
                if offset in mine.notes:
                    available_at_ms, reason, _ = mine.notes[offset]
                    stored_ms = None if available_at_ms is None else -(-available_at_ms // 100) * 100
                    self.notes[offset] = count, stored_ms
                    if reason is not None:
                        self.said.setdefault(offset, {})[count] = reason
                if state in FINAL:
                    self.forgiven.pop(offset, None)
            if offset in mine.notes and self.committed[offset][1] not in FINAL:
                self.forgiven[offset] = max(self.forgiven.get(offset, 0), mine.notes[offset][2])
        self.committed = {offset: value for offset, value in self.committed.items() if offset >= start}
        self.notes = {o: note for o, note in self.notes.items() if self.committed.get(o, (-1, 0))[0] == note[0]}
        durable = [
            (b.first_offset, b.last_offset, b.delivery_count, b.delivery_state)
            for b in Stored(self.durable.batches).state_batches()
        ]
        assert spread(durable) == self.committed

    @staticmethod
    def check_dead_letters(letters: Sequence[DeadLetter], expected: dict[int, Any]) -> None:
        assert (
            spread([(*letter[:-2], said(letter.reason), tuple(map(said, letter.earlier))) for letter in letters])
            == expected
        )

    def perhaps_sent(self, write: StateWrite | None, mine: Write | None) -> None:
        assert (write is None) == (mine is None)
        if write is not None and mine is not None:
            self.sent(write, mine)

    # After every step

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "machine"):
            return
        machine, model = self.machine, self.model
        runs = list(machine.runs)
        mine = {
            offset: (
                record.state,
                record.count,
                record.delayed_to_ms,
                record.write is not None,
                record.member if record.lock_ends_ms else None,
                record.lock_ends_ms,
                record.lock_ms if record.lock_ends_ms else 0,
                None
                if record.state in FINAL
                else (record.forgiven, record.unseen, record.released, record.reason, record.earlier),
            )
            for offset, record in model.records.items()
        }
        theirs = spread(
            [
                (
                    r.first,
                    r.last,
                    r.state,
                    r.delivery_count,
                    r.available_at_ms,
                    r.write is not None,
                    r.member_id,
                    r.lock_expires_at_ms,
                    r.lock_duration_ms if r.lock_expires_at_ms else 0,
                    None
                    if r.state in FINAL
                    else (r.forgiven, r.unseen, r.released, said(r.reason), tuple(map(said, r.earlier))),
                )
                for r in runs
            ]
        )
        assert theirs.keys() == mine.keys()
        for offset, expected in mine.items():
            got = theirs[offset]
            assert got == expected, (offset, got, expected)
        where = machine.start_offset, machine.end_offset, machine.span
        assert where == (model.start, model.end, model.span), (where, model.start, model.end, model.unread)
        next_fetch_offset = model.next_fetch_offset()
        assert machine.next_fetch_offset() == next_fetch_offset, (
            machine.next_fetch_offset(),
            next_fetch_offset,
            model.unread,
        )
        assert machine.delivery_complete_count == model.finished_count
        assert machine.held_count == model.held_count
        waiting = [r for r in model.records.values() if not r.held and not r.finished]
        assert machine.waiting_count == len(waiting)
        assert machine.delayed_count == sum(r.delayed_to_ms > 0 for r in waiting)
        assert (not machine.runs) == (not model.records)

    @invariant()
    def the_window_is_in_order(self) -> None:
        if not hasattr(self, "machine"):
            return
        runs = list(self.machine.runs)
        assert all(run.first <= run.last for run in runs)
        assert all(left.last < right.first for left, right in itertools.pairwise(runs))
        for run in runs:
            assert run.finished or run.batch_first <= run.first <= run.last <= run.batch_last
        deadlines = [
            record.lock_ends_ms or record.delayed_to_ms
            for record in self.model.records.values()
            if record.write is None and (record.lock_ends_ms or record.delayed_to_ms)
        ]
        if deadlines:
            next_deadline_ms = self.machine.next_deadline_ms()
            assert next_deadline_ms is not None
            assert next_deadline_ms <= min(deadlines)
