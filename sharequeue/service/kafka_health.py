"""Reaches Kafka when a service starts, and checks for `/readyz` whether it still does."""

import asyncio
from typing import Final

from sharequeue.protocol.errors import StorageError
from sharequeue_kafka.cluster import KafkaCluster
from sharequeue_kafka.errors import KafkaError
from sharequeue_kafka.settings import KafkaSettings

ASKED_S: Final = 0.4
"""Less than a check of `/readyz` takes, so that its answer names the brokers that are silent."""


async def reach_kafka(brokers: KafkaSettings) -> KafkaCluster:
    """Reach a cluster. Raises: ConnectionError: no broker answers, as for a PostgreSQL that is away."""
    kafka = KafkaCluster(brokers)
    try:
        await kafka.start()
    except KafkaError as fault:
        await kafka.close()
        raise ConnectionError(
            f"no broker of Kafka answers at {brokers.bootstrap_servers}: start one, or correct the settings that begin with"
            f" kafka_ ({fault})"
        ) from None
    return kafka


async def ask_kafka(kafka: KafkaCluster) -> None:
    """Ask a broker. Raises: StorageError: none answers; it names those that were tried last."""
    try:
        async with asyncio.timeout(ASKED_S):
            await kafka.check()
    except TimeoutError:
        tried = kafka.trouble or kafka.settings.bootstrap_servers
        raise StorageError(f"Kafka does not answer within {ASKED_S} s: {tried}") from None
    except KafkaError as fault:
        raise StorageError(f"Kafka cannot be used now: {kafka.trouble or fault}") from fault
