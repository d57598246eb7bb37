"""Retention: moves log starts up to the limits of each topic. Source: Kafka's retention.ms and retention.bytes.

What groups have not finished stays where the topic says so (`retention.unsettled=keep`). Each partition has one gateway
that sweeps it.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from sharequeue.clock import Clock
from sharequeue.protocol import capabilities
from sharequeue.repeats import Every
from sharequeue.service.failed_looks import looking
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.metadata import KnownTopic, Metadata
from sharequeue_gateway.record_log.log import Removed
from sharequeue_gateway.record_log.parts import Log
from sharequeue_gateway.record_log.removing.readers import Readers
from sharequeue_gateway.record_log.retention_rule import rule_of
from sharequeue_gateway.retention.idle_groups import IdleGroups
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

DAY_MS = 86_400_000
MOST_NAMED = 5
"""The most groups that one line of the log names."""


@dataclass(eq=False)
class Retention:
    """The sweeps of one gateway."""

    _metadata: Metadata
    _cluster: Cluster
    _record_log: Log
    _readers: Readers
    _idle_groups: IdleGroups
    _clock: Clock
    interval_ms: int
    _warned_at_ms: dict[tuple[str, str, bool], int] = field(init=False, default_factory=dict)

    async def run(self) -> None:
        """Sweep again and again. Runs until it is cancelled."""
        async for _ in Every(self.interval_ms / 1000):
            await self.sweep()

    async def sweep(self) -> None:
        """Apply the retention of every topic, including topics that this gateway has not used yet."""
        with looking("retention", "cannot read all topics: retention is applied only to the known ones"):
            await self._metadata.learn_all()
        ruled = [(topic, rule_of(topic.config)) for topic in self._metadata.topics()]
        ruled = [(topic, rule) for topic, rule in ruled if not rule.idle]
        spares = capabilities.Capability.RETENTION_UNSETTLED in self._record_log.capabilities
        spared = [topic for topic, rule in ruled if spares and rule.by_readers]
        await self._idle_groups.renew([topic for topic in spared if self._cluster.sweeps(topic.topic_id, 0)])
        for topic, rule in ruled:
            mine = [place for place in range(topic.partitions) if self._cluster.sweeps(topic.topic_id, place)]
            with looking("retention", "cannot apply retention; trying again later", topic=topic.name):
                _report(topic, await self._record_log.apply_retention(topic.topic_id, mine, rule, self._clock.now_ms()))
        await self._warn(spared)
        if ruled and self._cluster.sweeps("readers", 0):
            with looking("retention", "cannot look for rows of deleted groups"):
                await self._idle_groups.remove()

    async def _warn(self, spared: Sequence[KnownTopic]) -> None:
        """Say once a day which groups are about to lose their hold of a topic, or have lost it."""
        now_ms = self._clock.now_ms()
        ending: dict[tuple[str, str, bool], int] = {}
        for topic in spared:
            if not self._cluster.sweeps(topic.topic_id, 0):
                continue
            with looking("retention", "cannot look for idle groups", topic=topic.name):
                for hold in await self._readers.ending_holds(topic.topic_id):
                    ending[hold.group_id, topic.name, hold.ended] = hold.expires_at_ms
        metrics.ENDING_HOLDS.set(sum(not ended for _, _, ended in ending))
        self._warned_at_ms = {pair: at_ms for pair, at_ms in self._warned_at_ms.items() if pair in ending}
        for pair, expires_at_ms in ending.items():
            if now_ms - self._warned_at_ms.get(pair, -DAY_MS) < DAY_MS:
                continue
            self._warned_at_ms[pair] = now_ms
            group_id, topic_name, ended = pair
            log.warning(
                "retention no longer spares the unfinished records of this idle group"
                if ended
                else "retention will soon stop sparing the unfinished records of this idle group",
                extra=fields(group_id=group_id, topic=topic_name, expires_at_ms=expires_at_ms),
            )


def _report(topic: KnownTopic, removed: Sequence[Removed]) -> None:
    for partition, log_start_offset, _, unfinished in removed:
        log.info(
            "retention moved the log start",
            extra=fields(
                topic=topic.name, topic_id=topic.topic_id, partition=partition, log_start_offset=log_start_offset
            ),
        )
        if not unfinished:
            continue
        for group_id, offsets in unfinished.items():
            metrics.REMOVED_UNFINISHED[group_id].inc(offsets)
        most = sorted(unfinished, key=lambda group_id: -unfinished[group_id])[:MOST_NAMED]
        log.warning(
            "records were removed that groups had not finished",
            extra=fields(
                topic=topic.name,
                partition=partition,
                log_start_offset=log_start_offset,
                groups=len(unfinished),
                most={group_id: unfinished[group_id] for group_id in most},
            ),
        )
