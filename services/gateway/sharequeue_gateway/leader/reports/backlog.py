"""The backlog of every group, whether a worker fetches or not: one gateway reads it from the log and has its metrics.

    log.readers (floors) ──────────────┐
    log.partitions (ends) ─────────────┼─ every 15 s, at the gateway that the name "metrics" falls to ──▶ gauges
    log.dead_letter_sources (open) ────┘                                                 by group and topic

A floor is how far a group has durably finished a partition. It is raised every ten seconds, so a backlog is up to 25 s
old, and counts records that are finished behind an unfinished one. Open dead letters are exact, and up to 15 s old.
"""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from sharequeue.clock import Clock
from sharequeue.protocol.errors import InvalidTopic, UnknownTopicOrPartition
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.repeats import Every
from sharequeue.service.failed_looks import count_failed_look, looking
from sharequeue.service.series import Family, Labels
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.leader.reports.queue_series import OTHER, PAIR
from sharequeue_gateway.leader.reports.sampler import Sampler
from sharequeue_gateway.leader.reports.sampling import Sampling
from sharequeue_gateway.record_log import backlog_store
from sharequeue_gateway.record_log.backlog_store import Backlog, Backlogs, Oldest
from sharequeue_gateway.record_log.dead_letters.dead_letter_log import DeadLetterLog
from sharequeue_gateway.record_log.store import Query
from sharequeue_http.forms.errors import ApiError, CoordinatorNotAvailable
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

WHO: Final = SharePartitionKey("", "metrics", 0)
"""Stands for the task: its leader looks."""
MOST_SAMPLED: Final = 20_000
"""Pairs of group and topic whose backlog is read for the samples, the largest first."""
RECORDS: Final = Family(
    "sharequeue_group_backlog_records",
    "gauge",
    "Records that a group has not finished, held and delayed ones included, whether it has workers or not. One gateway "
    "reports it for all groups (`backlog_interval_ms`), up to 20 s late.",
    PAIR,
)
OLDEST: Final = Family(
    "sharequeue_group_oldest_record_seconds",
    "gauge",
    "Age of a group's oldest record that waits for a worker, neither held nor delayed, by its timestamp, for the 1,000 "
    "partitions with the largest backlogs. One gateway reports it for all groups, up to 20 s late.",
    PAIR,
)
OLDEST_DELAYED: Final = Family(
    "sharequeue_group_oldest_delayed_record_seconds",
    "gauge",
    "The same of the group's oldest record whose delay has not ended.",
    PAIR,
)
LOG_BYTES: Final = Family(
    "sharequeue_log_bytes",
    "gauge",
    "Bytes of the record batches on disk, with their index. One gateway reports it.",
)
OPEN: Final = Family(
    "sharequeue_group_open_dead_letters",
    "gauge",
    "Open dead letters (not redriven, dropped, finished or removed), by the topic of their records. Exact, also after "
    "a restart; up to 10 s late. One gateway reports it for all groups.",
    PAIR,
)
FAMILIES: Final = (RECORDS, OLDEST, OLDEST_DELAYED, LOG_BYTES, OPEN)


async def finish_letters(metadata: Metadata, dead_letters: DeadLetterLog, group_id: str) -> int:
    """Close some dead letters that the group of `errors.deadletterqueue.consumer.group` has durably finished.
    Returns: how many. Raises: ApiError."""
    config = metadata.config(group_id) or await metadata.learn_config(group_id)
    if not config.dead_letter_consumer_group:
        return 0
    try:
        topic = await metadata.topic(config.dead_letter_topic_name)
    except (UnknownTopicOrPartition, InvalidTopic):
        return 0
    return await dead_letters.finish(group_id, topic.topic_id, config.dead_letter_consumer_group)


