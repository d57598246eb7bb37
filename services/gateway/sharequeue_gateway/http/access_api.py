"""The calls of keys and rights: passes them on to the group coordinator."""

from functools import partial

from sharequeue.access_store import ACTS
from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.protocol.errors import ClusterAuthorizationFailed
from sharequeue.protocol.shards import CLUSTER
from sharequeue_http.answer import Answer
from sharequeue_http.application.endpoint import Call, Handler
from sharequeue_http.forms.api import Api


def access_calls(coordinator: CoordinatorClient, *, closed: bool) -> tuple[tuple[Api, Handler], ...]:
    """The calls and their handlers. `closed`: this gateway asks nobody for a key, and others than this machine reach
    it."""

    async def pass_on(api: Api, call: Call) -> Answer:
        if closed:
            raise ClusterAuthorizationFailed(
                "a gateway with authentication=off that the network reaches changes no keys and rights: use"
                " `sharequeue keys` and `sharequeue acls` with --database-url"
            )
        return Answer(await coordinator.exchange(api, call.request, key=CLUSTER, path=call.path))

    return tuple((api, partial(pass_on, api)) for api in ACTS if not api.internal)
