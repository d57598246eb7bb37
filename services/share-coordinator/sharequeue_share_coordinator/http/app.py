"""The share coordinator's application: the state calls, the export, ownership, and the operations of every service."""

from sharequeue.http.application.app import App, create_app, serve
from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.ownership.endpoints import serve_ownership
from sharequeue.ownership.leases import Ownership
from sharequeue.protocol import apis
from sharequeue.protocol.messages.operations import Readiness
from sharequeue.service.postgres_health import PostgresHealth
from sharequeue.service.readiness import CHECK_S, Check, faults
from sharequeue.service.service import ReadinessCheck, serve_operations
from sharequeue_share_coordinator.http.export_api import ExportApi
from sharequeue_share_coordinator.http.state_api import ShareStateApi


def create_share_coordinator_app(
    states: ShareStateApi,
    export: ExportApi,
    health: PostgresHealth,
    ownership: Ownership,
    group_coordinators: CoordinatorClient,
    *,
    cluster_token: str,
) -> App:
    """The application of one share coordinator."""
    app = create_app("sharequeue share coordinator", "Keeps the state of share-partitions.")
    for api, handler in (*states.calls(), *export.calls()):
        serve(app, api, handler, cluster_token=cluster_token)
    serve_ownership(app, ownership, "share", group_coordinators, cluster_token=cluster_token)
    serve_operations(app, _readiness(health, ownership, group_coordinators))
    return app


def _readiness(health: PostgresHealth, ownership: Ownership, group_coordinators: CoordinatorClient) -> ReadinessCheck:
    """What `/readyz` asks, strict or not. Without PostgreSQL the service is unavailable,
    without the others degraded."""

    async def ask_group_coordinator() -> None:
        await group_coordinators.call(apis.LIVEZ, deadline_s=CHECK_S, retry=False)

    postgres_check = Check(health.check)
    group_check = Check(ask_group_coordinator)

    async def ready(_: bool) -> Readiness:
        found = await faults(**{"postgresql": postgres_check, "group coordinator": group_check})
        missing = ownership.missing()
        dependencies = {"postgresql": "ok", "group coordinator": "ok", "shards": missing or "ok", **found}
        status = "unavailable" if "postgresql" in found else "degraded" if found or missing else "ready"
        lacks = [name for name, word in dependencies.items() if word != "ok"]
        return Readiness(status=status, dependencies=dependencies | health.told(), lacks=lacks)

    return ready
