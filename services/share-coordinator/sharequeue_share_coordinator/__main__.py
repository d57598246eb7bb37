"""Starts the share coordinator: `python -m sharequeue_share_coordinator`, settings from the environment."""

import sys
from typing import Any

import asyncpg

from sharequeue import log
from sharequeue.service import Clock, Service, check_address, run
from sharequeue.settings import SettingsError, load
from sharequeue.wire import Client
from sharequeue_share_coordinator.app import create_share_coordinator_app
from sharequeue_share_coordinator.coordinator import ShareCoordinator
from sharequeue_share_coordinator.settings import PREFIX, Settings


def main() -> int:
    try:
        settings = load(Settings, PREFIX)
        settings.check()
        check_address(settings.host, settings.allow_unauthenticated, PREFIX)
    except (SettingsError, ValueError) as fault:
        print(f"sharequeue share coordinator: {fault}", file=sys.stderr)
        return 2
    log.configure(settings.log_level)
    clock = Clock()

    async def connect() -> Any:
        return await asyncpg.connect(
            settings.database_url,
            timeout=5,
            command_timeout=10,
            server_settings={
                "application_name": "sharequeue-share-coordinator",
                "idle_in_transaction_session_timeout": "2s",
                "statement_timeout": "9s",
                "jit": "off",
            },
        )

    async def prepare() -> Service:
        coordinator = ShareCoordinator(
            connect,
            clock,
            owner=settings.node_id,
            updates_per_snapshot=settings.snapshot_update_records_per_snapshot,
            cold_interval_ms=settings.cold_partition_snapshot_interval_ms,
            prune_interval_ms=settings.prune_interval_ms,
            max_cached=settings.max_cached_share_partitions,
        )
        await coordinator.take_over()
        group_coordinator = Client(settings.coordinator_url, cluster_token=settings.cluster_token)
        app = create_share_coordinator_app(
            coordinator,
            group_coordinator,
            clock,
            cluster_token=settings.cluster_token,
            node_id=settings.node_id,
            url=settings.url or f"http://{settings.host}:{settings.port}",
            updates_per_snapshot=settings.snapshot_update_records_per_snapshot,
        )
        return Service(app, (coordinator.run, coordinator.housekeep), close=group_coordinator.close)

    return run(prepare, settings.host, settings.port)


if __name__ == "__main__":
    sys.exit(main())
