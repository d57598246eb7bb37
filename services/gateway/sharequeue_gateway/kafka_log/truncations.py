"""Finds logs that Kafka has cut, and has their groups go on where the histories part. Source: KIP-320.

An election of a leader that is not in sync loses records, and gives their offsets to others. Each batch names the
leader epoch that wrote it. When a log has a later epoch than before, or ends before records that were read, its leader
says where the earlier epoch ends now. If that is below what was read, groups that may have read on start there again:
they may get records twice, and miss none.

    read: … epoch 4 ────────│ 120
    now:  … epoch 4 ──│ 100 ── epoch 6 ───── …       the groups start at 100, or at what they have not finished

The epoch of records that this gateway appended is the one that it knew. The same leader may have had a later one, as
after a reassignment of replicas. So nothing is lost if the log still has the batch.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple

from sharequeue.protocol.types import TopicIdPartition
from sharequeue.repeats import TRUNCATED
from sharequeue.service.time_line import WENT_BACK
from sharequeue_http.forms.errors import ApiError
from sharequeue_http.log import fields
from sharequeue_kafka.batches import numbers_of
from sharequeue_kafka.cluster import KafkaCluster, Place
from sharequeue_kafka.errors import OFFSET_OUT_OF_RANGE, KafkaError
from sharequeue_kafka.fetching import Fetching

log = logging.getLogger(__name__)

MOST_REMEMBERED: Final = 20_000


class Last(NamedTuple):
    """The last records that were read of a log: the epoch of their leader, and the offset behind them.

    `appended`: if this gateway has appended them, and has not read them, the `numbers_of` their batch.
    """

    epoch: int
    end: int
    appended: bytes = b""


Restart = Callable[[TopicIdPartition, int], Awaitable[None]]
"""Has the groups of this gateway that read a partition start at an offset, or below it at what they have not finished.
Raises: ApiError: some may not."""


class Truncations:
    """Remembers what was read of each log. `forget`: drops the memory of a log. `run` must be running."""

    def __init__(self, cluster: KafkaCluster, restart: Restart, forget: Callable[[TopicIdPartition], None]) -> None:
        self._cluster = cluster
        self._fetching = Fetching(cluster)
        self._restart = restart
        self._forget = forget
        self._last: dict[TopicIdPartition, Last] = {}
        self._suspects: dict[TopicIdPartition, Last] = {}
        self._wake = asyncio.Event()

    def note(self, place: TopicIdPartition, batches: Iterable[Last]) -> None:
        """Note batches that were read, in order."""
        for batch in batches:
            last = self._last.get(place)
            if last is not None and batch.epoch > last.epoch >= 0:
                self._suspect(place, last)
            if last is None or batch[:2] > last[:2]:
                self._last[place] = batch
        while len(self._last) > MOST_REMEMBERED:
            self._last.pop(next(iter(self._last)))

    def note_end(self, place: TopicIdPartition, end: int) -> None:
        """Note the end of a log. A new leader may show one that is too low for a while."""
        last = self._last.get(place)
        if last is not None and end < last.end:
            self._suspect(place, last)

    def _suspect(self, place: TopicIdPartition, last: Last) -> None:
        self._suspects.setdefault(place, last)
        self._wake.set()

    async def run(self) -> None:
        """Look at each suspect until it is clear. Never returns."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            for place, last in list(self._suspects.items()):
                try:
                    await self._look(place, last)
                    del self._suspects[place]
                except (ApiError, KafkaError) as fault:
                    self._wake.set()
                    log.warning("cannot see yet whether Kafka has cut a log", extra=fields(cause=f"{fault}"))
            if self._wake.is_set():
                await TRUNCATED.pause()

    async def _look(self, place: TopicIdPartition, last: Last) -> None:
        try:
            _, end = await self._cluster.end_of_epoch(Place(*place), last.epoch)
            if not 0 <= end < last.end or (last.appended and await self._has(Place(*place), last)):
                return
        except KafkaError as fault:
            if fault.retriable:
                raise
            return  # the topic is gone
        WENT_BACK().inc()
        log.error(
            "Kafka has lost records of a log: an election took a leader that was not in sync. Its groups go on where"
            " the histories part, and may get records twice",
            extra=fields(topic_id=place[0], partition=place[1], end=end, read_up_to=last.end),
        )
        self._last.pop(place, None)
        self._forget(place)
        await self._restart(place, end)

    async def _has(self, place: Place, last: Last) -> bool:
        """Return whether a log still has the batch that this gateway appended."""
        try:
            part = await self._fetching.fetch(place, last.end - 1, 1, False)
        except KafkaError as fault:
            if fault.code == OFFSET_OUT_OF_RANGE:
                return False
            raise
        return numbers_of(part.batches) == last.appended
