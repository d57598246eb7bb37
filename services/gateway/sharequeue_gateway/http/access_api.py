"""The calls of keys and rights: passes them on to the group coordinator."""

from functools import partial

from sharequeue.access_store import ACTS
from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.protocol.errors import ClusterAuthorizationFailed
from sharequeue.protocol.shards import CLUSTER
from sharequeue_http.answer import Answer
from sharequeue_http.application.endpoint import Call, Handler
from sharequeue_http.forms.api import Api


class AccessApi:
    """The handlers of the calls of keys and rights."""

    def __init__(self, coordinator: CoordinatorClient, *, closed: bool) -> None:
        """`closed`: this gateway asks nobody for a key, and others than this machine reach it."""
        self._coordinator = coordinator
        self._closed = closed

    def calls(self) -> tuple[tuple[Api, Handler], ...]:
        return tuple((api, partial(self._pass_on, api)) for api in ACTS if not api.internal)

    async def _pass_on(self, api: Api, call: Call) -> Answer:
        if self._closed:
            raise ClusterAuthorizationFailed(
                "a gateway with authentication=off that the network reaches changes no keys and rights: use"
                " `sharequeue keys` and `sharequeue acls` with --database-url"
            )
        return Answer(await self._coordinator.exchange(api, call.request, key=CLUSTER, path=call.path))
