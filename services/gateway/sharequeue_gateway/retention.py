"""Retention: moves log starts up to the limits of each topic. Source: Kafka's retention.ms and retention.bytes."""

import asyncio
import logging

from sharequeue.clock import Clock
from sharequeue.log import fields
from sharequeue.protocol.errors import ApiError
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.record_log.postgres import PostgresRecordLog

log = logging.getLogger(__name__)


async def run_retention(metadata: Metadata, record_log: PostgresRecordLog, clock: Clock, interval_ms: int) -> None:
    """Apply retention every `interval_ms`. Runs until it is cancelled."""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        await apply_retention(metadata, record_log, clock)


async def apply_retention(metadata: Metadata, record_log: PostgresRecordLog, clock: Clock) -> None:
    """Apply the retention of every topic, including topics that this gateway has not used yet."""
    try:
        await metadata.learn_all()
    except ApiError as error:
        log.warning(
            "cannot learn all topics: retention is applied only to the known ones", extra=fields(cause=error.detail)
        )
    for topic in list(metadata.topics()):
        retention_ms = int(topic.config["retention.ms"])
        retention_bytes = int(topic.config["retention.bytes"])
        if topic.config["cleanup.policy"] != "delete" or (retention_ms < 0 and retention_bytes < 0):
            continue
        try:
            await record_log.apply_retention(
                topic.topic_id, topic.partitions, retention_ms, retention_bytes, clock.now_ms()
            )
        except ApiError as error:
            log.warning(
                "cannot apply retention; trying again later", extra=fields(topic=topic.name, cause=error.detail)
            )
