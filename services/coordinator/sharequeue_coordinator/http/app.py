"""The group coordinator's application: its calls, ownership, and the operations of every service."""

from sharequeue.http.application.app import App, create_app, serve
from sharequeue.ownership.endpoints import serve_ownership
from sharequeue.ownership.leases import Ownership
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.messages.operations import Readiness
from sharequeue.service.postgres_health import PostgresHealth
from sharequeue.service.readiness import CHECK_S, Check, faults
from sharequeue.service.service import ReadinessCheck, serve_operations
from sharequeue_coordinator import metrics
from sharequeue_coordinator.coordinator import GroupCoordinator
from sharequeue_coordinator.http.groups_api import GroupsApi
from sharequeue_coordinator.http.metadata_api import MetadataApi
from sharequeue_coordinator.http.topics_api import TopicsApi


def create_group_coordinator_app(
    coordinator: GroupCoordinator, ownership: Ownership, share_coordinators: ShareStateClient, *, cluster_token: str
) -> App:
    """The application of one group coordinator."""
    app = create_app("sharequeue group coordinator", "Topics, group settings, initialisation of share-partitions.")
    metrics.TOPICS.set_function(lambda: len(coordinator.metadata.by_name))
    metrics.METADATA_VERSION.set_function(lambda: coordinator.metadata.feed.version)
    for api, handler in (
        *TopicsApi(coordinator).calls(),
        *GroupsApi(coordinator).calls(),
        *MetadataApi(coordinator).calls(),
    ):
        serve(app, api, handler, cluster_token=cluster_token, protect=True)
    serve_ownership(app, ownership, "group", share_coordinators, cluster_token=cluster_token)
    serve_operations(app, _readiness(coordinator.health, ownership, share_coordinators))
    return app


def _readiness(health: PostgresHealth, ownership: Ownership, share_coordinators: ShareStateClient) -> ReadinessCheck:
    """What `/readyz` asks, strict or not. Without PostgreSQL the service is unavailable,
    without the others degraded."""

    async def ask_share_coordinator() -> None:
        await share_coordinators.call(apis.LIVEZ, deadline_s=CHECK_S, retry=False)

    postgres_check = Check(health.check)
    share_check = Check(ask_share_coordinator)

    async def ready(_: bool) -> Readiness:
        found = await faults(**{"postgresql": postgres_check, "share coordinator": share_check})
        missing = ownership.missing()
        dependencies = {"postgresql": "ok", "share coordinator": "ok", "shards": missing or "ok", **found}
        status = "unavailable" if "postgresql" in found else "degraded" if found or missing else "ready"
        lacks = [name for name, word in dependencies.items() if word != "ok"]
        return Readiness(status=status, dependencies=dependencies | health.told(), lacks=lacks)

    return ready
