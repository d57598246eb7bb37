"""Persist, then commit: a change of state is visible at once, and flagged until its write is durable. Pure.

    begin ──▶ flagged: refuses any other event ──┬─ durable ──▶ commit
                                                 └─ refused ──▶ roll back: ACQUIRED again

While the write is under way, the time of the lock runs on. If the lock ends, its end waits for the outcome: after a
roll-back `SharePartition.expire` decides about the records, as about all whose lock has ended.
"""

from sharequeue.protocol.types import DeliveryState
from sharequeue_gateway.share_partition.runs import (
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    NOT_FORGIVEN,
    TERMINAL,
    UNSEEN,
    Run,
    StateWrite,
)
from sharequeue_gateway.share_partition.window import Window


class Transitions(Window):
    """A window whose runs change their state under a write."""

    __slots__ = ()

    def released_state(self, run: Run) -> DeliveryState:
        """AVAILABLE if another delivery is allowed; otherwise the state after the last one."""
        if run.last < self.start_offset:
            return ARCHIVED
        return self.dead_state if self.is_last_attempt(run) else AVAILABLE

    @property
    def dead_state(self) -> DeliveryState:
        """The state of a record that nobody accepted and nobody gets again: of each that the log still has."""
        return ARCHIVING if self.config.dead_letter_enabled else ARCHIVED

    def forgive(self, run: Run, forgiving: int) -> None:
        """Set whether the last delivery of a run is forgiven, while the write of its release is under way."""
        run.forgiven += (forgiving != NOT_FORGIVEN) - (run.forgiving != NOT_FORGIVEN)
        run.unseen += (forgiving == UNSEEN) - (run.forgiving == UNSEEN)
        run.forgiving = forgiving

    def begin(self, run: Run, state: DeliveryState, write: StateWrite) -> None:
        """Change a run's state, flagged until `write` is durable."""
        run.become(state)
        run.write = write
        write.runs.append(run)
        if state in TERMINAL:
            self.count_terminal(run, 1)

    def commit(self, write: StateWrite, *, durable: bool = True) -> bool:
        """The changes of a write stand. Returns: whether records can be acquired again."""
        made_available = False
        for run in write.runs:
            if run.write is not write:
                continue
            run.write = None
            run.durable = durable
            run.forgiving = NOT_FORGIVEN
            run.unlock()
            if run.state is AVAILABLE:
                made_available |= self.offer(run)
            elif run.state is not ARCHIVING:
                self.held_count -= run.size
        return made_available

    def roll_back(self, write: StateWrite, now_ms: int) -> None:
        """The write was refused: its records are ACQUIRED again. Locks that have ended by now are due at once."""
        for run in write.runs:
            if run.write is not write:
                continue
            if run.state in TERMINAL:
                self.count_terminal(run, -1)
            run.become(ACQUIRED)
            run.write = None
            self.forgive(run, NOT_FORGIVEN)
            run.available_at_ms = 0
            run.reason = run.cause = None
            if run.lock_expires_at_ms <= now_ms:
                self.time_lock(run.lock_expires_at_ms, run.first, run.last)
