"""Drives a SharePartition in the words of the scenarios: ranges as text, acknowledgements by name,
writes held or failed."""

from collections.abc import Sequence

import pytest
from sharequeue_gateway.share_partition.acquisition import Acquisition, can_acquire
from sharequeue_gateway.share_partition.outcomes import Acknowledged, AcknowledgementBatch
from sharequeue_gateway.share_partition.runs import LogBatch, StateWrite

from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.errors import InvalidRecordState
from sharequeue.protocol.state import StateBatch
from sharequeue.protocol.types import AcknowledgeType, AcquireMode, DeliveryState, OffsetRange, Reason, RestoredLock
from tests.core.restored import load
from tests.core.states import StateAnnotation

TYPES = {"Gap": 0, "Acc": 1, "Rel": 2, "Rej": 3, "Ren": 4}
LETTERS = {
    DeliveryState.AVAILABLE: "AV",
    DeliveryState.ACQUIRED: "AQ",
    DeliveryState.ACKNOWLEDGED: "AK",
    DeliveryState.ARCHIVING: "ARCHIVING",
    DeliveryState.ARCHIVED: "AR",
}


class Batch(OffsetRange):
    """An extent of the log, under the names the machine reads."""

    @property
    def base_offset(self) -> int:
        return self.first_offset


def log(text: str) -> list[LogBatch]:
    """`"[0-4][5-9][10]"` as record batches."""
    extents = []
    for part in text.strip("[]").split("]["):
        first, _, last = part.partition("-")
        extents.append(Batch(int(first), int(last or first)))
    return extents


def shown(ranges: Sequence[tuple[int, ...]]) -> str:
    """Acquired ranges as `"0-4×1, 5-9×2"`."""
    return ", ".join(f"{first}-{last}×{count}" for first, last, count, *_ in ranges)


