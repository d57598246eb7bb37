"""Finds out what became of the transactions on which records are pending, and applies it.

    hold, or a load that found pending records ──▶ `LedIndex.pending`
         every second, and when a gateway says that a transaction has ended:
         ask the log ─┬─ open ───────────▶ they stay pending
                      ├─ a settlement ───▶ settle them ──state durable──▶ remove the settlement
                      └─ neither ────────▶ let them go: to their holder, or if the lock has ended to the group

Nobody acts on a hint: only the log says that a transaction has ended. The gateway that has made the commit has heard it
from the log, so it need not ask. While the log does not answer, pending records stay pending and the others are served.
The sweep loads what nobody has loaded, so that each settlement is applied in the end.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from sharequeue.clock import Clock
from sharequeue.protocol.errors import InvalidRecordState, StorageError
from sharequeue.protocol.types import SettledBatch, SharePartitionKey
from sharequeue.repeats import Every
from sharequeue.service.failed_looks import count_failed_look
from sharequeue.slices import Slices
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_index import LedIndex
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.record_log.store import Query
from sharequeue_gateway.record_log.transactions import settlements
from sharequeue_gateway.record_log.transactions.settlements import (
    Decided,
    Pending,
    Settlement,
    Unapplied,
    settled_of,
)
from sharequeue_http.forms.errors import ApiError
from sharequeue_http.log import Tally, fields

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
SWEEP_S: Final = 5.0
SWEPT_AFTER_S: Final = 5.0
"""How old a settlement is before the sweep looks at it: until then the leader that held the records applies it."""
GONE_AFTER_S: Final = 60.0
"""How old a settlement of a topic that nobody knows is before it is removed."""
ASKED_AT_ONCE: Final = 1000

Outcome = asyncio.Future[ApiError | None]


@dataclass(eq=False)
class PendingTransactions:
    """Applies the outcomes of transactions to the share-partitions that this gateway leads. `run` must be running."""

    _leader: Leader
    _led: LedIndex
    _query: Query
    _metadata: Metadata
    _cluster: Cluster
    _clock: Clock
    _applied: list[Pending] = field(init=False, default_factory=list)
    """Settlements whose state is durable, to be removed."""
    _removing: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    _failed: Tally = field(
        init=False, default_factory=lambda: Tally(log, logging.WARNING, "cannot read the outcomes of transactions")
    )
    oldest_unapplied_s: float = field(init=False, default=0.0)
    """Age of the oldest settlement of the whole service that the last sweep has found."""

    def records(self) -> int:
        return sum(led.machine.pending_count for led in list(self._led.pending))

    def oldest_s(self) -> float:
        """For how long the oldest pending records of this gateway are pending here; 0 without any."""
        since_ms = [since for led in list(self._led.pending) if (since := led.machine.pending_since_ms) is not None]
        return max(self._clock.now_ms() - min(since_ms), 0) / 1000 if since_ms else 0.0

    async def run(self) -> None:
        swept = time.monotonic()
        async for _ in Every(LOOK_S):
            try:
                await self.look()
                if time.monotonic() - swept >= SWEEP_S:
                    swept = time.monotonic()
                    await self.sweep()
            except StorageError as error:
                count_failed_look("pending_records")
                self._failed.note("", cause=error.detail)

    async def look(self) -> None:
        """Ask for every pending record of this gateway, and apply what has been decided."""
        await self._apply(self._led.pending)
        await self._remove_applied()

    async def _remove_applied(self) -> None:
        """Remove the settlements whose state is durable now. Those that others remove are gone when it returns, too."""
        async with self._removing:
            left = len(self._applied)
            while left > 0:
                rows = self._applied[: min(left, ASKED_AT_ONCE)]
                await self._query(settlements.remove, rows)
                del self._applied[: len(rows)]
                left -= len(rows)

    async def ended(
        self,
        transaction_id: str,
        keys: Iterable[SharePartitionKey],
        committed: list[Settlement] | None = None,
    ) -> None:
        """A transaction has ended: apply it now.

        `committed`: what the log has committed, if this gateway has made the commit; the log is asked about the others.
        The list is emptied: its settlements may be large.
        Returns when what it settled here is durable, or not known to be. The settlements are removed before, unless
        they are `committed`: nobody but this gateway knows that transaction, so `look` removes them with others.
        """
        leds = [led for key in keys if (led := self._leader.loaded(key)) is not None]
        heard = {each.key: each for each in committed or ()}
        if committed:
            committed.clear()
        outcomes = await self._apply(leds, transaction_id, heard)
        own = bool(heard)
        heard.clear()
        for outcome in outcomes:
            await outcome
        if not own:
            with contextlib.suppress(StorageError):  # `look` tries again
                await self._remove_applied()

    async def _apply(
        self,
        leds: Iterable[LedSharePartition],
        only: str | None = None,
        committed: Mapping[SharePartitionKey, Settlement] | None = None,
    ) -> list[Outcome]:
        asked: list[tuple[LedSharePartition, Pending]] = []
        for led in list(leds):
            holds = led.machine.holds
            if not holds:
                self._led.pending.pop(led, None)
                continue
            names = holds if only is None else [only]
            asked += [
                (led, Pending(name, led.key)) for name in names if any(hold.durable for hold in holds.get(name, ()))
            ]
        outcomes: list[Outcome] = []
        slices = Slices()
        for start in range(0, len(asked), ASKED_AT_ONCE):
            some = asked[start : start + ASKED_AT_ONCE]
            for led, pending, became in await self._decided(some, committed or {}):
                if slices.over():
                    await slices.pause()
                outcome = None if became.open or led.fenced else self._resolve(led, pending, became.settlement)
                if outcome is not None:
                    outcomes.append(outcome)
        return outcomes

    async def _decided(
        self, asked: Sequence[tuple[LedSharePartition, Pending]], committed: Mapping[SharePartitionKey, Settlement]
    ) -> list[tuple[LedSharePartition, Pending, Decided]]:
        heard = [
            (led, pending, Decided(open=False, settlement=committed[led.key]))
            for led, pending in asked
            if led.key in committed
        ]
        others = [each for each in asked if each[0].key not in committed]
        decided = await self._query(settlements.decided, [pending for _, pending in others]) if others else ()
        return heard + [(*each, became) for each, became in zip(others, decided, strict=True)]

    def _resolve(self, led: LedSharePartition, pending: Pending, settlement: Settlement | None) -> Outcome | None:
        """Apply what was decided. Rows of a state that was replaced settle nothing."""
        machine, now_ms = led.machine, self._clock.now_ms()
        settled: Iterable[SettledBatch] = ()
        if settlement is not None and settlement.state_epoch == machine.state_epoch:
            try:
                settled = settled_of(settlement.batches)
            except msgspec.MsgspecError as fault:  # damaged: the row stays
                log.warning("cannot read a settlement", extra=fields(group_id=led.key.group_id, cause=str(fault)))
                return None
        resolved = machine.resolve(pending.transaction_id, settled, now_ms)
        if resolved is None:
            return None
        for acknowledge_type, records in resolved.settled.items():
            metrics.RECORDS_SETTLED[acknowledge_type.name.lower()].inc(records)
        if resolved.let_go:
            metrics.RECORDS_SETTLED["none"].inc(resolved.let_go)

        stored = settlement is not None

        def ended(error: ApiError | None) -> None:
            if error is None and stored:  # the settlement itself may be large, and is not kept for this
                self._applied.append(pending)

        outcome = self._leader.persist(led, resolved.write, ended)
        self._leader.expire_if_due(led, now_ms)
        return outcome

    # Sweep

    async def sweep(self) -> None:
        """Load the share-partitions of settlements that nobody has applied, and remove those without use."""
        after: datetime | None = None
        while True:
            rows = await self._query(settlements.unapplied, SWEPT_AFTER_S, after, ASKED_AT_ONCE)
            if after is None:
                self.oldest_unapplied_s = rows[0].age_s if rows else 0.0
            useless = [
                Pending(row.transaction_id, row.settlement.key)
                for row in rows
                if self._cluster.leads(row.settlement.key) and await self._useless(row)
            ]
            if useless:
                await self._query(settlements.remove, useless)
            if len(rows) < ASKED_AT_ONCE:
                return
            after = rows[-1].settled_at

    async def _useless(self, row: Unapplied) -> bool:
        """Return whether a settlement has nothing to settle: it was applied, or its state is gone. Loads the
        share-partition.

        Only a leader that loaded after the records became pending, or the one that held them, can tell: an earlier one
        does not know of them.
        """
        key = row.settlement.key
        led = self._leader.loaded(key)
        if led is None:
            try:
                await self._metadata.topics_by_id([key.topic_id])
                topic = self._metadata.known_topic_id(key.topic_id)
                if topic is None:
                    return row.settled_at < datetime.now(UTC) - timedelta(seconds=GONE_AFTER_S)
                (loaded,) = await self._leader.get(key.group_id, [(topic, key.partition)], initialize=False)
            except ApiError:
                return False
            if isinstance(loaded, ApiError):
                return isinstance(loaded, InvalidRecordState)  # the group, or its state, was deleted
            led = loaded
        if led.fenced or led.writes or row.transaction_id in (led.machine.holds or {}):
            return False
        return led.machine.leader_epoch >= row.settlement.leader_epoch
