"""Holds records for a transaction: the half of a settlement that the leader of a share-partition does before the
commit.

A hold is granted when it is durable in the state of the share-partition. From then on any leader finds the records
pending, and asks the log what became of the transaction (`leader/pending_transactions.py`).
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from sharequeue.clock import Clock
from sharequeue.protocol.errors import ApiError, InvalidRequest, NotLeaderOrFollower, UnknownTopicOrPartition
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue.protocol.messages.records import Acknowledgement
from sharequeue.protocol.types import SettledBatch, SharePartitionKey, TopicIdPartition
from sharequeue.slices import Slices
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.delivery.acknowledging import APPLIED, Checked, ask_for_topics, check, failed
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_share_partition import LedSharePartition


class HeldHere(NamedTuple):
    """What is held in one share-partition, and the epochs under which it is."""

    key: SharePartitionKey
    state_epoch: int
    leader_epoch: int
    batches: list[SettledBatch]


class Holder:
    """Holds records of the share-partitions that this gateway leads."""

    def __init__(self, leader: Leader, metadata: Metadata, clock: Clock) -> None:
        self._leader = leader
        self._metadata = metadata
        self._clock = clock

    async def hold(
        self, group_id: str, member_id: str, transaction_id: str, acknowledgements: Sequence[Acknowledgement]
    ) -> tuple[list[AcknowledgementResult], list[HeldHere]]:
        """Have records wait for a transaction, and wait until that is durable.

        Returns: for each acknowledgement whether it is held (`applied`), in order; and what is held.
        A refusal leaves the
        others held: they are let go when the transaction has ended.
        """
        checked, results = await self._check(acknowledgements)
        places = {item.place: (item.topic, item.place[1]) for item in checked.values()}
        loaded = await self._leader.get(group_id, list(places.values()), initialize=False)
        leds = dict(zip(places, loaded, strict=True))
        held: dict[TopicIdPartition, HeldHere] = {}
        waiting: dict[int, list[asyncio.Future[ApiError | None]]] = {}
        slices = Slices()
        for index, item in checked.items():
            if slices.over():
                await slices.pause()
            try:
                batches, writes = await self._hold(member_id, transaction_id, leds[item.place], item)
            except ApiError as error:
                results[index] = failed(error)
                continue
            led = leds[item.place]
            assert isinstance(led, LedSharePartition)
            here = held.setdefault(item.place, HeldHere(led.key, led.machine.state_epoch, led.machine.leader_epoch, []))
            here.batches.extend(batches)
            waiting[index] = writes
        for index, writes in waiting.items():
            refused: ApiError | None = None
            for write in writes:
                refused = await write or refused
            results[index] = APPLIED if refused is None else failed(refused)
        return [results[index] for index in range(len(acknowledgements))], list(held.values())

    async def _check(
        self, acknowledgements: Sequence[Acknowledgement]
    ) -> tuple[dict[int, Checked], dict[int, AcknowledgementResult]]:
        """Returns: those with a valid form whose partitions are known, and the results of the others, by index."""
        checked: dict[int, Checked] = {}
        results: dict[int, AcknowledgementResult] = {}
        away = await ask_for_topics(self._metadata, acknowledgements)
        slices = Slices()
        for index, acknowledgement in enumerate(acknowledgements):
            if slices.over():
                await slices.pause()
            try:
                batch = check(acknowledgement, kafka_defaults=self._metadata.kafka_defaults)
                topic = self._metadata.known_topic_with(acknowledgement.topic, acknowledgement.partition)
                checked[index] = Checked(topic, (topic.topic_id, acknowledgement.partition), batch)
            except UnknownTopicOrPartition as error:
                results[index] = failed(away or error)
            except ApiError as error:
                results[index] = failed(error)
        _refuse_doubles(checked, results)
        return checked, results

    async def _hold(
        self, member_id: str, transaction_id: str, led: LedSharePartition | ApiError, item: Checked
    ) -> tuple[list[SettledBatch], list[asyncio.Future[ApiError | None]]]:
        if isinstance(led, ApiError):
            raise led
        if led.fenced:
            raise NotLeaderOrFollower("the share-partition was unloaded just now; repeat the request")
        now_ms = self._clock.now_ms()
        self._leader.expire_if_due(led, now_ms)
        led.used_at_ms = now_ms
        try:
            holds, batches = led.machine.hold(member_id, transaction_id, [item.batch], now_ms)
        except ApiError:
            if not await self._leader.locks.still_leads(led):  # the new leader knows the holder of the records
                raise NotLeaderOrFollower("another gateway leads this share-partition") from None
            raise
        self._leader.pending(led)
        return batches, [self._leader.persist(led, hold) for hold in holds if not hold.durable]


def _refuse_doubles(checked: dict[int, Checked], results: dict[int, AcknowledgementResult]) -> None:
    """Refuse acknowledgements of offsets that an earlier one of the same call names."""
    ends: dict[TopicIdPartition, int] = {}
    in_order = sorted(checked, key=lambda index: (checked[index].place, checked[index].batch.first_offset, index))
    for index in in_order:
        place, batch = checked[index].place, checked[index].batch
        if batch.first_offset <= ends.get(place, -1):
            del checked[index]
            results[index] = failed(InvalidRequest(f"offset {batch.first_offset} is acknowledged twice"))
        else:
            ends[place] = batch.last_offset