class Driver:
    """One share-partition, its clock and the writes that are pending."""

    def __init__(
        self,
        state: Sequence[tuple[int, int, int, int]] = (),
        start: int = 0,
        *,
        hold_writes: bool = False,
        locks: Sequence[RestoredLock] = (),
        annotations: Sequence[StateAnnotation] = (),
        state_epoch: int = 1,
        now_ms: int = 1_000_000,
        jitter_seed: int = 0,
        **config: object,
    ) -> None:
        self.now_ms = now_ms
        config.setdefault("dead_letter_topic_name", "")
        config.setdefault("throttle_released", True)
        self.config = ShareGroupConfig(**config)  # type: ignore[arg-type]
        loaded = load(
            self.config,
            state_epoch=state_epoch,
            leader_epoch=1,
            start_offset=start,
            state_batches=[StateBatch(*batch) for batch in state],
            annotations=annotations,
            locks=locks,
            now_ms=self.now_ms,
            jitter_seed=jitter_seed,
        )
        self.machine = loaded.share_partition
        self.dead_letters = list(loaded.dead_letters)
        self.hold_writes = hold_writes
        self.pending: list[StateWrite] = []
        self.written: list[list[tuple[int, int, int, int]]] = []
        self.writes: list[StateWrite] = []

    def configure(self, **changes: object) -> None:
        values = {name: getattr(self.config, name) for name in ShareGroupConfig.__struct_fields__}
        self.config = self.machine.config = ShareGroupConfig(**{**values, **changes})  # type: ignore[arg-type]

    def fetch(
        self,
        data: str,
        member: str = "M1",
        *,
        max: int = 500,
        bs: int = 500,
        rl: bool = False,
        at: int | None = None,
        absent: Sequence[tuple[int, int]] = (),
        lock_ms: int | None = None,
    ) -> str:
        if not can_acquire(self.machine):
            return ""
        mode = AcquireMode.RECORD_LIMIT if rl else AcquireMode.BATCH_OPTIMIZED
        acquisition = Acquisition(self.machine, member, mode, bs, self.now_ms, lock_ms)
        acquisition.acquire(
            log(data),
            fetch_offset=self.machine.next_fetch_offset() if at is None else at,
            max_records=max,
            absent=[OffsetRange(*gone) for gone in absent],
        )
        return shown(acquisition.acquired)

    def ack(
        self,
        *batches: str,
        member: str = "M1",
        count: int | None = None,
        reason: str | None = None,
        delay_ms: int | None = None,
        lock_ms: int | None = None,
        begun: bool = True,
        seen: bool = True,
    ) -> Acknowledged:
        """`ack("5-9 Rel", "10-11 Acc Gap")`: one atomic request."""
        parsed = []
        for batch in batches:
            place, *names = batch.split()
            first, _, last = place.partition("-")
            types = tuple(AcknowledgeType(TYPES[name]) for name in names)
            parsed.append(
                AcknowledgementBatch(
                    int(first),
                    int(last or first),
                    types,
                    count,
                    reason and Reason(reason),
                    delay_ms,
                    begun,
                    seen,
                    lock_ms,
                )
            )
        acknowledged = self.machine.acknowledge(member, parsed, self.now_ms)
        for write in acknowledged.writes:
            self.sent(write)
        return acknowledged

    def sent(self, write: StateWrite | None) -> None:
        if write is None or write in self.pending:
            return
        self.written.append(
            [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in write.state.batches]
        )
        self.writes.append(write)
        self.pending.append(write)
        if not self.hold_writes:
            self.finish(write)

    def finish(self, write: StateWrite | None = None, *, ok: bool = True) -> None:
        write = self.pending[0] if write is None else write
        self.pending.remove(write)
        completed = self.machine.complete_write(write, refused_at_ms=None if ok else self.now_ms)
        self.dead_letters += completed.dead_letters
        if not ok:
            self.later(0)  # the leader looks at the due locks

    def later(self, ms: int = 30_001) -> int:
        """Let time pass and end what is due. Returns: how many records lost their lock."""
        self.now_ms += ms
        expired = self.machine.expire(self.now_ms)
        self.dead_letters += expired.dead_letters
        self.sent(expired.write)
        return expired.records

    def close(self, member: str = "M1") -> None:
        self.sent(self.machine.release_member(member, self.now_ms))

    def archived(self, first: int, last: int) -> None:
        self.sent(self.machine.complete_dead_letter(first, last, self.now_ms))

    def states(self) -> str:
        """The window as `"0-4 AV×1 | 5-9 AQ×2"`, equal neighbours joined."""
        parts: list[list[object]] = []
        for run in self.machine.runs:
            letters = LETTERS[run.state]
            if parts and parts[-1][1] == run.first - 1 and parts[-1][2:] == [letters, run.delivery_count]:
                parts[-1][1] = run.last
            else:
                parts.append([run.first, run.last, letters, run.delivery_count])
        return " | ".join(f"{first}-{last} {letters}×{count}" for first, last, letters, count in parts)

    def where(self) -> tuple[int, int, int, int]:
        """(SPSO, END, next fetch offset, DCC)."""
        machine = self.machine
        return machine.start_offset, machine.end_offset, machine.next_fetch_offset(), machine.delivery_complete_count


def fetched(*batches: str, start: int = 0, member: str = "M1", **config: object) -> Driver:
    """A share-partition whose batches were fetched one by one."""
    driver = Driver(start=start, **config)  # type: ignore[arg-type]
    for batch in batches:
        driver.fetch(batch, member)
    return driver


def fives(first: int, last: int) -> list[str]:
    """Log batches of five offsets each."""
    return [f"[{offset}-{offset + 4}]" for offset in range(first, last, 5)]


def refused(
    d: Driver, *batches: str, member: str = "M1", error: type[Exception] = InvalidRecordState, count: int | None = None
) -> None:
    """The acknowledgement fails, and neither state nor counts nor what was written have changed."""
    before = (d.states(), d.where(), d.machine.held_count, list(d.written))
    with pytest.raises(error):
        d.ack(*batches, member=member, count=count)
    assert (d.states(), d.where(), d.machine.held_count, list(d.written)) == before
