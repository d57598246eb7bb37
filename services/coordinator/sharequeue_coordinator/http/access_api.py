"""The calls about keys and rights, as gateways pass them on and make them on their own behalf."""

import logging
from functools import partial
from typing import Any

from sharequeue import access_store
from sharequeue.protocol import apis
from sharequeue.protocol.messages.access import AccessResponse, KeyUsesRequest
from sharequeue.protocol.messages.operations import Empty
from sharequeue_coordinator.coordinator import GroupCoordinator
from sharequeue_http.application.endpoint import Call, Handler
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.codec import encode
from sharequeue_http.forms.mistakes import MOST_AUDITED, quoted
from sharequeue_http.log import fields

log = logging.getLogger(__name__)


class AccessApi:
    """The handlers of the calls about keys and rights."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._change = coordinator.access.change
        self._read = coordinator.access.read

    def calls(self) -> list[tuple[Api, Handler]]:
        return [
            *((api, partial(self._act, api)) for api in access_store.ACTS),
            (apis.DESCRIBE_ACCESS, self.describe_access),
            (apis.NOTE_KEY_USES, self.note_key_uses),
        ]

    async def _act(self, api: Api, call: Call) -> Any:
        run = self._change if api.changes else self._read
        answer = await run(access_store.act, api, call.path, call.request)
        if api is apis.REMOVE_ACLS:
            log.info("rights removed", extra=fields(acls=quoted(encode(answer.acls).decode(), MOST_AUDITED)))
        return answer

    async def describe_access(self, _: Call) -> AccessResponse:
        described: AccessResponse = await self._read(access_store.read_all)
        return described

    async def note_key_uses(self, call: Call) -> Empty:
        request: KeyUsesRequest = call.request
        await self._change(access_store.note_uses, request.used_at_ms)
        return Empty()