@dataclass(eq=False)
class BacklogLook:
    """Looks at the backlog, and has what it saw for /metrics."""

    _query: Query
    """Runs a function with a connection to the log."""
    _cluster: Cluster
    _clock: Clock
    _metadata: Metadata
    _dead_letters: DeadLetterLog
    sampler: Sampler
    interval_ms: int
    most_pairs: int
    _looking: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    _backlogs: Backlogs | None = field(init=False, default=None)
    _oldest_ms: Oldest = field(init=False, default_factory=dict)
    _log_bytes: int = field(init=False, default=0)
    _open: Backlogs = field(init=False, default_factory=lambda: Backlogs([], 0, 0))

    async def run(self) -> None:
        async for _ in Every(self.interval_ms / 1000, at_once=True):
            await self.look()

    async def look(self) -> None:
        """Look once, if that falls to this gateway; otherwise forget what was seen."""
        async with self._looking:
            if self._cluster.leads(WHO):
                await self._look()
            else:
                self._backlogs = None
                self.sampler.forget()

    async def seen(self) -> Sampling:
        """Return the samples; the first request after a change of the gateway has it look.
        Raises: CoordinatorNotAvailable: another gateway takes them, or the look failed."""
        if self.sampler.sampling is None:
            await self.look()
        if self.sampler.sampling is None:
            raise CoordinatorNotAvailable("this gateway cannot look at all groups now; try again in some seconds")
        return self.sampler.sampling

    async def _look(self) -> None:
        figures = await self.sampler.asked()
        try:
            backlogs = await self._query(backlog_store.backlogs, max(self.most_pairs, MOST_SAMPLED))
            self._oldest_ms = await self._query(backlog_store.oldest)
            self._log_bytes = await self._query(backlog_store.log_bytes)
            self._open = await self._open_counts()
            read = {pair.topic_id for pairs in (backlogs.largest, self._open.largest) for pair in pairs}
            read.update(topic_id for answer in figures.values() for _, topic_id, _ in answer.pairs)
            await self._metadata.topics_by_id(list(read))
        except ApiError as error:
            self._backlogs = None  # no number is better than an old one
            count_failed_look("backlog")
            log.warning("cannot read the backlog now", extra=fields(cause=error.detail))
        else:
            self._backlogs = backlogs
            with looking("samples", "cannot write samples now"):
                await self.sampler.take(figures, backlogs, self._oldest_ms, self._open)

    async def _open_counts(self) -> Backlogs:
        """The open dead letters, without those that a group which works on them has finished."""
        counts = await self._query(backlog_store.open_letters, self.most_pairs)
        groups = sorted({count.group_id for count in counts.largest})
        if any([await finish_letters(self._metadata, self._dead_letters, group_id) for group_id in groups]):
            counts = await self._query(backlog_store.open_letters, self.most_pairs)
        return counts

    def series(self) -> Iterator[str]:
        """The lines of /metrics; none at the other gateways."""
        seen = self._backlogs
        if seen is None:
            return
        yield from self._counts(RECORDS, seen)
        now_ms = self._clock.now_ms()
        for family, delayed in ((OLDEST, False), (OLDEST_DELAYED, True)):
            yield from family.lines(
                (max(0, now_ms - timestamp_ms) / 1000, names)
                for names, pair in self._named(seen)
                if (timestamp_ms := self._oldest_ms.get((pair.group_id, pair.topic_id, delayed))) is not None
            )
        yield from self._counts(OPEN, self._open)
        yield from LOG_BYTES.lines([(self._log_bytes, ())])

    def _named(self, seen: Backlogs) -> Iterator[tuple[Labels, Backlog]]:
        """The pairs with series of their own, with the names of group and topic."""
        for pair in seen.largest[: self.most_pairs]:
            if (topic := self._metadata.name_of(pair.topic_id)) is not None:
                yield (pair.group_id, topic), pair

    def _counts(self, family: Family, seen: Backlogs) -> Iterator[str]:
        """The records of each pair, and those of the others together."""
        yield from family.lines((pair.records, names) for names, pair in self._named(seen))
        if seen.pairs > self.most_pairs:
            others = seen.records - sum(pair.records for pair in seen.largest[: self.most_pairs])
            yield family.line(others, (OTHER, OTHER))
