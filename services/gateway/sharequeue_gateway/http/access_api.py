"""The calls of keys and rights: passes them on to the group coordinator."""

from functools import partial

from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.protocol import apis
from sharequeue.protocol.shards import CLUSTER
from sharequeue_http.answer import Answer
from sharequeue_http.application.endpoint import Call, Handler
from sharequeue_http.forms.api import Api

PASSED_ON = (
    apis.CREATE_KEY,
    apis.LIST_KEYS,
    apis.ROTATE_KEY,
    apis.REVOKE_KEY,
    apis.REVOKE_KEYS,
    apis.ADD_ACLS,
    apis.LIST_ACLS,
    apis.REMOVE_ACLS,
)


class AccessApi:
    """The handlers of the calls of keys and rights."""

    def __init__(self, coordinator: CoordinatorClient) -> None:
        self._coordinator = coordinator

    def calls(self) -> tuple[tuple[Api, Handler], ...]:
        return tuple((api, partial(self._pass_on, api)) for api in PASSED_ON)

    async def _pass_on(self, api: Api, call: Call) -> Answer:
        return Answer(await self._coordinator.exchange(api, call.request, key=CLUSTER, path=call.path))
