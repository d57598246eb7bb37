"""The group coordinator's application: its calls, and ownership."""

from sharequeue.ownership.endpoints import serve_shards
from sharequeue.ownership.leases import Ownership
from sharequeue_coordinator import metrics
from sharequeue_coordinator.coordinator import GroupCoordinator
from sharequeue_coordinator.http.access_api import access_calls
from sharequeue_coordinator.http.groups_api import GroupsApi
from sharequeue_coordinator.http.metadata_api import MetadataApi
from sharequeue_coordinator.http.topics_api import TopicsApi
from sharequeue_http.application.app import App, create_app, serve


def create_group_coordinator_app(coordinator: GroupCoordinator, ownership: Ownership, *, cluster_token: str) -> App:
    app = create_app("sharequeue group coordinator", "Topics, group settings, initialisation of share-partitions.")
    metrics.TOPICS.set_function(lambda: len(coordinator.metadata.by_name))
    metrics.METADATA_VERSION.set_function(lambda: coordinator.metadata.feed.version)
    for api, handler in (
        *TopicsApi(coordinator).calls(),
        *GroupsApi(coordinator).calls(),
        *MetadataApi(coordinator).calls(),
        *access_calls(coordinator.access),
    ):
        serve(app, api, handler, cluster_token=cluster_token, protect=True)
    serve_shards(app, ownership, cluster_token=cluster_token)
    return app
