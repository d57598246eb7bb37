"""Starts the group coordinator: `python -m sharequeue_coordinator`, settings from the environment."""

import sys

import asyncpg

from sharequeue import log
from sharequeue.service import Clock, Service, check_address, run
from sharequeue.settings import SettingsError, load
from sharequeue.wire import Client
from sharequeue_coordinator.app import create_group_coordinator_app
from sharequeue_coordinator.coordinator import GroupCoordinator
from sharequeue_coordinator.settings import PREFIX, Settings


def main() -> int:
    try:
        settings = load(Settings, PREFIX)
        settings.check()
        check_address(settings.host, settings.allow_unauthenticated, PREFIX)
    except (SettingsError, ValueError) as fault:
        print(f"sharequeue group coordinator: {fault}", file=sys.stderr)
        return 2
    log.configure(settings.log_level)

    async def prepare() -> Service:
        pool = await asyncpg.create_pool(
            settings.database_url,
            min_size=1,
            max_size=8,
            timeout=5,
            command_timeout=10,
            server_settings={
                "application_name": "sharequeue-coordinator",
                "idle_in_transaction_session_timeout": "5s",
                "statement_timeout": "9s",
                "jit": "off",
            },
        )
        share_coordinator = Client(settings.share_coordinator_url, cluster_token=settings.cluster_token)
        coordinator = GroupCoordinator(
            pool,
            share_coordinator,
            cluster_token=settings.cluster_token,
            kafka_defaults=settings.kafka_defaults,
            max_partitions=settings.max_partitions_per_topic,
            deletion_retry_ms=settings.deletion_retry_ms,
            clock=Clock(),
            gateway_lease_ms=settings.gateway_lease_ms,
        )
        await coordinator.load()
        app = create_group_coordinator_app(coordinator, share_coordinator, cluster_token=settings.cluster_token)
        return Service(
            app,
            (coordinator.finish,),
            stop=coordinator.changes.finish,
            close=share_coordinator.close,
        )

    return run(prepare, settings.host, settings.port)


if __name__ == "__main__":
    sys.exit(main())
