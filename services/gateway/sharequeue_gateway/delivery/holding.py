"""Holds records for a transaction: the half of a settlement that the leader of a share-partition does before the
commit.

A hold is granted when it is durable in the state of the share-partition. From then on any leader finds the records
pending, and asks the log what became of the transaction (`leader/pending_transactions.py`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from sharequeue.clock import Clock
from sharequeue.protocol.errors import NotLeaderOrFollower
from sharequeue.protocol.messages.leaders import HeldForTransaction, HoldRequest, HoldResponse
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.delivery.acknowledging import APPLIED, AtPartition, Outcomes, Writes, check_all
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.share_partition.outcomes import AcknowledgementBatch
from sharequeue_http.forms.errors import ApiError, InvalidRequest

AT_ONCE: Final = 100
"""How many acknowledgements of a share-partition are held by one write."""


@dataclass(eq=False)
class Holder:
    """Holds records of the share-partitions that this gateway leads."""

    _leader: Leader
    _metadata: Metadata
    _clock: Clock

    async def hold(self, group_id: str, request: HoldRequest) -> HoldResponse:
        """Have records wait for a transaction, and wait until that is durable.

        Returns: for each acknowledgement whether it is held (`applied`), in order; and what is held. If one is refused
            for good, the transaction will be aborted: those behind it are only checked, and those before it stay held
            until then.
        """
        member_id, transaction_id, acknowledgements = structs.astuple(request)
        outcomes = Outcomes([APPLIED] * len(acknowledgements))
        partitions = await check_all(self._metadata, acknowledgements, outcomes)
        loaded = await self._leader.get(
            group_id, [(at.topic, at.partition) for at in partitions.values()], initialize=False
        )
        held: list[HeldForTransaction] = []
        under_way: list[tuple[AtPartition, Sequence[int], Writes]] = []
        for at, led in zip(partitions.values(), loaded, strict=True):
            single = _refuse_doubles(outcomes, at)
            for begin in range(0, len(single), AT_ONCE):
                if begin:
                    await asyncio.sleep(0)
                some = single[begin : begin + AT_ONCE]
                try:
                    good, writes = await self._hold(member_id, transaction_id, led, at, some, outcomes, held)
                except ApiError as error:
                    outcomes.end(at, some, error, APPLIED)
                    continue
                under_way.append((at, good, writes))
        if len(under_way) == 1 and len(under_way[0][2]) == 1:
            await self._leader.send_now(under_way[0][2][0])
        for at, good, writes in under_way:
            ended = [fault for write in writes if (fault := await write) is not None]
            outcomes.end(at, good, ended[0] if ended else None, APPLIED)
        return HoldResponse(results=outcomes.results, held=held)

    async def _hold(
        self,
        member_id: str,
        transaction_id: str,
        led: LedSharePartition | ApiError,
        at: AtPartition,
        some: Sequence[int],
        outcomes: Outcomes,
        held: list[HeldForTransaction],
    ) -> tuple[Sequence[int], Writes]:
        """Hold what can be held of these, and add it to `held`. Returns: what is held, and the writes to await."""
        if isinstance(led, ApiError):
            raise led
        if led.fenced:
            raise NotLeaderOrFollower("the share-partition was unloaded just now; repeat the request")
        machine, now_ms = led.machine, self._clock.now_ms()
        self._leader.expire_if_due(led, now_ms)
        led.used_at_ms = now_ms
        good: list[int] = []
        batches: list[AcknowledgementBatch] = []
        faults: list[tuple[int, ApiError]] = []
        for position in some:
            batch = at.batches[position]
            try:
                machine.check_hold(member_id, transaction_id, batch)
            except ApiError as error:
                faults.append((position, error))
            else:
                good.append(position)
                batches.append(batch)
        writes: Writes = ()
        if batches and not outcomes.hopeless:  # otherwise the transaction is aborted: these are only checked
            granted = machine.hold(member_id, transaction_id, batches, now_ms)
            self._leader.pending(led)
            writes = [self._leader.persist(led, hold) for hold in granted.holds if not hold.durable]
            if not held or held[-1].key != led.key or held[-1].state_epoch != machine.state_epoch:
                held.append(HeldForTransaction(led.key, machine.state_epoch, machine.leader_epoch, []))
            held[-1].batches.extend(granted.batches)
        if faults and not await self._leader.locks.still_leads(led):  # the new leader knows the holder of the records
            moved = NotLeaderOrFollower("another gateway leads this share-partition")
            faults = [(position, moved) for position, _ in faults]
        for position, fault in faults:
            outcomes.end(at, (position,), fault, APPLIED)
        return good, writes


def _refuse_doubles(outcomes: Outcomes, at: AtPartition) -> list[int]:
    """Refuse what names an offset twice. Returns: the positions of the others, in request order."""
    end = -1
    single: list[int] = []
    for position in sorted(range(len(at.batches)), key=lambda position: at.batches[position].first_offset):
        batch = at.batches[position]
        if batch.first_offset <= end:
            twice = InvalidRequest(f"offset {batch.first_offset} is acknowledged twice")
            outcomes.end(at, (position,), twice, APPLIED)
        else:
            end = batch.last_offset
            single.append(position)
    return sorted(single)
