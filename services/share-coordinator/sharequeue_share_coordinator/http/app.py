"""The share coordinator's application: the state calls, and ownership."""

from sharequeue.ownership.endpoints import serve_shards
from sharequeue.ownership.leases import Ownership
from sharequeue_http.application.app import App, create_app, serve
from sharequeue_share_coordinator.http.state_api import ShareStateApi


def create_share_coordinator_app(
    states: ShareStateApi,
    ownership: Ownership,
    *,
    cluster_token: str,
) -> App:
    app = create_app("sharequeue share coordinator", "Keeps the state of share-partitions.")
    for api, handler in states.calls():
        serve(app, api, handler, cluster_token=cluster_token)
    serve_shards(app, ownership, cluster_token=cluster_token)
    return app
