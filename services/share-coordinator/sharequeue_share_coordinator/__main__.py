"""Starts the share coordinator: `python -m sharequeue_share_coordinator`, settings from the environment."""

# ruff: noqa: E402
import gc
import sys

gc.disable()  # imported modules never become garbage; `run` enables it again

from typing import Any

import asyncpg

from sharequeue import log
from sharequeue.clock import Clock
from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.ownership.leases import Ownership
from sharequeue.ownership.shard_store import ShardStore
from sharequeue.service.addresses import check_address, node_name, own_url
from sharequeue.service.service import Service, run
from sharequeue.service.settings import SettingsError, load
from sharequeue_share_coordinator.coordinator.coordinator import ShareCoordinator
from sharequeue_share_coordinator.coordinator.housekeeping import Housekeeping
from sharequeue_share_coordinator.http.app import create_share_coordinator_app
from sharequeue_share_coordinator.http.export_api import ExportApi
from sharequeue_share_coordinator.http.state_api import ShareStateApi
from sharequeue_share_coordinator.partition_counts import PartitionCounts
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
        ownership = Ownership(
            connect,
            ShardStore("share_state"),
            node_id=node_name(settings.node_id, settings.port),
            url=own_url(settings.url, settings.host, settings.port),
            shards=range(settings.shards),
            lease_ms=settings.lease_ms,
        )
        updates_per_snapshot = settings.snapshot_update_records_per_snapshot
        coordinator = ShareCoordinator(
            connect,
            ownership,
            updates_per_snapshot=updates_per_snapshot,
            max_cached=settings.max_cached_share_partitions,
        )
        housekeeping = Housekeeping(
            coordinator,
            connect,
            ownership,
            clock,
            cold_interval_ms=settings.cold_partition_snapshot_interval_ms,
            prune_interval_ms=settings.prune_interval_ms,
        )
        group_coordinators = CoordinatorClient(settings.coordinator_url, "group", cluster_token=settings.cluster_token)
        partition_counts = PartitionCounts(group_coordinators)
        ownership.drain = coordinator.drain
        ownership.on_lost = coordinator.states.forget
        ownership.on_taken = lambda _: partition_counts.forget()
        await ownership.start()
        app = create_share_coordinator_app(
            ShareStateApi(
                coordinator, housekeeping, partition_counts, clock, updates_per_snapshot=updates_per_snapshot
            ),
            ExportApi(connect, coordinator.health),
            coordinator.health,
            ownership,
            group_coordinators,
            cluster_token=settings.cluster_token,
        )

        async def close() -> None:
            await ownership.close()
            await coordinator.health.close()
            await group_coordinators.close()

        return Service(app, (ownership.run, coordinator.run, housekeeping.run), stop=ownership.stop, close=close)

    return run(prepare, settings.host, settings.port, settings)


if __name__ == "__main__":
    sys.exit(main())
