"""Retention: moves log starts up to the limits of each topic. Source: Kafka's retention.ms and retention.bytes.

What groups have not finished stays where the topic says so (`retention.unsettled=keep`). Each partition has one gateway
that sweeps it.
"""

import asyncio
import logging
from collections.abc import Sequence

from sharequeue.clock import Clock
from sharequeue.log import fields
from sharequeue.protocol.errors import ApiError
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.metadata import KnownTopic, Metadata
from sharequeue_gateway.record_log.postgres import PostgresRecordLog
from sharequeue_gateway.record_log.retaining import Removed
from sharequeue_gateway.record_log.retention_rule import rule_of

log = logging.getLogger(__name__)

MOST_NAMED = 5
"""The most groups that one line of the log names."""


class Retention:
    """The sweeps of one gateway."""

    def __init__(
        self, metadata: Metadata, cluster: Cluster, record_log: PostgresRecordLog, clock: Clock, *, interval_ms: int
    ) -> None:
        self._metadata = metadata
        self._cluster = cluster
        self._record_log = record_log
        self._clock = clock
        self._interval_s = interval_ms / 1000

    async def run(self) -> None:
        """Sweep again and again. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.sweep()

    async def sweep(self) -> None:
        """Apply the retention of every topic, including topics that this gateway has not used yet."""
        try:
            await self._metadata.learn_all()
        except ApiError as error:
            log.warning(
                "cannot learn all topics: retention is applied only to the known ones", extra=fields(cause=error.detail)
            )
        for topic in list(self._metadata.topics()):
            rule = rule_of(topic.config)
            if rule.idle:
                continue
            mine = [
                partition for partition in range(topic.partitions) if self._cluster.sweeps(topic.topic_id, partition)
            ]
            try:
                _report(topic, await self._record_log.apply_retention(topic.topic_id, mine, rule, self._clock.now_ms()))
            except ApiError as error:
                log.warning(
                    "cannot apply retention; trying again later", extra=fields(topic=topic.name, cause=error.detail)
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
